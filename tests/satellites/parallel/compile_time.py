"""Programs whose compile time is measured, as in bench/compile_time/sources.py."""

PULLS = {
    "parallel_addresses<tcp>": ("satellites/parallel/parallel_pull.hpp", "tcp", "fixed_bytes<4096>", "tensorpull::parallel_addresses<tensorpull::tcp>({}, 2)"),
}
