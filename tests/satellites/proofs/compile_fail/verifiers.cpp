// Functions that are no verifier of Ed25519.
// WITHIN_LINES: 9
#include <tensorpull/satellites/proofs/embedded_reference.hpp>

using namespace tensorpull;

constexpr trusted_key keys[1]{};

// CASE verifier_that_returns_a_number
// EXPECT: tensorpull: a verifier of Ed25519 returns whether a signature is right (requirement 1): bool operator()(std::span<const std::byte, 32> key
int check(std::span<const std::byte, 32>, std::span<const std::byte>, std::span<const std::byte, 64>) noexcept;
auto claims = verify_reference("", keys, {}, check);

// CASE verifier_that_throws
// EXPECT: tensorpull: a verifier of Ed25519 is noexcept (requirement 2)
bool check(std::span<const std::byte, 32>, std::span<const std::byte>, std::span<const std::byte, 64>);
auto claims = verify_reference("", keys, {}, check);
