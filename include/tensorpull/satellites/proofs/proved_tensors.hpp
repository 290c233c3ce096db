// Some tensors of an image, proved by the root of the whole: the filter in front of the consumer that they are for.
#pragma once

#include <tensorpull/consumers/any_schema/new_model.hpp>
#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/image/header_reader.hpp>
#include <tensorpull/image/schema.hpp>
#include <tensorpull/satellites/proofs/proof_tree.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/optional.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorpull {

/// Asks for the whole image, and wants of it only the parts with bytes of the named tensors, once its header has
/// arrived and is proved (consumer, 17). `Consumer` sees what a pull of these tensors by name gives: its begin() is
/// called behind the proved header, offsets count from the first of the tensors, which lie in image order. Other bytes
/// are hashed, since they share groups with these, and thrown away. Bytes are committed before their group has ended,
/// so the consumer can undo, and takes them in any order; it has finished only if all of them are proved.
///
/// Of a consumer with a schema the tensors have to be those of the names, and have its dtypes and shapes. Errors behind
/// the header, with the tensor's name: bad_request: it is not in the image, or is named twice; schema_mismatch: the
/// consumer has it not, or has another. bad_frame: the header is proved, and not as an owner writes it. Memory: what
/// has arrived of the header, and at its end its table (new_model_limits), 24 bytes for each run of tensors that lie
/// together, and 32 KiB of this object; nothing is allocated behind the header.
template <consumer Consumer, class Chunks = detail::blake3::by_lanes>
class proved_tensors {
  static_assert(
      !Consumer::irrevocable,
      "tensorpull: bytes of some tensors land before they are proved, so the consumer has to be one that can undo (consumer, 1)");
  static_assert(
      requires { requires Consumer::any_order; },
      "tensorpull: some tensors are proved for a consumer that takes bytes in any order (consumer, 13)");

 public:
  static constexpr bool irrevocable = false;  ///< it can begin anew (consumer, 1)
  static constexpr bool any_order = true;  ///< (consumer, 13)
  static constexpr bool checks_groups = true;  ///< (consumer, 15)
  static constexpr bool wants_some = true;  ///< parts alone (consumer, 17)
  static constexpr std::uint8_t most_lines = 8;  ///< that may bring bytes at a time

  /// Borrows all. `names`: in any order; none: those of the consumer's schema. `limits`: of the header.
  proved_tensors(Consumer& to, const proof& by, std::span<const std::string_view> names,
                 const new_model_limits& limits = {}) noexcept
      : to_(to), by_(by), names_(names), limits_(limits) {}

  static constexpr std::uint64_t fingerprint() noexcept { return 0; }
  static constexpr const image_schema* schema() noexcept { return nullptr; }
  /// Whether it was this side that ended the last pull: whatever its error is, it is no owner's lie.
  bool refused() const noexcept { return refused_; }
  /// The receipt of the tensors, of which `r` is that of the image.
  receipt receipt_of(receipt r) const noexcept {
    r.outcome = outcome::completed;
    r.believed = false;
    r.bytes = wanted_bytes_;
    r.fingerprint = fingerprint_;
    r.digest = 0;
    return r;
  }

