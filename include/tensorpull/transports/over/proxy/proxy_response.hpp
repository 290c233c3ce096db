// Reads what an HTTP proxy answers to CONNECT, a byte at a time, so that not one byte behind the answer is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tensorpull {

/// The head of an answer in HTTP/1 (RFC 9112): a status line, header lines, an empty line, each ended by CR LF. The
/// content of header lines is not looked at; that they are text is.
class proxy_response {
 public:
  /// Bytes of the longest head that is read.
  static constexpr std::size_t most_bytes = 8192;

  /// How far an answer has been read.
  enum class progress : std::uint8_t {
    more,  ///< bytes are missing
    done,  ///< the byte was the last one of the head
    bad,   ///< this is no answer of HTTP/1, or it is too long
  };

  /// Takes the next byte. Nothing may follow done or bad.
  constexpr progress take(std::byte byte) noexcept {
    const char c = static_cast<char>(byte);
    if (++bytes_ > most_bytes) return progress::bad;
    if (ends_) {
      if (c != '\n') return progress::bad;
      ends_ = false;
      const bool last = line_ == 0;
      in_status_ = false;
      line_ = 0;
      return last ? progress::done : progress::more;
    }
    if (c == '\r' && (!in_status_ || line_ >= status_ends)) {
      ends_ = true;
      return progress::more;
    }
    const auto code = static_cast<unsigned char>(c);
    if ((code < 0x20 && c != '\t') || code == 0x7f || (in_status_ && !in_place(c))) return progress::bad;
    ++line_;
    return progress::more;
  }

  /// The status, from 100 to 599, once the answer has been read.
  constexpr unsigned status() const noexcept { return status_; }

 private:
  static constexpr std::string_view version = "HTTP/1.";
  static constexpr std::size_t status_begins = version.size() + 2, status_ends = status_begins + 3;

  /// Whether the character may stand here in the status line.
  constexpr bool in_place(char c) noexcept {
    if (line_ < version.size()) return c == version[line_];
    if (line_ == version.size()) return c == '0' || c == '1';
    if (line_ == version.size() + 1 || line_ == status_ends) return c == ' ';
    if (line_ > status_ends) return true;
    if (c < (line_ == status_begins ? '1' : '0') || c > (line_ == status_begins ? '5' : '9')) return false;
    status_ = status_ * 10 + static_cast<unsigned>(c - '0');
    return true;
  }

  std::size_t bytes_ = 0, line_ = 0;  // of the whole, and of this text line
  unsigned status_ = 0;
  bool in_status_ = true, ends_ = false;  // ends_: CR has arrived, and LF has to
};

}  // namespace tensorpull
