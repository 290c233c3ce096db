// The three messages of a swarm: a member joins and polls, the owner's door lists the others, members tell each other
// what they have proved. Numbers are little-endian. Bodies of another party are hostile until decoded.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/std/optional.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace tensorpull::detail::swarm {

/// The kinds of the application messages. The first reference of each is the model's, with its version.
inline constexpr std::uint32_t join_kind = 0x7377'0001, list_kind = 0x7377'0002, parts_kind = 0x7377'0003;
/// Members of one group, the asking one included.
inline constexpr std::size_t most_members = 16;
/// Parts into which an image is cut.
inline constexpr std::size_t most_parts = 512;

/// How much of the model a member has. Other values are refused.
enum class member_state : std::uint8_t {
  pulls = 0,
  has_all = 1
};

/// Where a member listens: 1 to 54 bytes of text without control characters. Empty until it is assigned.
class address_text {
 public:
  static constexpr std::size_t longest = 54;  ///< bytes: "[v6 address]:port" is 53 at most

  constexpr address_text() noexcept = default;
  /// None: the text is empty, longer than `longest`, or has a control character.
  static constexpr optional<address_text> of(std::string_view text) noexcept {
    if (text.empty() || text.size() > longest) return {};
    address_text a;
    for (const char c : text) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return {};
      a.characters_[a.size_++] = c;
    }
    return a;
  }
  /// Valid as long as this is.
  constexpr std::string_view view() const noexcept { return {characters_.data(), size_}; }
  friend constexpr bool operator==(const address_text&, const address_text&) noexcept = default;

 private:
  std::uint8_t size_ = 0;
  std::array<char, longest> characters_{};  // zeros behind the text
};

/// From a member to the door: it joins the group of a model, or asks again who the others are.
struct join {
  static constexpr std::size_t least_bytes = 7, most_bytes = 6 + address_text::longest;  ///< of a body
  std::uint32_t known = 0;  ///< number of the list that it has; 0: none
  member_state state = member_state::pulls;
  address_text address{};

  friend constexpr bool operator==(const join&, const join&) noexcept = default;
};

/// Another member, as the door lists it.
struct member_entry {
  static constexpr std::size_t bytes = 64;  ///< of an entry in a body
  std::uint64_t number = 0;  ///< never 0
  member_state state = member_state::pulls;
  address_text address{};

  friend constexpr bool operator==(const member_entry&, const member_entry&) noexcept = default;
};

/// From the door to a member, as the answer to join.
struct list {
  static constexpr std::size_t least_bytes = 13, most_bytes = least_bytes + (most_members - 1) * member_entry::bytes;
  std::uint32_t number = 0;  ///< of this list; 0: the member has no seat, and asks the owner alone
  std::uint64_t self = 0;  ///< the member's own number; 0: it has no seat
  std::uint8_t count = 0;  ///< how many of `others` there are; 0 in a list that the member knows: nothing is new
  std::array<member_entry, most_members - 1> others{};

  constexpr bool refused() const noexcept { return number == 0; }
  /// Valid as long as this is.
  constexpr std::span<const member_entry> members() const noexcept { return {others.data(), count}; }
};

/// From member to member: what the sender has proved.
struct parts {
  static constexpr std::size_t bytes = 1 + most_parts / 8;  ///< of a body
  std::uint8_t shift = 0;  ///< a part has 2^shift bytes; at most 63
  std::array<std::uint8_t, most_parts / 8> proved{};  ///< part i: bit i % 8 of byte i / 8

  constexpr bool has(std::size_t part) const noexcept {
    return part < most_parts && (proved[part / 8] >> part % 8 & 1) != 0;
  }
  constexpr void add(std::size_t part) noexcept {
    if (part < most_parts) proved[part / 8] |= static_cast<std::uint8_t>(1u << part % 8);
  }
  friend constexpr bool operator==(const parts&, const parts&) noexcept = default;
};

inline constexpr bool is_state(std::byte b) noexcept { return b <= std::byte(member_state::has_all); }
inline void store_le32(std::byte* p, std::uint32_t v) noexcept {
  for (unsigned i = 0; i < 4; ++i) p[i] = static_cast<std::byte>(v >> (8 * i) & 0xff);
}
inline std::string_view text_at(const std::byte* p, std::size_t size) noexcept {
  return {reinterpret_cast<const char*>(p), size};
}

