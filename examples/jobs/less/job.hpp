// The main job's model over a slow line, sent in four ways: as a whole, as what has changed without loss, and as what
// has changed in 8 and in 4 bits. Both ways each round, over TCP. Counts bytes, seconds and accuracy.
#pragma once

#include "jobs/federated/training.hpp"
#include "jobs/sites/site_digits.hpp"

#include <tensorpull/consumers/average/weighted_average.hpp>
#include <tensorpull/satellites/differences/deflate/deflate.hpp>
#include <tensorpull/satellites/differences/download_changes.hpp>
#include <tensorpull/satellites/differences/error_feedback.hpp>
#include <tensorpull/satellites/differences/widened.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/host/owner.hpp>

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

BOOST_HANA_ADAPT_STRUCT(federated::perceptron, hidden_weight, hidden_bias, output_weight, output_bias);

namespace less {

using namespace tensorpull;
using federated::perceptron;
using net = pipeline<raw_tensors<perceptron>, fixed_bytes<64_KiB>, tcp_on_threads, chunk_and_image_digest>;
using average_type = weighted_average<>;

inline constexpr std::size_t clients = 10;

/// Where the two ends are, and what is between them.
struct ends {
  std::string server = "127.0.0.1:0", clients = "127.0.0.1:0";  ///< where their owners listen
  std::function<void()> enter_server = [] {}, enter_clients = [] {};  ///< what this thread dials is from there then
  std::uint64_t bytes_per_second = 0;  ///< that an owner sends at most; 0: as many as the line takes
};

enum class way {
  whole,
  lossless,
  in_8_bits,
  in_4_bits
};
inline constexpr const char* names[]{"the whole", "what has changed, without loss", "what has changed, in 8 bits",
                                     "what has changed, in 4 bits"};

auto must(auto outcome, const char* what) {
  if (!outcome) throw std::runtime_error(what + std::string(": ") + describe(outcome.error()).c_str());
  return std::move(*outcome);
}
inline source_view of(const perceptron& m) { return raw_tensors<perceptron>::source(m); }
inline std::vector<mutable_tensor_view> tensors_of(perceptron& m) {
  const destination_view all = raw_tensors<perceptron>::destination(m);
  std::vector<mutable_tensor_view> made;
  for (std::size_t i = 0; i < all.schema->tensor_count; ++i) {
    const tensor_entry& t = all.schema->tensors[i];
    made.push_back({t.name, t.type, t.extents(), all.address(i)});
  }
  return made;
}
inline std::vector<tensor_view> constant(const std::vector<mutable_tensor_view>& all) {
  return {all.begin(), all.end()};
}

/// One end that publishes: the server, or all clients, which are one process in the main job, too.
class publishing_end {
 public:
  publishing_end(const std::string& listen, std::uint64_t bytes_per_second)
      : owner_(must(
            net::downloader::open({.listen = listen, .host = {.limits = {.owner_bytes_per_second = bytes_per_second}}}),
            "an owner")),
        address_(listen.substr(0, listen.rfind(':') + 1) + std::to_string(owner_.port())),
        thread_([this](const std::stop_token& ends) { (void)owner_.run(ends); }) {}
  net::downloader& owner() { return owner_; }
  const std::string& address() const { return address_; }

 private:
  net::downloader owner_;
  std::string address_;
  std::jthread thread_;
};

struct outcome {
  std::uint64_t bytes = 0;
  double seconds = 0, accuracy = 0;
};

/// What a narrowed transfer publishes, for as long as it lives.
struct narrowed {
  template <class Step>
  narrowed(net::downloader& at, result<Step> made)
      : owner(at), step(std::make_shared<Step>(must(std::move(made), "a step"))),
        ref(must(at.add_image(static_cast<const Step*>(step.get())->image()), "publishing it")) {}
  narrowed(const narrowed&) = delete;
  narrowed& operator=(const narrowed&) = delete;
  ~narrowed() { (void)owner.withdraw(ref); }

