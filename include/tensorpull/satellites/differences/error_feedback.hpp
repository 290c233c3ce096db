// Error feedback: the rounding error of a step is added to the next one, so that nothing is lost in the long run,
// however few bits a step has. (The sum is stored as elements of the model, so F16 and BF16 round it where an element
// crosses a power of two.)
//
// An owner whose base becomes what it sent does not need this: the error is in its next difference. A client does: its
// next round begins from the owner's model, which does not have its error.
#pragma once

#include <tensorpull/core/tensor_view.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/satellites/differences/narrowed_step.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

namespace tensorpull {

/// The rounding errors of one sender, for all its rounds. For one thread at a time. Memory: that of the model's
/// floating tensors, in their own types. Movable. `left` and `load` keep them over the end of the program; `lost` takes
/// back a step that nobody took.
template <narrowing_scheme Scheme = blocks_of_4_bits<>>
class error_feedback {
 public:
  error_feedback() = default;
  error_feedback(error_feedback&&) = default;  // no copy: errors would be sent twice
  error_feedback& operator=(error_feedback&&) = default;

  /// A step from `base` to `model` plus the errors of earlier steps, which count as sent then. Both lists have the same
  /// names, types and shapes in the same order, in each round, in plain memory that no two of all these tensors share.
  /// `model` becomes what was to be sent, rounded to its types and saturated at their largest values, and `base` what
  /// is sent. Errors lead no tensor below zero whose elements are not, such as variances: the rest of such an error
  /// waits for the next step, up to a code of the tensor's largest element. Cost: that of narrowed_step, four more
  /// passes over the model, one over the base and two over the errors. Errors that leave all as it was: schema_mismatch
  /// (the lists differ, with the tensor's name if they have equally many; without a name also if the model is not that
  /// of the last step), unsupported_layout (also shared memory), and invalid_argument for a tensor without an address.
  /// After any other error of narrowed_step `base` is as it was, the errors are in `model` alone, and any model may be
  /// next. If it throws std::bad_alloc, one or the other holds.
  [[nodiscard]] result<narrowed_step<Scheme>> step(std::span<const mutable_tensor_view> model,
                                                   std::span<const mutable_tensor_view> base) {
    const std::vector<tensor_view> to(model.begin(), model.end()), from(base.begin(), base.end());
    if (const auto same = detail::same_plain_tensors(to, from); !same) return failure(same.error());
    std::vector<const mutable_tensor_view*> all;
    for (const auto list : {model, base})
      for (const mutable_tensor_view& t : list) all.push_back(&t);
    if (const mutable_tensor_view* const shared = detail::sharing_memory(std::move(all)))
      return failure(errc::unsupported_layout, 0, shared->name);
    const auto [these, bytes] = about(to);
    if (model_ && *model_ != these) return failure(errc::schema_mismatch);
    if (!model_) left_.clear();
    left_.resize(bytes);
    model_.reset();  // no errors until a step has succeeded
    each(model, model, [](auto& w, auto& left, const auto&, double largest) {
      const auto sum = moved(w, detail::widened(left)), none = decltype(sum){};
      const bool waits = largest >= 0 && detail::widened(sum) < 0;
      w = waits ? none : sum;
      left = waits ? sum : none;
    });
    auto made = narrowed_step<Scheme>::make(to, base);
    if (!made) {
      each(model, model, [](auto& w, auto& left, const auto&, double) { w = moved(w, detail::widened(left)); });
      return made;
    }
    each(model, base, [](auto& w, auto& left, const auto& sent, double largest) {
      using T = std::remove_reference_t<decltype(w)>;
      const double waits = largest < 0 ? 0 : std::max(detail::widened(left), -largest / Scheme::most);
      left = detail::narrowed_to<T>(waits + less(w, sent));
    });
    model_ = these;
    return made;
  }

  /// Nobody has taken the last step, such as that of an update whose transfer failed: all of it is left out, and added
  /// to the next one. `sent`: what step() has made of `base`, and `base`: what it was given. Both as of step(). Errors
  /// that leave all as it was: those of step() for lists that do not fit; schema_mismatch: another model than the last
  /// step's, or there was none.
  result<void> lost(std::span<const mutable_tensor_view> sent, std::span<const mutable_tensor_view> base) {
    const std::vector<tensor_view> to(sent.begin(), sent.end()), from(base.begin(), base.end());
    if (const auto alike = detail::same_plain_tensors(to, from); !alike) return alike;
    if (!model_ || *model_ != about(to).digest) return failure(errc::schema_mismatch);
    each(sent, base, [](const auto& is, auto& left, const auto& was, double) { left = moved(left, less(is, was)); });
    return {};
  }

