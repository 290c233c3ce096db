// The ends of a small machine's pipeline, with the words of a host's: a pull that is stepped, and an owner. device.hpp
// has the pipeline, which is `Small` here.
#pragma once

#include <tensorpull/embedded/landing.hpp>
#include <tensorpull/embedded/line.hpp>
#include <tensorpull/embedded/owner.hpp>
#include <tensorpull/embedded/recipient.hpp>
#include <tensorpull/protocol/owner/transaction.hpp>
#include <tensorpull/pull/platform.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <type_traits>

namespace tensorpull {

/// How a small machine pulls. The fields that pull_options has too mean the same.
struct small_pull_options {
  /// It gives up after so long without progress; at most 12 days. A busy owner may put it off for as long in all.
  std::chrono::milliseconds per_request_timeout = std::chrono::seconds(60);
  /// A request is sent again after so long: longer than a chunk and its request take on the link.
  std::chrono::milliseconds resend = std::chrono::seconds(1);
  std::uint64_t version = 0;  ///< The version to pull; 0: that of the reference, or what is published now.
  /// The number of this recipient, the same after a restart of this machine, so that the owner counts it once. None: a
  /// random one.
  recipient_id recipient{};
  bool unverified = false;  ///< An image without a digest is accepted, too.
};

namespace detail {

/// Where a pull lands: in a landing, which is borrowed, or in a model, for which it makes one.
template <class Small, class Target>
struct small_target {
  using type = Target;
  explicit small_target(Target& to) noexcept : landing(to) {}
  Target& landing;
};
template <class Small>
struct small_target<Small, typename Small::model_type> {
  using type = typename Small::consumer;
  explicit small_target(typename Small::model_type& to) noexcept : landing(to) {}
  type landing;
};

/// One pull, step by step. `Over`: the device, for a line of its own, or an end that publishes as well.
template <class Small, class Target, class Over>
class small_pull {
  using to_type = small_target<Small, Target>;
  using recipient_type = typename Small::template recipient<typename to_type::type>;
  static constexpr bool shares_line = requires(Over& o, recipient_type& r) { o.step(r); };
  using line_type = std::conditional_t<shares_line, Over&,
                                       typename Small::template line<recipient_type::max_in, recipient_type::max_out>>;

 public:
  /// As begin_pull.
  [[gnu::always_inline]] small_pull(Over& over, const reference& ref, Target& to,
                                    const small_pull_options& options) noexcept
      : to_(to), recipient_(to_.landing, asked(ref, options), Small::platform::random()), line_(over) {}
  small_pull(const small_pull&) = delete;
  small_pull& operator=(const small_pull&) = delete;

  /// Takes a datagram if one has arrived, and sends what there is to send. It does not wait. True: something has moved,
  /// so call it again at once. False: call it again when something arrives, when the device takes more, and when time
  /// goes on.
  bool step() noexcept {
    if constexpr (shares_line) {
      return line_.step(recipient_);
    } else {
      no_role none;
      return tensorpull::step(line_, recipient_, none, Small::now_ms());
    }
  }
  /// Whether it is over, and the line has sent its last frame.
  bool ended() noexcept { return recipient_.ended() && line_.idle(); }
  /// How it ended; ended() must be true. The error's `at`: see embedded_recipient::outcome.
  result<receipt> outcome() const noexcept { return recipient_.outcome(); }
  /// Ends it as `cancelled`; the owner is told, with a number that the application chooses.
  void cancel(std::uint32_t reason = 0) noexcept { recipient_.cancel(reason); }
  /// Bytes of the image that are here, its header included.
  std::uint32_t landed_bytes() const noexcept { return recipient_.landed_bytes(); }
  /// Bytes of the image; 0 before the description.
  std::uint32_t total_bytes() const noexcept { return recipient_.total_bytes(); }

  /// Steps until it has ended, or the platform is stopped. A line that takes nothing any more is waited for 10 s.
  result<receipt> wait() noexcept {
    const auto once = [this] {
      if (stopped<typename Small::platform>()) cancel();
      if (!step()) Small::rest();
    };
    const auto later = [] {
      Small::rest();
      return Small::now_ms();
    };
    return pull_by(line_, recipient_, once, later);
  }

 private:
  [[gnu::always_inline]] static embedded_pull asked(const reference& ref, const small_pull_options& o) noexcept {
    return {.ref = ref.id,
            .version = o.version != 0 ? o.version : ref.version,
            .recipient = o.recipient,
            .timeout_ms = Small::ms(o.per_request_timeout),
            .retry_ms = Small::ms(std::min(o.resend, o.per_request_timeout)),  // that far apart are three farewells
            .unverified = o.unverified};
  }

