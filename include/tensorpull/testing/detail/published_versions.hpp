// The oracle of bytes: copies of everything that was ever published, to compare destinations with. They are taken
// tensor by tensor, without the library's gathering, framing or hashing.
#pragma once

#include <tensorpull/image/view.hpp>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

namespace tensorpull::testing::detail {

/// Keeps a copy of each version that is added, on the heap.
class published_versions {
 public:
  void add(std::uint64_t version, const source_view& image) {
    entries_.push_back({version, {}});
    for (std::size_t i = 0; i < image.schema->tensor_count; ++i) {
      const std::span<const std::byte> bytes = tensor_of(image, i);
      entries_.back().tensors.push_back({std::string(image.schema->tensors[i].name), {bytes.begin(), bytes.end()}});
    }
  }
  /// Whether each tensor of `destination` equals that of the version byte for byte, and none is missing unless the
  /// destination is a `part`. False for a version that was never published.
  bool equal(std::uint64_t version, const source_view& destination, bool part = false) const {
    for (const entry& e : entries_)
      if (e.version == version && same(e, destination, part)) return true;
    return false;
  }
  /// The i-th version that was added, which may no longer be published.
  std::uint64_t version(std::size_t i) const noexcept { return entries_[i].version; }
  std::size_t size() const noexcept { return entries_.size(); }

 private:
  struct tensor {
    std::string name;
    std::vector<std::byte> bytes;
  };
  struct entry {
    std::uint64_t version;
    std::vector<tensor> tensors;
  };
  static std::span<const std::byte> tensor_of(const source_view& image, std::size_t i) noexcept {
    return {image.address(i), static_cast<std::size_t>(image.schema->tensors[i].size_bytes())};
  }
  static bool same(const entry& e, const source_view& d, bool part) {
    if (!part && d.schema->tensor_count != e.tensors.size()) return false;
    for (std::size_t i = 0; i < d.schema->tensor_count; ++i) {
      const auto published = std::find_if(e.tensors.begin(), e.tensors.end(),
                                          [&](const tensor& t) { return t.name == d.schema->tensors[i].name; });
      const std::span<const std::byte> bytes = tensor_of(d, i);
      if (published == e.tensors.end() ||
          !std::equal(bytes.begin(), bytes.end(), published->bytes.begin(), published->bytes.end()))
        return false;
    }
    return true;
  }

  std::vector<entry> entries_;
};

}  // namespace tensorpull::testing::detail
