#include "context.hpp"

static void log(std::string_view verdict, std::size_t completed, std::size_t vanished) {
  must(verdict == "withdrawn");  // by the end of the owner: one of three has confirmed, and two are enough
  must(completed == 1 && vanished == 0);
}

int main() {
  using net = over_tcp;
  static Mlp model{}, mine{};
  model.b2[3] = 3;
  const resume_cursor kept{};

  auto owner = net::downloader::open({.listen = "127.0.0.1:0"});
  must(owner.has_value());
  const std::string address = "127.0.0.1:" + std::to_string(owner->port());

  // SNIPPET 1

  must(ref.has_value());
  const reference ref_id = *ref;
  std::jthread serving([&](std::stop_token stop) { owner->run([](const auto&) { return false; }, stop); });

  // SNIPPET 2

  must(done.has_value() && mine.b2[3] == 3 && cursor.offset != 0);
}
