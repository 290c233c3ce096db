// A quantised step of a model, in 8 or 4 bits: published by an owner for recipients of its base, and taken by them.
// Afterwards both ends have the same bits, which the owner publishes as the whole, for all others.
#pragma once

#include <tensorpull/satellites/differences/download_changes.hpp>
#include <tensorpull/satellites/differences/error_feedback.hpp>
#include <tensorpull/satellites/differences/narrowed_step.hpp>
#include <tensorpull/satellites/differences/widened.hpp>
#include <tensorpull/tensors/concept.hpp>

#include <concepts>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace tensorpull {

/// The same for models of a tensor policy: a step from what the other side has. Differences are narrowed and weights
/// are not: weights in 8 bits, or in BF16, lose what a late round learns. So a step is made of two models, and is not a
/// policy: a pipeline that is given one does not compile, and explains why. (A policy describes where a model's tensors
/// are, and a step has to be compared with a base before a byte of that may change.)
template <tensor_policy Tensors, narrowing_scheme Scheme = blocks_of_8_bits<>>
class narrowed {
 public:
  /// Makes a pipeline that is given a step as its tensor policy explain why not.
  template <class Instead>
  struct refused_as_policy : Instead {
    static_assert(
        detail::never<Instead>,
        "tensorpull: narrowed<T> is no tensor policy: a difference to what the other side has is narrowed, and weights are not, since they would lose late "
        "progress: give the pipeline T, and publish narrowed<T>::make(now, base)");
  };
  using model_type = typename Tensors::model_type;  ///< of both

  /// Moves `base`, which the other side has, towards `now`. Publish the moved base as the whole, and this beside it,
  /// under difference_id(whole, from_version()). Errors and cost: those of narrowed_step, with one more pass over the
  /// base. unsupported_layout: a model that is not in plain memory.
  template <hash Hash = xxh3_64>
  [[nodiscard]] static result<narrowed> make(const model_type& now, model_type& base) {
    return made<Hash>(base, [&](const auto& to) -> result<narrowed_step<Scheme>> {
      const source_view model = Tensors::source(now);
      std::vector<tensor_view> these;
      for (std::size_t i = 0; i < model.schema->tensor_count; ++i) {
        const tensor_entry& t = model.schema->tensors[i];
        if (t.strides_bytes != nullptr) return failure(errc::unsupported_layout, i, t.name);
        these.push_back({t.name,
                         t.type,
                         t.extents(),
                         t.indirect ? nullptr : model.address(i),
                         {},
                         static_cast<std::uint8_t>(t.swap_bytes),
                         t.indirect});
      }
      return narrowed_step<Scheme>::make(these, to);
    });
  }
  /// The same for a sender whose base is not kept, such as a client: adds the errors of earlier steps to `now`, and
  /// keeps this step's in `left`. More errors: those of error_feedback, which also describes `now`.
  template <hash Hash = xxh3_64>
  [[nodiscard]] static result<narrowed> make(model_type& now, model_type& base, error_feedback<Scheme>& left) {
    return made<Hash>(base, [&](const auto& to) {
      const destination_view model = Tensors::destination(now);
      auto step = left.step(views_of(model), to);
      model.complete();
      return step;
    });
  }
  /// Refused: a constant model, and errors of another scheme.
  template <class Now, class Other>
    requires std::same_as<std::remove_const_t<Now>, model_type> &&
             (std::is_const_v<Now> || !std::same_as<Other, Scheme>)
  static result<narrowed> make(Now&, model_type&, error_feedback<Other>&) {
    static_assert(
        !std::same_as<std::remove_const_t<Now>, model_type>,
        "tensorpull: narrowed<T, Scheme>::make(now, base, left) changes now, which is not const, and left is an error_feedback<Scheme> of the same scheme");
    return failure(errc::invalid_argument);
  }
  /// Refused: weights alone.
  template <class Model>
    requires std::same_as<Model, model_type>
  static result<narrowed> make(const Model&) {
    static_assert(
        !std::same_as<Model, model_type>,
        "tensorpull: narrowed<T>::make(now, base) has no base here: a difference to what the other side has is narrowed, and weights are not, since they "
        "would lose late progress");
    return failure(errc::invalid_argument);
  }