/// Writes a body. Bytes of it; 0: `out` is too short, or an address is empty.
inline std::size_t encode(const join& from, std::span<std::byte> out) noexcept {
  const std::string_view text = from.address.view();
  if (text.empty() || out.size() < 6 + text.size()) return 0;
  store_le32(&out[0], from.known);
  out[4] = std::byte(from.state);
  out[5] = static_cast<std::byte>(text.size());
  std::memcpy(&out[6], text.data(), text.size());
  return 6 + text.size();
}
/// None: no member sends it. The body has exactly the bytes that its length states.
inline optional<join> decode_join(std::span<const std::byte> body) noexcept {
  if (body.size() < join::least_bytes || body.size() != 6 + octet(body[5]) || !is_state(body[4])) return {};
  const auto address = address_text::of(text_at(&body[6], body.size() - 6));
  if (!address) return {};
  return join{static_cast<std::uint32_t>(load_le32(&body[0])), member_state(body[4]), *address};
}

/// As encode(const join&, out). Requires at most 15 others.
inline std::size_t encode(const list& from, std::span<std::byte> out) noexcept {
  const std::size_t size = list::least_bytes + from.members().size() * member_entry::bytes;
  if (out.size() < size) return 0;
  store_le32(&out[0], from.number);
  store_le64(&out[4], from.self);
  out[12] = static_cast<std::byte>(from.count);
  std::byte* at = &out[0] + list::least_bytes;
  for (const member_entry& m : from.members()) {
    const std::string_view text = m.address.view();
    if (text.empty()) return 0;
    store_le64(at, m.number);
    at[8] = std::byte(m.state);
    at[9] = static_cast<std::byte>(text.size());
    std::memset(at + 10, 0, address_text::longest);
    std::memcpy(at + 10, text.data(), text.size());
    at += member_entry::bytes;
  }
  return size;
}
/// None: no door sends it. The members' numbers differ from each other and from the asking one's; none is 0. A list
/// without a number is empty, and has no number of the member either.
inline optional<list> decode_list(std::span<const std::byte> body) noexcept {
  if (body.size() < list::least_bytes) return {};
  list to;
  to.number = static_cast<std::uint32_t>(load_le32(&body[0]));
  to.self = load_le64(&body[4]);
  const std::size_t count = octet(body[12]);
  if (count > to.others.size() || body.size() != list::least_bytes + count * member_entry::bytes) return {};
  if ((to.number == 0) != (to.self == 0) || (to.number == 0 && count > 0)) return {};
  for (const std::byte* at = body.data() + list::least_bytes; to.count < count; at += member_entry::bytes) {
    const std::size_t size = octet(at[9]);
    if (size > address_text::longest || !is_state(at[8])) return {};
    for (std::size_t i = size; i < address_text::longest; ++i)
      if (at[10 + i] != std::byte{0}) return {};
    const auto address = address_text::of(text_at(at + 10, size));
    const member_entry m{load_le64(at), member_state(at[8]), *address};
    if (!address || m.number == 0 || m.number == to.self) return {};
    for (const member_entry& before : to.members())
      if (before.number == m.number) return {};
    to.others[to.count++] = m;
  }
  return to;
}

/// As encode(const join&, out).
inline std::size_t encode(const parts& from, std::span<std::byte> out) noexcept {
  if (out.size() < parts::bytes) return 0;
  out[0] = static_cast<std::byte>(from.shift);
  std::memcpy(&out[1], from.proved.data(), from.proved.size());
  return parts::bytes;
}
/// None: no member sends it. Bits behind the last part of an image are the caller's to ignore.
inline optional<parts> decode_parts(std::span<const std::byte> body) noexcept {
  if (body.size() != parts::bytes || octet(body[0]) > 63) return {};
  parts to;
  to.shift = static_cast<std::uint8_t>(body[0]);
  std::memcpy(to.proved.data(), &body[1], to.proved.size());
  return to;
}

}  // namespace tensorpull::detail::swarm
