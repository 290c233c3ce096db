// A pull whose bytes are proved by a root that the recipient knows, from whichever of several owners sends them.
#pragma once

#include <tensorpull/consumers/land.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>
#include <tensorpull/pull/running_pull.hpp>
#include <tensorpull/satellites/proofs/proved.hpp>
#include <tensorpull/satellites/proofs/proved_reference.hpp>
#include <tensorpull/satellites/proofs/proved_tensors.hpp>
#include <tensorpull/transports/pull_options.hpp>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tensorpull {

/// How a pull is proved.
struct proof_options {
  /// Memory of the values of groups at most. They are of the finest level that fits: with 2 KiB, groups are a 32nd to a
  /// 64th of the image, and of 64 KiB at least. A group of wrong bytes is the most that lands, and from several owners
  /// at once a part for each connection.
  std::uint64_t most_bytes = 2048;
  /// If tensors are pulled by name: a longer header of the image is refused (too_large).
  std::uint64_t most_header_bytes = new_model_limits{}.max_header_bytes;
  std::uint64_t* wrong = nullptr;  ///< also set to proved_receipt::wrong, whether the pull completes or not; none: not
};

/// A pull's end, and which owners were not believed.
struct proved_receipt {
  /// of the pull that completed it; `bytes` are those of the image, or of the tensors that were named, of which it has
  /// the fingerprint. From several owners at once its digest is 0: none is computed, and the root stands for the bytes.
  /// That its version is their digest, nobody has proved. `completed` is this side's word: an owner that has confirmed
  /// a pull of named tensors counts it as completed_unverified, since it hears of no digest.
  receipt last{};
  std::uint64_t source = 0;  ///< the index of the owner that it was from
  /// the indices of owners whose bytes were not those of the root, one bit each, those from the 64th on in the last one
  std::uint64_t wrong = 0;
};

namespace detail {
/// Whether another owner could do no better. Nothing that an owner can bring about is among them, such as does_not_fit,
/// by a description of short chunks.
constexpr bool is_own_fault(errc code) noexcept {
  return code == errc::cancelled || code == errc::out_of_memory || code == errc::disk_full || code == errc::io ||
         code == errc::invalid_argument;
}

/// A source of a list: the element itself, or its object if it is a pointer.
template <class Where>
auto& source_of(Where& w) noexcept {
  if constexpr (std::is_pointer_v<Where>) return *w;
  else return w;
}
}  // namespace detail

namespace detail {
/// Whether tensors by name can be proved from these owners: parts of the image are left out, and land in any order.
template <class All, class Consumer>
inline constexpr bool proves_tensors = requires {
  requires All::gives_some && Consumer::any_order && !Consumer::irrevocable;
};
/// Whether such a pull of all can be proved. Errors: not_verifiable; schema_mismatch.
template <consumer Consumer>
result<void> is_provable(const proved_reference& of, const Consumer& to, const pull_options& options) noexcept {
  if (options.by_name()) return failure(errc::not_verifiable);
  if (of.model.fingerprint != 0 && to.fingerprint() != 0 && of.model.fingerprint != to.fingerprint())
    return failure(errc::schema_mismatch);
  return {};
}
/// Moves a cursor behind what is right of the first `bytes` bytes that lie in a consumer's memory.
template <consumer Consumer>
void move_cursor(resume_cursor& cursor, const proof& by, const proved_reference& of, const Consumer& to,
                 std::uint64_t bytes) noexcept {
  cursor = {};
  if constexpr (requires { to.read_back(); }) {
    xxhash_digest all;
    const std::uint64_t there = proved_prefix(by, to.read_back(), bytes, all);
    if (there > 0)
      cursor = {of.model.id, to.fingerprint() != 0 ? to.fingerprint() : of.model.fingerprint, of.model.version, there,
                all.digest()};
  }
}
}  // namespace detail

