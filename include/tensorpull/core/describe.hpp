// An error as text for people: everything that the error holds, written without the heap.
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

#if defined(__unix__) || defined(__APPLE__)
#include <string.h>  // strerror_r
#endif

namespace tensorpull {

/// Holds one line of text of at most 255 bytes; what does not fit is cut off. Converts to std::string_view, and can be
/// written to any stream.
class error_text {
 public:
  /// The text; valid as long as this object is.
  constexpr std::string_view view() const noexcept { return {characters_, size_}; }
  constexpr operator std::string_view() const noexcept { return view(); }
  /// The text with a terminating zero; valid as long as this object is.
  constexpr const char* c_str() const noexcept { return characters_; }

  constexpr error_text& operator+=(std::string_view text) noexcept {
    for (std::size_t i = 0; i < text.size() && size_ < sizeof characters_ - 1; ++i) characters_[size_++] = text[i];
    return *this;
  }

 private:
  char characters_[256]{};
  std::size_t size_ = 0;
};

/// Writes the text to a stream that takes std::string_view.
template <class Stream>
  requires requires(Stream& to, std::string_view text) { to << text; }
Stream& operator<<(Stream& to, const error_text& text) {
  to << text.view();
  return to;
}

namespace detail {
// POSIX's strerror_r fills the buffer; GNU's may return a text that is elsewhere
inline const char* system_text(int, const char* buffer) noexcept { return buffer; }
inline const char* system_text(const char* text, const char*) noexcept { return text; }
}  // namespace detail

/// The sentence for the code, followed by what else the error has: the tensor, field or file, the position, and the
/// operating system's text for `e.system`, or the owner's reason. Example: "the operating system reported an error:
/// model.safetensors, at 4096 (Input/output error)". Control characters in a name become '?', since the name may be the
/// other side's. Allocates nothing; may be called from several threads at once.
inline error_text describe(const error& e) noexcept {
  error_text text;
  text += to_string(e.code);
  if (!e.name.empty()) {
    text += ": ";
    unsigned char before = 0;
    for (const char c : e.name.view()) {
      const auto code = static_cast<unsigned char>(c);
      // U+0080 to U+009F are C2 80 to C2 9F in UTF-8
      const bool control = code < 0x20 || code == 0x7f || (before == 0xc2 && code < 0xa0);
      text += control ? std::string_view("?") : std::string_view(&c, 1);
      before = code;
    }
  }
  if (e.at != 0) {
    text += ", at ";
    text += detail::decimal(e.at).view();
  }
  if (e.system != 0) {
    text += " (";
    if (e.code == errc::withdrawn) {
      text += "reason ";
      text += detail::decimal(static_cast<std::uint32_t>(e.system)).view();
      return text += ")";
    }
    if (e.system < 0) {
      text += "exit status ";
      text += detail::decimal(static_cast<std::uint64_t>(-std::int64_t{e.system})).view();
      return text += ")";
    }
#if defined(__unix__) || defined(__APPLE__)
    char buffer[96] = "";
    text += detail::system_text(::strerror_r(e.system, buffer, sizeof buffer), buffer);
#else
    text += "error ";
    text += detail::decimal(static_cast<std::uint32_t>(e.system)).view();
#endif
    text += ")";
  }
  return text;
}

}  // namespace tensorpull
