// The ordinary clients, one thread each, over TCP. With --line it does over a serial line what the firmware does, and
// gets the same bytes.
#include "in_8_bits.hpp"
#include "network.hpp"
#include "options.hpp"

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

namespace microcontroller {

std::vector<tensorpull::tensor_view> views_of(const mlp& model) {
  const auto source = over_tcp::parts::tensors::source(model);
  std::vector<tensorpull::tensor_view> all;
  for (std::size_t i = 0; i < source.schema->tensor_count; ++i) {
    const auto& t = source.schema->tensors[i];
    all.push_back({t.name, t.type, t.extents(), source.address(i)});
  }
  return all;
}

template <class Session>
bool take_part(Session& server, std::uint32_t site, const options& chosen, const pooled_digits& digits,
               const tensorpull::pull_options& pull) {
  const auto model = std::make_unique<mlp>(), base = std::make_unique<mlp>();
  const auto with = std::make_unique<perceptron>();
  const auto nothing = [] {};
  const auto right = [&] {
    return count_right(*with, *model, digits.held_out().data(), digits.held_out().size(), nothing);
  };
  for (std::uint32_t round = 1;; ++round) {
    tensorpull::pull_options own = pull;
    own.recipient = recipient_of(site);
    const auto done = ask_until_there(server, [&] { return server.download_tensors({model_of(round)}, *model, own); });
    if (!done) return complain("cannot pull the model", done.error());
    if (site == device_site) print_right("device", round, "model", done->digest, right(), digits.held_out().size());
    if (round > chosen.rounds) return true;

    *base = *model;
    train(*with, *model, digits.of_site(site).data(), digits.of_site(site).size(), nothing);
    tensorpull::publish_options how;
    how.recipients = 1;
    how.id = update_of(site, round);
    std::optional<update_in_8_bits> narrowed;
    if (chosen.in_8_bits && site == device_site) {
      auto made = update_in_8_bits::make(views_of(*model), views_of(*base));
      if (!made) return complain("no update", made.error());
      narrowed.emplace(std::move(*made));
    }
    const auto update = narrowed ? server.add_image(narrowed->model().source(), how)
                                 : server.add_tensors(std::as_const(*model), how);
    if (!update) return complain("cannot publish the update", update.error());
    if (site == device_site) print_right("device", round, "update", update->version, right(), digits.held_out().size());
    if (const auto served = server.serve(tensorpull::until_settled(*update), patience); !served)
      return complain("the update was not taken", served.error());
  }
}

bool run_client(std::uint32_t site, const options& chosen, const pooled_digits& digits) {
  auto server = over_tcp::session::connect(chosen.connect);
  if (!server) return complain("cannot connect", server.error());
  if (const auto said = server->send(1, {}, std::as_bytes(std::span(&site, 1))); !said)
    return complain("cannot say who it is", said.error());
  return take_part(*server, site, chosen, digits, {});
}

int run(const options& chosen) {
  const pooled_digits digits(chosen.data, chosen.seed);
  if (!chosen.line.empty()) {
    auto server = over_line::session::connect(chosen.line);
    if (!server) {
      complain("cannot open the line", server.error());
      return 1;
    }
    return take_part(*server, device_site, chosen, digits, over_the_line()) ? 0 : 1;
  }
  std::atomic<bool> well = true;
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t site = 1; site <= chosen.clients; ++site)
      threads.emplace_back([&, site] {
        if (!run_client(site, chosen, digits)) well = false;
      });
  }
  return well ? 0 : 1;
}

}  // namespace microcontroller

int main(int count, char** arguments) {
  const auto chosen = microcontroller::parse_options_or_exit(
      count, arguments,
      "The clients of the example with a microcontroller: they train the server's model on their own digits.");
  try {
    return microcontroller::run(chosen);
  } catch (const std::exception& wrong) {
    std::fprintf(stderr, "clients: %s\n", wrong.what());
    return 1;
  }
}