  [[no_unique_address]] to_type to_;
  recipient_type recipient_;
  line_type line_;
};

/// One end of a link that publishes: `Published` is the model, or what is computed from one (an embedded_difference).
/// `In`: the longest datagram that it takes.
template <class Small, class Published, std::size_t In>
class small_owner {
  using owner_type = typename Small::template owner<Published>;
  using published_type = typename embedded_image<Published>::model_type;

 public:
  /// Borrows the device. `idle`: a recipient of which nothing was heard for so long gives way to another one.
  explicit small_owner(typename Small::device& over, std::chrono::milliseconds idle = std::chrono::seconds(10)) noexcept
      : line_(over), owner_(Small::ms(idle)) {}

  /// Publishes a model for one recipient, and forgets what was published before. The model is borrowed, and must not
  /// change until settled(). Of the options `id` holds, and `recipients` or `least` may be 1. Cost: one pass over the
  /// model. invalid_argument: another option was set that this machine has no room for.
  [[gnu::always_inline]] result<reference> add_tensors(const published_type& model,
                                                       const publish_options& options = {}) noexcept {
    if (options.recipients > 1 || options.least > 1 || !options.named.empty() || options.transaction ||
        options.beside || options.tensor_digests || options.settled || options.progress || options.version != 0 ||
        options.budgets != transaction_budgets{})
      return failure(errc::invalid_argument);
    ref_id id = options.id;
    while (!id) id = {Small::platform::random(), Small::platform::random()};
    owner_.publish(model, id, Small::platform::random());
    return owner_.reference();
  }
  /// Refuses a temporary model: this machine keeps none.
  template <class Model>
    requires(__is_same(const Model, const published_type))
  result<reference> add_tensors(Model&&, const publish_options& = {}) noexcept {
    static_assert(
        !std::is_object_v<Model>,
        "tensorpull: a small machine's add_tensors was given a temporary, which is gone when somebody pulls: give the model a name");
    return failure(errc::withdrawn);
  }
  /// The model is in the making: until it is published everybody is asked to return after `delay`. The earlier model is
  /// not read any more.
  void busy(std::chrono::milliseconds delay) noexcept { owner_.busy(Small::ms(delay)); }
  /// Ends the publication: the model is not read any more. Recipients are told `withdrawn` with `reason`, a number of
  /// the application's. Error: unknown_reference.
  result<void> withdraw(const reference& ref, std::uint32_t reason = 0) noexcept {
    if (!is_here(ref)) return failure(errc::unknown_reference);
    withdraw(reason);
    return {};
  }
  /// The same of what was published last.
  void withdraw(std::uint32_t reason = 0) noexcept { owner_.withdraw(reason); }

  /// Whether nobody pulls it any more: it was taken or withdrawn, and the model may change. True for an unknown
  /// reference. Go on calling step(): a confirmation whose answer was lost is repeated.
  bool settled(const reference& ref) const noexcept { return !is_here(ref) || settled(); }
  /// The same of what was published last.
  bool settled() const noexcept { return !owner_.is_published(); }
  /// How its one recipient ended; `open` as long as it can be pulled. Error: unknown_reference.
  result<settlement> settlement_of(const reference& ref) const noexcept {
    if (!is_here(ref)) return failure(errc::unknown_reference);
    settlement s{.references = 1, .expected = 1};
    const recipient_state state = owner_.state();
    if (has_completed(state))
      s.verdict = state == recipient_state::completed ? verdict::completed : verdict::completed_unverified;
    else if (!owner_.is_published()) s.verdict = verdict::withdrawn;
    s.counts.acquired = state != recipient_state::unseen;
    if (is_final(state)) s.counts.of(state) = 1;
    s.counts.bytes_sent = owner_.bytes_served();
    return s;
  }
  /// How far its one recipient is.
  recipient_state state() const noexcept { return owner_.state(); }
  /// The number that the recipient gave as it cancelled; 0: none.
  std::uint32_t reason() const noexcept { return owner_.reason(); }

  /// As that of a pull. Also: what has arrived is answered.
  bool step() noexcept {
    no_role none;
    return step(none);
  }
  /// The same with a pull's recipient.
  template <class Recipient>
  bool step(Recipient& recipient) noexcept {
    return tensorpull::step(line_, recipient, owner_, Small::now_ms());
  }
  /// Whether the device has taken everything.
  bool idle() noexcept { return line_.idle(); }
  /// Steps until `until(*this)` is true and the line has sent its last frame, or the platform is stopped.
  template <class Until>
  void serve(Until until) noexcept {
    while (!stopped<typename Small::platform>() && (!until(*this) || !idle()))
      if (!step()) Small::rest();
  }

 private:
  [[gnu::noinline]] bool is_here(const reference& ref) const noexcept {
    const reference now = owner_.reference();
    return ref.id && ref.id == now.id && (ref.version == 0 || ref.version == now.version);
  }

  typename Small::template line<std::max(In, owner_type::request_bytes), owner_type::answer_bytes> line_;
  owner_type owner_;
};

}  // namespace detail
}  // namespace tensorpull
