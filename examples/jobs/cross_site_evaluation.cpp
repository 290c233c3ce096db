// Cross-site evaluation: every site's model is tried on every other site's digits. Sites submit their models to the
// coordinator, which never pulls one: it passes each submission on, and the other sites pull from the site itself. The
// last site is behind NAT and does not listen: the coordinator relays its model over the connection that the site has
// opened, through one chunk buffer.
#include "jobs/sites/network.hpp"

#include <tensorpull/satellites/relay/relay.hpp>

#include <memory>
#include <stop_token>
#include <thread>

namespace sites {

using model_set = tensorpull::tensors_of<perceptron>;

/// Site to coordinator: this is my model. The biases travel in the message; the sites that need the weights pull them.
struct submission {
  std::uint32_t images;
  std::string address;  ///< where the site can be reached; empty: it does not listen
  model_set model;
};
/// Coordinator to site: try this model on your digits.
struct assignment {
  std::uint32_t owner;
  model_set model;
};
/// Site to coordinator: how well it did.
struct score {
  std::uint32_t owner;
  double accuracy;
};
enum letter : std::uint32_t {
  submission_kind = 2,
  assignment_kind,
  score_kind,
  goodbye_kind,
};

}  // namespace sites

BOOST_HANA_ADAPT_STRUCT(sites::submission, images, address, model);
BOOST_HANA_ADAPT_STRUCT(sites::assignment, owner, model);
BOOST_HANA_ADAPT_STRUCT(sites::score, owner, accuracy);

