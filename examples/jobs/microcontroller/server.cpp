// The server of the example with a microcontroller: one model, one average, one thread; clients over TCP, and a device
// over a serial line.
#include "in_8_bits.hpp"
#include "network.hpp"
#include "options.hpp"

#include <tensorpull/consumers/average/weighted_average.hpp>
#include <tensorpull/consumers/tee.hpp>
#include <tensorpull/transports/over/tcp/tcp_listener.hpp>

#include <cmath>
#include <fstream>
#include <memory>
#include <optional>

namespace microcontroller {

/// An update lands as a whole before it is added, so the digest of the whole is enough.
using average_type = tensorpull::weighted_average<tensorpull::partial_updates::staged>;

class server {
 public:
  explicit server(const options& chosen)
      : chosen_(chosen), digits_(chosen.data, chosen.seed),
        average_(*average_type::make(over_line::parts::tensors::destination(*model_))) {
    initialise();
  }

  int run() {
    if (!chosen_.sign.empty() && !signer_.open(chosen_.sign)) return 1;
    if (!open_line() || !accept_clients()) return 1;
    for (std::uint32_t round = 1; round <= chosen_.rounds; ++round)
      if (!run_round(round)) return 1;
    return hand_out(chosen_.rounds + 1) ? 0 : 1;
  }

 private:
  /// Uniform within 1/sqrt(inputs), which is torch's default for Linear.
  void initialise() {
    federated::training_random random{federated::derived_seed(chosen_.seed, 2)};
    const auto fill = [&](float* values, std::size_t count, std::size_t inputs) {
      for (std::size_t i = 0; i < count; ++i) values[i] = random.symmetric() / std::sqrt(static_cast<float>(inputs));
    };
    fill(model_->hidden_weight[0], hidden_units * pooled_pixels, pooled_pixels);
    fill(model_->hidden_bias, hidden_units, pooled_pixels);
    fill(model_->output_weight[0], digit_classes * hidden_units, hidden_units);
    fill(model_->output_bias, digit_classes, hidden_units);
  }

  bool open_line() {
    auto line = over_line::session::connect(chosen_.line);
    if (!line) return complain("cannot open the line", line.error());
    line_.emplace(std::move(*line));
    return true;
  }

  /// Clients say which site they are, so that the average is always formed in the same order.
  bool accept_clients() {
    auto listener = tensorpull::tcp_listener::open("127.0.0.1:0");
    if (!listener) return complain("cannot listen", listener.error());
    if (!chosen_.port_file.empty()) {
      const std::string part = chosen_.port_file + ".part";
      std::ofstream(part) << listener->port() << '\n';
      if (std::rename(part.c_str(), chosen_.port_file.c_str()) != 0) {
        std::perror("the file of the port");
        return false;
      }
    }
    std::printf("server: port %u\n", listener->port());
    std::fflush(stdout);
    for (std::uint32_t i = 0; i < chosen_.clients; ++i) {
      auto stream = listener->accept(patience);
      if (!stream) return complain("a client did not come", stream.error());
      auto session = over_tcp::session::over(std::move(*stream));
      if (!session) return complain("cannot accept", session.error());
      const auto said = session->receive(patience);
      std::uint32_t site = 0;
      if (!said || said->body.size() != sizeof site) {
        std::fprintf(stderr, "a client did not say who it is\n");
        return false;
      }
      std::memcpy(&site, said->body.data(), sizeof site);
      if (site == device_site || site > chosen_.clients || clients_[site]) {
        std::fprintf(stderr, "a client says that it is site %u\n", site);
        return false;
      }
      clients_[site].emplace(std::move(*session));
    }
    return true;
  }

  bool run_round(std::uint32_t round) {
    // the device trains while the others have their turn
    if (!hand_out(round)) return false;
    bool well = true;
    for (std::uint32_t site = 1; site <= chosen_.clients; ++site)
      well = take_update(*clients_[site], site, round, {}) && well;
    well = take_update(*line_, device_site, round, over_the_line()) && well;
    if (!well) return false;

    // the device may have been started again meanwhile, so what it pulled stays published until its update is here
    for (std::uint32_t site = 1; site <= chosen_.clients; ++site) (void)clients_[site]->withdraw({model_of(round)});
    for (const auto id : {model_of(round), reference_of(round)}) (void)line_->withdraw({id});
    std::size_t counted = 0;
    for (const auto& u : average_.updates()) counted += u.counts() ? 1 : 0;
    const bool device_counts = average_.find(site_name(device_site)) != nullptr &&
                               average_.find(site_name(device_site))->counts();
    if (const auto formed = average_.finish(); !formed) return complain("the average was not formed", formed.error());
    average_.reset();
    std::printf("server: round %u: the average of %zu updates; the device's %s\n", round, counted,
                device_counts ? "counts" : "DOES NOT COUNT");
    return device_counts;
  }