  net::downloader& owner;
  std::shared_ptr<void> step;  // a narrowed_step
  reference ref;
};
/// Calls `f` with a scheme.
template <class F>
auto with_scheme(way how, F f) {
  return how == way::in_4_bits ? f(blocks_of_4_bits<>{}) : f(blocks_of_8_bits<>{});
}

/// What is published beside a whole that `base` is known of at the other end.
struct changes {
  changes(net::downloader& at, const perceptron& now, const perceptron* base, deflate_coder& coder)
      : owner(at), whole(must(at.add_tensors(now), "publishing a model")) {
    if (base == nullptr) return;
    difference.emplace(must(model_difference::make(of(*base), of(now), coder), "a difference"));
    const auto from = must(image_version<xxh3_64>(of(*base)), "the old model");
    beside = must(at.add_image(difference->image(), difference_options(whole, from)), "publishing it");
  }
  changes(const changes&) = delete;
  changes& operator=(const changes&) = delete;
  ~changes() {
    (void)owner.withdraw(whole);
    if (beside) (void)owner.withdraw(*beside);
  }

  net::downloader& owner;
  reference whole;
  std::optional<model_difference> difference;
  std::optional<reference> beside;
};

class job {
 public:
  job(const federated::dealt_digits& digits, way how, std::uint64_t seed, const ends& between)
      : digits_(digits), how_(how), seed_(seed), between_(between), scratch_(digits.training().size()),
        buffers_(must(chunk_buffers::make(64_KiB, 2), "buffers")),
        average_(must(average_type::make(raw_tensors<perceptron>::destination(*next_), buffers_, {.base = of(*held_)}),
                      "an average")) {
    between_.enter_server();
    server_.emplace(between_.server, between_.bytes_per_second);
    between_.enter_clients();
    clients_.emplace(between_.clients, between_.bytes_per_second);
    for (auto& one : to_server_) one.emplace(must(net::session::connect(server_->address()), "a connection"));
    between_.enter_server();
    for (auto& one : to_clients_) one.emplace(must(net::session::connect(clients_->address()), "a connection"));
    federated::initialise(*global_, seed);
    for (auto& m : mine_) m = std::make_unique<perceptron>();
  }

  outcome run(std::uint32_t rounds) {
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      std::optional<changes> model;
      std::optional<narrowed> step;
      if (narrows() && round > 1)
        // what the clients have, and the server with them, moves by what is sent
        with_scheme(how_, [&]<class Scheme>(Scheme) {
          step.emplace(server_->owner(),
                       narrowed_step<Scheme>::make(constant(tensors_of(*global_)), tensors_of(*held_)));
        });
      else
        model.emplace(server_->owner(), *global_, how_ == way::lossless && round > 1 ? held_.get() : nullptr, coder_);
      between_.enter_clients();
      for (std::size_t c = 0; c < clients; ++c) timed([&] { return down(c, model, step); });
      step.reset();
      model.reset();
      *held_ = *mine_[0];  // what all of them have now
      between_.enter_server();
      for (std::size_t c = 0; c < clients; ++c) {
        const auto trained = std::make_unique<perceptron>(*mine_[c]);
        federated::train(*trained, digits_.of_client(c), scratch_, {1, 0.3f, federated::derived_seed(seed_, round, c)});
        timed([&] { return up(*trained, c, round); });
      }
      if (const auto done = average_.finish(); !done) throw std::runtime_error(describe(done.error()).c_str());
      average_.reset();
      *global_ = *next_;
    }
    total_.accuracy = federated::accuracy(*global_, digits_.held_out());
    return total_;
  }

