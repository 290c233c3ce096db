// An owner that answers HTTP/1.1: `with_http<tcp>` in the transport slot, on the port on which recipients pull, or a
// port of its own (http_door.hpp). The README.md beside this file has its URLs.
#pragma once

#include <tensorpull/transports/host/owner.hpp>
#include <tensorpull/transports/http/detail/owner_endpoint.hpp>
#include <tensorpull/transports/http/http_shared.hpp>

#include <utility>
#include <variant>

namespace tensorpull {

namespace detail {

/// An endpoint that speaks what the other end begins with. Frames begin with the number of their segments less one,
/// which is below the code of a printable character; a request begins with one.
template <class Parts, class Owner, class Handler, bool HttpOnly>
class told_apart {
  using native = endpoint<typename Parts::framing, typename Parts::limits, Owner, Handler>;
  using http = owner_endpoint<Owner, Handler>;
  static_assert(std::is_same_v<typename native::plan_type, typename http::plan_type>);
  static_assert(
      HttpOnly || Parts::limits::control_frame_segments <= ' ',
      "tensorpull: with_http tells a frame from a request by its first byte, so limits::control_frame_segments is at most 32");

 public:
  using pool_type = typename native::pool_type;
  using plan_type = typename native::plan_type;

  told_apart(Owner& owner, pool_type& pool, Handler& handler) noexcept : owner_(owner), pool_(pool), handler_(handler) {
    if constexpr (HttpOnly) is_.template emplace<http>(owner_, pool_, handler_);
  }
  void closed() noexcept {
    ended_ = true;
    if (auto* const n = std::get_if<native>(&is_)) n->closed();
    else if (auto* const h = std::get_if<http>(&is_)) h->closed();
  }

  void begin_pull() noexcept {
    speak_native([](native& n) { n.begin_pull(); });
  }
  template <class Transfer>
  void end_pull(const Transfer& t) noexcept {
    speak_native([&](native& n) { n.end_pull(t); });
  }
  std::uint32_t next_id() const noexcept {
    const auto* const n = std::get_if<native>(&is_);
    return n != nullptr ? n->next_id() : 1;
  }
  result<void> send_message(std::uint32_t kind, std::span<const reference> references,
                            std::span<const std::byte> body) noexcept {
    result<void> done = failure(errc::unsupported_request);
    speak_native([&](native& n) { done = n.send_message(kind, references, body); });
    return done;
  }
  bool send_control(const frame& m) noexcept {
    bool done = true;
    speak_native([&](native& n) { done = n.send_control(m); });
    return done;
  }
  void doubt() noexcept {
    doubted_ = true;
    if (auto* const n = std::get_if<native>(&is_)) n->doubt();
  }
  void trust() noexcept {
    doubted_ = false;
    if (auto* const n = std::get_if<native>(&is_)) n->trust();
  }

  bool stalled() const noexcept {
    return ask(false, [](const auto& e) { return e.stalled(); });
  }
  bool mid_frame() const noexcept {
    return ask(false, [](const auto& e) { return e.mid_frame(); });
  }
  bool works() const noexcept {
    return ask(false, [](const auto& e) { return e.works(); });
  }
  bool awaits_time() const noexcept {
    return ask(false, [](const auto& e) { return e.awaits_time(); });
  }
  bool output_ready() const noexcept {
    return ask(false, [](const auto& e) { return e.output_ready(); });
  }
  bool output_idle() const noexcept {
    return ask(true, [](const auto& e) { return e.output_idle(); });
  }
  bool holds_back() const noexcept {
    const auto* const h = std::get_if<http>(&is_);
    return h != nullptr && h->holds_back();
  }
  bool long_frame_sent() const noexcept {
    return ask(true, [](const auto& e) { return e.long_frame_sent(); });
  }
  std::uint32_t heard() const noexcept {
    return ask(std::uint32_t{0}, [](const auto& e) { return e.heard(); });
  }
  std::uint32_t long_frame() const noexcept {
    return ask(std::uint32_t{0}, [](const auto& e) { return e.long_frame(); });
  }
  bool said_all() noexcept {
    auto* const h = std::get_if<http>(&is_);
    return h != nullptr && h->said_all();
  }