  /// Publishes the model on every connection, and returns when everybody has it.
  bool hand_out(std::uint32_t round) {
    const auto to = [&](auto& site, std::uint32_t number) {
      // it is not said how many recipients there will be: a device that was started again is served again
      const auto published = site.add_tensors(std::as_const(*model_), {.id = model_of(round)});
      if (!published) return complain("cannot publish", published.error());
      if (number == device_site) {
        print_right("server", round, "model", published->version, right(*model_), digits_.held_out().size());
        if (signer_ && !publish_reference(round, *published)) return false;
      }
      const auto served = site.serve([&](const auto& s) { return s.status_of(*published)->completed > 0; }, patience);
      if (!served) return complain("a site did not take the model", served.error());
      if (number != device_site) return true;
      std::printf("server: round %u: the device has the model; %llu bytes were sent\n", round,
                  static_cast<unsigned long long>(site.status_of(*published)->bytes_sent));
      std::fflush(stdout);
      return true;
    };
    bool well = to(*line_, device_site);
    for (std::uint32_t site = 1; site <= chosen_.clients; ++site) well = well && to(*clients_[site], site);
    // a recipient that did not hear the answer to its confirmation asks again
    if (well && round > chosen_.rounds) (void)line_->serve([](const auto&) { return false; }, 500ms);
    return well;
  }

  /// The text is the device's; behind the model, so that a device that has it finds the model.
  bool publish_reference(std::uint32_t round, const tensorpull::reference& model) {
    if (!signer_.sign(round, model, *model_, text_)) return false;
    const auto source = tensorpull::raw_tensors<reference_text>::source(text_);
    const auto published = line_->add_image(source, {.id = reference_of(round)});
    return published || complain("cannot publish a signed reference", published.error());
  }

  /// Pulls a site's update into the average; the device's is looked at, too.
  template <class Session>
  bool take_update(Session& site, std::uint32_t number, std::uint32_t round, const tensorpull::pull_options& options) {
    const std::size_t images = digits_.of_site(number).size();
    const auto done = ask_until_there(site, [&] {
      average_type::update into(average_, static_cast<double>(images), {site_name(number), round});
      if (number != device_site) return site.pull({update_of(number, round)}, into, options);
      tensorpull::land landing(over_line::parts::tensors::destination(*update_));
      tensorpull::tee both(landing, into);
      if (!chosen_.in_8_bits) return site.pull({update_of(number, round)}, both, options);
      return pull_in_8_bits(site, {update_of(number, round)}, both, *model_, options);
    });
    if (!done) return complain(site_name(number).c_str(), done.error());
    if (number == device_site) {
      print_right("server", round, "update", done->digest, right(*update_), digits_.held_out().size());
      std::printf("server: round %u: the update came in %llu bytes\n", round,
                  static_cast<unsigned long long>(done->bytes));
      std::fflush(stdout);
    }
    return done->outcome == tensorpull::outcome::completed;
  }

  static std::string site_name(std::uint32_t number) {
    return number == device_site ? "the device" : "client " + std::to_string(number);
  }
  std::size_t right(const mlp& model) {
    return count_right(*with_, model, digits_.held_out().data(), digits_.held_out().size(), [] {});
  }

  options chosen_;
  pooled_digits digits_;
  std::unique_ptr<mlp> model_ = std::make_unique<mlp>(), update_ = std::make_unique<mlp>();
  std::unique_ptr<perceptron> with_ = std::make_unique<perceptron>();
  average_type average_;
  signer signer_;
  reference_text text_{};
  std::optional<over_line::session> line_;
  std::optional<over_tcp::session> clients_[shares];
};

}  // namespace microcontroller

int main(int count, char** arguments) {
  const auto chosen = microcontroller::parse_options_or_exit(
      count, arguments,
      "The server of the example with a microcontroller: publishes the model, and averages the updates.");
  try {
    return microcontroller::server(chosen).run();
  } catch (const std::exception& wrong) {
    std::fprintf(stderr, "server: %s\n", wrong.what());
    return 1;
  }
}
