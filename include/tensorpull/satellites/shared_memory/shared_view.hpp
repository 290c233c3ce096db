// A read-only view of a published model: nothing is copied here, and its tensors are in the owner's memory or in the
// owner's copy.
#pragma once

#include <tensorpull/consumers/any_schema/new_model.hpp>
#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/image/view.hpp>
#include <tensorpull/satellites/shared_memory/shared_segments.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/optional.hpp>

#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace tensorpull {

/// Limits on what an owner may make a view allocate: the header's text, and a table of the tensors (64 bytes each, 8
/// for each dimension).
struct view_limits {
  std::uint64_t max_header_bytes = 16u << 20;  ///< of the header
  std::uint64_t max_tensors = 1'000'000;  ///< tensors in it
};

/// The tensors of a published image in mapped memory. A consumer that reads the memory itself; each transfer replaces
/// the one before. Movable only when it is complete. It stays readable when the owner has withdrawn the reference, has
/// ended or was killed.
class viewed_tensors {
 public:
  static constexpr bool irrevocable = false;

  /// `expected`: the only schema that it accepts, or nullptr for any. `writable`: the pages may be written, which
  /// changes this view alone.
  explicit viewed_tensors(const image_schema* expected, bool writable = false, const view_limits& limits = {}) noexcept
      : expected_(expected), limits_(limits), writable_(writable) {}
  viewed_tensors(viewed_tensors&&) noexcept = default;
  viewed_tensors& operator=(viewed_tensors&&) noexcept = default;

  /// The tensors, in image order. Valid while this object has them, also after a move. Their numbers are little-endian,
  /// as in an image: on a big-endian machine each entry is marked in `swap_bytes`, and gather() takes care of it.
  source_view tensors() const noexcept { return {&made_->schema, nullptr, made_->where.data(), nullptr}; }
  /// Whether the owner can still change them, because it allocated the model in this memory. If not, nobody can.
  bool owner_can_write() const noexcept { return owner_can_write_; }
  /// The mapped memory.
  std::span<const std::byte> memory() const noexcept { return {pages_.data(), pages_.size()}; }

  std::uint64_t fingerprint() const noexcept { return expected_ != nullptr ? expected_->fingerprint : 0; }
  const image_schema* schema() const noexcept { return expected_; }

  result<void> begin(const description& d) noexcept {
    described_ = d;
    made_ = nullptr;
    memory_ = {};
    header_ = {};
    pages_ = {};
    return {};
  }
  /// The memory that arrived. Errors: bad_frame, schema_mismatch: its header is malformed, or not the one described;
  /// unsupported_layout: a tensor is not contiguous; too_large: above the limits; out_of_memory.
  result<void> take(shared_segments&& memory) noexcept {
    if (made_ || described_.data_start == 0)
      return {};  // after a lost connection it is the same version; without begin() the schema was refused
    try {
      return make(std::move(memory));
    } catch (...) {
      return failure(errc::out_of_memory);
    }
  }
  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    if (!made_) return {};
    if (offset < header_.size()) return detail::prepare_in(std::span(header_).subspan(offset), length, out);
    return detail::prepare_in(memory_.mapped(offset), length, out);  // nobody writes to it: the bytes are there
  }
  result<void> commit(std::uint64_t, std::span<const std::byte>) noexcept { return {}; }
  result<void> chunk(std::uint64_t, std::uint64_t) noexcept { return {}; }
  result<void> finish(const receipt&) noexcept {
    pages_ = std::move(memory_).release();
    memory_ = {};
    header_ = {};
    return {};
  }
  void abandon(const error&) noexcept {}

 private:
  struct table : detail::header_tables {
    header_reader text{0};
    std::vector<std::uintptr_t> where;
  };

  result<void> make(shared_segments&& memory) {
    if (described_.data_start > limits_.max_header_bytes) return failure(errc::too_large, described_.data_start);
    if (described_.tensors > limits_.max_tensors) return failure(errc::too_large, described_.tensors);
    if (const auto mapped = memory.map(writable_); !mapped) return mapped;
    // the first extent is the header alone, or all lie in the memory that is mapped
    if (described_.data_start < described_.image_bytes && memory.mapped(described_.data_start).empty())
      return failure(errc::bad_shared_memory, described_.data_start);
    // the owner might change its memory while it is read, so it is read once
    header_.resize(static_cast<std::size_t>(described_.data_start));
    if (const int system = memory.read(0, header_); system != 0) return failure(errc::io, 0, {}, system);
    auto made = std::make_unique<table>();
    made->text = header_reader(limits_.max_tensors);
    if (const auto ok = made->text.take(header_); !ok) return ok;
    if (made->text.table_bytes() / 2 > limits_.max_header_bytes)
      return failure(errc::too_large, made->text.table_bytes());
    if (const auto ok = made->read(made->text, described_.data_start); !ok) return ok;
    if constexpr (!little_endian_machine)
      for (tensor_entry& t : made->entries) t.swap_bytes = number_bytes(t.type) & 15u;
    if (const auto ok = detail::is_described(made->schema, described_); !ok) return ok;
    made->where.reserve(made->entries.size());
    for (const tensor_entry& t : made->entries) {
      if (t.size_bytes() == 0) {
        made->where.push_back(reinterpret_cast<std::uintptr_t>(memory.data()));
        continue;
      }
      const std::span<const std::byte> there = memory.mapped(made->schema.header_bytes + t.begin);
      if (there.size() < t.size_bytes())
        return failure(errc::unsupported_layout, made->schema.header_bytes + t.begin, t.name);
      made->where.push_back(reinterpret_cast<std::uintptr_t>(there.data()));
    }
    owner_can_write_ = memory.owner_can_write();
    memory_ = std::move(memory);
    made_ = std::move(made);
    return {};
  }

  const image_schema* expected_;
  view_limits limits_;
  description described_{};
  shared_segments memory_;
  std::vector<std::byte> header_;
  detail::mapped_memory pages_;
  std::unique_ptr<table> made_;
  bool writable_ = false, owner_can_write_ = false;
};