 private:
  template <class F>
  void timed(F transfer) {
    const auto start = std::chrono::steady_clock::now();
    total_.bytes += transfer();
    total_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  /// The bytes that came.
  std::uint64_t down(std::size_t c, std::optional<changes>& model, std::optional<narrowed>& step) {
    perceptron& mine = *mine_[c];
    if (step) {
      land to(raw_tensors<perceptron>::destination(mine));
      return with_scheme(how_, [&]<class Scheme>(Scheme) {
        auto moves = must(widened<land, Scheme>::make(to, of(mine), 64_KiB), "a consumer");
        return must(to_server_[c]->pull(step->ref, moves), "the step").bytes;
      });
    }
    if (!model->difference) return must(to_server_[c]->download_tensors(model->whole, mine), "the model").bytes;
    std::uint64_t came = 0;
    must(download_changes<net>(*to_server_[c], model->whole, mine, coder_, {}, &came), "what has changed");
    return came != 0 ? came : of(mine).schema->image_bytes;
  }
  std::uint64_t up(perceptron& trained, std::size_t c, std::uint32_t round) {
    average_type::update into(average_, static_cast<double>(digits_.of_client(c).size()), {recipient_id{c + 1}, round});
    if (narrows())
      return with_scheme(how_, [&]<class Scheme>(Scheme) {
        const auto base = std::make_unique<perceptron>(*held_);  // the next round begins from another model
        const auto from = tensors_of(trained), to = tensors_of(*base);
        std::optional<narrowed> step;
        if constexpr (std::same_as<Scheme, blocks_of_4_bits<>>)
          step.emplace(clients_->owner(), left_[c].step(from, to));  // with what the last update left out
        else step.emplace(clients_->owner(), narrowed_step<Scheme>::make(constant(from), to));
        auto moves = must(widened<average_type::update, Scheme>::make(into, of(*held_), 64_KiB), "a consumer");
        return must(to_clients_[c]->pull(step->ref, moves), "an update").bytes;
      });
    const changes model(clients_->owner(), trained, how_ == way::lossless ? held_.get() : nullptr, coder_);
    if (how_ == way::whole) return must(to_clients_[c]->pull(model.whole, into), "an update").bytes;
    // the whole is made here, and added then
    auto made = std::make_unique<perceptron>(*held_);
    std::uint64_t came = 0;
    must(download_changes<net>(*to_clients_[c], model.whole, *made, coder_, {}, &came), "an update");
    using near = pipeline<raw_tensors<perceptron>, fixed_bytes<64_KiB>, loopback, chunk_and_image_digest>;
    near::downloader here;
    must(near::pull(here, must(here.add_tensors(*made), "an update"), into), "an update");
    return came != 0 ? came : of(*made).schema->image_bytes;
  }

  bool narrows() const { return how_ == way::in_8_bits || how_ == way::in_4_bits; }

  const federated::dealt_digits& digits_;
  way how_;
  std::uint64_t seed_;
  const ends& between_;
  federated::training_scratch scratch_;
  std::unique_ptr<perceptron> global_ = std::make_unique<perceptron>(), held_ = std::make_unique<perceptron>(),
                              next_ = std::make_unique<perceptron>();
  std::unique_ptr<perceptron> mine_[clients];
  deflate_coder coder_;
  chunk_buffers buffers_;
  average_type average_;
  error_feedback<> left_[clients];  // by their updates in 4 bits
  std::optional<publishing_end> server_, clients_;
  std::optional<net::session> to_server_[clients], to_clients_[clients];
  outcome total_;
};

/// Runs the job in all four ways, and prints a table whose first word is `over`, the line. Returns an exit status: 1
/// if less was sent at the cost of accuracy, or it was not less. Throws what cannot be done.
inline int compare(const sites::options& chosen, const ends& between, const char* over) {
  const federated::dealt_digits digits(
      chosen.data.empty() ? sites::made_up_digits(chosen.images, chosen.seed) : federated::load_digits(chosen.data),
      clients, chosen.seed);
  std::printf("| %u rounds, %zu clients, %s | MB | of the whole | seconds | accuracy |\n|---|---|---|---|---|\n",
              chosen.rounds, clients, over);
  outcome all[4];
  for (const way how : {way::whole, way::lossless, way::in_8_bits, way::in_4_bits}) {
    outcome& is = all[static_cast<std::size_t>(how)];
    is = job(digits, how, chosen.seed, between).run(chosen.rounds);
    std::printf("| %s | %.1f | %.3f | %.1f | %.3f |\n", names[static_cast<std::size_t>(how)],
                static_cast<double>(is.bytes) / 1e6, static_cast<double>(is.bytes) / static_cast<double>(all[0].bytes),
                is.seconds, is.accuracy);
    std::fflush(stdout);
  }
  const bool well = all[1].accuracy == all[0].accuracy && all[2].bytes < all[0].bytes / 2 &&
                    all[2].accuracy > all[0].accuracy - 0.03 && all[3].bytes < all[2].bytes &&
                    all[3].accuracy > all[0].accuracy - 0.03;
  if (!well)
    std::fprintf(stderr, chosen.rounds < 2 ? "the first model is sent whole, so one round says nothing\n"
                                           : "what was sent less has cost more than bytes\n");
  return well ? 0 : 1;
}

}  // namespace less
