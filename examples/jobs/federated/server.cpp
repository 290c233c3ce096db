// The server of the federated example: publishes the global model, and averages the participants' updates while they
// arrive. One thread serves any number of participants; no whole update is ever in memory.
#include "cohort.hpp"
#include "digits.hpp"
#include "json_report.hpp"
#include "network.hpp"
#include "options.hpp"
#include "output_file.hpp"
#include "plot.hpp"
#include "progress_line.hpp"
#include "round_table.hpp"
#include "training.hpp"
#include "verdict.hpp"

#include <chrono>
#include <exception>

namespace federated {

class server {
 public:
  using average_type = tensorpull::weighted_average<>;
  using host_type = net::host<server, average_type::update>;
  using connection = host_type::connection;

  server(const options& chosen, std::size_t most_participants, tensorpull::chunk_buffers& buffers, perceptron& global)
      : global_(global), average_(*average_type::make(net::parts::tensors::destination(global), buffers,
                                                      {.base = net::parts::tensors::source(global)})),
        host_(io_, *this, host_options_for(most_participants)) {
    const auto port = host_.listen(to_text(chosen.listen));
    if (!port)
      throw std::runtime_error("cannot listen on " + to_text(chosen.listen) + ": " + describe(port.error()).c_str());
    port_ = *port;
  }

  std::uint16_t port() const { return port_; }

  /// Waits until the clients' process has connected. False: interrupted.
  bool await_clients() {
    return run_until([&] { return figures_.has_value(); });
  }

  /// Runs one round. False: interrupted, or the clients' process has left.
  bool run_round(round_figures& round, std::uint32_t rounds, progress_line& progress) {
    const auto start = std::chrono::steady_clock::now();
    figures_.reset();
    pulled_bytes_ = 0;
    published_ = *host_.published().add_tensors(std::as_const(global_), {.recipients = round.participants});
    round_ = round.round;
    if (control_ == nullptr ||
        !control_->send(round_begins, {}, as_body(round_message{round.round, round.participants})))
      return false;
    const bool over = run_until([&] {
      progress.show(round.round, rounds, updates(), round.participants,
                    pulled_bytes_ + host_.published().status_of(published_)->bytes_sent);
      return figures_.has_value() && host_.connections() == 1;
    });
    if (!over) return false;
    settle(io_);
    round.moved_bytes = pulled_bytes_ + host_.published().status_of(published_)->bytes_sent;
    round.updates = updates();
    (void)host_.published().withdraw(published_);
    for (const tensorpull::update_record& u : average_.updates())
      if (u.state != tensorpull::update_state::told)
        std::fprintf(stderr, "round %u, %s: its update %s\n", round.round, std::string(u.peer.name().view()).c_str(),
                     u.counts() ? "counts, and it was not told" : "does not count");
    if (const auto done = average_.finish(); !done)
      std::fprintf(stderr, "round %u: the average was not formed: %s\n", round.round, describe(done.error()).c_str());
    average_.reset();  // the next round: its number goes with ours
    round.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    round.clients = *figures_;
    return true;
  }

  void connected(connection&) {}
  void message(connection& c, const tensorpull::message& m) {
    switch (m.kind) {
      case join: {
        const auto said = body_of<join_message>(m);
        if (!said || said->round != round_) return c.close();
        c.tag = said->client + 1;
        (void)c.send(task, {&published_, 1}, as_body(round_message{round_, 0}));
        return;
      }
      case update: {
        const auto said = body_of<update_message>(m);
        if (!said || said->images == 0 || said->client + 1 != c.tag || m.references.size() != 1) return c.close();
        char name[32];
        std::snprintf(name, sizeof name, "client %u", said->client);
        // whatever is lost after its last byte, and however often the participant comes again: it counts once
        const tensorpull::update_key key{{tensorpull::recipient_id{c.tag}, name}, said->round};
        (void)c.pull(m.references[0], {.per_request_timeout = std::chrono::seconds(60)}, average_,
                     static_cast<double>(said->images), key);
        return;
      }
      case figures: {
        control_ = &c;
        figures_ = body_of<process_figures>(m);
        return;
      }
      default: return c.close();
    }
  }
  void pulled(connection& c, const result<receipt>& outcome) {
    if (outcome) pulled_bytes_ += outcome->bytes;
    else
      std::fprintf(stderr, "client %llu: its update did not arrive: %s\n", static_cast<unsigned long long>(c.tag - 1),
                   describe(outcome.error()).c_str());
    c.close();
  }
  void closed(connection& c, const error&) {
    if (&c == control_) {
      control_ = nullptr;
      lost_ = true;
    }
  }

