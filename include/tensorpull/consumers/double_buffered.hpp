// Lands in a second model while the first stays usable. When the new model is complete, it replaces the first.
#pragma once

#include <tensorpull/consumers/land.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

namespace tensorpull {

/// Two models of one schema, borrowed. Each transfer lands in the back one; finish() makes it the front; anything else
/// leaves the front as it was, to the byte. For one thread: a reader of the front on another thread must finish before
/// the next transfer begins, because that lands in the model which was the front before.
class double_buffered {
 public:
  static constexpr bool irrevocable = false;

  /// Errors: schema_mismatch; invalid_argument if a tensor begins at the same address in both.
  [[nodiscard]] static result<double_buffered> make(const destination_view& front,
                                                    const destination_view& back) noexcept {
    if (front.schema->fingerprint != back.schema->fingerprint ||
        front.schema->data_bytes() != back.schema->data_bytes())
      return failure(errc::schema_mismatch);
    for (std::size_t i = 0; i < front.schema->tensor_count; ++i) {
      const tensor_entry& t = front.schema->tensors[i];
      const bool one_device = !t.indirect || front.writer->context == back.writer->context;
      if (t.size_bytes() != 0 && t.indirect == back.schema->tensors[i].indirect && one_device &&
          front.address(i) == back.address(i))
        return failure(errc::invalid_argument, t.begin, t.name);
    }
    return double_buffered(front, back);
  }

  /// Which of the two models that make() was given is usable now: 0 or 1.
  std::size_t front_index() const noexcept { return front_; }
  /// The model that is usable now.
  source_view front() const noexcept { return models_[front_]; }
  /// Models that have arrived; 0: the front is what make() was given.
  std::uint64_t completed() const noexcept { return completed_; }

  std::uint64_t fingerprint() const noexcept { return models_[0].schema->fingerprint; }
  const image_schema* schema() const noexcept { return models_[0].schema; }
  result<void> begin(const description& d) noexcept { return landing_.emplace(models_[1 - front_]).begin(d); }
  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    return landing_ ? landing_->prepare(offset, length, out) : prepared{};
  }
  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    return landing_ ? landing_->commit(offset, bytes) : result<void>{};
  }
  result<void> chunk(std::uint64_t, std::uint64_t) noexcept { return {}; }
  /// Errors: those of land. The owner is told after this. The model stays at the front even if the owner is not heard
  /// any more (receipt::confirmed).
  result<void> finish(const receipt& r) noexcept {
    if (landing_)
      if (const auto ok = landing_->finish(r); !ok) return ok;
    front_ = 1 - front_;
    ++completed_;
    return {};
  }
  void rewind(std::uint64_t) noexcept {}
  void abandon(const error& why) noexcept {
    if (landing_) landing_->abandon(why);
  }

 private:
  double_buffered(const destination_view& front, const destination_view& back) noexcept : models_{front, back} {}

  std::array<destination_view, 2> models_;
  std::optional<land> landing_;
  std::size_t front_ = 0;
  std::uint64_t completed_ = 0;
};

/// The same with the models: `Tensors` is a tensor policy for static models, `Pointer` owns one (a model_ptr, a
/// unique_ptr):
///
///   using mlp_models = double_buffered_models<raw_tensors<Mlp>, model_ptr<Mlp>>;
///   mlp_models both(std::move(*make_model<Mlp>()), std::move(*make_model<Mlp>()));
///
/// Models are never copied or moved, so front() stays valid when this object is moved. Use consumer() in a transfer.
template <class Tensors, class Pointer>
class double_buffered_models {
 public:
  using model_type = typename Tensors::model_type;  ///< The model of the tensor policy.

  /// Each pointer owns a model. Ends the program if a tensor begins at the same address in both.
  double_buffered_models(Pointer front, Pointer back) noexcept
      : models_{std::move(front), std::move(back)},
        landing_(*double_buffered::make(Tensors::destination(*models_[0]), Tensors::destination(*models_[1]))) {}

  const model_type& front() const noexcept {
    return *models_[landing_.front_index()];
  }  ///< The model that is usable now.
  std::uint64_t completed() const noexcept { return landing_.completed(); }  ///< Models that have arrived.
  double_buffered& consumer() noexcept {
    return landing_;
  }  ///< The destination of a transfer. Valid while this object stays where it is.

 private:
  std::array<Pointer, 2> models_;
  double_buffered landing_;
};

static_assert(consumer<double_buffered>);

}  // namespace tensorpull
