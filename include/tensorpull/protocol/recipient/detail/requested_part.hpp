// The names in each request of a recipient that asks for tensors by name, and what is learned from the answers.
#pragma once

#include <tensorpull/chunking/concept.hpp>
#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/core/splitmix64.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/framing/detail/control_words.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/protocol/recipient/detail/wanted_ranges.hpp>
#include <tensorpull/protocol/recipient/pull_request.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <cstdint>
#include <utility>

namespace tensorpull::detail {

/// Whether the slices that are wanted are of tensors of our schema, one of each, and as long. Errors, with the tensor's
/// name: invalid_argument: there is no schema, no such tensor, or a second slice of it, or the slice is empty or
/// reversed; schema_mismatch: the tensor is not as long.
[[gnu::noinline]] inline result<void> slices_are_ours(const pull_request& r) noexcept {
  for (const tensor_slice& s : r.slices) {
    const std::size_t i = r.schema != nullptr ? find_tensor(*r.schema, s.name) : 0;
    const index_range first = r.slice_of(s.name);
    if (r.schema == nullptr || i == r.schema->tensor_count || s.begin >= s.end || first.begin != s.begin ||
        first.end != s.end || first.dimension != s.dimension)
      return failure(errc::invalid_argument, 0, s.name);
    const tensor_entry& t = r.schema->tensors[i];
    if (s.dimension >= t.rank || t.shape[s.dimension] != s.end - s.begin)
      return failure(errc::schema_mismatch, 0, s.name);
  }
  return {};
}

/// The part of the wanted tensors that is asked for now. At first that is all of them; of several parts each is some
/// tensors of our schema, in image order.
template <class Limits>
class requested_part {
 public:
  /// Brings a request into the form that is read here: slices make it a part, and a part has no subset.
  static void normalise(pull_request& r) noexcept {
    r.part = r.part || !r.slices.empty();
    if (r.part) r.subset = {};
    if constexpr (Limits::slices) {
      r.slices_ascend = true;
      for (std::size_t i = 1; i < r.slices.size(); ++i)
        if (r.slices[i].name < r.slices[i - 1].name) r.slices_ascend = false;
    }
  }

  /// Whether there are several.
  bool several() const noexcept { return several_; }
  /// Whether nothing follows this part.
  bool is_last(const pull_request& r) const noexcept { return !several_ || end_ == r.schema->tensor_count; }
  /// The position of its first byte.
  std::uint64_t begin(const pull_request& r) const noexcept { return several_ ? r.schema->tensors[first_].begin : 0; }
  /// The position behind its last byte; there have to be several.
  std::uint64_t end(const pull_request& r) const noexcept { return r.schema->tensors[end_ - 1].end; }
  /// The i-th of the names; empty if there is none.
  error_name name(const pull_request& r, std::uint64_t i) const noexcept {
    const auto all = names(r);
    return i < all.size() ? error_name(all[static_cast<std::size_t>(i)]) : error_name{};
  }