 private:
  /// Updates that count in this round.
  std::uint32_t updates() const { return static_cast<std::uint32_t>(average_.whole_updates()); }

  template <class Done>
  bool run_until(Done done) {
    while (!done()) {
      if (interrupted || lost_) return false;
      io_.run_one_for(std::chrono::milliseconds(50));
    }
    return true;
  }

  perceptron& global_;
  average_type average_;
  tensorpull::event_loop io_;
  host_type host_;
  connection* control_ = nullptr;
  reference published_{};
  std::optional<process_figures> figures_;
  std::uint64_t pulled_bytes_ = 0;
  std::uint32_t round_ = 0;
  std::uint16_t port_ = 0;
  bool lost_ = false;
};

int run(const options& chosen) {
  if (chosen.fixed == 0 && chosen.participants.empty())
    throw std::runtime_error("say how many take part: --participants FILE or --fixed N");
  const auto schedule = chosen.fixed != 0 ? std::vector<std::size_t>{chosen.fixed}
                                          : load_participants(chosen.participants);
  std::size_t most = 0;
  for (const std::size_t n : schedule) most = std::max(most, std::min<std::size_t>(n, chosen.clients));

  const dealt_digits digits(load_digits(chosen.data), chosen.clients, chosen.seed);
  auto global = tensorpull::make_model<perceptron>();
  auto buffers = tensorpull::chunk_buffers::make(chunk_bytes);
  if (!global || !buffers) throw std::runtime_error("not enough memory for the model");
  initialise(**global, chosen.seed);
  server here(chosen, most, *buffers, **global);
  if (!chosen.port_file.empty()) write_port_file(chosen.port_file, here.port());
  std::fprintf(stderr, "server: listening on port %u\n", here.port());
  if (!here.await_clients()) return 1;

  run_report report({chosen.rounds, chosen.clients, chosen.fixed, chosen.seed, chosen.learning_rate,
                     training_settings{}.epochs, batch_images, sizeof(perceptron)});
  progress_line progress;
  print_table_header(stdout);
  for (std::uint32_t r = 1; r <= chosen.rounds; ++r) {
    round_figures round;
    round.round = r;
    round.participants = static_cast<std::uint32_t>(
        std::min<std::size_t>(schedule[(r - 1) % schedule.size()], chosen.clients));
    if (!here.run_round(round, chosen.rounds, progress)) break;
    round.accuracy = accuracy(**global, digits.held_out());
    round.server = figures_of_self();
    report.rounds.push_back(round);
    progress.clear();
    print_round(stdout, round);
  }
  progress.clear();
  const verdict judged = judge(report);
  print_summary(stdout, report, judged);
  if (!chosen.json.empty()) write_json(chosen.json, report, judged);
  if (!chosen.plot.empty()) write_plot(chosen.plot, report);
  return judged.passed() ? 0 : 1;
}

}  // namespace federated

int main(int count, char** arguments) {
  using namespace federated;
  const options chosen = parse_options_or_exit(count, arguments,
                                               "The server: publishes the global model and averages the updates.");
  stop_on_signals();
  try {
    return run(chosen);
  } catch (const std::exception& wrong) {
    std::fprintf(stderr, "server: %s\n", wrong.what());
    return 1;
  }
}
