#include "context.hpp"

#include <poll.h>

#include <array>

using net = over_tcp;

static void wait_for(int descriptor, bool read, bool write) {
  pollfd one{descriptor, static_cast<short>((read ? POLLIN : 0) | (write ? POLLOUT : 0)), 0};
  must(::poll(&one, 1, 60'000) == 1);
}

int main() {
  static Mlp model{}, mine{};
  model.b2[3] = 3;
  serving_owner<net> serving;
  const auto published = serving.owner().add_tensors(model);
  must(published.has_value());
  const reference ref = *published;
  auto connected = tcp::connect(serving.address(), std::chrono::seconds(60), {});
  must(connected.has_value());
  posix_stream stream = std::move(*connected);

  // SNIPPET

  must(done.has_value() && mine.b2[3] == 3);
}
