// Frames for tests: encoded messages, hand-made words, and the real `capnp` tool.
#pragma once


#ifndef TENSORPULL_TEST_WITHOUT_CAPNP  // for a machine that Cap'n Proto's library is not built for
#include "words.hpp"

#include <tensorpull/framing/capnp/capnp_framing.hpp>
#endif
#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/framing/word_framing.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#ifndef TENSORPULL_SCHEMA
#define TENSORPULL_SCHEMA "include/tensorpull/framing/protocol.capnp"
#endif

namespace test {

namespace tp = tensorpull;
using words = std::vector<std::uint64_t>;

/// One frame in 8-aligned memory of exactly its size, so that a sanitizer sees every read behind it.
class frame {
 public:
  frame() = default;
  explicit frame(const_byte_span bytes) : size_(bytes.size()), data_(new std::uint64_t[(bytes.size() + 7) / 8]) {
    if (!bytes.empty()) std::memcpy(data_.get(), bytes.data(), bytes.size());
  }
  explicit frame(const words& w) : size_(8 * w.size()), data_(new std::uint64_t[w.size()]) {
    for (std::size_t i = 0; i < w.size(); ++i) tp::store_le64(bytes().data() + 8 * i, w[i]);
  }
  frame(const frame& other) : frame(other.bytes()) {}
  frame& operator=(frame other) noexcept {
    size_ = other.size_;
    data_.swap(other.data_);
    return *this;
  }

  byte_span bytes() noexcept { return {reinterpret_cast<std::byte*>(data_.get()), size_}; }
  const_byte_span bytes() const noexcept { return {reinterpret_cast<const std::byte*>(data_.get()), size_}; }
  std::size_t size() const noexcept { return size_; }
  std::uint64_t word(std::size_t i) const noexcept { return tp::load_le64(bytes().data() + 8 * i); }

 private:
  std::size_t size_ = 0;
  std::unique_ptr<std::uint64_t[]> data_;
};

inline frame encode(const tp::frame& m, std::size_t room = 70'000) {
  std::vector<std::uint64_t> out(room / 8);
  const auto n = tp::word_framing::encode(m, std::as_writable_bytes(std::span(out)));
  EXPECT_TRUE(n) << to_string(n.error().code);
  return frame(std::as_bytes(std::span(out)).first(n ? *n : 0));
}

/// A request as a recipient of any mind sends it.
inline byte_vector request(tp::frame_kind kind, std::uint32_t id, const tp::ref_id& ref, std::uint64_t offset,
                           std::uint32_t length, tp::recipient_id who = {}) {
  tp::frame m;
  m.kind = kind, m.id = id, m.ref = ref, m.offset = offset, m.length = length, m.recipient = who;
  const frame f = encode(m, 4096);
  return {f.bytes().begin(), f.bytes().end()};
}

/// A decoded message with the memory that it points into. The framing with the library and the one without have to
/// agree on it.
struct decoded {
  frame from;
  tp::word_framing::decode_storage lists;
  tp::frame m{};
  tp::result<void> outcome{};

