// NEEDS tensorpull::messages
#include "context.hpp"

#include <tensorpull/messages/tensor_decomposer.hpp>
#include <tensorpull/transports/session/stream_session.hpp>

using net = over_tcp;

// SNIPPET 1

static Mlp mlp{}, mine{};

static void other_end(net::session& session) {
  using messages = tensor_decomposer<net>;
  task got;
  must(messages::receive(session, got).has_value());
  for (int i = 0; i < 2; ++i) {  // one after the other: a message that waits to be received keeps back what follows it
    const auto sent = messages::send(session, 1, task{7, "b", tensors_of<Mlp>(mlp)});
    must(sent.has_value());
    must(session.serve(until_settled(*sent), std::chrono::seconds(60)));
  }
}

int main() {
  mlp.b1[5] = 5;
  auto listener = tcp_listener::open("127.0.0.1:0");
  must(listener.has_value());
  std::jthread other([&] {
    auto stream = listener->accept(std::chrono::seconds(60));
    must(stream.has_value());
    auto session = net::session::over(std::move(*stream));
    must(session.has_value());
    other_end(*session);
  });
  auto connected = net::session::connect("127.0.0.1:" + std::to_string(listener->port()));
  must(connected.has_value());
  net::session& session = *connected;

  // SNIPPET 2-4

  must(sent.has_value() && kind.has_value() && done.has_value() && mine.b1[5] == 5);
}