  template <class Transfer>
  result<void> plan_write(Transfer& t, plan_type& plan, std::span<std::byte> scratch, std::size_t most) noexcept {
    if (auto* const h = std::get_if<http>(&is_)) return h->plan_write(t, plan, scratch, most);
    if (auto* const n = std::get_if<native>(&is_)) return n->plan_write(t, plan, scratch, most);
    plan.span_count = plan.item_count = plan.bytes = 0;
    plan.descriptors = {};
    return {};
  }
  template <class Transfer>
  result<void> written(Transfer& t, const plan_type& plan, std::size_t n) noexcept {
    if (auto* const h = std::get_if<http>(&is_)) return h->written(t, plan, n);
    if (auto* const e = std::get_if<native>(&is_)) return e->written(t, plan, n);
    return {};
  }
  template <class Transfer>
  std::size_t plan_read(Transfer& t, std::span<std::span<std::byte>> out, std::size_t most) noexcept {
    if (auto* const h = std::get_if<http>(&is_)) return h->plan_read(t, out, most);
    if (auto* const n = std::get_if<native>(&is_)) return n->plan_read(t, out, most);
    out[0] = std::span<std::byte>(&first_, 1);
    return 1;
  }
  template <class Transfer>
  void arrived(Transfer& t, std::span<const std::span<std::byte>> spans, std::size_t n) noexcept {
    if (auto* const h = std::get_if<http>(&is_)) return h->arrived(t, spans, n);
    if (auto* const e = std::get_if<native>(&is_)) return e->arrived(t, spans, n);
    if (n == 0) return;
    const auto c = static_cast<char>(first_);
    if (c >= ' ' && c <= '~') is_.template emplace<http>(owner_, pool_, handler_);
    else speak_native([](native&) {});
    std::span<std::byte> room[32];
    const std::size_t spans_there = plan_read(t, room, 1);
    if (spans_there == 0) return;
    room[0][0] = first_;
    arrived(t, std::span<const std::span<std::byte>>(room, spans_there), 1);
  }
  template <class Transfer>
  result<void> parse(Transfer& t) noexcept {
    if (auto* const h = std::get_if<http>(&is_)) return h->parse(t);
    if (auto* const n = std::get_if<native>(&is_)) return n->parse(t);
    return {};
  }
  template <class Transfer>
  result<void> received(Transfer& t, std::span<const std::span<std::byte>> spans, std::size_t n) noexcept {
    arrived(t, spans, n);
    return parse(t);
  }

 private:
  /// Becomes an endpoint of frames, unless it is one of requests.
  template <class Do>
  void speak_native(Do what) noexcept {
    if (is_.index() == 0 && !ended_ && is_.template emplace<native>(owner_, pool_, handler_).next_id() != 0 && doubted_)
      std::get<native>(is_).doubt();
    if (auto* const n = std::get_if<native>(&is_)) what(*n);
  }
  template <class Value, class Ask>
  Value ask(Value none, Ask ask) const noexcept {
    if (const auto* const h = std::get_if<http>(&is_)) return ask(*h);
    if (const auto* const n = std::get_if<native>(&is_)) return ask(*n);
    return none;
  }

  Owner& owner_;
  pool_type& pool_;
  Handler& handler_;
  std::variant<std::monostate, native, http> is_;
  std::byte first_{};
  bool doubted_ = false, ended_ = false;
};

}  // namespace detail

/// Policy for the transport slot: `Next` (tcp, tls, unix_socket, ...), whose owner answers HTTP/1.1 on the same port,
/// too. Recipients are those of `Next`. Each connection takes 3.5 KiB more than one of `Next`.
template <class Next>
struct with_http : Next {
  static_assert(!Next::shares_memory, "tensorpull: with_http is for transports whose bytes travel");
  static constexpr std::size_t connection_bytes = Next::connection_bytes + 3584;
  /// What connections speak.
  template <class Parts, class Owner, class Handler>
  using endpoint_type = detail::told_apart<Parts, Owner, Handler, false>;
  /// What they share: options and counts.
  template <class Parts, class Lock>
  using shared_type = http_shared<Lock, Parts::limits::recipients>;
};

/// The same for a port on which frames are not answered. http_door uses it.
template <class Next>
struct http_only : with_http<Next> {
  /// What connections speak.
  template <class Parts, class Owner, class Handler>
  using endpoint_type = detail::told_apart<Parts, Owner, Handler, true>;
};

}  // namespace tensorpull
