// One of several owners of the same content behind a balancer: it gives chunks from its own copy, and leaves everything
// else to the owner that coordinates.
#pragma once

#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/transports/over/stream_transport.hpp>
#include <tensorpull/transports/publishing_owner.hpp>
#include <tensorpull/transports/replica/replica_line.hpp>
#include <tensorpull/transports/replica/replica_options.hpp>

#include <poll.h>

#include <array>
#include <cerrno>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorpull {

/// A replica, which `replica_of<net>` names for a pipeline `net` over streams (tcp, tls, unix_socket). Movable. One
/// thread at a time. Its end settles what is open: callbacks are called once more.
///
/// It publishes under the ID of the reference that the coordinator gave (`publish_options::id`), and its content has to
/// be the same: the version is the digest, and of another version it gives nothing. Its own transaction expects nobody,
/// and ends by withdraw(), or as verdict::owner_lost. Recipients connect to it as to any owner; for each it has a line
/// to the coordinator, which sees the replica's address and, over TLS, its certificate. One allocation for each
/// connection, none for a chunk.
template <class Parts>
  requires listening_transport<typename Parts::transport>
class replica_owner : public publishing_owner<replica_owner<Parts>> {
  using base = publishing_owner<replica_owner>;
  using transport = typename Parts::transport;
  using stream_type = typename transport::stream;
  using listener_type = typename detail::listener_of<transport>::type;
  using clock = std::chrono::steady_clock;

 public:
  using model_type = typename Parts::tensors::model_type;  ///< what is published

