// A consumer without `commit`, given to pull_over.
// EXPECT: tensorpull: a consumer takes bytes that arrived (requirement 5)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;

struct sink {
  static constexpr bool irrevocable = false;
  std::uint64_t fingerprint() const noexcept { return 0; }
  const image_schema* schema() const noexcept { return nullptr; }
  result<void> begin(const description&) noexcept { return {}; }
  prepared prepare(std::uint64_t, std::uint64_t, std::span<std::span<std::byte>>) noexcept { return {}; }
  result<void> chunk(std::uint64_t, std::uint64_t) noexcept { return {}; }
  result<void> finish(const receipt&) noexcept { return {}; }
  void abandon(const error&) noexcept {}
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;
bool pull(posix_stream& from, const reference& ref, sink& to) {
  return pull_over<net::parts>(from, ref, to).has_value();
}
