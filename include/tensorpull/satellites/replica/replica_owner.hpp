// One of several owners of one content behind a balancer: it gives chunks from its own copy, and leaves everything else
// to the coordinator.
#pragma once

#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/satellites/replica/replica_line.hpp>
#include <tensorpull/satellites/replica/replica_options.hpp>
#include <tensorpull/transports/over/stream_transport.hpp>
#include <tensorpull/transports/publishing_owner.hpp>

#include <poll.h>

#include <array>
#include <cerrno>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorpull {

/// A replica, `replica_of<net>` for a pipeline `net` over streams (tcp, tls, unix_socket). Movable. One thread at a
/// time. Its end settles what is open: callbacks are called once more.
///
/// It publishes under the ID of the coordinator's reference (`publish_options::id`). The content has to be the same,
/// since the version is the digest; of another version it gives nothing. Its own transaction expects nobody, and ends
/// by withdraw(), or as verdict::owner_lost. Recipients connect to it as to any owner. For each it connects to the
/// coordinator, which sees the replica's address and, over TLS, its certificate. One allocation for each connection,
/// none for a chunk.
template <class Parts, class Tensors>
  requires listening_transport<typename Parts::transport>
class replica_owner : public publishing_owner<replica_owner<Parts, Tensors>, Tensors> {
  using base = publishing_owner<replica_owner, Tensors>;
  using transport = typename Parts::transport;
  using stream_type = typename transport::stream;
  using listener_type = typename detail::listener_of<transport>::type;
  using clock = std::chrono::steady_clock;

 public:
  /// Starts to listen. `coordinator`: its address; it need not be there yet. Each address is text, or an object such as
  /// a tls_address, which is copied; the text in it is borrowed. Errors: bad_address, connection_failed with errno,
  /// out_of_memory.
  template <class Listen, class Coordinator>
  static result<replica_owner> open(const Listen& listen, const Coordinator& coordinator,
                                    const replica_options& options = {}) noexcept {
    try {
      auto listener = listen_at(listen);
      if (!listener) return failure(listener.error());
      std::unique_ptr<state> s(new state(std::move(*listener), options));
      if constexpr (std::is_convertible_v<const Coordinator&, std::string_view>) {
        s->dial = [to = std::string(std::string_view(coordinator))](std::size_t& turn) noexcept {
          return begin(transport::resolve(to), turn);
        };
      } else {
        s->dial = [to = coordinator](std::size_t& turn) noexcept { return begin(to.resolve(), turn); };
      }
      return replica_owner(std::move(s));
    } catch (...) {
      return failure(errc::out_of_memory);
    }
  }
  replica_owner(replica_owner&&) noexcept = default;
  replica_owner& operator=(replica_owner&&) noexcept = default;
  ~replica_owner() {
    if (s_ != nullptr) s_->lines.clear();
  }

  /// As publishing_owner::add_tensors.
  template <class Model>
  result<reference> add_tensors(Model&& model, const publish_options& options = {}) {
    return noted(base::add_tensors(std::forward<Model>(model), detail::expecting_nobody(options)));
  }
  /// As publishing_owner::add_image.
  result<reference> add_image(const source_view& image, const publish_options& options = {},
                              unique_any keep = {}) noexcept {
    return noted(base::add_image(image, detail::expecting_nobody(options), std::move(keep)));
  }

  /// As publishing_owner::add_images.
  template <class Images>
  result<transaction_id> add_images(Images&& images, const transaction_options& options, unique_any keep = {},
                                    const stop_token& stop = {}) noexcept {
    const auto t = base::add_images(images, detail::expecting_nobody(options), std::move(keep), stop);
    if (!t) return t;
    result<void> all;
    for (std::size_t i = 0; i < images.size(); ++i)
      if (const auto ok = noted(images[i].as); !ok) all = failure(ok.error());
    if (all) return t;
    for (std::size_t i = 0; i < images.size(); ++i) (void)this->withdraw(images[i].as);
    return failure(all.error());
  }
  /// As publishing_owner::open_transaction.
  result<transaction_id> open_transaction(const transaction_options& options) noexcept {
    return base::open_transaction(detail::expecting_nobody(options));
  }

  /// The port that it listens on; 0: the transport has none.
  std::uint16_t port() const noexcept {
    if constexpr (requires { s_->listener.port(); }) return s_->listener.port();
    else return 0;
  }
  /// How many recipients are connected.
  std::size_t connections() const noexcept { return s_->lines.size(); }
  /// Its counts.
  replica_counts counts() const noexcept { return s_->counts; }
  /// Whether the coordinator has been unreachable for as long as the options allow.
  bool coordinator_lost() const noexcept { return s_->is_lost(clock::now()); }

 private:
  friend publishing<replica_owner, Tensors>;
  friend base;
  using publisher_type = image_publisher<Parts, no_lock, Parts::limits::recipients>;
  using line =
      replica_line<typename Parts::framing, typename Parts::limits, typename publisher_type::owner_type, stream_type>;
  static constexpr std::chrono::milliseconds tick_interval{200}, dial_interval{250}, watch_interval{1000};
  static constexpr std::size_t most = Parts::limits::references;

