// Links to commands that are started (pipe:), and the one that this program was started with (pipe:-).
#include "other_links.hpp"

#include <tensorpull/transports/over/pipe/pipe.hpp>

namespace tensorpull::python {

result<receipt> pull_pipe(std::string_view command, const reference& from, pull_target to, const pull_options& options,
                          chunks cut) noexcept {
  return std::visit(
      [&](auto* target) {
        return net_into<child_process, std::remove_pointer_t<decltype(target)>>::pull(command, from, *target, options,
                                                                                      cut);
      },
      to);
}

made_session connect_pipe(std::string_view command, const connect_options& options) noexcept {
  if (command == "-") return connect_over<standard_streams>(command, options);
  return connect_over<child_process>(command, options);
}

}  // namespace tensorpull::python
