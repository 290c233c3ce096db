"""What tests/awake.py breaks of this satellite, as in tests/breakages.py."""

BREAKAGES = [
    ("testing/guarded_tensors.hpp", "[](std::byte b) { return b == pattern; }", "[](std::byte) { return true; }", "satellites/simulation/simulation", "*behind*"),
    ("satellites/simulation/detail/settlement_oracle.hpp", "s.verdict == verdict::completed && missing(*e) > 0", "false", "satellites/simulation/simulation", "*settlement*"),
]