  /// The request for where they are.
  void ask(frame& out, const pull_request& r) noexcept {
    if (!this_located_) choose(r);
    out.kind = frame_kind::locate;
    out.names = names(r);
    if constexpr (Limits::slices) out.slices = slices(r);
  }
  /// The next part is asked for.
  void go_on(const pull_request& r) noexcept {
    first_ = end_;
    this_located_ = false;
    choose(r);
  }
  /// The owner states how many words a request may have; 0: it does not. does_not_fit, with a name: no request for that
  /// is so short, or another owner has located more names than this one takes, and some of the part has landed
  /// (`received`). Or the slices are not ours.
  result<void> takes(std::uint16_t request_words, const pull_request& r, std::uint64_t received) noexcept {
    if (const auto ok = slices_are_ours(r); !ok) return ok;
    request_words_ = request_words;
    if (request_words == 0 || r.schema == nullptr || !r.by_name()) return {};
    const auto too_long = [&](std::string_view name) {
      return failure(errc::does_not_fit, 8 * std::uint64_t{request_words}, name);
    };
    for (std::size_t i = 0; i < r.schema->tensor_count; ++i)
      if (fitting(names_from(r, i, 1), sliced(r), request_words) == 0) return too_long(r.schema->tensors[i].name);
    const auto all = all_names(r);
    const std::size_t fit = this_located_ ? fitting(all, sliced(r), request_words) : all.size();
    if (fit == all.size()) return {};
    if (!several_ || received != begin(r)) return too_long(all[fit]);
    this_located_ = false;
    return {};
  }
  /// Whether an owner has told where some of all tensors are.
  bool any_located() const noexcept { return any_located_; }
  /// The first request names nothing: whoever knows names refuses it as bad_request, and what knows none as
  /// `unsupported`. An owner of a small machine answers no request that is longer than a datagram.
  void sound_out() noexcept { sounds_ = Limits::slices && !any_located_; }
  /// The owner refuses the names because of the first, or because it has no room for so many, or because there are
  /// none. True: names() are others from now on. False: there is one, or some of the part has landed (`received`).
  bool fewer(const pull_request& r, std::uint64_t received) noexcept {
    if (!Limits::slices) return false;
    if (std::exchange(sounds_, false)) return true;
    const std::uint32_t now = end_ - first_;
    if (r.schema == nullptr || now < 2 || received != begin(r) || (any_located_ && !several_)) return false;
    const std::size_t fit = fitting(all_names(r), sliced(r), request_words_);
    several_ = true;
    ask_again(r, fit < now ? static_cast<std::uint32_t>(std::max<std::size_t>(fit, 1)) : now / 2);
    return true;
  }
  /// Where an owner's answer leads.
  enum class answer : std::uint8_t {
    first,  ///< the ranges are there, of the first part that was located
    again,  ///< the ranges are there, of a later part or once more
    differs,  ///< the tensors are others than our schema's
    too_many_ranges,  ///< its names are fewer from now on
  };
  /// Checks the answer to names(). `received`: bytes that are there of those that are wanted. The ranges go into
  /// `wanted`, and `described` counts their bytes.
  result<answer> locate(const frame& m, const pull_request& r, const chunk_context& image, std::uint64_t received,
                        wanted_ranges<Limits::slices>& wanted, description& described) noexcept {
    if ((Limits::slices && sounds_) || m.ranges.size() != names(r).size()) return failure(errc::bad_frame);
    if (several_ && first_ == 0)
      if (const auto ok = names_are_ours(r, received); !ok) return failure(ok.error());
    const std::uint64_t expected = several_ ? fingerprint(r) : r.fingerprint;
    if (expected != 0 && m.fingerprint != expected) return answer::differs;
    if (const auto fits = wanted.these(m.ranges, begin(r), image.data_start, image.image_bytes, part_of(r)); !fits) {
      if (fits.error().code != errc::does_not_fit || r.schema == nullptr) return failure(fits.error());
      several_ = true;
      ask_again(r, static_cast<std::uint32_t>(fits.error().at));
      return answer::too_many_ranges;
    }
    const bool before = std::exchange(this_located_, true);
    const bool same = (!before || m.digest == digest_) &&
                      ((!before && !several_) || wanted.total() == (several_ ? end(r) : described.image_bytes));
    if (!same || received > wanted.total()) return failure(errc::bad_frame, received);
    described.fingerprint = several_ ? r.schema->fingerprint : m.fingerprint;
    described.image_bytes = several_ ? r.schema->data_bytes() : wanted.total();
    described.data_start = 0;
    digest_ = m.digest;
    return std::exchange(any_located_, true) ? answer::again : answer::first;
  }
  /// The digest of the part's bytes, as the owner states it.
  std::uint64_t digest() const noexcept { return digest_; }

 private:
  element_list<std::string_view> names(const pull_request& r) const noexcept {
    return Limits::slices && sounds_ ? element_list<std::string_view>() : all_names(r);
  }

