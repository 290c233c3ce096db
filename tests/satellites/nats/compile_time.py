"""Programs whose compile time is measured and bounded, as in bench/compile_time/sources.py."""

PULLS = {
    "nats": ("satellites/nats/nats.hpp", "nats", "fixed_bytes<4096>", '"nats://server:4222"'),
}
BOUNDS = {
    "g++ 12": {"nats": 45_900},
    "clang 14": {"nats": 12_690},
}
