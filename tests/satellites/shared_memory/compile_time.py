"""Programs whose compile time is measured and bounded, as in bench/compile_time/sources.py."""

PULLS = {
    "shared_memory": ("satellites/shared_memory/shared_memory.hpp", "shared_memory", "fixed_bytes<4096>", '"/run/model"'),
}
BOUNDS = {
    "g++ 12": {"shared_memory": 53_350},
    "clang 14": {"shared_memory": 14_790},
}