  result<void> begin(const description& d) noexcept {
    refused_ = false;
    if (d.image_bytes != by_.image_bytes()) return failure(errc::digest_mismatch, d.image_bytes);
    if (d.data_start < 8 || d.data_start > d.image_bytes) return failure(errc::bad_frame, d.data_start);
    if (d.data_start > limits_.max_header_bytes) return failure(errc::too_large, d.data_start);
    described_ = d;
    forget_header(header_reader(limits_.max_tensors));
    runs_.clear();
    wanted_bytes_ = told_ = proved_ = taken_ = 0;
    sharing_ = false;
    for (open_group& l : lines_) l.next = nowhere;
    return {};
  }
  /// No further than the group or the tensor's end.
  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    length = std::min(length, by_.end_of_group(offset) - offset);
    const run* const next = sharing_ ? run_after(offset) : nullptr;
    if (next != nullptr && next->begin <= offset)
      return to_.prepare(next->at + (offset - next->begin), std::min(length, next->end - offset), out);
    return detail::prepare_in(passing_, next != nullptr ? std::min(length, next->begin - offset) : length, out);
  }
  /// As requirement 17 has it.
  void brought_by(std::uint8_t line) noexcept { line_ = line; }
  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    const std::uint64_t group = offset / by_.group_bytes();
    open_group& open = lines_[line_];
    if (offset % by_.group_bytes() == 0) open = {by_.template hash_of<Chunks>(group), offset};
    if (open.next != offset) return failure(errc::not_verifiable, offset);
    open.hash.update(bytes);
    open.next += bytes.size();
    const bool ends = open.next == by_.end_of_group(offset);
    if (!sharing_) take_header(offset, bytes);
    if (ends && !by_.holds(group, open.hash)) return failure(errc::digest_mismatch, offset);
    if (!sharing_) return ends ? group_is_right(open.next) : result<void>();
    const run* const next = run_after(offset);
    if (next == nullptr || next->begin > offset) return {};
    return heard(to_.commit(next->at + (offset - next->begin), bytes));
  }
  result<void> chunk(std::uint64_t offset, std::uint64_t length) noexcept {
    const std::uint64_t end = sharing_ ? wanted_before(offset + length) : told_;
    if (end == told_) return {};
    const std::uint64_t from = std::exchange(told_, end);
    return heard(to_.chunk(from, end - from));
  }
  std::uint64_t group_bytes() const noexcept { return by_.group_bytes(); }  ///< as requirement 15 has it
  static constexpr std::uint64_t right_bytes() noexcept { return 0; }  ///< nothing of an earlier pull is looked at
  /// The header is proved: from here on the wanted groups land in any order.
  void in_any_order(std::uint64_t) noexcept { sharing_ = true; }
  /// Whether one of these bytes is a tensor's that is named.
  bool wants(std::uint64_t offset, std::uint64_t length) const noexcept {
    const run* const next = run_after(offset);
    return next != nullptr && next->begin < offset + length;
  }
  result<void> finish(const receipt& r) noexcept {
    if (!sharing_ || told_ != wanted_bytes_) return failure(errc::not_verifiable, told_);
    const auto done = heard(finish_with(receipt_of(r)));
    if (done) begun_ = false;
    return done;
  }
  void abandon(const error& e) noexcept {
    if (std::exchange(begun_, false)) to_.abandon(e);
  }
  /// The owner has heard that it ended.
  void confirmed() noexcept {
    if constexpr (requires { to_.confirmed(); }) to_.confirmed();
  }

 private:
  static constexpr std::uint64_t nowhere = ~std::uint64_t{0};
  /// Bytes of the image that are wanted, and where they begin among the wanted ones.
  struct run {
    std::uint64_t begin = 0, end = 0, at = 0;
  };
  /// The bytes of a group that a line has brought.
  struct open_group {
    detail::group_hash<Chunks> hash{};
    std::uint64_t next = nowhere;
  };

  /// The first run that has not ended before this byte.
  const run* run_after(std::uint64_t offset) const noexcept {
    const auto found = std::upper_bound(runs_.begin(), runs_.end(), offset,
                                        [](std::uint64_t at, const run& r) { return at < r.end; });
    return found != runs_.end() ? &*found : nullptr;
  }
  std::uint64_t wanted_before(std::uint64_t offset) const noexcept {
    const run* const next = run_after(offset);
    if (next == nullptr) return wanted_bytes_;
    return next->at + (offset - std::min(offset, next->begin));
  }
  result<void> heard(const result<void>& answer) noexcept {
    refused_ = !answer;
    return answer;
  }
  /// There is nothing that could tell whether another process has changed the tensors since they were proved.
  result<void> finish_with(const receipt& r) noexcept {
    const auto holds = [](const source_view&) noexcept -> bool { return false; };
    if constexpr (requires { to_.finish(r, holds); }) return to_.finish(r, holds);
    else return to_.finish(r);
  }

  /// Reads on. Bytes that are not proved may be any: an error counts once their group is right.
  void take_header(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    if (offset == proved_ && offset < taken_) {  // the group arrives anew
      header_.back_to(checked_);
      spelling_ = checked_spelling_;
      taken_ = offset;
    }
    if (offset == proved_) wrong_ = {};
    if (wrong_ || offset != taken_ || offset >= described_.data_start) return;
    bytes = bytes.first(detail::smaller(bytes.size(), described_.data_start - offset));
    taken_ += bytes.size();
    spelling_.update(bytes);
    try {
      if (const auto ok = header_.take(bytes); !ok) wrong_ = ok.error();
      else if (header_.table_bytes() / 2 > limits_.max_header_bytes)
        wrong_ = error{errc::too_large, 0, header_.table_bytes(), {}};
    } catch (...) {
      wrong_ = error{errc::out_of_memory, 0, offset, {}};
    }
  }
  /// A group of those with the header, which ends there.
  result<void> group_is_right(std::uint64_t end) noexcept {
    if (end <= proved_) return {};
    const bool last = proved_ < described_.data_start && end >= described_.data_start;
    proved_ = end;
    if (wrong_) return heard(failure(*wrong_));
    if (!last) {
      checked_ = header_.here();
      checked_spelling_ = spelling_;
      return {};
    }
    try {
      return heard(choose());
    } catch (...) {
      return heard(failure(errc::out_of_memory, end));
    }
  }
  /// The header is there and right.
  result<void> choose() {
    detail::header_tables image;
    if (const auto ok = image.read(header_, described_.data_start); !ok) return ok;
    if (image.schema.header_bytes != described_.data_start || image.schema.image_bytes != by_.image_bytes() ||
        detail::header_digest(image.schema) != spelling_.digest())
      return failure(errc::bad_frame, described_.data_start);
    std::vector<bool> named(image.entries.size());
    if (const auto ok = find_names(image.schema, named); !ok) return ok;
    xxh3_64 all;
    for (std::size_t i = 0; i < named.size(); ++i) {
      const tensor_entry& t = image.entries[i];
      if (!named[i]) continue;
      hash_entry(all, t);
      const std::uint64_t begin = image.schema.header_bytes + t.begin, end = image.schema.header_bytes + t.end;
      if (!runs_.empty() && runs_.back().end == begin) runs_.back().end = end;
      else if (begin != end) runs_.push_back({begin, end, wanted_bytes_});
      wanted_bytes_ += t.size_bytes();
    }
    fingerprint_ = all.digest();
    if (to_.fingerprint() != 0 && to_.fingerprint() != fingerprint_) return failure(errc::schema_mismatch);
    forget_header(header_reader(0));
    description d = described_;
    d.fingerprint = fingerprint_;
    d.image_bytes = wanted_bytes_;
    d.data_start = 0;
    d.tensors = static_cast<std::uint64_t>(std::count(named.begin(), named.end(), true));  // a source may have lied
    d.verifiable = true;  // the root stands for the bytes
    begun_ = true;
    return to_.begin(d);
  }
  /// Which tensors of the image are named: all of the consumer's, and no others.
  result<void> find_names(const image_schema& image, std::vector<bool>& named) const noexcept {
    const image_schema* const ours = to_.schema();
    const std::size_t own = ours != nullptr ? ours->tensor_count : 0, count = names_.empty() ? own : names_.size();
    for (std::size_t n = 0; n < count; ++n) {
      const std::string_view name = names_.empty() ? ours->tensors[n].name : names_[n];
      const std::size_t i = detail::find_tensor(image, name);
      if (i == image.tensor_count || named[i]) return failure(errc::bad_request, n, name);
      named[i] = true;
      if (ours != nullptr && !has_same(*ours, image.tensors[i])) return failure(errc::schema_mismatch, n, name);
    }
    if (count == 0) return failure(errc::bad_request);
    for (std::size_t k = 0; count != own && k < own; ++k)
      if (const std::size_t i = detail::find_tensor(image, ours->tensors[k].name); i == image.tensor_count || !named[i])
        return failure(errc::schema_mismatch, k, ours->tensors[k].name);
    return {};
  }
  static bool has_same(const image_schema& ours, const tensor_entry& theirs) noexcept {
    const std::size_t k = detail::find_tensor(ours, theirs.name);
    if (k == ours.tensor_count || ours.tensors[k].type != theirs.type) return false;
    const auto a = ours.tensors[k].extents(), b = theirs.extents();
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  void forget_header(header_reader header) noexcept {
    std::swap(header_, header);  // not assigned: a string keeps its memory then
    checked_ = header_.here();
    spelling_ = checked_spelling_ = {};
    wrong_ = {};
  }

  Consumer& to_;
  const proof& by_;
  std::span<const std::string_view> names_;
  new_model_limits limits_;
  description described_{};  // of the image
  header_reader header_{0};
  header_reader::mark checked_{};  // behind the last proved group
  xxh3_64 spelling_, checked_spelling_;  // of the header so far; behind that group
  optional<error> wrong_;  // with the header, in a group that has not ended
  std::vector<run> runs_;
  std::uint64_t wanted_bytes_ = 0, told_ = 0;  // told_: how many of them the consumer was told of
  std::uint64_t proved_ = 0, taken_ = 0;  // of the groups with the header; of the header
  std::uint64_t fingerprint_ = 0;  // of the named tensors alone
  std::array<open_group, most_lines> lines_{};
  std::uint8_t line_ = 0;
  bool sharing_ = false, begun_ = false, refused_ = false;
  std::byte passing_[16 * 1024];
};

}  // namespace tensorpull
