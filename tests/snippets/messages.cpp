// NEEDS tensorpull::messages
#include "context.hpp"

#include <tensorpull/messages/tensor_decomposer.hpp>
#include <tensorpull/transports/stream/session.hpp>

using net = over_tcp;

// SNIPPET 1

static Mlp mlp{}, mine{};

static void other_end(net::session& session) {
  using messages = tensor_decomposer<net>;
  const auto first = messages::send(session, 1, task{7, "b", tensors_of<Mlp>(mlp)});
  const auto second = messages::send(session, 1, task{7, "b", tensors_of<Mlp>(mlp)});
  must(first.has_value() && second.has_value());
  must(session.serve(until_settled_all(*first), std::chrono::seconds(20)));
  must(session.serve(until_settled_all(*second), std::chrono::seconds(20)));
}

int main() {
  mlp.b1[5] = 5;
  auto listener = tcp_listener::open("127.0.0.1:0");
  must(listener.has_value());
  std::jthread other([&] {
    auto stream = listener->accept();
    must(stream.has_value());
    auto session = net::session::over(std::move(*stream));
    must(session.has_value());
    other_end(*session);
  });
  auto connected = net::session::connect("127.0.0.1:" + std::to_string(listener->port()));
  must(connected.has_value());
  net::session& session = *connected;

  // SNIPPET 2-4

  must(sent.has_value() && kind.has_value() && mine.b1[5] == 5);
}