  /// Starts to listen. `coordinator`: where the owner is that coordinates; it need not be there yet. Each address is
  /// text, or an object such as a tls_address, which is copied; the text in it is borrowed. Errors: bad_address,
  /// connection_failed with errno, out_of_memory.
  template <class Listen, class Coordinator>
  static result<replica_owner> open(const Listen& listen, const Coordinator& coordinator,
                                    const replica_options& options = {}) noexcept {
    try {
      auto listener = listen_at(listen);
      if (!listener) return failure(listener.error());
      std::unique_ptr<state> s(new state(std::move(*listener), options));
      if constexpr (std::is_convertible_v<const Coordinator&, std::string_view>) {
        s->dial = [to = std::string(std::string_view(coordinator))]() noexcept {
          return begin(transport::resolve(to));
        };
      } else {
        s->dial = [to = coordinator]() noexcept { return begin(to.resolve()); };
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
    return noted(base::add_tensors(std::forward<Model>(model), published_as(options)));
  }
  /// As publishing_owner::add_image.
  result<reference> add_image(const source_view& image, const publish_options& options = {},
                              unique_any keep = {}) noexcept {
    return noted(base::add_image(image, published_as(options), std::move(keep)));
  }

  /// The port that it listens on; 0: the transport has none.
  std::uint16_t port() const noexcept {
    if constexpr (requires { s_->listener.port(); }) return s_->listener.port();
    else return 0;
  }
  /// How many recipients are connected.
  std::size_t connections() const noexcept { return s_->lines.size(); }
  /// How it has fared.
  replica_counts counts() const noexcept { return s_->counts; }
  /// Whether the coordinator has been unreachable for as long as the options allow.
  bool coordinator_lost() const noexcept { return s_->is_lost(clock::now()); }

 private:
  friend publishing<replica_owner>;
  friend base;
  using publisher_type = publisher<Parts, no_lock, Parts::limits::recipients>;
  using line =
      replica_line<typename Parts::framing, typename Parts::limits, typename publisher_type::owner_type, stream_type>;
  static constexpr std::chrono::milliseconds tick_interval{200}, dial_interval{250}, watch_interval{1000};
  static constexpr std::size_t most = Parts::limits::references;

  struct state {
    state(listener_type l, const replica_options& o) : listener(std::move(l)), options(o), heard(clock::now()) {
      lines.reserve(o.max_connections);
      polled.reserve(2 * o.max_connections + 2);
      scratch = std::make_unique<std::byte[]>(scratch_bytes);
    }
    bool is_lost(clock::time_point now) const noexcept { return away && now - away_since >= options.gone; }
    void here(clock::time_point now) noexcept {
      away = false;
      heard = now;
    }
    void gone(clock::time_point now) noexcept {
      if (!std::exchange(away, true)) away_since = now;
    }

    publisher_type published{};
    listener_type listener;
    replica_options options;
    replica_counts counts{};
    std::function<result<stream_type>()> dial{};
    std::vector<std::unique_ptr<line>> lines{};
    std::vector<pollfd> polled{};
    std::unique_ptr<std::byte[]> scratch{};
    std::array<reference, most> refs{};
    std::optional<stream_type> watch{};  // asks whether the coordinator is there, while no line says so
    clock::time_point heard, watched{}, away_since{}, ticked{}, dialled{};  // `heard`: of the coordinator
    io_ready watch_waits{};
    bool away = false, accepts = true;
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
  /// Begins a connection to the first of some places that lets one begin.
  template <class Places>
  static result<stream_type> begin(Places places) noexcept {
    if (!places) return failure(places.error());
    result<stream_type> s = failure(errc::connection_failed);
    while (places->more() && !s) s = places->start_connect();
    return s;
  }

  /// A replica waits for nobody, and does not end because nobody asks.
  static publish_options published_as(publish_options o) noexcept {
    o.recipients = o.least = 0;
    o.named = {};
    o.budgets.acquire = o.budgets.transaction_idle = {};
    return o;
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
    (void)::poll(s.polled.data(), static_cast<nfds_t>(s.polled.size()), static_cast<int>(wait.count()));
    now = clock::now();
    const bool tick = now - s.ticked >= tick_interval;
    if (tick) s.accepts = true;
    if (s.polled[0].revents != 0) accept(s, now);
    step_lines(s, now, tick);
    watch_coordinator(s, now);
    if (!tick) return s.published.deliver();
    s.ticked = now;
    if (s.is_lost(now)) lose(s);
    s.published.tick();
  }
  static short events(io_ready r) noexcept {
    return static_cast<short>((r.read ? POLLIN : 0) | (r.write ? POLLOUT : 0));
  }
  /// A hang-up is reported even if nothing is asked for, so a descriptor that is not waited for is left out.
  static pollfd entry(int fd, io_ready r) noexcept { return {r.read || r.write ? fd : -1, events(r), 0}; }
  /// What to wait for. True: a line wants to go on at once.
  static bool collect(state& s) noexcept {
    s.polled.clear();
    s.polled.push_back(
        entry(s.listener.native_handle(), {s.accepts && s.lines.size() < s.options.max_connections, false}));
    s.polled.push_back(s.watch ? entry(s.watch->native_handle(), s.watch_waits) : pollfd{-1, 0, 0});
    bool soon = false;
    for (const auto& l : s.lines) {
      s.polled.push_back(entry(l->recipient_handle(), l->recipient_interest()));
      s.polled.push_back(entry(l->coordinator_handle(), l->coordinator_interest()));
      soon = soon || l->wants == line::need::again;
    }
    return soon;
  }
  static void accept(state& s, clock::time_point now) noexcept {
    while (s.lines.size() < s.options.max_connections) {
      auto stream = s.listener.accept();
      if (!stream)
        // if there are no descriptors, again at the next tick
        return void(s.accepts = stream.error() == errc::timed_out);
      std::unique_ptr<line> l(new (std::nothrow) line(std::move(*stream), s.published.machine(), s.counts, now));
      if (l == nullptr) return;
      s.lines.push_back(std::move(l));  // reserved
      ++s.counts.accepted;
    }
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
    } else if (called && !l.reached() && (!l.calling() || now - l.called() >= s.options.budgets.accept)) {
      l.hang_up();
      s.gone(now);
    }
    if (l.wants == line::need::end) return false;
    if (l.wants == line::need::coordinator && !l.calling() && (!s.away || now - s.dialled >= dial_interval)) {
      s.dialled = now;
      if (auto c = s.dial()) {
        l.call(std::move(*c), now);
        l.wants = line::need::again;
      } else not_dialled(s, c.error(), now);
    }
    if (tick && l.expired(s.options.budgets, now)) {
      ++s.counts.expired;
      return false;
    }
    return true;
  }
  /// What fails at this end says nothing about the coordinator.
  static void not_dialled(state& s, const error& why, clock::time_point now) noexcept {
    for (const int here : {EMFILE, ENFILE, ENOMEM, ENOBUFS, EADDRNOTAVAIL})
      if (why.system == here) return;
    s.gone(now);
  }
  /// If nothing was heard of the coordinator for a while, begins a connection to it, and ends that when it is
  /// established.
  static void watch_coordinator(state& s, clock::time_point now) noexcept {
    if (!s.watch) {
      if (now - s.heard < watch_interval || now - s.watched < (s.away ? dial_interval : watch_interval)) return;
      s.watched = now;
      auto c = s.dial();
      if (!c) return not_dialled(s, c.error(), now);
      s.watch.emplace(std::move(*c));
    }
    establishment e{};
    if constexpr (requires { s.watch->establish(); }) e = s.watch->establish();
    if (e.status == io_status::ok) s.here(now);
    else if (is_end(e.status) || now - s.watched >= s.options.budgets.accept) s.gone(now);
    else return void(s.watch_waits = e.waits_for);
    s.watch.reset();
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
template <class Parts>
struct replica_of_owner<stream_owner<Parts>> {
  using type = replica_owner<Parts>;
};
}  // namespace detail

/// The replica of a pipeline over streams.
template <class Pipeline>
using replica_of = typename detail::replica_of_owner<typename Pipeline::downloader>::type;

}  // namespace tensorpull