static_assert(consumer<viewed_tensors>);

/// A view by pipeline<...>::view(): the tensors in place, and the outcome. `Parts`: the pipeline's resolved policies.
template <class Parts>
class shared_view {
  using tensors_policy = typename Parts::tensors;

 public:
  using model_type = typename tensors_policy::model_type;  ///< what model() gives, if the compiler knows its layout

  /// For a transport's view().
  shared_view(viewed_tensors&& seen, const receipt& how) noexcept : seen_(std::move(seen)), how_(how) {}

  /// The outcome: `completed` if the digest of this memory was compared, `completed_unverified` if that was not wanted.
  const receipt& how() const noexcept { return how_; }
  /// As viewed_tensors::owner_can_write.
  bool owner_can_write() const noexcept { return seen_.owner_can_write(); }
  /// The tensors, in image order. Valid while this view lives, also after a move.
  source_view tensors() const noexcept { return seen_.tensors(); }

  /// The model itself, if the owner has allocated it with make_shared_model. Errors: unsupported_layout: the tensors
  /// lie otherwise (use tensors(), or download_tensors), or have ties, or this machine is big-endian and they have
  /// numbers of more than one byte; unsupported_dtype: members of type `bool`, which must be checked before they are
  /// read.
  result<const model_type*> model() const noexcept
    requires(tensors_policy::is_static)
  {
    const std::span<const std::byte> memory = seen_.memory();
    const source_view there = tensors();
    const image_schema& schema = tensors_policy::schema();
    for (const tensor_entry& t : schema.entries())
      if (t.type == dtype::boolean && t.size_bytes() != 0) return failure(errc::unsupported_dtype, 0, t.name);
    if (memory.size() < sizeof(model_type)) return failure(errc::unsupported_layout);
    // only addresses of members are taken here
    const auto* const first = reinterpret_cast<const model_type*>(memory.data());
    // Members that are tied get their values by a copy, and nobody writes here.
    if (tensors_policy::destination(const_cast<model_type&>(*first)).landed != nullptr)
      return failure(errc::unsupported_layout);
    const source_view expected = tensors_policy::source(*first);
    for (std::size_t i = 0; i < schema.tensor_count; ++i)
      if (schema.tensors[i].size_bytes() != 0 &&
          (there.address(i) != expected.address(i) ||
           (!little_endian_machine && number_bytes(schema.tensors[i].type) != 0)))
        return failure(errc::unsupported_layout, i, schema.tensors[i].name);
    return std::launder(first);
  }

 private:
  viewed_tensors seen_;
  receipt how_;
};

}  // namespace tensorpull