namespace sites {

int run_site(const options& chosen, std::uint32_t site, std::uint16_t coordinator) {
  const bool behind_nat = site + 1 == chosen.sites;
  const digits_of_sites digits(chosen, 2);
  const auto own = digits.training(site), own_test = digits.own_test(site);
  federated::training_scratch scratch(own.size());
  auto model = std::make_unique<perceptron>(), theirs = std::make_unique<perceptron>();
  federated::initialise(*model, federated::derived_seed(chosen.seed, 21, site));
  federated::train(
      *model, own, scratch,
      {.epochs = chosen.rounds, .learning_rate = 0.1f, .seed = federated::derived_seed(chosen.seed, 22, site)});

  auto session = net::session::connect(at_port(coordinator), {.timeout = patience});
  if (!session) {
    complain("cannot connect", session.error());
    return 1;
  }
  if (!say(*session, hello_kind, hello{site})) return 1;
  // The model is borrowed until the end. The number of its recipients is unknown, and it may be pulled late, so it
  // stays published until the end.
  const tensorpull::publish_options until_the_end{.budgets = {.transaction_idle = {}}};
  submission mine{static_cast<std::uint32_t>(own.size()), {}, model_set(*model)};
  std::optional<net::downloader> owner;
  std::jthread serving;
  if (behind_nat) {
    // the session serves it while it waits for messages
    const auto sent = letters::send(*session, submission_kind, mine, until_the_end, patience);
    if (!sent) {
      complain("cannot submit", sent.error());
      return 1;
    }
  } else {
    auto opened = net::downloader::open();
    if (!opened) {
      complain("cannot listen", opened.error());
      return 1;
    }
    owner.emplace(std::move(*opened));
    mine.address = at_port(owner->port());
    const auto apart = letters::decompose(*owner, mine, until_the_end);
    if (!apart) {
      complain("cannot submit", apart.error());
      return 1;
    }
    serving = std::jthread([&](std::stop_token stop) { owner->run(stop); });
    if (const auto sent = session->send(submission_kind, apart->references(), apart->body(), patience); !sent) {
      complain("cannot submit", sent.error());
      return 1;
    }
  }

  for (;;) {
    const auto got = session->receive(patience);  // if the site is behind NAT, this serves the pulls of its model
    if (!got) {
      complain("cannot receive an assignment", got.error());
      return 1;
    }
    if (got->kind == goodbye_kind) return 0;
    assignment next{};
    if (const auto ok = letters::recompose(got->references, got->body, next); !ok) {
      complain("not an assignment", ok.error());
      return 1;
    }
    const auto pulled = next.model.download_tensors<net>(*theirs, {.per_request_timeout = patience});
    if (!pulled) {
      complain("cannot pull the model to evaluate", pulled.error());
      return 1;
    }
    if (pulled->outcome != tensorpull::outcome::completed) return 1;
    if (!say(*session, score_kind, score{next.owner, federated::accuracy(*theirs, own_test)})) return 1;
  }
}

/// One pull of site `owner`'s model by one other site, through this process.
bool relay_once(net::session& owner, tensorpull::tcp_listener& outside, const tensorpull::reference& ref,
                std::span<std::byte> chunk, std::uint64_t& bytes) {
  auto recipient = outside.accept(patience);
  if (!recipient) return complain("nobody came to the relay", recipient.error());
  const auto passed = tensorpull::relay<net::parts>(owner, *recipient, ref, chunk, {.idle_timeout = patience});
  if (!passed) return complain("the relay failed", passed.error());
  bytes += passed->bytes;
  return passed->completed == 1;
}

/// Whether everything succeeded.
bool coordinate(const options& chosen, tensorpull::tcp_listener& listener, processes& children) {
  const std::size_t n = chosen.sites;
  std::vector<std::optional<net::session>> all(n);
  if (!accept_sites(listener, children, all)) return false;
  auto outside = tensorpull::tcp_listener::open("127.0.0.1:0");
  if (!outside) return complain("cannot listen", outside.error());
  std::vector<std::byte> chunk(64 * 1024);
  std::uint64_t relayed_bytes = 0;

  std::vector<submission> submitted(n);
  std::vector<std::vector<double>> scores(n, std::vector<double>(n));
  for (std::size_t i = 0; i < n; ++i)
    if (!hear(*all[i], submission_kind, submitted[i])) return false;

  for (std::uint32_t owner = 0; owner < n; ++owner) {
    const bool behind_nat = submitted[owner].address.empty();
    assignment task{owner, std::move(submitted[owner].model)};
    const std::string address = behind_nat ? at_port(outside->port()) : submitted[owner].address;
    if (const auto ok = task.model.owner_at(address); !ok) return complain("a site's address", ok.error());
    for (std::uint32_t at = 0; at < n; ++at) {
      if (at == owner && behind_nat) continue;  // it would pull from itself, through the relay
      if (!say(*all[at], assignment_kind, task)) return false;
      if (behind_nat && !relay_once(*all[owner], *outside, task.model.remote()->reference, chunk, relayed_bytes))
        return false;
      score result{};
      if (!hear(*all[at], score_kind, result) || result.owner != owner) return false;
      scores[owner][at] = result.accuracy;
    }
  }
  for (auto& session : all)  // a site hangs up as soon as it has the message, so errors are ignored
    (void)session->send(goodbye_kind, {}, {}, patience);

  std::printf("accuracy of each site's model (rows) on each site's digits (columns)\n\n          ");
  for (std::size_t i = 0; i < n; ++i) std::printf("  site %zu", i);
  bool well = true;
  for (std::size_t owner = 0; owner < n; ++owner) {
    std::printf("\n  site %zu  ", owner);
    for (std::size_t at = 0; at < n; ++at) {
      if (owner == at && owner + 1 == n) {
        std::printf("       -");
        continue;
      }
      std::printf("   %.3f", scores[owner][at]);
      // a site has learnt only some of another site's classes, so no other site does as well there as that site itself
      well = well && (owner == at ? scores[at][at] > 0.8 : scores[owner][at] < 0.85);
    }
  }
  std::printf(
      "\n\n%s: %zu models tried; %.1f MB of site %zu's model relayed through %zu KiB; the others' weights never passed through the coordinator\n",
      well ? "passed" : "FAILED", n, static_cast<double>(relayed_bytes) / 1e6, n - 1, chunk.size() / 1024);
  return well;
}

}  // namespace sites

int main(int count, char** arguments) {
  const auto chosen = sites::parse_options_or_exit(
      count, arguments,
      "Cross-site evaluation between processes on this machine, over TCP: every model is tried on every site's digits.");
  return sites::run_job(chosen, sites::run_site, sites::coordinate);
}