  /// The errors as tensors with the names, types and shapes of the model's floating ones, which are borrowed, to be
  /// kept in a file. They change with the next step. Empty: no step has succeeded, or one of another model.
  std::vector<tensor_view> left(std::span<const mutable_tensor_view> model) const {
    std::vector<tensor_view> kept;
    if (!model_ || *model_ != about({model.begin(), model.end()}).digest) return kept;
    const std::byte* at = left_.data();
    for (const mutable_tensor_view& w : model) {
      if (!detail::is_narrowed(w.type)) continue;
      kept.push_back({w.name, w.type, w.shape, at});
      at += aligned(static_cast<std::size_t>(*size_bytes(w.type, w.shape)));
    }
    return kept;
  }

  /// Goes on with what left() gave in an earlier program, in any order: a copy of it. Errors that leave all as it was,
  /// with the tensor's name: schema_mismatch (a floating tensor of the model is not in `kept`, or is another there; or
  /// there is one more), unsupported_layout, invalid_argument (a NaN, an infinity, no address).
  result<void> load(std::span<const mutable_tensor_view> model, std::span<const tensor_view> kept) {
    const std::vector<tensor_view> to(model.begin(), model.end());
    for (std::size_t i = 0; i < to.size(); ++i)
      if (const auto size = size_bytes(to[i].type, to[i].shape); !size)
        return failure(size.error().code, i, to[i].name);
    const auto [these, bytes] = about(to);
    std::vector<std::byte> made(bytes);
    std::byte* at = made.data();
    std::size_t floating = 0;
    for (std::size_t i = 0; i < to.size(); ++i) {
      const tensor_view& w = to[i];
      if (!detail::is_narrowed(w.type)) continue;
      ++floating;
      const auto is = std::ranges::find(kept, w.name, &tensor_view::name);
      if (is == kept.end() || is->type != w.type || !std::ranges::equal(is->shape, w.shape))
        return failure(errc::schema_mismatch, i, w.name);
      const auto size = detail::plain_tensor(*is, i);
      if (!size) return failure(size.error());
      const auto n = static_cast<std::size_t>(*size);
      const bool numbers = detail::with_movable(w.type, true, [&](auto element) {
        using T = decltype(element);
        return std::ranges::all_of(std::span(reinterpret_cast<const T*>(is->data), n / sizeof(T)),
                                   [](const T& x) { return detail::is_finite(detail::widened(x)); });
      });
      if (!numbers) return failure(errc::invalid_argument, i, w.name);
      if (n != 0) std::memcpy(at, is->data, n);
      at += aligned(n);
    }
    if (floating != kept.size()) return failure(errc::schema_mismatch);
    left_ = std::move(made);
    model_ = these;
    return {};
  }

 private:
  static std::size_t aligned(std::size_t bytes) noexcept { return (bytes + 7) / 8 * 8; }

  struct description {
    std::uint64_t digest;  // of names, types and sizes
    std::size_t bytes;  // of the errors
  };
  /// Requires sizes that size_bytes() accepts.
  static description about(const std::vector<tensor_view>& model) noexcept {
    description is{};
    xxh3_64 hash;
    for (const tensor_view& w : model) {
      const std::uint64_t size = *size_bytes(w.type, w.shape);
      const std::uint64_t facts[] = {w.name.size(), static_cast<std::uint64_t>(w.type), size};
      hash.update(std::as_bytes(std::span(facts)));
      hash.update(w.name);
      if (detail::is_narrowed(w.type)) is.bytes += aligned(static_cast<std::size_t>(size));
    }
    is.digest = hash.digest();
    return is;
  }

  /// 0 if one is no number: an infinity that stands still, as masks have, has no error.
  template <class T>
  static double less(const T& to, const T& from) noexcept {
    const double difference = detail::widened(to) - detail::widened(from);
    return detail::is_finite(difference) ? difference : 0;
  }
  /// Of a tensor without an element below zero; -1: there is one.
  template <class T>
  static double largest_of(std::span<T> elements) noexcept {
    double largest = 0;
    for (const T& w : elements) {
      if (detail::widened(w) < 0) return -1;
      largest = std::max(largest, detail::widened(w));
    }
    return largest;
  }

  /// Calls `f` with each element of the floating tensors, its error, the same element of `other`, and largest_of() the
  /// tensor.
  template <class F>
  void each(std::span<const mutable_tensor_view> model, std::span<const mutable_tensor_view> other, F f) noexcept {
    std::byte* left = left_.data();
    for (std::size_t i = 0; i < model.size(); ++i) {
      const auto bytes = static_cast<std::size_t>(*size_bytes(model[i].type, model[i].shape));
      left += detail::with_movable(model[i].type, std::size_t{0}, [&](auto element) {
        using T = decltype(element);
        const std::span elements(reinterpret_cast<T*>(model[i].data), bytes / sizeof(T));
        const double largest = largest_of(elements);
        for (std::size_t k = 0; k < elements.size(); ++k)
          f(elements[k], reinterpret_cast<T*>(left)[k], reinterpret_cast<const T*>(other[i].data)[k], largest);
        return aligned(bytes);
      });
    }
  }

  std::vector<std::byte> left_;  // each tensor's begins at a multiple of 8
  std::optional<std::uint64_t> model_;  // of the errors: a digest of its names, types and sizes
};

}  // namespace tensorpull
