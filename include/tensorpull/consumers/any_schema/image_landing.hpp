// An image that is written by byte ranges, for programs that bring their own transport: the header first, then the
// tensors in any order, each byte once.
#pragma once

#include <tensorpull/consumers/any_schema/new_model.hpp>
#include <tensorpull/consumers/land.hpp>
#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/image/header.hpp>
#include <tensorpull/image/view.hpp>
#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/std/stop_token.hpp>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace tensorpull {

/// Makes the tensors when the header has arrived, within `new_model_limits`, through a tensor_allocator, and copies
/// each range to where it belongs. The header's bytes arrive in order, from offset 0; those behind it in any order.
/// After an error of write() or finish() that was the end (`over()`), nothing is taken any more and the tensors are
/// freed. One thread at a time uses it. Memory: the header's names and shapes; 16 bytes for each gap between ranges
/// that have arrived, of which there are `most_ranges` at most.
template <tensor_allocator Allocator>
class image_landing {
 public:
  static constexpr std::size_t most_ranges = 65'536;  ///< that have arrived apart from each other; more are too_large

  /// Allocates nothing. `image_bytes`: of the whole image, its header included, as the sender states.
  image_landing(Allocator allocator, std::uint64_t image_bytes, const new_model_limits& limits) noexcept
      : made_(std::move(allocator)), limits_(limits), image_bytes_(image_bytes), header_(limits.max_tensors) {}
  image_landing(const image_landing&) = delete;
  image_landing& operator=(const image_landing&) = delete;

  /// The allocator, which owns what it made.
  Allocator& allocator() noexcept { return made_.allocator; }
  /// Once header_complete(): names, dtypes, shapes and metadata, in image order. Valid while this object lives.
  const image_schema& made() const noexcept { return made_.schema; }
  /// Whether the tensors are there.
  bool header_complete() const noexcept { return made_.landing.has_value(); }
  /// Bytes of the header that are still awaited; while its length is not known: of that.
  std::uint64_t header_left() const noexcept { return made_.landing ? 0 : header_bytes() - taken_; }
  /// Bytes that have arrived.
  std::uint64_t written() const noexcept { return taken_ + landed_; }
  /// Whether it has finished, or cannot finish any more.
  bool over() const noexcept { return over_; }
  /// The first byte that has not arrived; the image's length if all have.
  std::uint64_t first_missing() const noexcept {
    if (!made_.landing) return taken_;
    return ranges_.empty() || ranges_.front().begin != header_bytes() ? header_bytes() : ranges_.front().end;
  }

