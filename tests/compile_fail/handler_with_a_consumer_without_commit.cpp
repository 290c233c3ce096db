// A consumer without `commit`, which a host is to pull into.
// EXPECT: tensorpull: a consumer takes bytes that arrived (requirement 5)
// WITHIN_LINES: 6
// MAX_ERRORS: 1
// MAX_LINES: 40
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/transports/host/host.hpp>

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
struct handler {
  void connected(auto&) {}
  void message(auto&, const message&) {}
  void pulled(auto&, const result<receipt>&) {}
  void closed(auto&, const error&) {}
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;
void serve(boost::asio::io_context& io, handler& h) { net::host<handler, sink> host(io, h); }
