// Swarm learning: sites that each have only some digits train together without a server that holds a model. The
// coordinator only passes locators on; each site pulls the models of its two neighbours in a ring from these sites, and
// averages them with its own.
#include "jobs/sites/network.hpp"

#include <algorithm>
#include <memory>
#include <stop_token>
#include <thread>

namespace sites {

/// Site to coordinator: my model of this round is published.
struct offer {
  std::uint32_t round;
  double shared;  ///< accuracy on all digits after the exchange of the round before
  double alone;  ///< the same after training on its own digits
  tensorpull::locator model;
};
/// Coordinator to site: your neighbours' models of this round are published.
struct neighbours {
  std::uint32_t round;
  tensorpull::locator left, right;
};
enum letter : std::uint32_t {
  offer_kind = 2,
  neighbours_kind,
  finished_kind,
};
/// In both directions, at the end.
struct finished {
  double accuracy;
};

}  // namespace sites

BOOST_HANA_ADAPT_STRUCT(sites::offer, round, shared, alone, model);
BOOST_HANA_ADAPT_STRUCT(sites::neighbours, round, left, right);
BOOST_HANA_ADAPT_STRUCT(sites::finished, accuracy);

namespace sites {

void add(perceptron& sum, const perceptron& model) {
  auto* const to = reinterpret_cast<float*>(&sum);
  const auto* const from = reinterpret_cast<const float*>(&model);
  for (std::size_t i = 0; i < sizeof sum / sizeof(float); ++i) to[i] += from[i];
}
void divide(perceptron& sum, float by) {
  auto* const to = reinterpret_cast<float*>(&sum);
  for (std::size_t i = 0; i < sizeof sum / sizeof(float); ++i) to[i] /= by;
}

int run_site(const options& chosen, std::uint32_t site, std::uint16_t coordinator) {
  const digits_of_sites digits(chosen);
  const auto own = digits.training(site);
  federated::training_scratch scratch(own.size());
  auto model = std::make_unique<perceptron>(), theirs = std::make_unique<perceptron>();
  federated::initialise(*model, chosen.seed);

  auto owner = net::downloader::open();
  if (!owner) {
    complain("cannot listen", owner.error());
    return 1;
  }
  std::jthread serving([&](std::stop_token stop) { owner->run(stop); });
  auto session = net::session::connect(at_port(coordinator), {.timeout = patience});
  if (!session) {
    complain("cannot connect", session.error());
    return 1;
  }
  if (!say(*session, hello_kind, hello{site})) return 1;

  for (std::uint32_t round = 1; round <= chosen.rounds; ++round) {
    const double shared = federated::accuracy(*model, digits.test());
    federated::train(*model, own, scratch,
                     {.epochs = 2, .learning_rate = 0.1f, .seed = federated::derived_seed(chosen.seed, round, site)});
    // handed over, so it does not change; it is released when both neighbours have confirmed it
    const auto ref = owner->add_tensors(std::make_unique<perceptron>(*model), {.recipients = 2});
    if (!ref) {
      complain("cannot publish", ref.error());
      return 1;
    }
    offer mine{round, shared, federated::accuracy(*model, digits.test()), tensorpull::locator(*ref)};
    if (!mine.model.add(at_port(owner->port())) || !say(*session, offer_kind, mine)) return 1;

    neighbours from{};
    if (!hear(*session, neighbours_kind, from)) return 1;
    for (const tensorpull::locator& l : {from.left, from.right}) {
      const auto pulled = tensorpull::download_tensors<net>(l, *theirs, {.per_request_timeout = patience});
      if (!pulled) {
        complain("cannot pull a neighbour's model", pulled.error());
        return 1;
      }
      if (pulled->outcome != tensorpull::outcome::completed) return 1;
      add(*model, *theirs);
    }
    divide(*model, 3.0f);
  }
  // others may still pull from this site, so all leave together
  finished last{federated::accuracy(*model, digits.test())};
  return say(*session, finished_kind, last) && hear(*session, finished_kind, last) ? 0 : 1;
}

void print_row(std::uint32_t round, const std::vector<offer>& offers) {
  std::printf("%5u", round);
  for (const offer& o : offers) std::printf("   %.3f", o.shared);
  std::printf("\n");
  std::fflush(stdout);
}

/// Whether everything succeeded.
bool coordinate(const options& chosen, tensorpull::tcp_listener& listener, processes& children) {
  const std::size_t n = chosen.sites;
  std::vector<std::optional<net::session>> all(n);
  if (!accept_sites(listener, children, all)) return false;
  std::printf("%zu sites in a ring; accuracy on all ten digits after each exchange\n\nround", n);
  for (std::size_t i = 0; i < n; ++i) std::printf("  site %zu", i);
  std::printf("\n");
  double alone = 0, worst = 1;
  std::vector<offer> offers(n);
  for (std::uint32_t round = 1; round <= chosen.rounds; ++round) {
    for (std::size_t i = 0; i < n; ++i) {
      if (!hear(*all[i], offer_kind, offers[i])) return false;
      if (round == 1) alone = std::max(alone, offers[i].alone);
    }
    if (round > 1) print_row(round - 1, offers);
    for (std::size_t i = 0; i < n; ++i)
      if (!say(*all[i], neighbours_kind, neighbours{round, offers[(i + n - 1) % n].model, offers[(i + 1) % n].model}))
        return false;
  }
  finished last{};
  for (std::size_t i = 0; i < n; ++i) {
    if (!hear(*all[i], finished_kind, last)) return false;
    offers[i].shared = last.accuracy;
    worst = std::min(worst, last.accuracy);
  }
  print_row(chosen.rounds, offers);
  const auto text = to_text(offers[0].model);
  std::printf("\nthe last locator of site 0: %.*s\n", static_cast<int>(text.bytes), text.characters.data());
  // a site hangs up as soon as it has the message, so only its exit status says whether it succeeded
  for (auto& session : all) (void)letters::send(*session, finished_kind, last, {}, patience);
  const bool better = worst > alone;
  std::printf(
      "%s: the worst site ends at %.3f; the best one was at %.3f after training alone; no model passed through the coordinator\n",
      better ? "passed" : "FAILED", worst, alone);
  return better;
}

}  // namespace sites

int main(int count, char** arguments) {
  const auto chosen = sites::parse_options_or_exit(
      count, arguments, "Swarm learning between processes on this machine, over TCP: models go from site to site.");
  return sites::run_job(chosen, sites::run_site, sites::coordinate);
}