  explicit decoded(frame f) : from(std::move(f)) {
    outcome = tp::word_framing::decode(from.bytes(), m, lists);
#ifndef TENSORPULL_TEST_WITHOUT_CAPNP
    tp::capnp_framing::decode_storage more;
    tp::frame same;
    const auto again = tp::capnp_framing::decode(from.bytes(), same, more);
    EXPECT_EQ(again.has_value(), outcome.has_value()) << "kind " << static_cast<int>(same.kind);
    if (!again && !outcome) {
      EXPECT_EQ(again.error().code, outcome.error().code);
    }
    if (!again || !outcome) return;
    EXPECT_EQ(same.kind, m.kind);
    EXPECT_EQ(std::tie(same.id, same.version, same.offset, same.nonce, same.length, same.flag),
              std::tie(m.id, m.version, m.offset, m.nonce, m.length, m.flag));
    EXPECT_EQ(std::tuple(same.rows.size(), same.names.size(), same.ranges.size(), same.references.size()),
              std::tuple(m.rows.size(), m.names.size(), m.ranges.size(), m.references.size()));
    EXPECT_TRUE(same.body.data() == m.body.data() && same.body.size() == m.body.size());
    for (std::size_t i = 0; i < m.rows.size() && i < same.rows.size(); ++i)
      EXPECT_TRUE(same.rows[i].name.data() == m.rows[i].name.data() || m.rows[i].name.empty());
#endif
  }
  decoded(const decoded&) = delete;
};
inline tp::errc decode_error(const frame& f) {
  const decoded d(f);
  EXPECT_FALSE(d.outcome);
  return d.outcome ? tp::errc{} : d.outcome.error().code;
}

/// A chunk's frame with its payload and padding.
inline frame chunk_frame(tp::frame m, const_byte_span payload) {
  m.kind = tp::frame_kind::chunk;
  m.length = static_cast<std::uint32_t>(payload.size());
  byte_vector f(static_cast<std::size_t>(tp::detail::payload_prefix::frame_bytes(payload.size())));
  tp::detail::payload_prefix::write(m, std::span(f).first<tp::detail::payload_prefix::bytes>());
  if (!payload.empty()) std::memcpy(f.data() + tp::detail::payload_prefix::bytes, payload.data(), payload.size());
  return frame(f);
}

// Words of the Cap'n Proto encoding (https://capnproto.org/encoding.html).
constexpr std::uint64_t segment_table(std::uint32_t size) { return std::uint64_t{size} << 32; }
constexpr std::uint64_t struct_pointer(std::int32_t offset, std::uint16_t data, std::uint16_t pointers) {
  return (static_cast<std::uint32_t>(offset) << 2) | std::uint64_t{data} << 32 | std::uint64_t{pointers} << 48;
}
enum list_size : std::uint64_t {
  of_void,
  of_bit,
  of_byte,
  of_two,
  of_four,
  of_eight,
  of_pointer,
  of_composite,
};
constexpr std::uint64_t list_pointer(std::int32_t offset, list_size size, std::uint32_t count) {
  return ((static_cast<std::uint32_t>(offset) << 2) | 1u) | std::uint64_t{size} << 32 | std::uint64_t{count} << 35;
}
constexpr std::uint64_t far_pointer(std::uint32_t segment, std::uint32_t word, bool two) {
  return (word << 3 | (two ? 4u : 0u) | 2u) | std::uint64_t{segment} << 32;
}

/// One segment: root struct of 7 data words and a pointer, the union tag of `kind`, then `rest` from the pointer word
/// on.
inline frame single_segment(tp::frame_kind kind, std::initializer_list<std::uint64_t> rest) {
  words w{0, struct_pointer(0, 7, 1), std::uint64_t{static_cast<std::uint16_t>(kind)} << 32 | 1, 0, 0, 0, 0, 0, 0};
  w.insert(w.end(), rest);
  w[0] = segment_table(static_cast<std::uint32_t>(w.size() - 1));
  return frame(w);
}

/// What `capnp decode` makes of a frame; empty if it finds the frame invalid.
inline std::string capnp_decode(const frame& f) {
  const char* const from_environment = std::getenv("TENSORPULL_SCHEMA");
  const std::string schema = from_environment != nullptr ? from_environment : TENSORPULL_SCHEMA;
  char path[] = "/tmp/tensorpull-frame-XXXXXX";
  const int fd = mkstemp(path);
  EXPECT_GE(fd, 0);
  std::FILE* const file = fdopen(fd, "wb");
  EXPECT_EQ(std::fwrite(f.bytes().data(), 1, f.size(), file), f.size());
  std::fclose(file);
  std::FILE* const tool = popen(("capnp decode --short '" + schema + "' Frame < " + path + " 2>/dev/null").c_str(),
                                "r");
  std::string text;
  char part[4096];
  for (std::size_t n; (n = std::fread(part, 1, sizeof part, tool)) > 0;) text.append(part, n);
  const int status = pclose(tool);
  std::remove(path);
  return status == 0 ? text : std::string();
}

}  // namespace test
