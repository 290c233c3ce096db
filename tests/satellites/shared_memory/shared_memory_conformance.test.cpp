// The check of transports that share memory: the library's own passes, and each broken one fails its own line.
#include <tensorpull/satellites/shared_memory/shared_memory.hpp>
#include <tensorpull/satellites/shared_memory/shared_memory_conformance.hpp>
#include <tensorpull/tensorpull.hpp>

#include <gtest/gtest.h>

#include <cstdio>

namespace shared_memory_conformance_test {

namespace tp = tensorpull;

/// What a stream does wrong.
enum class wrong {
  nothing,
  drops,
  gives_twice,
  unsealed,
};
template <wrong What>
class stream : public tp::shared_stream {
 public:
  stream() = default;
  explicit stream(int fd) : tp::shared_stream(tp::unix_stream(fd)) {}
  using tp::shared_stream::write_some;
  tp::io_result write_some(std::span<const std::span<const std::byte>> spans,
                           std::span<const int> descriptors) noexcept {
    if constexpr (What == wrong::drops) return write_some(spans);
    if constexpr (What == wrong::unsealed)
      if (tp::detail::sealing_of(descriptors[0]) != tp::sealing::none) {
        const auto open = tp::detail::make_memory_file(8192);
        const int instead[]{open->get()};
        return tp::shared_stream::write_some(spans, instead);
      }
    return tp::shared_stream::write_some(spans, descriptors);
  }
  tp::passed_descriptors take_descriptors() noexcept {
    auto came = tp::shared_stream::take_descriptors();
    if constexpr (What == wrong::gives_twice) {
      if (came.count == 0 && kept_) came.fd[came.count++] = tp::detail::file_descriptor(::dup(kept_.get()));
      else if (came.count > 0) kept_ = tp::detail::file_descriptor(::dup(came.fd[0].get()));
    }
    return came;
  }

 private:
  tp::detail::file_descriptor kept_;
};

template <wrong What>
tp::testing::conformance_report check() {
  const auto connect = []() -> tp::result<tp::testing::stream_pair<stream<What>>> {
    int fd[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd) != 0)
      return tp::failure(tp::errc::io, 0, {}, errno);
    return tp::testing::stream_pair<stream<What>>{stream<What>(fd[0]), stream<What>(fd[1])};
  };
  const auto report = tp::testing::check_shared_memory<tp::shared_memory>(connect);
  report.print(stdout);
  return report;
}

TEST(SharedMemoryConformance, The_librarys_own_passes_every_line) {
  const auto report = check<wrong::nothing>();
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(report.count(tp::testing::check_result::passed), report.checks().size());
}
TEST(SharedMemoryConformance, Broken_streams_fail_their_own_line) {
  const auto expect_failed = [](const tp::testing::conformance_report& report, std::string_view number) {
    EXPECT_TRUE(report.failed(number)) << number;
    EXPECT_EQ(report.count(tp::testing::check_result::failed), 1u) << number;
  };
  expect_failed(check<wrong::drops>(), "7.1");
  expect_failed(check<wrong::gives_twice>(), "7.2");
  expect_failed(check<wrong::unsealed>(), "M.1");
}

}  // namespace shared_memory_conformance_test
