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
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

namespace tensorpull {

/// The rounding errors of one sender, for all its rounds. For one thread at a time. Memory: that of the model's
/// floating tensors, in their own types. Movable.
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
    std::size_t bytes = 0;
    xxh3_64 hash;
    for (const tensor_view& w : to) {
      const std::uint64_t size = *size_bytes(w.type, w.shape);
      const std::uint64_t about[] = {w.name.size(), static_cast<std::uint64_t>(w.type), size};
      hash.update(std::as_bytes(std::span(about)));
      hash.update(w.name);
      if (detail::is_narrowed(w.type)) bytes += aligned(static_cast<std::size_t>(size));
    }
    const std::uint64_t these = hash.digest();
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
      left = detail::narrowed_to<T>(waits + (detail::widened(w) - detail::widened(sent)));
    });
    model_ = these;
    return made;
  }

 private:
  static std::size_t aligned(std::size_t bytes) noexcept { return (bytes + 7) / 8 * 8; }

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
