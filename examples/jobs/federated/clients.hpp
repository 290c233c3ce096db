// The participants of the federated example, all in one process on one thread. Each has its own model and its own
// connection: it pulls the global model, trains it on its own images, publishes the result, and lets the server pull
// it. `clients.cpp` has them over TCP, and `clients_tls.cpp` over TLS.
#pragma once

#include "cohort.hpp"
#include "digits.hpp"
#include "network.hpp"
#include "options.hpp"
#include "training.hpp"

#include <exception>

namespace federated {

/// `Net`: the pipeline. `Address`: where a server is, as the pipeline's transport has it.
template <class Net, class Address>
class clients {
 public:
  using host_type = typename Net::template host<clients, typename Net::consumer>;
  using connection = typename host_type::connection;

  /// Borrows what the address views.
  clients(const options& chosen, const Address& server, std::size_t most_participants)
      : chosen_(chosen), digits_(load_digits(chosen.data), chosen.clients, chosen.seed),
        cohort_(chosen.clients, chosen.seed), scratch_(most_images()), server_(server),
        host_(io_, *this, host_options_for(most_participants)) {
    participants_.reserve(most_participants);
    settings_.learning_rate = static_cast<float>(chosen.learning_rate);
  }

  int run() {
    if (const auto c = host_.connect(server_, control_tag); !c) return unreachable(c.error());
    while (!interrupted && !left_) {
      io_.run_one_for(std::chrono::milliseconds(50));
      if (round_ != 0 && open_ == 0) end_round();
    }
    return lost_ ? unreachable(*lost_) : 0;
  }

  void connected(connection& c) {
    if (c.tag == control_tag) control_ = &c, (void)c.send(figures, {}, as_body(figures_of_self()));
    else (void)c.send(join, {}, as_body(join_message{round_, participants_[c.tag].client}));
  }
  void message(connection& c, const tensorpull::message& m) {
    if (c.tag == control_tag) {
      if (const auto said = body_of<round_message>(m); said && m.kind == round_begins && round_ == 0)
        begin_round(*said);
    } else if (m.kind == task && m.references.size() == 1) {
      (void)c.pull(m.references[0], {.per_request_timeout = std::chrono::seconds(60)}, *participants_[c.tag].model);
    }
  }
  /// The global model has landed: trains it, publishes the result, and tells the server over the same connection.
  void pulled(connection& c, const result<receipt>& outcome) {
    participant& p = participants_[c.tag];
    if (!outcome) {
      std::fprintf(stderr, "client %u: the model did not arrive: %s\n", p.client, describe(outcome.error()).c_str());
      return c.close();
    }
    const auto images = digits_.of_client(p.client);
    settings_.seed = derived_seed(chosen_.seed, 5, std::uint64_t{round_} * 1000 + p.client);
    train(*p.model, images, scratch_, settings_);
    const auto published = host_.published().add_tensors(std::as_const(*p.model), {.recipients = 1});
    if (!published) return c.close();
    p.published = *published;
    (void)c.send(update, {&p.published, 1},
                 as_body(update_message{round_, p.client, static_cast<std::uint32_t>(images.size())}));
  }
  void closed(connection& c, const error& why) {
    if (c.tag == control_tag) {
      control_ = nullptr;
      left_ = true;
      if (!ever_served_) lost_ = why;
      return;
    }
    participant& p = participants_[c.tag];
    if (p.published.id) (void)host_.published().withdraw(p.published);
    p = {};
    --open_;
  }

 private:
  static constexpr std::uint64_t control_tag = ~std::uint64_t{0};

  struct participant {
    std::uint32_t client = 0;
    tensorpull::model_ptr<perceptron> model;
    reference published{};
  };

  void begin_round(const round_message& said) {
    ever_served_ = true;
    round_ = said.round;
    participants_.clear();
    for (const std::uint32_t client : cohort_.draw(said.round, said.participants)) {
      auto model = tensorpull::make_model<perceptron>();
      if (!model || participants_.size() == participants_.capacity()) break;
      participants_.push_back({client, std::move(*model), {}});
    }
    open_ = participants_.size();
    for (std::size_t i = 0; i < participants_.size(); ++i) {
      if (const auto c = host_.connect(server_, i); !c) {
        std::fprintf(stderr, "client %u: %s\n", participants_[i].client, describe(c.error()).c_str());
        participants_[i] = {};
        --open_;
      }
    }
  }

  /// All of the round's connections are closed: sends the server this process's figures.
  void end_round() {
    settle(io_);
    round_ = 0;
    if (control_ != nullptr) (void)control_->send(figures, {}, as_body(figures_of_self()));
  }

  std::size_t most_images() const {
    std::size_t most = 1;
    for (std::uint32_t i = 0; i < chosen_.clients; ++i) most = std::max(most, digits_.of_client(i).size());
    return most;
  }
  int unreachable(const error& why) const {
    std::fprintf(stderr, "clients: no server at %s: %s\n", to_text(chosen_.connect).c_str(), describe(why).c_str());
    return 1;
  }

  options chosen_;
  dealt_digits digits_;
  cohort cohort_;
  training_scratch scratch_;
  training_settings settings_{};
  Address server_;
  tensorpull::event_loop io_;
  std::vector<participant> participants_;
  host_type host_;
  connection* control_ = nullptr;
  bool left_ = false;
  std::optional<error> lost_;
  std::size_t open_ = 0;
  std::uint32_t round_ = 0;
  bool ever_served_ = false;
};

/// The whole program. Returns an exit status. Throws std::runtime_error for files that are not as expected.
template <class Net, class Address>
int run_clients(const options& chosen, const Address& server) {
  if (chosen.fixed == 0 && chosen.participants.empty())
    throw std::runtime_error("say how many take part: --participants FILE or --fixed N");
  const auto schedule = chosen.fixed != 0 ? std::vector<std::size_t>{chosen.fixed}
                                          : load_participants(chosen.participants);
  std::size_t most = 0;
  for (const std::size_t n : schedule) most = std::max(most, std::min<std::size_t>(n, chosen.clients));
  return clients<Net, Address>(chosen, server, most).run();
}

/// main() of both programs: `run(options)` does it.
template <class Run>
int clients_main(int count, char** arguments, Run run) {
  const options chosen = parse_options_or_exit(count, arguments,
                                               "The clients: train the global model on their own images.");
  stop_on_signals();
  try {
    return run(chosen);
  } catch (const std::exception& wrong) {
    std::fprintf(stderr, "clients: %s\n", wrong.what());
    return 1;
  }
}

}  // namespace federated
