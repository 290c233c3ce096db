// The consumer slot of a transfer: where received bytes go. It decides memory and meaning; it never sees a frame.
#pragma once

#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/image/schema.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

struct source_view;  // image/view.hpp

/// Spans that a consumer hands out for the bytes that arrive next.
struct prepared {
  std::size_t pieces = 0;  ///< Spans of the caller's list that were filled.
  std::uint64_t bytes = 0;  ///< Bytes of these spans together.
};

namespace detail {
/// For prepare(): at most `length` bytes of `memory`, as the first span of `out`.
inline prepared prepare_in(std::span<std::byte> memory, std::uint64_t length,
                           std::span<std::span<std::byte>> out) noexcept {
  const std::size_t n = length < memory.size() ? static_cast<std::size_t>(length) : memory.size();
  if (n == 0 || out.empty()) return {};
  out[0] = memory.first(n);
  return {1, n};
}

/// The requirements of a consumer; their meaning stands at the concept. As the type of a default argument behind a
/// consumer, not silent if the consumer was refused: the compiler instantiates a default argument where the function is
/// called, so the sentence about what C misses appears next to the caller's line. It costs nothing at run time.
template <class C, bool Silent = true>
struct consumer_requirements {
  static constexpr bool met_1 = requires { requires std::same_as<decltype(C::irrevocable), const bool>; };
  static_assert(
      Silent || met_1,
      "tensorpull: a consumer says whether it can undo (requirement 1): static constexpr bool irrevocable = false;");

  static constexpr bool met_2 = met_1 && requires(const C& k) {
    { k.fingerprint() } -> std::same_as<std::uint64_t>;
    { k.schema() } -> std::same_as<const image_schema*>;
  };
  static_assert(
      Silent || met_2 == met_1,
      "tensorpull: a consumer says what it takes (requirement 2): std::uint64_t fingerprint() const, 0 for any, and const image_schema* schema() const");

  static constexpr bool met_3 = met_2 && requires(C& c, const description& d) {
    { c.begin(d) } -> std::same_as<result<void>>;
  };
  static_assert(Silent || met_3 == met_2,
                "tensorpull: a consumer is told what comes (requirement 3): result<void> begin(const description&)");

  static constexpr bool met_4 = met_3 && requires(C& c, std::uint64_t n, std::span<std::span<std::byte>> out) {
    { c.prepare(n, n, out) } -> std::same_as<prepared>;
  };
  static_assert(Silent || met_4 == met_3,
                "tensorpull: a consumer gives memory for bytes (requirement 4): "
                "prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out)");

  static constexpr bool met_5 = met_4 && requires(C& c, std::uint64_t n, std::span<const std::byte> bytes) {
    { c.commit(n, bytes) } -> std::same_as<result<void>>;
  };
  static_assert(
      Silent || met_5 == met_4,
      "tensorpull: a consumer takes bytes that arrived (requirement 5): result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes)");

  static constexpr bool met_6 = met_5 && requires(C& c, std::uint64_t n) {
    { c.chunk(n, n) } -> std::same_as<result<void>>;
  };
  static_assert(
      Silent || met_6 == met_5,
      "tensorpull: a consumer is told of each whole chunk (requirement 6): result<void> chunk(std::uint64_t offset, std::uint64_t length)");

  static constexpr bool met_7 = met_6 && requires(C& c, const receipt& r) {
    { c.finish(r) } -> std::same_as<result<void>>;
  };
  static_assert(
      Silent || met_7 == met_6,
      "tensorpull: a consumer is told that all is there (requirement 7): result<void> finish(const receipt&)");

  static constexpr bool met_8 = met_7 && requires(C& c, const error& e) { c.abandon(e); };
  static_assert(
      Silent || met_8 == met_7,
      "tensorpull: a consumer is told how a transfer failed (requirement 8): void abandon(const error&); and it is no constant and no reference");

  static constexpr bool met_9 = met_8 && (!requires { &C::rewind; } || requires(C& c, std::uint64_t n) {
    { c.rewind(n) } -> std::same_as<void>;
  });
  static_assert(
      Silent || met_9 == met_8,
      "tensorpull: a consumer that can take a chunk twice is told where it began (requirement 9): void rewind(std::uint64_t offset)");

  static constexpr bool met_10 = met_9 && (!requires { &C::read_back; } || requires(const C& k) {
    { k.read_back() } -> std::same_as<source_view>;
  });
  static_assert(
      Silent || met_10 == met_9,
      "tensorpull: a consumer whose memory can be read gives it as an image (requirement 10): source_view read_back() const");

  static constexpr bool met_11 = met_10 && (!requires { &C::confirmed; } || requires(C& c) {
    { c.confirmed() } -> std::same_as<void>;
  });
  static_assert(
      Silent || met_11 == met_10,
      "tensorpull: a consumer that is told of the owner's answer is told without arguments (requirement 11): void confirmed()");
};
}  // namespace detail

