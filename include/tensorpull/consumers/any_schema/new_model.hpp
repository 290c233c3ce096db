// Lands in a model that does not exist yet. It is made from the header that the owner sends, within limits that the
// caller states. For recipients that know nothing of a model but its reference.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/consumers/land.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/image/arrange.hpp>
#include <tensorpull/image/header.hpp>
#include <tensorpull/image/header_reader.hpp>

#include <algorithm>
#include <concepts>
#include <optional>
#include <utility>
#include <vector>

namespace tensorpull {

/// The most that an owner may make a recipient allocate. By default no tensor bytes are allowed.
struct new_model_limits {
  /// of all tensors together
  std::uint64_t max_bytes = 0;
  /// Of the header, which has the names. While it arrives, at most its own length is kept of it (the strings that hold
  /// it may reserve twice that). The table that is made of it at its end takes 64 bytes a tensor, 8 an extent and 32 a
  /// pair of metadata, and may be twice as long as this limit. A header with so many extents or pairs of metadata that
  /// it would take more is refused.
  std::uint64_t max_header_bytes = 16u << 20;
  /// Tensors in the image.
  std::uint64_t max_tensors = 1'000'000;
};

/// The function that makes the tensors' memory, called once for each tensor in image order. `allocate` gives memory of
/// `bytes` bytes that stays where it is, or an error; `clear` frees all of it, because the header that asked for it was
/// damaged on its way or the transfer failed.
template <class T>
concept tensor_allocator = requires(T make, const tensor_entry& entry) {
  { make.allocate(entry) } -> std::same_as<result<std::byte*>>;
  make.clear();
};

namespace detail {
/// The schema of a header that is read, and its tables. Throws std::bad_alloc.
struct header_tables {
  std::vector<tensor_entry> entries;
  std::vector<std::uint64_t> extents;
  std::vector<metadata_entry> metadata;
  image_schema schema{};

  /// `at`: where the header ends. Errors: bad_frame: it does not end there, or its tensors are not in image order;
  /// those of arrange.
  result<void> read(const header_reader& header, std::uint64_t at) {
    if (!header.complete()) return failure(errc::bad_frame, at);
    header.entries(entries, extents, metadata);
    for (std::size_t i = 1; i < entries.size(); ++i)
      if (!image_order(entries[i - 1].type, entries[i - 1].name, entries[i].type, entries[i].name))
        return failure(errc::bad_frame, at, entries[i].name);
    const auto made = arrange(entries, {}, metadata);
    if (!made) return failure(made.error());
    schema = *made;
    return {};
  }
};
/// The digest of the header as it is written. header_reader passes over lengths and offsets, so only a header with this
/// digest has the tensors where the schema has them.
inline std::uint64_t header_digest(const image_schema& s) noexcept {
  xxh3_64 own;
  for (std::uint64_t at = 0; at < s.header_bytes;) {
    std::byte slice[1024];
    const std::size_t n = write_header(s, at, slice);
    own.update(std::span<const std::byte>(slice, n));
    at += n;
  }
  return own.digest();
}
inline result<void> is_described(const image_schema& s, const description& d) noexcept {
  const bool same = s.fingerprint == d.fingerprint && s.header_bytes == d.data_start && s.image_bytes == d.image_bytes;
  return same ? result<void>{} : result<void>(failure(errc::schema_mismatch));
}

/// The tensors of a header, in the allocator's memory.
template <tensor_allocator Allocator>
struct made_tensors : header_tables {
  Allocator allocator;
  std::vector<std::uintptr_t> where{};
  std::optional<land> landing{};

  explicit made_tensors(Allocator a) noexcept : allocator(std::move(a)) {}
  /// Behind read(). Throws std::bad_alloc.
  result<void> allocate(const description& d) {
    where.reserve(entries.size());
    for (const tensor_entry& entry : entries) {
      const auto memory = allocator.allocate(entry);
      if (!memory) return failure(memory.error());
      where.push_back(reinterpret_cast<std::uintptr_t>(*memory));
    }
    landing.emplace(destination_view{&schema, nullptr, where.data()});
    return landing->begin(d);
  }
  void release() noexcept {
    landing.reset();
    static_cast<header_tables&>(*this) = {};
    where = {};  // assigned, since clear() would keep its memory
    allocator.clear();
  }
};
}  // namespace detail

/// A consumer of one transfer of a whole image (a subset is refused with schema_mismatch: its header does not travel).
/// The tensors are allocated when the header has arrived and has proved to be the one that the owner described; that is
/// the only allocation besides what the header itself takes as it arrives, and the limits bound both.
/// Errors: too_large (above a limit), bad_frame (a header that is none), schema_mismatch (a header that is not the one
/// described), unsupported_dtype, out_of_memory, those of the allocator. They name the tensor if one is to blame. Those
/// of the header's text are returned when its chunk is whole.
template <tensor_allocator Allocator>
class new_model {
 public:
  static constexpr bool irrevocable = false;
  static constexpr bool any_order = true;

