// NEEDS tensorpull::testing
// SNIPPET 1
#include "context.hpp"

#include "../support/noisy_line.hpp"

#include <sys/stat.h>

#include <filesystem>

// SNIPPET 2

static Mlp trained{}, mine{};
static const ref_id id = *parse_ref_id("00112233445566778899aabbccddeeff");

/// The program that by_command starts.
static int started() {
  // SNIPPET 5
  return served ? 0 : 1;
}

int main(int count, char** arguments) {
  trained.b2[3] = 3;
  if (count > 1) return started();
  const std::string folder = "/tmp/tensorpull-links-" + std::to_string(::getpid());
  must(::mkdir(folder.c_str(), 0700) == 0);
  const std::string path = folder + "/mlp", command = "'" + std::string(arguments[0]) + "' --stdio";
  test::noisy_line wire;
  const std::string near = wire.right(), far = wire.left();

  // SNIPPET 3

  must(at_path && at_port && at_line);
  const publish_options one{.recipients = 1, .id = id};
  must(at_path->add_tensors(trained, one) && at_port->add_tensors(trained, one) && at_line->add_tensors(trained, one));
  const std::string port = "127.0.0.1:" + std::to_string(at_port->port());
  std::jthread a([&](std::stop_token stop) { at_path->run(stop); }),
      b([&](std::stop_token stop) { at_port->run(stop); }), c([&](std::stop_token stop) { at_line->run(stop); });
  const reference ref{id, 0, 0};

  // SNIPPET 4

  for (const auto& done : {by_path, by_port, by_line, by_command}) must(done && done->outcome == outcome::completed);
  must(mine.b2[3] == 3);
  a = {}, b = {}, c = {};
  std::filesystem::remove_all(folder);
}