  /// Takes the image's bytes [offset, offset + bytes.size()). Errors after which it goes on as if nothing had been
  /// written: out_of_range (behind the image's end, with the image's length; or, while the header is not complete, not
  /// at its next byte, with that byte), bad_request (a byte has arrived before, with its offset), too_large with name
  /// "ranges", invalid_argument (it is over). Errors after which it is over: too_large (above a limit), bad_frame (no
  /// header of an image, or not as an owner writes it), unsupported_dtype, schema_mismatch (an image of another length
  /// than was stated), out_of_memory, those of the allocator.
  result<void> write(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    if (over_) return failure(errc::invalid_argument, offset);
    if (offset > image_bytes_ || bytes.size() > image_bytes_ - offset) return failure(errc::out_of_range, image_bytes_);
    if (bytes.empty()) return {};
    try {
      if (!made_.landing) {
        if (offset != taken_) return failure(errc::out_of_range, taken_);
        while (!made_.landing && !bytes.empty()) {
          const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), header_bytes() - taken_));
          if (const auto ok = take(bytes.first(n)); !ok) return end(ok.error());
          offset += n;
          bytes = bytes.subspan(n);
        }
        if (bytes.empty()) return {};
      }
      if (const auto ok = note(offset, bytes.size()); !ok) return ok;
    } catch (...) {
      return end({errc::out_of_memory, 0, offset, {}});
    }
    landed_ += bytes.size();
    const auto landed = detail::land_bytes(*made_.landing, offset, bytes);
    return landed ? landed : end(landed.error());
  }

  /// Everything has arrived: compares its digest. `version`: that of the published image; 0: nobody knows, and nothing
  /// is compared. Gives the image's own. Cost: a pass over the bytes. out_of_range with the first byte that is missing,
  /// and cancelled (by `stop`), after which it goes on; digest_mismatch, and bad_frame (an image that is too short for
  /// a header), after which it is over.
  template <hash Hash = xxh3_64>
  result<std::uint64_t> finish(std::uint64_t version, const stop_token& stop = {}) noexcept {
    if (over_) return failure(errc::invalid_argument);
    if (first_missing() != image_bytes_) return failure(errc::out_of_range, first_missing());
    if (!made_.landing) {
      const error none{errc::bad_frame, 0, taken_, {}};
      (void)end(none);
      return failure(none);
    }
    const auto mine = image_version<Hash, 16 * 1024>(made_.landing->read_back(), stop);
    if (!mine && mine.error() == errc::cancelled) return failure(mine.error());
    error why{};
    if (!mine) why = mine.error();
    else if (version != 0 && *mine != version) why = {errc::digest_mismatch};
    else if (const auto good = made_.landing->finish({}); !good) why = good.error();
    if (why.code != errc{}) {
      (void)end(why);
      return failure(why);
    }
    over_ = true;
    return *mine;
  }

 private:
  static constexpr std::size_t length_bytes = 8;
  struct range {
    std::uint64_t begin, end;
  };

  /// Of the header as far as it is known.
  std::uint64_t header_bytes() const noexcept { return taken_ < length_bytes ? length_bytes : stated_; }
  result<void> end(const error& why) noexcept {
    over_ = true;
    if (made_.landing) made_.landing->abandon(why);
    made_.release();
    return failure(why);
  }
  /// Bytes of the header, none behind it.
  result<void> take(std::span<const std::byte> bytes) {
    for (std::size_t i = 0; i < bytes.size() && taken_ + i < length_bytes; ++i) length_[taken_ + i] = bytes[i];
    spelling_.update(bytes);
    taken_ += bytes.size();
    if (const auto ok = header_.take(bytes); !ok) return ok;
    if (taken_ == length_bytes) {
      const std::uint64_t text = load_le64(length_);
      if (text > limits_.max_header_bytes || text + length_bytes > limits_.max_header_bytes)
        return failure(errc::too_large, text);
      stated_ = text + length_bytes;
      if (text == 0 || stated_ > image_bytes_) return failure(errc::bad_frame, 0);
      if (image_bytes_ - stated_ > limits_.max_bytes) return failure(errc::too_large, image_bytes_ - stated_);
    }
    if (header_.table_bytes() / 2 > limits_.max_header_bytes) return failure(errc::too_large, header_.table_bytes());
    return taken_ > length_bytes && taken_ == stated_ ? make() : result<void>{};
  }
  result<void> make() {
    if (const auto ok = made_.read(header_, taken_); !ok) return ok;
    const image_schema& schema = made_.schema;
    if (schema.header_bytes != stated_) return failure(errc::bad_frame, taken_);
    if (schema.image_bytes != image_bytes_) return failure(errc::schema_mismatch, schema.image_bytes);
    if (detail::header_digest(schema) != spelling_.digest()) return failure(errc::bad_frame, taken_);
    description d;
    d.fingerprint = schema.fingerprint;
    d.image_bytes = image_bytes_;
    d.data_start = stated_;
    d.tensors = schema.tensor_count;
    return made_.allocate(d);
  }
  /// Takes note of a range, next to which others may lie. Throws std::bad_alloc.
  result<void> note(std::uint64_t offset, std::uint64_t length) {
    const std::uint64_t to = offset + length;
    const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), offset,
                                        [](std::uint64_t at, const range& r) { return at < r.begin; });
    if (offset < stated_) return failure(errc::bad_request, offset);
    if (after != ranges_.begin() && std::prev(after)->end > offset) return failure(errc::bad_request, offset);
    if (after != ranges_.end() && after->begin < to) return failure(errc::bad_request, after->begin);
    const bool joins_before = after != ranges_.begin() && std::prev(after)->end == offset,
               joins_after = after != ranges_.end() && after->begin == to;
    if (joins_before && joins_after) {
      std::prev(after)->end = after->end;
      ranges_.erase(after);
    } else if (joins_before) {
      std::prev(after)->end = to;
    } else if (joins_after) {
      after->begin = offset;
    } else {
      if (ranges_.size() == most_ranges) return failure(errc::too_large, ranges_.size(), std::string_view("ranges"));
      ranges_.insert(after, range{offset, to});
    }
    return {};
  }

  detail::made_tensors<Allocator> made_;
  new_model_limits limits_;
  std::uint64_t image_bytes_;
  header_reader header_;
  xxh3_64 spelling_;
  std::byte length_[length_bytes]{};
  std::uint64_t taken_ = 0, stated_ = 0, landed_ = 0;
  std::vector<range> ranges_;
  bool over_ = false;
};

}  // namespace tensorpull
