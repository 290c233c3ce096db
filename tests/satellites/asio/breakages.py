"""What tests/awake.py breaks of this satellite, as in tests/breakages.py."""

BREAKAGES = [
    ("satellites/asio/in_io_context.hpp", "s->loop->poll(turn);", "s->loop->poll();", "satellites/asio/in_io_context", "*has_its_turn*"),
    ("transports/host/event_loop.hpp", "if (!queue_.empty() && !stopped_) wake();", "", "satellites/asio/in_io_context", "*left_in_the_queue*"),
]
