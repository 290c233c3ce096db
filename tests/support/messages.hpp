// One message of every kind, with every member that the kind has set to something recognisable.
#pragma once

#include "frames.hpp"

#include <array>

namespace test {

inline constexpr std::array<std::uint64_t, 3> some_shape{7, 0, ~std::uint64_t{0}};
inline constexpr std::array<tp::schema_row, 3> some_rows{
    {{"layers.0.weight", "F32", some_shape}, {"", "F8_E4M3FNUZ", {}}, {"\xc3\xa9\"", "I64", some_shape}}};
inline constexpr std::array<std::string_view, 3> some_names{
    {"layers.0.weight", "", "a name of some length, longer than a word"}};
inline constexpr std::array<tp::index_range, 3> some_slices{{{}, {1, 2, 0xfedc}, {~std::uint64_t{0}, 0}}};
inline constexpr std::array<tp::byte_range, 2> some_ranges{{{8, 16}, {~std::uint64_t{0} - 1, ~std::uint64_t{0}}}};
inline constexpr std::array<tp::reference, 2> some_references{{{{1, 2}, 3, 4}, {{~std::uint64_t{0}, 0}, 5, 6}}};
inline constexpr std::array<std::byte, 13> some_body{std::byte{1}, std::byte{0}, std::byte{255}};

/// Every kind that encode() takes.
inline std::vector<tp::frame> every_message() {
  using kind = tp::frame_kind;
  std::vector<tp::frame> all;
  const auto add = [&](kind k, auto change) {
    tp::frame m;
    m.kind = k;
    m.id = 0xfedcba98;
    m.ref = {0x0123456789abcdef, 0xfedcba9876543210};
    m.version = 0x1111222233334444;
    change(m);
    all.push_back(m);
  };
  add(kind::nothing, [](tp::frame& m) { m.ref = {}, m.version = 0; });
  add(kind::describe, [](tp::frame& m) { m.version = 0; });
  add(kind::pull, [](tp::frame& m) {
    m.offset = 1ull << 40, m.length = 2'097'152, m.fingerprint = 9, m.chunk_digest = tp::digest_kind::xxh3_64;
  });
  add(kind::pull,
      [](tp::frame& m) { m.offset = 77, m.length = 64, m.fingerprint = 0x0000000800000010, m.flag = true; });
  add(kind::end, [](tp::frame& m) { m.image_bytes = 99, m.nonce = 7; });
  add(kind::confirm, [](tp::frame& m) { m.nonce = 7, m.digest = 8, m.recipient = {17}, m.flag = true; });
  add(kind::confirmed, [](tp::frame& m) { m.nonce = 7, m.status = tp::status::digest_mismatch; });
  add(kind::cancel, [](tp::frame& m) { m.nonce = 7, m.reason = 8, m.status = tp::status::digest_mismatch; });
  add(kind::refused, [](tp::frame& m) { m.offset = 5, m.status = tp::status::already_final, m.delay_ms = 250; });
  add(kind::refused, [](tp::frame& m) { m.status = tp::status::withdrawn, m.delay_ms = 70'000; });
  add(kind::refused, [](tp::frame& m) { m.status = tp::status::unreadable; });
  add(kind::refused, [](tp::frame& m) { m.status = tp::status::owner_lost; });
  add(kind::schema, [](tp::frame& m) { m.offset = 5; });
  add(kind::description, [](tp::frame& m) {
    m.fingerprint = 1, m.image_bytes = 2, m.data_start = 3, m.nonce = 4, m.length = 5, m.tensors = 6, m.window = 7,
    m.flag = true;
  });
  add(kind::schema_page, [](tp::frame& m) { m.offset = 1, m.tensors = 4, m.rows = some_rows; });
  add(kind::locate, [](tp::frame& m) { m.names = some_names; });
  add(kind::locate, [](tp::frame& m) { m.names = some_names, m.slices = some_slices; });
  add(kind::located, [](tp::frame& m) { m.nonce = 1, m.digest = 2, m.fingerprint = 3, m.ranges = some_ranges; });
  add(kind::application, [](tp::frame& m) {
    m.ref = {}, m.version = 0, m.application = 77, m.references = some_references, m.body = some_body;
  });
  return all;
}

}  // namespace test
