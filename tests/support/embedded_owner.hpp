// The owner of a small machine for tests: a model of it, the same as a host has it, and a look at each of its answers.
#pragma once

#include "frames.hpp"
#include "models.hpp"

#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/embedded/owner.hpp>

#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <vector>

namespace test {

/// A model with odd sizes, several dtypes, a scalar and a tensor without elements: 30 KiB.
struct device_model {
  std::array<std::array<float, 60>, 100> fc1_weight;
  float fc1_bias[60];
  std::int64_t step;
  std::array<std::array<float, 0>, 3> hole;
  std::array<std::int8_t, 1117> table;
  std::array<tp::bfloat16, 21> scale;
  bool mask[13];
};

}  // namespace test

template <>
inline constexpr auto tensorpull::members_of<test::device_model> = tensorpull::members(
    tensorpull::member{"fc1.weight", &test::device_model::fc1_weight},
    tensorpull::member{"fc1.bias", &test::device_model::fc1_bias},
    tensorpull::member{"step", &test::device_model::step}, tensorpull::member{"hole", &test::device_model::hole},
    tensorpull::member{"table", &test::device_model::table}, tensorpull::member{"scale", &test::device_model::scale},
    tensorpull::member{"mask", &test::device_model::mask});

namespace test {

template <std::size_t Chunk = 512, class ChunkHash = tp::detail::no_hash,
          std::size_t Datagram = tp::detail::embedded_answer_bytes(Chunk)>
using small_owner = tp::embedded_owner<device_model, Chunk, tp::lean_xxh3_64, ChunkHash, Datagram>;

inline device_model random_model(std::uint64_t seed) {
  device_model m{};
  generator g(seed);
  const auto fill = [&](auto& tensor) { g.fill(std::as_writable_bytes(std::span(&tensor, 1))); };
  fill(m.fc1_weight), fill(m.fc1_bias), fill(m.step), fill(m.table), fill(m.scale);
  for (bool& b : m.mask) b = g.below(2) != 0;
  return m;
}

/// The same tensors without values, as a host has them.
inline model model_on_a_host() {
  model m;
  m.add("fc1.weight", dtype::f32, {100, 60})
      .add("fc1.bias", dtype::f32, {60})
      .add("step", dtype::i64, {})
      .add("hole", dtype::f32, {3, 0});
  m.add("table", dtype::i8, {1117}).add("scale", dtype::bf16, {21}).add("mask", dtype::boolean, {13});
  return std::move(m.ready());
}
/// The same with the values.
inline model twin_of(const device_model& from) {
  model m = model_on_a_host();
  const auto to = m.destination();
  const std::pair<std::string_view, const_byte_span> tensors[] = {
      {"fc1.weight", std::as_bytes(std::span(&from.fc1_weight, 1))},
      {"fc1.bias", std::as_bytes(std::span(from.fc1_bias))},
      {"step", std::as_bytes(std::span(&from.step, 1))},
      {"table", std::as_bytes(std::span(from.table))},
      {"scale", std::as_bytes(std::span(from.scale))},
      {"mask", std::as_bytes(std::span(from.mask))}};
  for (const auto& [name, bytes] : tensors)
    for (std::size_t i = 0; i < to.schema->tensor_count; ++i)
      if (to.schema->tensors[i].name == name) std::memcpy(to.address(i), bytes.data(), bytes.size());
  return m;
}

/// The frames of one answering datagram; those with lists do not occur.
using answers = std::vector<tp::frame>;

/// Reads an answering datagram: every frame in it is valid, and every chunk has the bytes of `image` that it says.
inline answers read_answers(const_byte_span bytes, const_byte_span image) {
  using prefix = tp::detail::payload_prefix;
  answers all;
  while (!bytes.empty()) {
    const auto measured = tp::detail::measure_frame(bytes, bytes.size(), 1);
    if (!measured || !*measured) {
      ADD_FAILURE() << "not a frame: " << bytes.size();
      return all;
    }
    const auto one = bytes.first(**measured);
    bytes = bytes.subspan(one.size());
    if (prefix::announces_payload(one)) {
      const auto m = prefix::read(one.first<prefix::bytes>());
      if (!m || m->length == 0 || m->offset > image.size() || m->length > image.size() - m->offset ||
          one.size() != prefix::frame_bytes(m->length)) {
        ADD_FAILURE() << "a wrong chunk";
        return all;
      }
      EXPECT_EQ(std::memcmp(one.data() + prefix::bytes, image.data() + m->offset, m->length), 0) << m->offset;
      for (std::size_t i = prefix::bytes + m->length; i < one.size(); ++i)
        EXPECT_EQ(one[i], std::byte{}) << "something leaves in the padding";
      all.push_back(*m);
    } else if (tp::detail::piece_prefix::announced(one)) {
      EXPECT_TRUE(tp::detail::piece_prefix::read(one.first<prefix::bytes>()));
      all.emplace_back().kind = tp::frame_kind::piece;
    } else {
      const decoded d{frame(one)};
      EXPECT_TRUE(succeeded(d.outcome));
      EXPECT_FALSE(tp::is_request(d.m.kind));
      all.push_back(d.m);
      all.back().rows = {}, all.back().names = {}, all.back().ranges = {}, all.back().references = {},
      all.back().body = {};
    }
  }
  return all;
}
/// The bytes that an owner answers a datagram with. Both are in memory of exactly their size.
template <class Owner>
byte_vector answer_of(Owner& o, const_byte_span bytes, std::uint32_t now_ms) {
  const byte_vector in(bytes.begin(), bytes.end());
  byte_vector out(Owner::answer_bytes, std::byte{0xa5});
  const std::size_t n = o.answer(in, out, now_ms);
  EXPECT_LE(n, out.size());
  out.resize(std::min(n, out.size()));
  return out;
}
template <class Owner>
answers answers_of(Owner& o, const_byte_span bytes, std::uint32_t now_ms, const_byte_span image) {
  return read_answers(answer_of(o, bytes, now_ms), image);
}

}  // namespace test
