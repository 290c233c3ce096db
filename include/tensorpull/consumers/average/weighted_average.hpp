// Federated averaging while the updates arrive: sum of weight * update, divided by the weight (McMahan et al.,
// "Communication-Efficient Learning of Deep Networks from Decentralized Data", arXiv 1602.05629, algorithm 1).
// No update is held as a whole, except with `staged`. With the old model at hand, the base that the updates began from,
// it is base + sum of weight * (update - base), divided by the weight: elements that nobody has changed keep their
// bits.
//
// With `staged`, the difference of an update that has just landed can be shortened to a norm before it is added (norm
// clipping), without a second update in memory.
//
// Adding cannot be undone, so without `staged` a chunk is added only when its own digest was right: the pipeline needs
// a check of each chunk. The meaning of an update that stops half-way is chosen when the program is compiled.
#pragma once

#include <tensorpull/consumers/average/detail/updates.hpp>
#include <tensorpull/consumers/average/update_key.hpp>
#include <tensorpull/consumers/concept.hpp>

#include <algorithm>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace tensorpull {

/// How to treat an update that stops at byte k.
enum class partial_updates : std::uint8_t {
  divide_by_reached,  ///< its bytes [0, k) count; every element is divided by the weight that reached it
  /// the result is an error that names the peer (unless it stopped before its first element was added)
  error_on_partial,
  staged,  ///< it does not count: updates land one at a time in a model's memory, and are added when complete
};

/// The average's round, the bounds of its memory, and where its rounds begin.
struct average_options {
  /// The old model, which the updates began from: the differences to it are summed. Give it wherever it is at hand.
  /// See `weighted_average`. A view without a schema: there is none, and the values are summed.
  source_view base{};
  /// Different offsets where updates may stop in one round (16 bytes each); one more makes the result an error. For
  /// divide_by_reached.
  std::size_t max_partial_updates = 64;
  /// Peers of one round (112 bytes each). An update of one more is refused when it begins: table_full.
  std::size_t max_peers = 4096;
  /// The number of the first round, at least 1. reset() begins the next one.
  std::uint64_t first_round = 1;
  /// An update fails that has a NaN or an infinity where the base has another value: value_out_of_range with the peer,
  /// before the chunk is added that has it (`staged`: before any). The record has the tensor. Costs one more look at
  /// each element. False: one of a single client makes the result's element one.
  bool refuse_no_numbers = true;
  /// Norm clipping, for `staged` with a base: a difference that is longer is shortened to this Euclidean norm before it
  /// is added. Its own norm is in its record. Counters have none (as weighing has it). 0: nothing is shortened. See
  /// `clip`.
  double longest = 0;
  /// A weight above this counts as this. A number of samples is its client's own word, and a client with 10^9 of them
  /// would decide the mean.
  double heaviest = 0x1p60;
};

