// Models for simulations: tensors of random shapes in one block of memory, between guard bytes that must not change.
#pragma once

#include <tensorpull/image/booleans.hpp>
#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/testing/seeded_random.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace tensorpull::testing {

/// A simulated model M stands for a user's model in a simulation:
///  1. `typename M::shape`, made from a seeded_random&: what all models of one run have in common;
///  2. `M(shape)`: a model whose memory, guard bytes included, is filled with a fixed pattern; the shape outlives it;
///     it is never moved;
///  3. `m.fill(random)`: gives the tensors values;
///  4. `m.source()`, `m.destination()`: its image;
///  5. `m.guards_intact()`: whether nothing was written around the tensors;
///  6. optionally `M(shape, parts)` with bit i for tensor i, and `m.names()`: a model that has only some of the
///     tensors, to pull a subset.
template <class M>
concept simulated_model = std::constructible_from<typename M::shape, seeded_random&> &&
                          std::constructible_from<M, const typename M::shape&> &&
                          requires(M m, const M& k, seeded_random& r) {
                            m.fill(r);
                            { k.source() } -> std::same_as<source_view>;
                            { m.destination() } -> std::same_as<destination_view>;
                            { k.guards_intact() } -> std::same_as<bool>;
                          };

/// The bytes around the tensors.
struct guard {
  static constexpr std::byte pattern{0xa5};  ///< their value
  static constexpr std::size_t bytes = 32;   ///< how many there are before and after a tensor
  /// Whether nothing was written there.
  static bool intact(std::span<const std::byte> s) noexcept {
    return std::all_of(s.begin(), s.end(), [](std::byte b) { return b == pattern; });
  }
};

/// Up to 6 tensors: several dtypes, scalars, empty ones, addresses that are not aligned. `scale` multiplies the first
/// extent of each.
class guarded_tensors {
 public:
  /// Dtypes, extents and positions of the tensors.
  class shape {
   public:
    /// Draws up to 6 tensors.
    explicit shape(seeded_random& random, std::uint64_t scale = 1) {
      constexpr std::array types{dtype::u8, dtype::f16, dtype::f32, dtype::f64, dtype::i64, dtype::boolean};
      count_ = 1 + static_cast<std::size_t>(random.below(tensors_.size()));
      const std::uint64_t most = random.chance(250) ? 12 : 4 + random.below(120);
      for (std::size_t i = 0; i < count_; ++i) {
        tensor& t = tensors_[i];
        t.type = types[static_cast<std::size_t>(random.below(types.size()))];
        t.rank = static_cast<std::size_t>(random.below(3));
        t.extents = {random.chance(80) ? 0 : scale * (1 + random.below(most)), 1 + random.below(3)};
        t.bytes = static_cast<std::size_t>(*size_bytes(t.type, {t.extents.data(), t.rank}));
        t.at = total_ + guard::bytes + static_cast<std::size_t>(random.below(2));
        total_ = t.at + t.bytes;
      }
      total_ += guard::bytes;
    }

    /// How many tensors there are.
    std::size_t tensors() const noexcept { return count_; }
    /// The memory of a model, guard bytes included.
    std::size_t bytes() const noexcept { return total_; }

   private:
    friend guarded_tensors;
    struct tensor {
      dtype type{};
      std::size_t rank = 0, bytes = 0, at = 0;
      std::array<std::uint64_t, 2> extents{};
    };
    std::array<tensor, 6> tensors_{};
    std::size_t count_ = 0, total_ = 0;
  };

  /// Borrows the shape. `parts`: bit i for tensor i.
  explicit guarded_tensors(const shape& s, std::uint32_t parts = ~0u)
      : shape_(&s), parts_(parts), memory_(s.total_, guard::pattern) {
    // the last name is so long that a request with it does not fit the 512 bytes of a connection's own buffer
    static constexpr auto long_name = [] {
      std::array<char, 480> text{};
      text.fill('n');
      return text;
    }();
    static constexpr std::array<std::string_view, 6> names{
        "b.weight", "a.weight", "b.bias", "a.bias", "step", {long_name.data(), long_name.size()}};
    std::array<mutable_tensor_view, 6> views;
    for (std::size_t i = 0; i < s.count_; ++i) {
      if (!has(i)) continue;
      views[count_] = {names[i],
                       s.tensors_[i].type,
                       {s.tensors_[i].extents.data(), s.tensors_[i].rank},
                       memory_.data() + s.tensors_[i].at};
      names_[count_++] = names[i];
    }
    auto made = dynamic_image::make(std::span<const mutable_tensor_view>(views.data(), count_));
    if (made) image_.emplace(std::move(*made));
  }
  guarded_tensors(const guarded_tensors&) = delete;
  guarded_tensors& operator=(const guarded_tensors&) = delete;

