// The addresses of a host, as the system's resolver knows them now.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/system/address.hpp>

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <string_view>
#include <utility>

namespace tensorpull::detail {

/// Owns the resolver's list. Not a std::unique_ptr, because <memory> takes long to compile.
class address_list {
 public:
  explicit address_list(addrinfo* list) noexcept : list_(list) {}
  address_list(address_list&& other) noexcept : list_(std::exchange(other.list_, nullptr)) {}
  ~address_list() {
    if (list_ != nullptr) ::freeaddrinfo(list_);
  }
  const addrinfo& operator*() const noexcept { return *list_; }
  const addrinfo* get() const noexcept { return list_; }

 private:
  addrinfo* list_;
};

/// Resolves with getaddrinfo on the caller's thread. This is the one call that neither a stop request nor the deadline
/// ends. Starts no thread. Errors: bad_address: no resolver will ever know it; unknown_host; connection_failed with
/// errno: it had no descriptor; out_of_memory.
inline result<address_list> resolve(const host_port& a, std::string_view text, bool to_listen,
                                    int type = SOCK_STREAM) noexcept {
  addrinfo hints{};
  hints.ai_socktype = type;
  const bool may_be_known = may_be_a_name(a.host.data());
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0) | (may_be_known ? 0 : AI_NUMERICHOST);
  addrinfo* list = nullptr;
  const char* const host = a.host[0] != '\0' ? a.host.data() : nullptr;
  errno = 0;  // without descriptors that of GNU may return EAI_NONAME
  const int why = ::getaddrinfo(host, a.port.data(), &hints, &list);
  if (why == EAI_MEMORY) return failure(errc::out_of_memory);
  if (why != 0 && (errno == EMFILE || errno == ENFILE))
    return failure(errc::connection_failed, 0, without_secrets(text), errno);
  if (why != 0 || list == nullptr)
    return failure(may_be_known ? errc::unknown_host : errc::bad_address, 0, without_secrets(text),
                   why == EAI_SYSTEM ? errno : 0);
  return address_list(list);
}

}  // namespace tensorpull::detail