  struct state {
    state(listener_type l, const replica_options& o) : listener(std::move(l)), options(o), heard(clock::now()) {
      lines.reserve(o.max_connections);
      polled.reserve(2 * o.max_connections + 2);
      scratch = std::make_unique<std::byte[]>(scratch_bytes);
      (void)kept.keep();
    }
    bool is_lost(clock::time_point now) const noexcept {
      return away && detail::has_passed(now - away_since, options.gone);
    }
    void here(clock::time_point now) noexcept {
      away = false;
      heard = now;
    }
    /// `began`: when the connection was begun that could not be made. Then the coordinator's next address has its turn.
    void gone(clock::time_point now, clock::time_point began = clock::time_point::min()) noexcept {
      if (!std::exchange(away, true)) away_since = now;
      if (began >= turned) ++turn, turned = now;
    }

    publisher_type published{};
    listener_type listener;
    replica_options options;
    replica_counts counts{};
    std::function<result<stream_type>(std::size_t&)> dial{};
    std::vector<std::unique_ptr<line>> lines{};
    std::vector<pollfd> polled{};
    std::unique_ptr<std::byte[]> scratch{};
    std::array<reference, most> refs{};
    std::optional<stream_type> watch{};  // asks whether the coordinator is there, while no line shows it
    detail::kept_descriptor kept{};  // for `watch`
    // `heard`: of the coordinator; `turned`: when `turn`, the number of its address, changed
    clock::time_point heard, watched{}, away_since{}, ticked{}, dialled{}, turned{};
    std::size_t turn = 0;
    io_ready watch_waits{};
    // `crowded`: somebody waits for room or a descriptor. `lacks`: a line had none when it was to call
    bool away = false, accepts = true, crowded = false, lacks = false;
  };
  static constexpr std::size_t scratch_bytes = 64 * 1024;

  explicit replica_owner(std::unique_ptr<state> s) noexcept : s_(std::move(s)) {}
  auto& published() noexcept { return s_->published; }
  const auto& published() const noexcept { return s_->published; }

  template <class Listen>
  static result<listener_type> listen_at(const Listen& at) {
    if constexpr (std::is_convertible_v<const Listen&, std::string_view>) return transport::listen(at);
    else return at.listen();
  }
  /// Begins a connection to the first of several destinations, from the number `turn` on, that allows it; to the last
  /// one in any case.
  template <class Places>
  static result<stream_type> begin(Places places, std::size_t& turn) noexcept {
    if (!places) return failure(places.error());
    result<stream_type> s = failure(errc::connection_failed);
    for (std::size_t at = 0; places->more(); ++at) {
      s = failure(errc::connection_failed);  // there may be one descriptor alone
      s = places->start_connect();
      if (!places->more()) turn = s ? ~std::size_t{0} : 0;  // the first one is next
      else if (s && at >= turn) return s;
    }
    return s;
  }

  result<reference> noted(const result<reference>& ref) noexcept {
    if (!ref) return ref;
    for (reference& r : s_->refs)
      if (!r.id || r.id == ref->id || this->settled(r)) {
        r = *ref;
        return ref;
      }
    (void)this->withdraw(*ref);
    return failure(errc::table_full, most);
  }