  /// Gives the tensors values.
  void fill(seeded_random& random) noexcept {
    for (std::size_t i = 0; i < shape_->count_; ++i)
      random.fill({memory_.data() + shape_->tensors_[i].at, shape_->tensors_[i].bytes});
  }
  /// The image to publish; valid as long as the model.
  source_view source() const noexcept { return image_->source(); }
  /// The image to land in; valid as long as the model.
  destination_view destination() noexcept { return image_->destination(); }
  /// The names of the tensors that it has.
  std::span<const std::string_view> names() const noexcept { return {names_.data(), count_}; }
  /// Whether nothing was written around the tensors.
  bool guards_intact() const noexcept {
    std::size_t at = 0;
    for (std::size_t i = 0; i < shape_->count_; ++i) {
      if (!has(i)) continue;
      if (!guard::intact({memory_.data() + at, shape_->tensors_[i].at - at})) return false;
      at = shape_->tensors_[i].at + shape_->tensors_[i].bytes;
    }
    return guard::intact({memory_.data() + at, memory_.size() - at});
  }

 private:
  bool has(std::size_t i) const noexcept { return (parts_ >> i & 1) != 0; }

  const shape* shape_;
  std::uint32_t parts_;
  std::size_t count_ = 0;
  std::array<std::string_view, 6> names_;
  std::vector<std::byte> memory_;
  std::optional<dynamic_image> image_;
};

static_assert(simulated_model<guarded_tensors>);

/// One object of a tensor policy's model type (raw_tensors<Mlp>), between guard bytes. Only for trivially copyable
/// models.
template <class Tensors>
class guarded_object {
 public:
  using model_type = typename Tensors::model_type;
  static_assert(std::is_trivially_copyable_v<model_type>,
                "tensorpull: guarded_object writes the model's bytes: the model has to be trivially copyable");
  /// All objects of a type have the same shape.
  struct shape {
    /// Draws nothing.
    explicit shape(seeded_random&) noexcept {}
  };

  /// Allocates the object and the guard bytes around it.
  explicit guarded_object(const shape&) : memory_(sizeof(block)) {
    std::fill(memory_.begin(), memory_.end(), guard::pattern);
    at_ = (alignof(model_type) -
           (reinterpret_cast<std::uintptr_t>(memory_.data()) + guard::bytes) % alignof(model_type)) %
              alignof(model_type) +
          guard::bytes;
    model_ = ::new (memory_.data() + at_) model_type;
    std::fill_n(memory_.data() + at_, sizeof(model_type), guard::pattern);
  }
  guarded_object(const guarded_object&) = delete;
  guarded_object& operator=(const guarded_object&) = delete;

  /// Gives the tensors values.
  void fill(seeded_random& random) noexcept {
    const destination_view to = destination();
    for (std::size_t i = 0; i < to.schema->tensor_count; ++i)
      random.fill({to.address(i), static_cast<std::size_t>(to.schema->tensors[i].size_bytes())});
    mend_booleans(to, to.schema->data_bytes());
  }
  /// The image to publish; valid as long as the object.
  source_view source() const noexcept { return Tensors::source(*model_); }
  /// The image to land in; valid as long as the object.
  destination_view destination() noexcept { return Tensors::destination(*model_); }
  /// Whether nothing was written around the object.
  bool guards_intact() const noexcept {
    return guard::intact({memory_.data(), at_}) && guard::intact(std::span(memory_).subspan(at_ + sizeof(model_type)));
  }

 private:
  struct block {
    std::byte before[guard::bytes], after[guard::bytes + alignof(model_type)];
    model_type model;
  };
  std::vector<std::byte> memory_;
  std::size_t at_ = 0;
  model_type* model_ = nullptr;
};

}  // namespace tensorpull::testing
