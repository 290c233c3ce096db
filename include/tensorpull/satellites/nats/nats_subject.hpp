// Subjects: the addresses of NATS. An owner's follow from a reference; a recipient's is an inbox that nobody can guess.
#pragma once

#include <tensorpull/core/ids.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/optional.hpp>

#include <array>
#include <cstdint>
#include <string_view>

namespace tensorpull {

/// A subject: at most 95 bytes of tokens with points between them, without wildcards. Empty: no subject. Regular, and
/// trivially copyable: the address type of a nats_link.
class nats_subject {
 public:
  /// The longest, in bytes.
  static constexpr std::size_t most_bytes = 95;
  /// The beginning of every inbox's name.
  static constexpr std::string_view inbox_begin = "_INBOX";

  constexpr nats_subject() noexcept = default;

  /// The subject of this text. bad_address: it is empty or too long, a token is empty or a wildcard, or a character is
  /// not printable.
  static constexpr result<nats_subject> of(std::string_view text) noexcept {
    if (text.empty() || text.size() > most_bytes) return failure(errc::bad_address, text.size(), text);
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      const bool ends_token = c == '.' && (i == 0 || i + 1 == text.size() || text[i - 1] == '.');
      if (c <= ' ' || c > '~' || c == '*' || c == '>' || ends_token) return failure(errc::bad_address, i, text);
    }
    nats_subject s;
    s.append(text);
    return s;
  }
  /// Where the coordinator of a reference receives every request: `tensorpull.<32 digits>.coordinator`.
  static constexpr nats_subject coordinator(const ref_id& id) noexcept { return of_reference(id, ".coordinator"); }
  /// Where all owners of the content receive requests for chunks, as one queue group: `tensorpull.<32 digits>.any`.
  static constexpr nats_subject any(const ref_id& id) noexcept { return of_reference(id, ".any"); }
  /// Where the end that opens a session is called: `tensorpull.meeting.<name>`. bad_address: the name is empty, too
  /// long, or not made of tokens.
  static constexpr result<nats_subject> meeting(std::string_view name) noexcept {
    auto s = of(name);
    if (!s) return s;
    constexpr std::string_view begin = "tensorpull.meeting.";
    if (begin.size() + name.size() > most_bytes) return failure(errc::bad_address, name.size(), name);
    nats_subject out;
    out.append(begin);
    out.append(name);
    return out;
  }
  /// An inbox: `<prefix>.<32 digits>`. `token` has to be random, so that a client that may not read the inbox cannot
  /// guess it. bad_address: the prefix does not begin with `_INBOX`, or is longer than 62 bytes.
  static constexpr result<nats_subject> inbox(std::string_view prefix, const ref_id& token) noexcept {
    auto s = of(prefix);
    if (!s || prefix.size() + 33 > most_bytes || !prefix.starts_with(inbox_begin))
      return failure(errc::bad_address, prefix.size(), prefix);
    const auto digits = to_digits(token);
    s->append(".");
    s->append({digits.data(), digits.size()});
    return s;
  }
  /// The inbox that a message names for answers; nothing for any other subject. An owner that answered there would use
  /// its own rights to send wherever a stranger wants.
  static constexpr optional<nats_subject> inbox_named(std::string_view reply) noexcept {
    const auto point = reply.rfind('.');
    if (!reply.starts_with(inbox_begin) || point == std::string_view::npos || !parse_ref_id(reply.substr(point + 1)))
      return {};
    const auto s = of(reply);
    return s ? optional<nats_subject>(*s) : optional<nats_subject>();
  }

  /// The text; valid as long as the object.
  constexpr std::string_view view() const noexcept { return {text_.data(), size_}; }
  /// The same with a terminating zero.
  constexpr const char* c_str() const noexcept { return text_.data(); }
  /// Whether it is a subject.
  constexpr explicit operator bool() const noexcept { return size_ != 0; }
  /// XXH3-64 of the text.
  constexpr std::uint64_t hash() const noexcept {
    xxh3_64 h;
    h.update(view());
    return h.digest();
  }
  friend constexpr bool operator==(const nats_subject& a, const nats_subject& b) noexcept {
    return a.view() == b.view();
  }

 private:
  static constexpr nats_subject of_reference(const ref_id& id, std::string_view role) noexcept {
    const auto digits = to_digits(id);
    nats_subject s;
    s.append("tensorpull.");
    s.append({digits.data(), digits.size()});
    s.append(role);
    return s;
  }
  constexpr void append(std::string_view text) noexcept {
    for (const char c : text) text_[size_++] = c;
  }

  std::array<char, most_bytes + 1> text_{};
  std::uint8_t size_ = 0;
};

/// The answers to the question whether anybody serves a subject.
struct nats_presence {
  std::uint32_t here = 0;  ///< answers of programs that serve it
  std::uint32_t nobody = 0;  ///< reports of the server that nobody serves it
};

}  // namespace tensorpull
