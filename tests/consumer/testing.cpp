// A kit of a user's own stream, without Cap'n Proto.
#include <tensorpull/links/posix/posix_stream.hpp>
#include <tensorpull/testing/conformance/transport_conformance.hpp>

#include <sys/socket.h>

namespace tp = tensorpull;

int main() {
  const auto report = tp::testing::check_byte_stream([]() -> tp::result<tp::testing::stream_pair<tp::posix_stream>> {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      return tp::failure(tp::errc::connection_failed);
    return tp::testing::stream_pair<tp::posix_stream>{tp::posix_stream(ends[0]), tp::posix_stream(ends[1])};
  });
  report.print(stdout);
  return report.passed() ? 0 : 1;
}