/// Pulls the values of the groups from an owner, by the name of one level, and proves them by the root. Nothing is
/// pulled if the root is enough. Errors: digest_mismatch: they are others; those of Net::pull; invalid_argument:
/// `most_bytes` is below 64. Of the options neither `progress` nor what is wanted of the model holds.
template <class Net, class Where>
result<proof> download_proof(Where&& where, const proved_reference& of, const proof_options& how = {},
                             const pull_options& options = {}) noexcept {
  if (how.most_bytes < 2 * sizeof(blake3_value)) return failure(errc::invalid_argument, how.most_bytes);
  const unsigned level = level_within(of.image_bytes, how.most_bytes);
  try {
    std::vector<blake3_value> values;
    if (const std::uint64_t groups = groups_of(of.image_bytes, level); groups > 1) {
      values.resize(static_cast<std::size_t>(groups));
      const level_name name(level);
      const std::uint64_t shape[]{groups, sizeof(blake3_value)};
      const mutable_tensor_view view{name.view(), dtype::u8, shape, values.data()->data()};
      auto image = dynamic_image::make({&view, 1});
      if (!image) return failure(image.error());
      land to(image->destination());
      pull_options of_tree = options;
      of_tree.part = true;
      of_tree.tensors = {};
      of_tree.slices = {};
      of_tree.version = 0;
      of_tree.cursor = nullptr;
      of_tree.progress = {};
      of_tree.believe = true;  // until the root has proved it
      if (const auto done = Net::pull(where, of.tree, to, of_tree); !done) return failure(done.error());
    }
    return proof::make(of.root, of.image_bytes, level, std::move(values));
  } catch (const std::bad_alloc&) {
    return failure(errc::out_of_memory);
  }
}

/// Pulls into `to` from the first owner that can be reached; if one is lost, refuses, or sends bytes that are not those
/// of the root, the next one goes on behind what is proved, if the consumer's memory can be read and the pipeline has a
/// digest of the whole (otherwise from the beginning: the consumer's begin() is called again, and abandon() only after
/// the last one). The receipt names those that lied, and `last` is of a `completed` pull whatever the pipeline
/// compares. `from`: what Net::pull takes, such as addresses, or pointers to such. To an owner it is one recipient.
///
/// Errors: the first owner's, if none could do it, and `options.cursor` still counts what is proved;
/// not_verifiable: some tensors are asked for by name (for that, give even one address as parallel_addresses, below);
/// schema_mismatch: the reference states another schema than the
/// consumer takes; cancelled, io, disk_full, out_of_memory, invalid_argument: at once. Memory: the values
/// (proof_options), 2 KiB, and a slice of 4 KiB if an owner is replaced. Cost: a pass of BLAKE3; what has landed is
/// hashed again if an owner is replaced.
template <class Net, class Where, std::size_t Sources, consumer Consumer>
result<proved_receipt> pull_proved(std::span<Where, Sources> from, const proved_reference& of, Consumer& to,
                                   const proof_options& how = {}, const pull_options& options = {}) noexcept {
  if (const auto ok = detail::is_provable(of, to, options); !ok) return failure(ok.error());
  if (from.empty()) return failure(errc::invalid_argument);
  proved_receipt out;
  if (how.wrong != nullptr) *how.wrong = 0;
  std::optional<proof> by;
  std::optional<proved<Consumer>> checked;
  std::optional<error> first;
  resume_cursor own;
  pull_options each = options;
  if (each.cursor == nullptr) each.cursor = &own;
  if (!each.recipient) each.recipient = detail::random_recipient<typename Net::parts::platform>();
  each.unverified = true;  // by the owner's word; the root stands for the bytes
  // what earlier pulls have left there, right or not
  std::uint64_t left = 0;
  const auto move_cursor = [&]() noexcept {
    left = std::max({left, each.cursor->offset, checked->proved_bytes()});
    detail::move_cursor(*each.cursor, *by, of, to, left);
  };
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto step = [&]() noexcept -> result<receipt> {
      if (!checked) {
        auto proves = download_proof<Net>(detail::source_of(from[i]), of, how, each);
        if (!proves) return failure(proves.error());
        by.emplace(std::move(*proves));
        checked.emplace(to, *by);
      }
      move_cursor();
      checked->go_on(each.cursor->offset, i + 1 == from.size());
      return Net::pull(detail::source_of(from[i]), of.model, *checked, each);
    };
    const auto done = step();
    if (done) {
      out.last = *done;
      out.last.outcome = outcome::completed;
      out.last.believed = false;
      out.source = i;
      return out;
    }
    const errc why = done.error().code;
    if (!first || detail::is_own_fault(why)) first = done.error();
    if (detail::is_own_fault(why)) break;
    if (why == errc::digest_mismatch && !(checked && checked->refused()))
      out.wrong |= std::uint64_t{1} << std::min<std::size_t>(i, 63);
    if (how.wrong != nullptr) *how.wrong = out.wrong;
  }
  if (checked) {
    checked->give_up(*first);
    // after wrong bytes a pull leaves none; what others have brought before is right
    if (!*each.cursor) move_cursor();
  }
  return failure(*first);
}