  /// Allocates nothing. Copies the limits.
  new_model(Allocator allocator, const new_model_limits& limits) noexcept
      : made_(std::move(allocator)), limits_(limits) {}
  new_model(const new_model&) = delete;
  new_model& operator=(const new_model&) = delete;

  /// The allocator, which owns what it made.
  Allocator& allocator() noexcept { return made_.allocator; }
  /// After finish(): what was made, in image order, and the metadata that came with it. Valid while this object lives.
  const image_schema& made() const noexcept { return made_.schema; }

  std::uint64_t fingerprint() const noexcept { return 0; }
  const image_schema* schema() const noexcept { return nullptr; }

  result<void> begin(const description& d) noexcept {
    if (d.data_start < 8) return failure(errc::schema_mismatch);
    if (d.data_start > limits_.max_header_bytes) return failure(errc::too_large, d.data_start);
    if (d.image_bytes - d.data_start > limits_.max_bytes) return failure(errc::too_large, d.image_bytes - d.data_start);
    if (d.tensors > limits_.max_tensors) return failure(errc::too_large, d.tensors);
    described_ = d;
    forget(header_type(limits_.max_tensors));
    checked_ = header_.here();
    return {};
  }

  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    const bool header = offset < described_.data_start;
    if (made_.landing && !header) return made_.landing->prepare(offset, length, out);
    // behind a wrong header: thrown away
    return detail::prepare_in(text_, header ? std::min(length, described_.data_start - offset) : length, out);
  }
  /// Allocates while the header arrives, and at its end; never after. A fault in a header is kept until its chunk is
  /// whole: a chunk that was damaged on its way is sent again, if chunks have digests.
  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    if (made_.landing && offset >= described_.data_start) return made_.landing->commit(offset, bytes);
    if (wrong_ || offset >= described_.data_start) return {};
    if (const auto ok = take(offset, bytes); !ok) {
      wrong_ = ok.error();
      made_.release();
    }
    return {};
  }
  result<void> chunk(std::uint64_t, std::uint64_t) noexcept {
    if (wrong_) return failure(*wrong_);
    if (!made_.landing) checked_ = header_.here();
    return {};
  }
  /// A damaged chunk is sent again. If the header ended in it, the tensors made from that header are freed.
  void rewind(std::uint64_t offset) noexcept {
    if (offset >= described_.data_start) return;
    header_.back_to(checked_);
    wrong_.reset();
    made_.release();
  }
  /// The bytes that have arrived behind the header.
  source_view arrived() const noexcept { return made_.landing ? made_.landing->read_back() : source_view{}; }
  /// value_out_of_range: as land.
  result<void> finish(const receipt& r) noexcept { return made_.landing ? made_.landing->finish(r) : result<void>{}; }
  void abandon(const error&) noexcept { forget(header_type(0)); }

 private:
  using header_type = header_reader;

  void forget(header_type header) noexcept {
    made_.release();
    wrong_.reset();
    std::swap(header_, header);  // not assigned: a string keeps its memory then
  }

  result<void> take(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    try {
      if (const auto ok = header_.take(bytes); !ok) return ok;
      if (header_.table_bytes() / 2 > limits_.max_header_bytes) return failure(errc::too_large, header_.table_bytes());
      return offset + bytes.size() == described_.data_start ? make() : result<void>{};
    } catch (...) {
      return failure(errc::out_of_memory, offset);
    }
  }
  result<void> make() {
    if (const auto ok = made_.read(header_, described_.data_start); !ok) return ok;
    if (const auto ok = detail::is_described(made_.schema, described_); !ok) return ok;
    return made_.allocate(described_);
  }

  detail::made_tensors<Allocator> made_;
  new_model_limits limits_;
  description described_{};
  header_type header_{0};
  header_type::mark checked_{};  // at the end of the last whole chunk
  std::optional<error> wrong_;  // with the header, in a chunk that is not whole
  std::byte text_[4096];
};

}  // namespace tensorpull
