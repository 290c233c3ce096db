// Links to commands that are started (pipe:).
#include "other_links.hpp"

#include <tensorpull/transports/pipe/pipe.hpp>

namespace tensorpull::python {

result<receipt> pull_pipe(std::string_view command, const reference& from, pull_target to, const pull_options& options,
                          chunks cut) noexcept {
  return std::visit([&](auto* target) { return net<child_process>::pull(command, from, *target, options, cut); }, to);
}

}  // namespace tensorpull::python
