// A model with its tree, owners of it, and owners that lie.
#pragma once

#include <tensorpull/satellites/proofs/proved_pull.hpp>

#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>

#include "support/models.hpp"
#include "support/results.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

namespace test::proved {

using tp::operator""_KiB;
using loopback_net = tp::pipeline<tp::tensor_list, tp::fixed_bytes<24_KiB>, tp::loopback>;  // no chunk is a group

/// One tensor of bytes, so that the image is of any length from 72 on.
inline model bytes_model(std::uint64_t bytes, std::uint64_t seed, std::string name = "w") {
  model m;
  m.add(std::move(name), dtype::u8, {bytes}).ready();
  return std::move(m.fill(seed));
}
/// The bytes of its only tensor.
inline byte_span data(model& m) {
  const auto to = m.destination();
  return {to.address(0), static_cast<std::size_t>(to.schema->data_bytes())};
}
inline const_byte_span data(const model& m) {
  const auto from = m.source();
  return {from.address(0), static_cast<std::size_t>(from.schema->data_bytes())};
}
inline tp::blake3_value blake3_of(const_byte_span bytes) {
  tp::blake3_hash h;
  h.update(bytes);
  return h.value();
}

using owners_list = std::vector<std::unique_ptr<loopback_net::downloader>>;
template <class... Owner>
owners_list owners_of(Owner... each) {
  owners_list all;
  (all.push_back(std::move(each)), ...);
  return all;
}
inline std::vector<loopback_net::downloader*> sources(const owners_list& all) {
  std::vector<loopback_net::downloader*> out;
  for (const auto& one : all) out.push_back(one.get());
  return out;
}

/// A model, its tree, and the reference that its recipients are given.
struct published {
  model now;
  tp::proof_tree tree;
  tp::proved_reference ref;

  explicit published(model m) : now(std::move(m)), tree(*tp::proof_tree::make(now.source())) {
    ref.model = {{1, 2}, *tp::image_version<tp::xxhash_digest>(now.source()), 0};
    ref.root = tree.root();
    ref.image_bytes = tree.image_bytes();
    if (!tree.is_root_alone()) ref.tree = {{3, 4}, *tp::image_version<tp::xxhash_digest>(tree.image().source()), 0};
  }
  /// `with`, `and_tree`: published in place of the model, and in place of its tree, under their references.
  std::unique_ptr<loopback_net::downloader> owner(const model* with = nullptr,
                                                  const tp::dynamic_image* and_tree = nullptr) const {
    auto made = std::make_unique<loopback_net::downloader>();
    publish_at(*made, 0, with, and_tree);
    return made;
  }
  /// Publishes both under their references at an owner. `recipients`: that are expected of the model.
  template <class Owner>
  void publish_at(Owner& owner, std::uint32_t recipients = 0, const model* with = nullptr,
                  const tp::dynamic_image* and_tree = nullptr) const {
    tp::publish_options how;
    how.id = ref.model.id;
    how.version = ref.model.version;
    how.recipients = recipients;
    EXPECT_TRUE(succeeded(owner.add_image((with != nullptr ? *with : now).source(), how)));
    if (!ref.tree.id) return;
    how.id = ref.tree.id;
    how.version = ref.tree.version;
    how.recipients = 0;
    EXPECT_TRUE(succeeded(owner.add_image((and_tree != nullptr ? *and_tree : tree.image()).source(), how)));
  }
};

/// What most tests pull: ten groups, the last one short.
constexpr std::uint64_t group = 64_KiB, bytes = 9 * group + 1234;
inline const published& the_model() {
  static const published one(bytes_model(bytes, 1));
  return one;
}
inline const tp::proof_options fine{.most_bytes = 64 * 1024};  // groups of 64 KiB
/// The model with another byte there.
inline model changed_at(std::uint64_t at) {
  model m = bytes_model(bytes, 1);
  data(m)[static_cast<std::size_t>(at)] ^= std::byte{1};
  return m;
}
/// The BLAKE3 of a file.
inline tp::blake3_value file_root(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  return blake3_of(std::as_bytes(std::span(all)));
}

}  // namespace test::proved
