// One hostile client among ten: it sends what it should have learned, times a number that turns the mean round. The
// server pulls each update once, looks at all of them, and weighs them then (weighing.hpp). Everything is in one
// process, over the transport that has no network.
#include "jobs/sites/site_digits.hpp"

#include "jobs/federated/training.hpp"
#include "robust_weights.hpp"

#include <tensorpull/consumers/average/weighing.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/transports/over/loopback/loopback.hpp>

#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

BOOST_HANA_ADAPT_STRUCT(federated::perceptron, hidden_weight, hidden_bias, output_weight, output_bias);

namespace {

using namespace tensorpull;
using federated::perceptron;
using net = pipeline<raw_tensors<perceptron>, fixed_bytes<256_KiB>, loopback>;

constexpr std::size_t clients = 10;

/// Each update by its own weight alone: what FedAvg does.
void mean(const update_differences& of, const update_weights& to) {
  for (std::size_t i = 0; i < clients; ++i) to.weights[i] = of.updates[i].weight;
}

struct rule {
  const char* name;
  std::function<result<void>(weighing&)> finish;
};
template <class Weights>
rule weighed(const char* name, Weights weights) {
  return {name, [weights](weighing& w) { return w.finish(weights, false); }};
}

void must(const auto& outcome, const char* what) {
  if (!outcome) throw std::runtime_error(what + std::string(": ") + std::string(to_string(outcome.error().code)));
}

/// The accuracy after so many rounds. The last client's update is what it has learned times `factor`; 1: it is honest.
double train(const federated::dealt_digits& digits, const rule& by, double factor, std::uint32_t rounds,
             std::uint64_t seed) {
  const auto global = std::make_unique<perceptron>(), next = std::make_unique<perceptron>(),
             mine = std::make_unique<perceptron>();
  federated::initialise(*global, seed);
  std::vector<std::unique_ptr<perceptron>> updates;
  for (std::size_t c = 0; c < clients; ++c) updates.push_back(std::make_unique<perceptron>());
  auto all = weighing::make(raw_tensors<perceptron>::destination(*next), raw_tensors<perceptron>::source(*global),
                            clients);
  must(all, "the updates' memory");
  federated::training_scratch scratch(digits.training().size());
  for (std::uint32_t round = 0; round < rounds; ++round) {
    all->reset();
    for (std::size_t c = 0; c < clients; ++c) {
      const auto share = digits.of_client(c);
      *mine = *global;
      federated::train(*mine, share, scratch, {1, 0.3f, federated::derived_seed(seed, 100 + round, c)});
      if (c + 1 == clients) {
        auto* const to = reinterpret_cast<float*>(mine.get());
        const auto* const from = reinterpret_cast<const float*>(global.get());
        for (std::size_t i = 0; i < sizeof *mine / sizeof(float); ++i)
          to[i] = static_cast<float>(from[i] + factor * (static_cast<double>(to[i]) - static_cast<double>(from[i])));
      }
      net::downloader owner;  // the client's
      const auto published = owner.add_tensors(*mine, {.recipients = 1});
      must(published, "publishing an update");
      must(net::download_tensors(owner, *published, *updates[c]), "the pull of an update");
      must(all->add(
               {recipient_id{c + 1}, static_cast<double>(share.size()), raw_tensors<perceptron>::source(*updates[c])}),
           "an update");
    }
    must(by.finish(*all), by.name);
    *global = *next;
  }
  return federated::accuracy(*global, digits.held_out());
}

int run(const sites::options& chosen) {
  const federated::dealt_digits digits(
      chosen.data.empty() ? sites::made_up_digits(chosen.images, chosen.seed) : federated::load_digits(chosen.data),
      clients, chosen.seed);
  const rule rules[]{weighed("mean", mean),
                     weighed("clip_norms", clip_norms{}),
                     weighed("geometric median", examples::geometric_median{}),
                     weighed("Krum, 7 of 10 kept", examples::krum{1, 7}),
                     {"trimmed mean, 1 at each end", [](weighing& w) { return w.trimmed_mean(1); }}};
  std::printf("| Accuracy after %u rounds | all honest | one times -10 | one times -1,000 |\n|---|---|---|---|\n",
              chosen.rounds);
  bool well = true;
  double honest = 0;  // the mean's, if all are
  for (const rule& r : rules) {
    double is[3]{};
    std::printf("| %s ", r.name);
    for (std::size_t i = 0; i < 3; ++i) {
      const double factors[]{1, -10, -1000};
      is[i] = train(digits, r, factors[i], chosen.rounds, chosen.seed);
      std::printf("| %.3f ", is[i]);
      std::fflush(stdout);
      if (&r == rules && i == 0) honest = is[0];
      // nobody looks at the mean's updates, so it has to fall far, or the others were not tested
      if (&r == rules && i > 0 ? is[i] > honest - 0.5 : is[i] < honest - 0.05) well = false;
    }
    std::printf("|\n");
  }
  if (!well) std::fprintf(stderr, "one client has decided what all learn\n");
  return well ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  const auto chosen = sites::parse_options_or_exit(
      count, arguments,
      "Ten clients learn digits, one of them hostile, and the server weighs their updates in five ways.");
  try {
    return run(chosen);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", arguments[0], e.what());
    return 1;
  }
}