/// The mean of models of one schema. Memory: 4 bytes for each floating-point element (8 for F64, C64 and integers), 8
/// for each tensor, 16 for each partial update, 112 for each peer, all allocated by make(), none later; and the chunk
/// buffers, shared by all updates. With `staged`: one model more. Sums are float32 for floating-point dtypes of at most
/// 32 bits and for C64, float64 for F64 and integers. The sum of weight * value has to fit: scale weights down if
/// values are huge.
/// Any number of updates may be under way, their calls interleaved in any way on one thread.
///
/// With `average_options::base` sums are of weight * (value - old value), in the same memory:
///  - An element that has its old value in all updates has its old bits in the result, whatever the weights are and how
///    many updates there are: -0.0 and subnormals too, in every dtype, and with or without contraction (FMA). Without a
///    base about half of all F32 elements do not survive ten updates of any weights.
///  - Steps that are small beside the values keep their digits: for F32 the error of the mean is a rounding of the
///    result, not one for each update. It is absolute: some roundings of the greater of old value and value. So a base
///    that has nothing to do with the updates makes the mean of values that are far smaller than its own worse.
///  - Where the base is infinite or NaN, values are summed directly, as without a base. So finite values from all
///    updates give their mean. If one is NaN, an old NaN keeps its bits.
///  - Each addition also reads the old elements. A pull over TCP with both digests takes 1.2 to 1.35 of the recipient's
///    processor time (F16, which is decoded twice: 1.5 to 1.9), and finish() 2 to 5 times its own.
///  - The base is borrowed. Its elements may not change from the first update of a round to finish(). Its memory is the
///    result's own (in place), or apart from it, tensor by tensor. In place finish() makes the result the new base, as
///    the next round wants it; updates that follow in the same round are added to that, with the weights so far.
///
/// Each update has a key, and counts once:
///  - It counts when its last byte was verified, whether or not its peer's confirmation is heard after that. updates()
///    tells which.
///  - A repeat of an update that counts adds nothing, also under another reference, and with other bytes. It is taken
///    to its end, so the peer hears its confirmation. So is an update of an earlier round, whether or not it counted
///    then.
///  - A repeat while the first is under way fails when it begins: update_under_way.
///  - A repeat of an update that stopped at k, without `staged`: what is in the sums is not added again. It goes on
///    from k if it has the same weight and the same version, and the version is a digest; otherwise it fails when it
///    begins: update_changed. The owner's version stands for the bytes [0, k): they arrived under it, each chunk with
///    the digest that it had then.
template <partial_updates Partial = partial_updates::error_on_partial>
class weighted_average {
  static constexpr bool is_staged = Partial == partial_updates::staged;
  using update_base = std::conditional_t<is_staged, detail::staged_update, detail::streamed_update>;

 public:
  static constexpr partial_updates partial = Partial;  ///< The treatment of an update that stops half-way.

  /// The consumer for one peer's update. Destroying it ends the update as abandon() does. The average outlives it.
  class update : public update_base {
   public:
    /// An update that stopped has reached the first k bytes of all, if what it has reached is to count.
    static constexpr bool any_tensor_order = Partial != partial_updates::divide_by_reached;

    /// `weight`: from 2^-60 to 2^60. `key`: a peer, and a round from 1 up to the
    /// average's. Otherwise begin() fails with invalid_argument (`at`: the round, if that is wrong).
    update(weighted_average& to, double weight, const update_key& key) noexcept
        : update_base(*to.state_, weight, key) {}
  };

  /// Borrows the result's memory, which is written by finish() only, the base's, and the buffers; all outlive the
  /// average. The longest chunk of an update is that of the buffers. Errors: unsupported_dtype (BOOL, F4, F6, F8_E8M0)
  /// and unsupported_layout (a tensor without an address, or one of the base that is strided or in the other byte
  /// order), schema_mismatch (the base is another model), invalid_argument (a tensor of the base overlaps the result's
  /// and does not begin with it; one with a tensor of another name is not noticed), with the tensor's name;
  /// invalid_argument without a name (no peers, a first round of 0, `longest` that is negative, NaN, or
  /// set without a base or `staged`, `heaviest` that is no weight); out_of_memory.
  [[nodiscard]] static result<weighted_average> make(const destination_view& result_model, chunk_buffers& buffers,
                                                     const average_options& options = {}) noexcept {
    return make_from(result_model, is_staged ? nullptr : &buffers, options);
  }
  /// The same with `staged`, which needs no chunk buffers.
  [[nodiscard]] static result<weighted_average> make(const destination_view& result_model,
                                                     const average_options& options = {}) noexcept
    requires is_staged
  {
    return make_from(result_model, nullptr, options);
  }

  /// Writes the averages into the result's memory. May be called again after more updates.
  /// Errors, before anything is written: partial_update (with the peer: its update stopped half-way, with
  /// error_on_partial; without a name: `at` updates are still being added), too_many_partial_updates, digest_mismatch
  /// (with the peer: its chunks were added, and together they were not what it published), no_updates (with the first
  /// tensor that has an element that no update reached).
  result<void> finish() noexcept { return state_->finish(Partial == partial_updates::error_on_partial); }

