// Lands in tensors that exist, and reads the header on its way: what the owner's metadata says of ties is compared
// before a byte of a tensor lands.
#pragma once

#include <tensorpull/consumers/land.hpp>
#include <tensorpull/image/header_reader.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorpull::python {

/// Further names of tensors, each with the name under which its tensor travels.
using name_ties = std::map<std::string, std::string, std::less<>>;

/// As `land`, for one transfer of a whole image; of a subset no header travels, and nothing is compared. Memory: that
/// of the header, up to a limit, and `land`'s. Errors besides those of `land`: schema_mismatch with the name that the
/// owner has not tied as it is tied here; too_large, if the header is longer than what is kept of it and there are
/// ties; out_of_memory. Over datagrams bytes of tensors may have landed when they come.
class named_landing : public land {
 public:
  /// Borrows what the view points to.
  named_landing(const destination_view& to, name_ties ties, std::uint64_t most_header_bytes) noexcept
      : land(to), ties_(std::move(ties)), known_(to.schema->pairs()), most_header_bytes_(most_header_bytes),
        header_(to.schema->tensor_count) {}

  /// The metadata that came with the image, once its header has come, if that is spelled as this library spells it and
  /// was not longer than what is kept. Valid while this object lives.
  const std::vector<metadata_entry>& metadata() const noexcept { return metadata_; }

  result<void> begin(const description& d) noexcept {
    if (d.data_start > most_header_bytes_ && !ties_.empty()) return failure(errc::too_large, d.data_start);
    data_start_ = d.data_start;
    reads_ = d.data_start <= most_header_bytes_;
    said_ = false;
    metadata_.clear();
    // that of an earlier try, which a transfer keeps that goes on after the header
    for (const metadata_entry& pair : known_) metadata_.push_back(pair);
    header_.back_to({});
    checked_ = {};
    return land::begin(d);
  }
  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    return land::prepare(offset, offset < data_start_ ? std::min(length, data_start_ - offset) : length, out);
  }
  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    if (offset < data_start_) {
      const auto text = bytes.first(
          static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), data_start_ - offset)));
      if (const auto taken = take(offset, text); !taken) return taken;
    }
    return land::commit(offset, bytes);
  }
  result<void> chunk(std::uint64_t offset, std::uint64_t length) noexcept {
    if (!said_) checked_ = header_.here();
    return land::chunk(offset, length);
  }
  void rewind(std::uint64_t offset) noexcept {
    if (offset < data_start_ && reads_) {
      header_.back_to(checked_);
      metadata_.clear();
      said_ = false;
    }
    land::rewind(offset);
  }
  result<void> finish(const receipt& r) noexcept {
    // a transfer that goes on after the header has compared what has landed with an image of the metadata that is known
    if (!said_)
      if (const auto same = compare(); !same) return same;
    return land::finish(r);
  }

 private:
  result<void> take(std::uint64_t offset, std::span<const std::byte> text) noexcept {
    if (!reads_) return {};
    try {
      // what is not the writer's spelling says nothing here: the fingerprint and the digest are compared all the same
      reads_ = offset == header_.here().at && header_.take(text).has_value();
      if (reads_ && offset + text.size() < data_start_) return {};
      reads_ = reads_ && header_.complete();
      if (reads_) {
        std::vector<tensor_entry> entries;
        std::vector<std::uint64_t> extents;
        metadata_.clear();
        header_.entries(entries, extents, metadata_);
      }
      said_ = true;
      return compare();
    } catch (...) {
      return failure(errc::out_of_memory, offset);
    }
  }
  result<void> compare() const noexcept {
    std::size_t met = 0;
    for (const metadata_entry& pair : metadata_) {
      const auto tie = ties_.find(pair.key);
      if (tie == ties_.end()) continue;
      if (tie->second != pair.value) return failure(errc::schema_mismatch, 0, std::string_view(tie->first));
      ++met;
    }
    if (met == ties_.size()) return {};
    for (const auto& [name, kept] : ties_)
      if (std::none_of(metadata_.begin(), metadata_.end(),
                       [&name = name](const metadata_entry& pair) { return pair.key == name; }))
        return failure(errc::schema_mismatch, 0, std::string_view(name));
    return failure(errc::schema_mismatch);
  }

  name_ties ties_;
  std::span<const metadata_entry> known_;
  std::uint64_t most_header_bytes_, data_start_ = 0;
  header_reader header_;
  header_reader::mark checked_{};  // at the end of the last whole chunk
  std::vector<metadata_entry> metadata_;
  bool reads_ = false, said_ = false;
};

}  // namespace tensorpull::python