  /// The tensors of a model, as error_feedback has them: `left.lost(step::tensors(sent), step::tensors(base))`.
  static std::vector<mutable_tensor_view> tensors(model_type& model) { return views_of(Tensors::destination(model)); }

  /// To publish it. Valid while this object lives, also after a move.
  source_view image() const noexcept { return step_.image(); }
  /// The version of `base` before it moved: recipients that have it can apply this step.
  std::uint64_t from_version() const noexcept { return from_; }

 private:
  static std::vector<mutable_tensor_view> views_of(const destination_view& model) {
    std::vector<mutable_tensor_view> views;
    for (std::size_t i = 0; i < model.schema->tensor_count; ++i) {
      const tensor_entry& t = model.schema->tensors[i];
      views.push_back({t.name, t.type, t.extents(), t.indirect ? nullptr : model.address(i), {}, t.indirect});
    }
    return views;
  }
  template <class Hash, class Step>
  static result<narrowed> made(model_type& base, Step make_step) {
    const destination_view to = Tensors::destination(base);
    if (!to.readable()) return failure(errc::unsupported_layout);
    const auto from = image_version<Hash>(to);
    if (!from) return failure(from.error());
    auto step = make_step(views_of(to));
    if (!step) return failure(step.error());
    to.complete();
    return narrowed(std::move(*step), *from);
  }

  narrowed(narrowed_step<Scheme> step, std::uint64_t from) noexcept : step_(std::move(step)), from_(from) {}

  narrowed_step<Scheme> step_;
  std::uint64_t from_;
};

namespace detail {

/// download_changes() of a narrowed step.
template <class Net, class Scheme, hash Hash, class Where>
result<receipt> download_narrowed(Where& where, const reference& whole, const reference& difference,
                                  typename Net::model_type& model, const pull_options& options,
                                  std::uint64_t* difference_bytes, bool found) noexcept {
  const destination_view to = Net::parts::tensors::destination(model);
  land landing(to);
  const auto made = [&]() -> result<tensorpull::widened<land, Scheme>> {
    if (!to.readable()) return failure(errc::invalid_argument);
    try {
      return tensorpull::widened<land, Scheme>::make(landing, to, held_chunk<Net>(*to.schema));
    } catch (const std::bad_alloc&) {
      return failure(errc::out_of_memory);
    }
  };
  return download_changes_by<Net, Hash>(where, whole, difference, model, made, options, difference_bytes, found);
}

}  // namespace detail

/// download_changes() where the difference is a narrowed step: the same fallback, errors and cost, with the scheme
/// instead of a coder. `whole` is the moved base. All of it is pulled if the step is to another base, has NaN or
/// infinite scales, or does not lead to `whole`; also if no step can be made for `model` (tensors without an address, a
/// tensor named like another's scales). Memory: as of `widened`, with chunks of the pipeline, or of a model if that is
/// smaller.
template <class Net, class Where, narrowing_scheme Scheme, hash Hash = xxh3_64>
result<receipt> download_changes(Where&& where, const reference& whole, const reference& difference,
                                 typename Net::model_type& model, const Scheme&, const pull_options& options = {},
                                 std::uint64_t* difference_bytes = nullptr) noexcept {
  return detail::download_narrowed<Net, Scheme, Hash>(where, whole, difference, model, options, difference_bytes,
                                                      false);
}
/// The same if the step was published under difference_id(), of `whole` and the model's version; and so those of rounds
/// that the recipient missed.
template <class Net, class Where, narrowing_scheme Scheme, hash Hash = xxh3_64>
result<receipt> download_changes(Where&& where, const reference& whole, typename Net::model_type& model, const Scheme&,
                                 const pull_options& options = {}, std::uint64_t* difference_bytes = nullptr) noexcept {
  return detail::with_difference_of<Net, Hash>(
      whole, model, options, [&](const reference& found, const pull_options& how) {
        return detail::download_narrowed<Net, Scheme, Hash>(where, whole, found, model, how, difference_bytes, true);
      });
}

}  // namespace tensorpull