  /// Begins the next round: everything is zero again, and the peers are forgotten. Updates that are still adding add
  /// nothing more; they fail with `cancelled` when their next bytes arrive.
  void reset() noexcept { state_->reset(); }
  std::uint64_t round() const noexcept { return state_->round; }  ///< The number of the current round.
  /// Sets average_options::longest for the updates that are complete from now on, such as to the median of the norms of
  /// the round before. Error: invalid_argument (it is not above 0, or there is no base).
  result<void> clip(double longest) noexcept
    requires is_staged
  {
    if (!(longest > 0) || !state_->sums.has_base()) return failure(errc::invalid_argument);
    state_->longest = longest;
    return {};
  }

  /// The states of this round's updates: a record for each peer of which one has begun, in the order in which they
  /// began. Valid until the next call of reset(); its contents change with the updates.
  std::span<const update_record> updates() const noexcept { return state_->table.records(); }
  /// The peer's record; nullptr if no update of it has begun in this round.
  const update_record* find(const update_peer& peer) const noexcept {
    const std::uint32_t i = state_->table.find(peer.id());
    return i == detail::update_table::none ? nullptr : &state_->table.records()[i];
  }
  /// Updates that count as a whole in this round.
  std::size_t whole_updates() const noexcept {
    return static_cast<std::size_t>(std::ranges::count_if(updates(), &update_record::counts));
  }
  /// The sum of their weights.
  double whole_weight() const noexcept {
    double sum = 0;
    for (const update_record& r : updates()) sum += r.counts() ? r.weight : 0;
    return sum;
  }
  /// Updates of this round that were added in part and then stopped.
  std::size_t partial_update_count() const noexcept {
    return static_cast<std::size_t>(std::ranges::count_if(updates(), [](const update_record& r) {
      return r.state == update_state::spoiled || (r.state == update_state::stopped && r.added_bytes > 0);
    }));
  }
  /// The memory that make() has allocated, the buffers not counted.
  std::size_t allocated_bytes() const noexcept {
    return state_->sums.allocated_bytes() + state_->table.allocated_bytes() + sizeof(detail::averaging);
  }
  const image_schema& schema() const noexcept {
    return state_->sums.schema();
  }  ///< The result's, and so what an update has to be.

 private:
  explicit weighted_average(std::unique_ptr<detail::averaging> state) noexcept : state_(std::move(state)) {}

  static result<weighted_average> make_from(const destination_view& to, chunk_buffers* buffers,
                                            const average_options& options) noexcept {
    const bool clips = options.longest != 0;
    if (options.first_round == 0 || !(options.longest >= 0) ||
        (clips && (!is_staged || options.base.schema == nullptr)))
      return failure(errc::invalid_argument);
    if (!(options.heaviest >= detail::least_weight && options.heaviest <= detail::most_weight))
      return failure(errc::invalid_argument);
    const std::uint64_t staging = is_staged ? std::max<std::uint64_t>(to.schema->data_bytes(),
                                                                      detail::staged_update::least_staging_bytes)
                                            : 0;
    auto sums = detail::weighted_sums::make(to, options.base, options.max_partial_updates, staging);
    if (!sums) return failure(sums.error());
    auto table = detail::update_table::make(options.max_peers);
    if (!table) return failure(table.error());
    std::unique_ptr<detail::averaging> state(
        new (std::nothrow) detail::averaging(std::move(*sums), std::move(*table), buffers, options.first_round));
    if (!state) return failure(errc::out_of_memory);
    state->refuse_no_numbers = options.refuse_no_numbers;
    state->longest = options.longest;
    state->heaviest = options.heaviest;
    return weighted_average(std::move(state));
  }

  std::unique_ptr<detail::averaging> state_;
};

static_assert(consumer<weighted_average<>::update> && weighted_average<>::update::irrevocable);
static_assert(consumer<weighted_average<partial_updates::staged>::update> &&
              !weighted_average<partial_updates::staged>::update::irrevocable);

}  // namespace tensorpull