namespace detail {
/// Several owners at once, as Net::pull takes them: `addresses()` are those of each, and `wrong()` the ones that have
/// given wrong bytes in the last pull, one bit each.
template <class All>
concept owners_at_once = requires(const All& a) {
  a.addresses()[0];
  { a.wrong() } -> std::convertible_to<std::uint64_t>;
};

/// The proof from the first owner that has the right one. While others are left, each has two seconds first. `wrong`:
/// the owners that gave another one.
template <class Net, class Where, std::size_t Sources>
result<proof> proof_from_any(std::span<Where, Sources> from, const proved_reference& of, const proof_options& how,
                             const pull_options& options, std::uint64_t& wrong) noexcept {
  optional<error> first;
  pull_options hasty = options;
  hasty.per_request_timeout = std::min<std::chrono::milliseconds>(options.per_request_timeout, std::chrono::seconds(2));
  hasty.retry.retries = 0;
  for (const bool last : {false, true}) {
    if (!last && from.size() == 1) continue;
    for (std::size_t i = 0; i < from.size(); ++i) {
      const std::uint64_t me = std::uint64_t{1} << std::min<std::size_t>(i, 63);
      if ((wrong & me) != 0) continue;
      auto found = download_proof<Net>(source_of(from[i]), of, how, last ? options : hasty);
      if (found) return found;
      const error& why = found.error();
      if (why.code == errc::digest_mismatch) wrong |= me;
      if (!first || is_own_fault(why.code)) first = why;
      if (is_own_fault(why.code)) return failure(why);
    }
  }
  return failure(*first);
}
}  // namespace detail

/// The same from several owners at once: an object such as parallel_addresses (satellites/parallel). Each gives as much
/// as it can. A part of the image, at most a 32nd, is from one owner alone, so one that lies is named as soon as its
/// part is there, and the others bring that; what is right stays. A silent owner costs two seconds if it is asked for
/// the tree first, and then a second. A consumer that takes bytes in order alone has them from one after the other.
///
/// Over parallel_addresses, also of one address, tensors by name are proved by the same root, if the consumer takes
/// bytes in any order: of the image the parts with the header are fetched, and then those with a byte of these tensors,
/// at most 512 in all. See proved_tensors for errors and memory. Slices are not_verifiable, and nothing resumes.
/// A connection that is lost costs the group that it was in.
template <class Net, detail::owners_at_once All, consumer Consumer>
result<proved_receipt> pull_proved(const All& from, const proved_reference& of, Consumer& to,
                                   const proof_options& how = {}, const pull_options& options = {}) noexcept {
  if constexpr (requires { from.stop_serving(); }) from.stop_serving();  // the consumer before may be gone
  if constexpr (!requires { requires Consumer::any_order; }) {
    return pull_proved<Net>(from.addresses(), of, to, how, options);
  } else {
    const bool by_name = detail::proves_tensors<All, Consumer> && options.by_name() && options.slices.empty();
    if (!by_name)
      if (const auto ok = detail::is_provable(of, to, options); !ok) return failure(ok.error());
    if (from.addresses().empty()) return failure(errc::invalid_argument);
    proved_receipt out;
    const auto tell = [&]() noexcept {
      if (how.wrong != nullptr) *how.wrong = out.wrong;
    };
    tell();
    resume_cursor own;
    pull_options all = options;
    if (all.cursor == nullptr) all.cursor = &own;
    if (!all.recipient) all.recipient = detail::random_recipient<typename Net::parts::platform>();
    all.unverified = true;
    proof_options finer = how;
    if constexpr (requires { All::proof_bytes; }) finer.most_bytes = std::max(finer.most_bytes, All::proof_bytes);
    if (by_name) finer.most_bytes = std::max<std::uint64_t>(finer.most_bytes, 512 * sizeof(blake3_value));
    const auto by = detail::proof_from_any<Net>(from.addresses(), of, finer, all, out.wrong);
    tell();
    if (!by) return failure(by.error());
    const auto pull_into = [&](auto& landing) noexcept {
      const auto done = Net::pull(from, of.model, landing, all);
      out.wrong |= from.wrong();
      tell();
      return done;
    };
    if constexpr (detail::proves_tensors<All, Consumer>)
      if (by_name) {
        proved_tensors some(to, *by, options.part ? std::span<const std::string_view>() : options.tensors,
                            {.max_header_bytes = how.most_header_bytes});
        *std::exchange(all.cursor, nullptr) = {};
        all.tensors = {};
        all.part = false;
        const auto done = pull_into(some);
        if (!done) return failure(done.error());
        out.last = some.receipt_of(*done);
        return out;
      }
    detail::move_cursor(*all.cursor, *by, of, to, all.cursor->offset);
    proved checked(to, *by, all.cursor->offset);
    const auto done = pull_into(checked);
    if (!done) {
      // more may be right than the first missing byte shows
      detail::move_cursor(*all.cursor, *by, of, to, std::max(all.cursor->offset, checked.proved_bytes()));
      return failure(done.error());
    }
    out.last = *done;
    return out;
  }
}

}  // namespace tensorpull