  void serve_a_while() noexcept {
    state& s = *s_;
    auto now = clock::now();
    const bool soon = collect(s);
    const auto wait = soon ? std::chrono::milliseconds(0) : detail::wait_step;
    (void)detail::poll_for(s.polled.data(), s.polled.size(), wait);
    now = clock::now();
    const bool tick = now - s.ticked >= tick_interval;
    if (tick) s.accepts = !std::exchange(s.lacks, false);  // present ones are first
    if (s.polled[0].revents != 0) accept(s, now);
    const std::size_t before = s.lines.size();
    step_lines(s, now, tick);
    if (tick && std::exchange(s.crowded, false)) make_room(s, now);
    if (s.lines.size() < before && !s.lacks) s.accepts = true;  // there is room again
    watch_coordinator(s, now);
    if (!tick) return s.published.deliver();
    s.ticked = now;
    if (s.is_lost(now)) lose(s);
    s.published.tick();
  }
  /// Collects the descriptors to wait for. True: a line can go on at once.
  static bool collect(state& s) noexcept {
    s.polled.clear();
    s.polled.push_back(detail::polled(s.listener.native_handle(), {s.accepts, false}));
    s.polled.push_back(s.watch ? detail::polled(s.watch->native_handle(), s.watch_waits) : pollfd{-1, 0, 0});
    bool soon = false;
    for (const auto& l : s.lines) {
      s.polled.push_back(detail::polled(l->recipient_handle(), l->recipient_interest()));
      s.polled.push_back(detail::polled(l->coordinator_handle(), l->coordinator_interest()));
      soon = soon || l->wants == line::need::again;
    }
    return soon;
  }
  /// Accepts nobody without a descriptor for the coordinator: a recipient that waits for one would keep its
  /// own from others. Without room or a descriptor, tries again when a line ends, or at the next tick.
  static void accept(state& s, clock::time_point now) noexcept {
    for (;;) {
      detail::kept_descriptor kept;
      const bool room = s.lines.size() < s.options.max_connections && kept.keep();
      auto stream = room ? s.listener.accept() : failure(errc::out_of_memory);
      if (!stream) {
        s.accepts = stream.error() == errc::timed_out;
        s.crowded = s.crowded || (!s.accepts && detail::others_wait(s.listener.native_handle()));
        return;
      }
      std::unique_ptr<line> l(new (std::nothrow)
                                  line(std::move(*stream), s.published.machine(), s.counts, now, std::move(kept)));
      if (l == nullptr) return;
      s.lines.push_back(std::move(l));  // reserved
      ++s.counts.accepted;
    }
  }
  /// Others wait for room: ends those that have shown nothing, the oldest first.
  static void make_room(state& s, clock::time_point now) noexcept {
    detail::room_maker room;
    s.counts.expired += std::erase_if(s.lines, [&](const auto& l) { return l->makes_room(room, now); });
  }
  static void step_lines(state& s, clock::time_point now, bool tick) noexcept {
    const std::size_t polled = (s.polled.size() - 2) / 2;
    const bool lost = s.is_lost(now);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < s.lines.size(); ++i) {
      line& l = *s.lines[i];
      const bool fresh = i >= polled;
      const bool ready = fresh || tick || s.polled[2 + 2 * i].revents != 0 || s.polled[3 + 2 * i].revents != 0 ||
                         l.wants != line::need::nothing;
      const bool keep = !ready || step(s, l, now, tick, lost);
      if (keep && kept != i) s.lines[kept] = std::move(s.lines[i]);
      if (keep) ++kept;
    }
    s.lines.resize(kept);
  }
  static bool step(state& s, line& l, clock::time_point now, bool tick, bool lost) noexcept {
    const bool was = l.reached(), called = l.calling();
    l.lost(lost);
    l.wants = l.step({s.scratch.get(), scratch_bytes}, now, s.options);
    if (!was && l.reached()) {
      if constexpr (requires(stream_type& c) { transport::connected(c); }) transport::connected(l.coordinator());
      s.here(now);
    } else if (called && !l.reached() &&
               (!l.calling() || detail::has_passed(now - l.called(), s.options.budgets.accept))) {
      l.hang_up();
      s.gone(now, l.called());
    }
    if (l.wants == line::need::end) return false;
    if (l.wants == line::need::coordinator && !l.calling() && (!s.away || now - s.dialled >= dial_interval)) {
      s.dialled = now;
      const bool kept = l.may_call();
      if (auto c = s.dial(s.turn)) {
        l.call(std::move(*c), now);
        l.wants = line::need::again;
      } else {
        l.hang_up();
        not_dialled(s, c.error(), kept, now);
      }
    }
    if (tick && l.expired(s.options.budgets, now, s.away)) {
      ++s.counts.expired;
      return false;
    }
    return true;
  }
  /// A failure at this end does not show that the coordinator is gone, but somebody may have to go. So it is if no
  /// descriptor was kept: one that finds no address may have lacked it.
  static void not_dialled(state& s, const error& why, bool kept, clock::time_point now) noexcept {
    for (const int here : {EMFILE, ENFILE, ENOMEM, ENOBUFS, EADDRNOTAVAIL})
      if (!kept || why.system == here) return void(s.crowded = s.lacks = true);
    s.gone(now);
  }
  /// If nothing was heard of the coordinator for a while, begins a connection to it, and ends that when it is
  /// established.
  static void watch_coordinator(state& s, clock::time_point now) noexcept {
    if (!s.watch) {
      if (now - s.heard < watch_interval || now - s.watched < (s.away ? dial_interval : watch_interval)) return;
      s.watched = now;
      const bool kept = s.kept.let_go();
      auto c = s.dial(s.turn);
      if (!c) {
        (void)s.kept.keep();
        return not_dialled(s, c.error(), kept, now);
      }
      s.watch.emplace(std::move(*c));
    }
    establishment e{};
    if constexpr (requires { s.watch->establish(); }) e = s.watch->establish();
    if (e.status == io_status::ok) s.here(now);
    else if (is_end(e.status) || detail::has_passed(now - s.watched, s.options.budgets.accept)) s.gone(now, s.watched);
    else return void(s.watch_waits = e.waits_for);
    s.watch.reset();
    (void)s.kept.keep();
  }
  static void lose(state& s) noexcept {
    for (reference& r : s.refs)
      if (r.id && !s.published.settled(r)) (void)s.published.lose(r);
  }

  std::unique_ptr<state> s_;
};

namespace detail {
template <class Owner>
struct replica_of_owner;
template <class Parts, class Tensors>
struct replica_of_owner<stream_owner<Parts, Tensors>> {
  using type = replica_owner<Parts, Tensors>;
};
}  // namespace detail

/// The replica of a pipeline over streams.
template <class Pipeline>
using replica_of = typename detail::replica_of_owner<typename Pipeline::downloader>::type;

}  // namespace tensorpull
