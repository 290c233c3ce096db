// What a status page calls recipients and what is published: an owner knows both by numbers alone.
#pragma once

#include <tensorpull/core/ids.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tensorpull {

/// Names that a program gives, any bytes: a page shows them escaped. It remembers the last `most`, 128 bytes each, and
/// of each name the first 96 bytes. Any thread may use it.
class status_names {
 public:
  static constexpr std::size_t most_bytes = 96;  ///< of a name

  /// `most`: names that it remembers.
  explicit status_names(std::size_t most = 4096) noexcept : most_(std::max<std::size_t>(most, 1)) {}

  /// A recipient that is known by its name (recipient_named).
  void add(std::string_view name) noexcept { add(recipient_named(name), name); }
  /// A recipient.
  void add(recipient_id who, std::string_view name) noexcept { put({who.value, 0, true}, name); }
  /// What is published under an ID, in any version. The ID is not shown.
  void add(const ref_id& id, std::string_view title) noexcept { put({id.high, id.low, false}, title); }

  /// Copies a name, as much as fits. Returns its length; 0: there is none.
  std::size_t find(recipient_id who, std::span<char> out) const noexcept { return get({who.value, 0, true}, out); }
  /// The same of a title.
  std::size_t find(const ref_id& id, std::span<char> out) const noexcept { return get({id.high, id.low, false}, out); }

 private:
  struct key {
    std::uint64_t high = 0, low = 0;
    bool recipient = false;
    friend bool operator==(const key&, const key&) noexcept = default;
  };
  struct hash {
    std::size_t operator()(const key& k) const noexcept { return static_cast<std::size_t>(k.high ^ k.low); }  // random
  };
  struct entry {
    key of{};
    std::uint8_t size = 0;
    std::array<char, most_bytes> text{};
  };

  void put(const key& of, std::string_view name) noexcept {
    entry e{.of = of, .size = static_cast<std::uint8_t>(std::min(name.size(), most_bytes))};
    std::memcpy(e.text.data(), name.data(), e.size);
    const std::lock_guard hold(lock_);
    if (const auto old = where_.find(of); old != where_.end()) return void(entries_[old->second] = e);
    if (entries_.size() < most_) {
      try {
        where_.emplace(of, entries_.size());
        return entries_.push_back(e);
      } catch (...) {
        where_.erase(of);
        if (entries_.empty()) return;  // without memory it has no name
      }
    }
    entry& oldest = entries_[oldest_++ % entries_.size()];
    auto place = where_.extract(oldest.of);
    place.key() = of;
    where_.insert(std::move(place));
    oldest = e;
  }
  std::size_t get(const key& of, std::span<char> out) const noexcept {
    const std::lock_guard hold(lock_);
    const auto found = where_.find(of);
    if (found == where_.end()) return 0;
    const entry& e = entries_[found->second];
    const std::size_t n = std::min<std::size_t>(e.size, out.size());
    std::memcpy(out.data(), e.text.data(), n);
    return n;
  }

  mutable std::mutex lock_;
  std::vector<entry> entries_;
  std::unordered_map<key, std::size_t, hash> where_;  // in `entries_`: a page asks for thousands
  std::size_t most_, oldest_ = 0;
};

}  // namespace tensorpull