  /// Which part of each of them is wanted; empty: all of all. Borrows the request.
  element_list<index_range> slices(const pull_request& r) const noexcept {
    if (sounds_ || r.slices.empty() || r.schema == nullptr) return {};
    return {&r, first_, end_ - first_, [](const void* from, std::size_t first, std::size_t i) noexcept {
              const auto& asked = *static_cast<const pull_request*>(from);
              return asked.slice_of(asked.schema->tensors[first + i].name);
            }};
  }
  /// Decides what the next request names.
  void choose(const pull_request& r) noexcept {
    const image_schema* const ours = r.schema;
    if (!several_) {
      const std::size_t own = ours != nullptr ? ours->tensor_count : 0;
      const std::size_t count = r.subset.empty() ? own : r.subset.size();
      end_ = static_cast<std::uint32_t>(count);
      several_ = ours != nullptr && fitting(all_names(r), sliced(r), request_words_) < count;
      if (!several_) return;
    }
    const std::size_t left = ours->tensor_count - first_,
                      fit = std::max<std::size_t>(fitting(names_from(r, first_, left), sliced(r), request_words_), 1);
    end_ = first_ + static_cast<std::uint32_t>(std::min(std::min(left, fit), std::size_t{most_names_}));
  }
  element_list<std::string_view> all_names(const pull_request& r) const noexcept {
    if (!several_ && !r.subset.empty()) return r.subset;
    return r.schema != nullptr ? names_from(r, first_, end_ - first_) : element_list<std::string_view>();
  }
  /// Finds out how a slice lies in the range that the owner states. All its runs are as long, which follows from our
  /// schema, so the range's length gives their stride.
  auto part_of(const pull_request& r) const noexcept {
    return [&r, first = first_](std::size_t i, typename wanted_ranges<Limits::slices>::part& p) noexcept {
      if constexpr (Limits::slices) {
        if (r.slices.empty()) return true;
        const tensor_entry& t = r.schema->tensors[first + i];
        const std::uint64_t length = p.end - p.begin, bytes = t.size_bytes();
        if (length == bytes) return true;
        if (bytes == 0) return false;  // and there may be no runs
        std::uint64_t runs = 1;
        for (std::size_t d = 0; d < r.slice_of(t.name).dimension; ++d) runs *= t.shape[d];
        const std::uint64_t run = bytes / runs;
        if (runs < 2 || bytes % runs != 0 || length < run || (length - run) % (runs - 1) != 0) return false;
        const std::uint64_t stride = (length - run) / (runs - 1);
        if (stride <= run || stride > ~std::uint32_t{0}) return false;
        p.runs = {static_cast<std::uint32_t>(run), static_cast<std::uint32_t>(stride)};
      }
      return true;
    };
  }
  void ask_again(const pull_request& r, std::uint32_t most) noexcept {
    most_names_ = most;
    this_located_ = false;
    choose(r);
  }
  static constexpr bool sliced(const pull_request& r) noexcept { return Limits::slices && !r.slices.empty(); }
  /// Of parts only the schema's tensors are asked for: whether those are the ones that were named. `at`: for the error.
  [[gnu::noinline]] static result<void> names_are_ours(const pull_request& r, std::uint64_t at) noexcept {
    if (r.part) return {};
    const image_schema& ours = *r.schema;
    std::uint64_t named = 0, all = 0;  // sums of numbers that tell the tensors apart, in whatever order
    for (const std::string_view name : r.subset) {
      const std::size_t i = find_tensor(ours, name);
      if (i == ours.tensor_count) return failure(errc::schema_mismatch, at, name);
      named += splitmix64{i}();
    }
    for (std::size_t i = 0; i < ours.tensor_count; ++i) all += splitmix64{i}();
    if (named == all) return {};
    for (const tensor_entry& t : ours.entries()) {
      std::size_t i = 0;
      while (i < r.subset.size() && r.subset[i] != t.name) ++i;
      if (i == r.subset.size()) return failure(errc::schema_mismatch, at, t.name);
    }
    return failure(errc::duplicate_name, at);
  }
  /// The fingerprint of a schema of the part's tensors alone.
  [[gnu::noinline]] std::uint64_t fingerprint(const pull_request& r) const noexcept {
    xxh3_64 h;
    for (std::size_t i = first_; i < end_; ++i) hash_entry(h, r.schema->tensors[i]);
    return h.digest();
  }
  /// Tensors of our schema, by name.
  static element_list<std::string_view> names_from(const pull_request& r, std::size_t first,
                                                   std::size_t count) noexcept {
    return {r.schema->tensors + first, 0, count, [](const void* from, std::size_t, std::size_t i) noexcept {
              return static_cast<const tensor_entry*>(from)[i].name;
            }};
  }
  /// How many of the names one request carries that the owner takes, and whose answer is as long as a page at most.
  static std::size_t fitting(const element_list<std::string_view>& names, bool sliced,
                             std::size_t request_words) noexcept {
    constexpr std::size_t most_answered = std::min(Limits::page_bytes, Limits::control_frame_bytes) / 8;
    const bool stated = Limits::slices && request_words != 0;
    const std::size_t most = stated ? std::min(most_answered, request_words) : most_answered,
                      taken = stated ? std::min(Limits::control_frame_bytes / 8, request_words)
                                     : Limits::control_frame_bytes / 8;
    constexpr auto asks = body_size(frame_kind::locate), answers = body_size(frame_kind::located);
    constexpr std::size_t head = 2 + size_of_frame.data + size_of_frame.pointers;
    std::size_t request = head + asks.data + asks.pointers, answer = head + answers.data + answers.pointers + 1, n = 0;
    for (; n < names.size() && n < std::max<std::size_t>(taken / (sliced ? 24 : 4), 1); ++n) {
      request += 2 + names[n].size() / 8 + (sliced ? size_of_wanted.data + (n == 0 ? 1u : 0u) : 0u);
      answer += size_of_range.data;
      if (request > most || answer > most_answered) break;
    }
    return n;
  }

  std::uint32_t first_ = 0, end_ = 0, most_names_ = ~std::uint32_t{0};  // by their position in our schema
  std::uint64_t digest_ = 0;
  std::uint16_t request_words_ = 0;  // of the longest request that the owner takes; 0: not stated
  bool several_ = false, any_located_ = false, this_located_ = false, sounds_ = false;
};

}  // namespace tensorpull::detail
