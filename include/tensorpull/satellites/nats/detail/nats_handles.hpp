// Objects of libnats, each freed by its owner, and the meaning of its statuses.
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/core/error.hpp>

#include <nats/nats.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

namespace tensorpull::detail {

template <auto Free>
struct nats_free {
  template <class T>
  void operator()(T* object) const noexcept {
    Free(object);
  }
};

using nats_connection = std::unique_ptr<natsConnection, nats_free<natsConnection_Destroy>>;
using nats_subscription = std::unique_ptr<natsSubscription, nats_free<natsSubscription_Destroy>>;
using nats_options = std::unique_ptr<natsOptions, nats_free<natsOptions_Destroy>>;
using nats_message = std::unique_ptr<natsMsg, nats_free<natsMsg_Destroy>>;

/// Whether messages wait at a subscription; false without one.
inline bool has_mail(natsSubscription* s) noexcept {
  int messages = 0, bytes = 0;
  return s != nullptr && natsSubscription_GetPending(s, &messages, &bytes) == NATS_OK && messages > 0;
}

/// Subscribes to a subject, with `group` as one of a group. Nothing: libnats has no memory for it.
inline nats_subscription subscribe_nats(natsConnection* to, const char* subject, const char* group) noexcept {
  natsSubscription* made = nullptr;
  (void)(group != nullptr ? natsConnection_QueueSubscribeSync(&made, to, subject, group)
                          : natsConnection_SubscribeSync(&made, to, subject));
  return nats_subscription(made);
}
/// Whether the server's last complaint is that something may not be done at a subject: `what` of its words.
inline bool nats_refuses(natsConnection* by, std::string_view subject, std::string_view what) noexcept {
  const char* text = nullptr;
  if (natsConnection_GetLastError(by, &text) != NATS_NOT_PERMITTED || text == nullptr) return false;
  const std::string_view said(text);
  return said.find(what) != said.npos && said.find(subject) != said.npos;
}

/// Text with a terminating zero. False: it is too long.
class nats_text {
 public:
  explicit nats_text(std::string_view text) noexcept
      : fits_(text.size() < sizeof text_ && text.find('\0') == text.npos) {
    if (fits_ && !text.empty()) std::memcpy(text_, text.data(), text.size());
  }
  explicit operator bool() const noexcept { return fits_; }
  const char* c_str() const noexcept { return text_; }
  /// Puts its parts between commas into `out` and gives their number; 0: one is empty, or there are too many.
  int split(std::span<const char*> out) noexcept {
    std::size_t n = 0;
    for (char* at = text_; n < out.size();) {
      char* const end = at + std::strcspn(at, ",");
      const bool last = *end == '\0';
      if (end == at) return 0;
      *end = '\0';
      out[n++] = at;
      if (last) return static_cast<int>(n);
      at = end + 1;
    }
    return 0;
  }

 private:
  char text_[1024]{};
  bool fits_;
};

/// A server's URL without its user and password, or its token, which libnats would take as they are written: with the
/// percent signs. False: it is too long, or a percent sign has no two digits.
class nats_user {
 public:
  explicit nats_user(std::string_view url) noexcept {
    const auto scheme = url.find("://"), begin = scheme == url.npos ? 0 : scheme + 3,
               at = url.substr(0, url.find('/', begin)).rfind('@');
    const bool has_user = at != url.npos && at >= begin;
    const std::string_view who = has_user ? url.substr(begin, at - begin) : std::string_view();
    const auto colon = who.find(':');
    good_ = put(url_, url.substr(0, begin), url.substr(has_user ? at + 1 : begin)) &&
            decode(who.substr(0, colon), name_) && (colon == who.npos || decode(who.substr(colon + 1), password_));
    has_password_ = colon != who.npos;
  }
  explicit operator bool() const noexcept { return good_; }
  const char* url() const noexcept { return url_; }
  const char* name() const noexcept { return name_; }
  /// nullptr: there is none.
  const char* password() const noexcept { return has_password_ ? password_ : nullptr; }

 private:
  using text = char[1024];
  static bool put(text& to, std::string_view a, std::string_view b) noexcept {
    if (a.size() + b.size() >= sizeof to) return false;
    std::copy(b.begin(), b.end(), std::copy(a.begin(), a.end(), to));
    return true;
  }
  static bool decode(std::string_view from, text& to) noexcept {
    if (from.size() >= sizeof to) return false;
    for (std::size_t i = 0, n = 0; i < from.size(); ++n) {
      const auto code = from[i] == '%' ? percent_octet(from, i) : optional<char>();
      if (from[i] == '%' && (!code || *code == 0)) return false;
      to[n] = code ? *code : from[i];
      i += code ? 3 : 1;
    }
    return true;
  }

  text url_{}, name_{}, password_{};
  bool good_ = false, has_password_ = false;
};

/// The error for a status of libnats other than NATS_OK.
inline error nats_error(natsStatus how) noexcept {
  const auto code = [&] {
    switch (how) {
      case NATS_CONNECTION_AUTH_FAILED:
      case NATS_NOT_PERMITTED: return errc::not_permitted;
      case NATS_INVALID_ARG:
      case NATS_ADDRESS_MISSING:
      case NATS_INVALID_SUBJECT: return errc::bad_address;
      case NATS_TIMEOUT: return errc::timed_out;
      case NATS_NO_MEMORY: return errc::out_of_memory;
      case NATS_CONNECTION_CLOSED:
      case NATS_CONNECTION_DISCONNECTED: return errc::connection_lost;
      default: return errc::connection_failed;
    }
  }();
  return {code, 0, 0, error_name(natsStatus_GetText(how))};
}

}  // namespace tensorpull::detail
