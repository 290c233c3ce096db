// NEEDS tensorpull::testing
#include "context.hpp"

#include <sys/socket.h>

// SNIPPET 1

using my_stream = posix_stream;
static result<testing::stream_pair<my_stream>> two_connected_ends() {
  int fd[2];
  must(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0);
  return testing::stream_pair<my_stream>{posix_stream(fd[0]), posix_stream(fd[1])};
}

int main() {
  // SNIPPET 2
  must(report.passed() && report.find("2.3") != nullptr);
}
