// A model of named tensors, an owner of it with digests of tensors, and what brings another one up to date.
#pragma once

#include "transports/network.hpp"

#include <tensorpull/satellites/differences/download_changes.hpp>
#include <tensorpull/tensors/tensor_list.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace test::changed {

using net = tp::pipeline<tp::tensor_list, tp::fixed_bytes<2_MiB>, tp::tcp>;
template <class... Policies>
using over = tp::pipeline<tp::tensor_list, Policies...>;
using bytes = byte_vector;

struct kind {
  dtype type = dtype::f32;
  std::vector<std::uint64_t> shape;
  bool operator==(const kind&) const = default;
};

/// Named tensors with memory of their own.
struct tensors {
  std::map<std::string, std::pair<kind, bytes>> all;

  void add(const std::string& name, kind k, std::uint64_t seed) {
    bytes room(static_cast<std::size_t>(*tp::size_bytes(k.type, k.shape)));
    generator(seed).fill(room);
    all[name] = {std::move(k), std::move(room)};
  }
  tp::dynamic_image image(std::span<const tp::metadata_entry> metadata = {}) {
    std::vector<tp::mutable_tensor_view> views;
    for (auto& [name, t] : all) views.push_back({name, t.first.type, t.first.shape, t.second.data()});
    return std::move(*tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views), metadata));
  }
  std::uint64_t data_bytes() const {
    std::uint64_t n = 0;
    for (const auto& [name, t] : all) n += t.second.size();
    return n;
  }
  bool operator==(const tensors&) const = default;
};

/// Layers with two adapters of 32 bytes each.
inline constexpr std::uint64_t usual_layers = 60, weight_bytes = 16 * 1024;
inline tensors with_adapters(std::uint64_t layers = usual_layers, std::uint64_t bytes_of_each = weight_bytes) {
  tensors m;
  for (std::uint64_t i = 0; i < layers; ++i) {
    const std::string layer = "layer." + std::to_string(i);
    m.add(layer + ".weight", {dtype::f32, {bytes_of_each / 1024, 256}}, i);
    for (const char* const k : {".lora_A", ".lora_B"}) m.add(layer + k, {dtype::f32, {1, 8}}, i + 100);
  }
  return m;
}
inline tensors trained(const tensors& old) {
  tensors made = old;
  for (auto& [name, t] : made.all)
    if (name.find("lora") != name.npos)
      t.second[0] = static_cast<std::byte>((std::to_integer<unsigned>(t.second[0]) + 1u) & 255u);
  return made;
}

/// An owner of one model, for one recipient.
template <class Net>
struct publication {
  tensors now;
  tp::dynamic_image image;
  tp::result<typename Net::downloader> owner;
  tp::reference ref;
  std::optional<serving> server;

  explicit publication(tensors of, tp::publish_options options = {.recipients = 1, .tensor_digests = true},
                       std::span<const tp::metadata_entry> metadata = {}, std::string_view listen = any_port)
      : now(std::move(of)), image(now.image(metadata)), owner(Net::downloader::open({.listen = listen})) {
    ref = *owner->add_tensors(image, options);
    server.emplace(*owner);
  }
  std::string address() const { return local(owner->port()); }
  /// Brings it up to date; `kept`: how many of its bytes did not have to come.
  tp::result<tp::receipt> bring(tensors& mine, std::uint64_t& kept) {
    auto model = mine.image();
    return tp::download_changes<Net>(address(), ref, model, {}, &kept);
  }
  std::uint64_t published_bytes() const { return image.schema().image_bytes; }
  /// Stops, and says what was counted: exactly one recipient, which has it.
  tp::publication_status counted_once() {
    server.reset();
    const auto status = *owner->status_of(ref);
    EXPECT_TRUE(owner->settled(ref));
    EXPECT_EQ(owner->settlement_of(ref)->verdict, tp::verdict::completed);
    EXPECT_EQ(status.acquired, 1u);
    EXPECT_EQ(status.completed, 1u);
    EXPECT_EQ(status.final(), 1u);
    return status;
  }
};

/// Digests that are wrong in some way, in the place of those that an owner says.
inline std::string digits_of(tensors& of) {
  const auto image = of.image();
  std::string text;
  for (std::size_t i = 0; i < image.schema().tensor_count; ++i) {
    char one[16];
    tp::detail::put_word(*tp::tensor_digest_of<tp::xxh3_64>(image.source(), i), one);
    text.append(one, 16);
  }
  return text;
}
struct small {
  tensors old, now;
  small() {
    old.add("a", {dtype::f32, {5000}}, 1);
    old.add("b", {dtype::f32, {5000}}, 2);
    old.add("c", {dtype::f32, {10}}, 3);
    now = old;
    now.all["a"].second[7] ^= std::byte{1};
    now.all["c"].second[7] ^= std::byte{1};
  }
};

template <class Net>
void comes_by_parts(const auto& where, publication<Net>& p) {
  tensors mine = with_adapters();
  auto model = mine.image();
  std::uint64_t kept = 0;
  const auto done = tp::download_changes<Net>(where, p.ref, model, {.per_request_timeout = 30s}, &kept);
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_EQ(mine, p.now);
  EXPECT_EQ(kept, usual_layers * weight_bytes);
  p.counted_once();
}
}  // namespace test::changed