/// A consumer C:
///  1. `C::irrevocable` is a constant: true if taking a chunk cannot be undone, so that a check of each chunk is
///     required;
///  2. `c.fingerprint()`: the only schema that it takes, 0 for any; `c.schema()`: that schema, or nullptr;
///  3. `c.begin(description)` (receipt.hpp): called once before data moves; an error ends the transfer and nothing has
///     landed;
///  4. `c.prepare(offset, length, out)`: memory for the bytes [offset, offset + bytes), bytes <= length, at least one
///     byte if length > 0 and out is not empty; no bytes at all: no memory is free now, ask again; repeatable until
///     commit;
///  5. `c.commit(offset, bytes)`: these bytes (a part of what was prepared) have arrived; in order, without gaps. They
///     may begin and end anywhere, also within an element, so a consumer that looks at numbers keeps the beginning of
///     one until the rest has arrived. They are hashed where they lie after it, so they stay there until the next call;
///  6. `c.chunk(offset, length)`: the chunk is complete and, if the integrity policy checks chunks, its own digest was
///     right;
///  7. `c.finish(receipt)`: everything arrived and was checked; called before the owner is told, so an error makes it a
///     failure;
///  8. `c.abandon(error)`: the transfer ended in any other way; never after finish() succeeded and at most once.
///  9. optionally `void c.rewind(offset)`, if it can take a chunk twice: what was committed from there on is sent
///     again, since its chunk was damaged or cut off; offset is where a chunk began. Without it such a transfer fails;
/// 10. optionally `source_view c.read_back() const`, if its memory can be read: what lies there, as the image that it
///     is to become, so that a later transfer can continue from a cursor. A view without schema: nothing can be read
///     back, so cursors stay empty and nothing resumes.
/// 11. optionally `void c.confirmed()`: after finish(), the owner's answer to the confirmation was heard. Without it
///     the transfer may still have ended well.
/// 12. optionally `bool c.looked() const`: whether the owner is told to forget that it was asked, if the transfer ends
///     without being finished (published_schema).
/// 13. optionally `static constexpr bool any_order = true`, if prepare() always has memory, and what has landed behind
///     the header can be looked at: by `source_view c.arrived() const`, or else by read_back(). prepare and commit may
///     then be called for any range behind the header, also again for one that has landed; chunk() is still called in
///     order. begin() may be called again, also after an error, if all is to be sent again. Without it a pull has one
///     connection at a time, and over datagrams bytes wait for those before them.
/// 14. optionally `static constexpr bool any_tensor_order = true`, if tensors may arrive in any order: behind the
/// header
///     chunks then begin at any offset where a tensor does, and go on to its end before another begins.
/// 15. optionally `static constexpr bool checks_groups = true`, if it knows beforehand which bytes are right, in groups
///     of group_bytes(), a power of two (0: it does not, this time). The first right_bytes(), whole groups, are there
///     already. Up to the end of the group with the last byte of the header the others arrive in order, and commit()
///     fails with digest_mismatch where a wrong group ends. After in_any_order(n), of whose first n bytes all are
///     right, it is as in 13, and check(offset, length), of groups that have landed, fails with digest_mismatch.
///     begin() does so if the image has another length. The source has lied then, unless refused().
/// 16. optionally `c.finish(receipt, holds)`, if others can change what has landed: as 7, of a transfer that has no
///     digest. `holds(image)`, a basic_callback<bool, const source_view&>, reads all bytes again, from an image without
///     a header, and returns whether they are right.
/// 17. optionally `static constexpr bool wants_some = true` beside 15, if it may not want all groups, and up to
///     C::most_lines connections may bring them. After in_any_order() `c.wants(offset, length)` returns whether it
///     wants one of these groups; others never arrive, and those with the header arrive again if it does.
///     `c.brought_by(connection)` is called before each commit(). The bytes of a group arrive in order over one
///     connection, from the beginning if another one takes it over; commit() fails as in 15 where a wrong group ends,
///     and nothing calls check(). chunk() counts groups that are not wanted, too.
/// Offsets count as in `description`. Nothing throws. prepare, commit and chunk allocate nothing; only new_model and
/// one that wants some groups do so, while the header arrives.
template <class C>
concept consumer = detail::consumer_requirements<C>::met_11;

namespace detail {
/// Whether it takes tensors in another order than the image's.
template <class C>
inline constexpr bool takes_any_tensor_order = [] {
  bool any = false;
  if constexpr (requires { C::any_order; }) any = C::any_order;
  if constexpr (requires { C::any_tensor_order; }) any = any || C::any_tensor_order;
  return any;
}();

/// The type of the default argument.
template <class C, bool Met = consumer<C>>
using consumer_checks = consumer_requirements<C, Met>;

/// The smallest consumer, which keeps nothing: it shows what a tee needs of its parts, and stands for a type that was
/// refused.
struct null_consumer {
  static constexpr bool irrevocable = false;
  std::byte scratch[64];
  static std::uint64_t fingerprint() noexcept { return 0; }
  static const image_schema* schema() noexcept { return nullptr; }
  static result<void> begin(const description&) noexcept { return {}; }
  prepared prepare(std::uint64_t, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    return prepare_in(scratch, length, out);
  }
  static result<void> commit(std::uint64_t, std::span<const std::byte>) noexcept { return {}; }
  static result<void> chunk(std::uint64_t, std::uint64_t) noexcept { return {}; }
  static result<void> finish(const receipt&) noexcept { return {}; }
  static void abandon(const error&) noexcept {}
};

/// The consumer behind a type that a user names: the type itself, or, after the sentence about what it lacks, one that
/// keeps nothing.
template <class C, bool Met = consumer<C>>
struct checked_consumer {
  using type = C;
};
template <class C>
struct checked_consumer<C, false> {
  static_assert(sizeof(consumer_requirements<C, false>) != 0);
  using type = null_consumer;
};
}  // namespace detail

}  // namespace tensorpull
