// The server's side of one pull over HTTP, as the state machine of the recipient sees it: requests become ranges, and
// answers become frames.
#pragma once

#include <tensorpull/satellites/http/recipient/detail/http_ranges.hpp>
#include <tensorpull/transports/blocking/stream_pull.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace tensorpull::detail {

/// What a driver without frames is for running_pull.
struct no_http_endpoint {
  static void begin_pull() noexcept {}
  template <class Transfer>
  static void end_pull(Transfer&) noexcept {}
  static bool send_control(const frame&) noexcept { return false; }
};

template <class Dial, class Limits>
class http_exchange {
  using ranges = http_ranges<Dial>;
  using item = typename ranges::item;
  using line = typename ranges::line;
  using clock = std::chrono::steady_clock;

 public:
  /// Borrows the address's texts and the options. `version`: which an owner of this library has to have, if nothing is
  /// hashed that would show it; 0: any. `lands`: the consumer wants bytes, and not only to know what there is. Throws
  /// std::bad_alloc.
  http_exchange(const Dial& dial, const http_address& to, const pull_options& options, const stated_digest& stated,
                std::uint64_t version, bool needs_digest, bool lands)
      : options_(options), version_(version), needs_digest_(needs_digest), requests_(to, options.recipient),
        over_(dial, to.proxy, options.stop, connections_of(to.connections, options.window)),
        described_(over_, requests_, to, stated, lands),
        queue_(over_, requests_, described_, options.per_request_timeout) {}

  /// Errors: as parse_http_url; invalid_argument: an authorisation, a name or a proxy with characters that could end a
  /// line.
  result<void> prepare() { return requests_.prepare(); }
  const http_url& origin() const noexcept { return requests_.origin(); }

  /// Goes on until the transfer has ended, or until an error after which another try may succeed.
  template <class Pull, class Checked>
  result<void> drive(Pull& pull, Checked& checked) {
    auto& t = pull.transfer();
    no_http_endpoint end;
    pull.begin(end);
    error why{};
    while (!t.ended() && why.code == errc{} && !pull.stopped()) {
      const auto moved = turn(pull, checked);
      pull.note();
      if (!moved && !is_passing(moved.error().code)) {
        t.fail(moved.error());
        break;
      }
      why = moved ? error{pull.judge(), 0, 0, {}} : moved.error();
      if (t.ended() || why.code != errc{} || *moved) continue;
      over_.wait(std::min(wait_step, pull.left()), wanted_line());
    }
    if (t.ended()) say_goodbye(pull);
    over_.drop_all();
    queue_.clear();
    (void)pull.finish(end);
    if (why.code != errc{}) return failure(why);
    return {};
  }

 private:
  /// What the address and the options allow; 0: one, with one range.
  static std::uint32_t connections_of(std::uint32_t asked, std::uint32_t window) noexcept {
    constexpr std::uint32_t usual = 4;
    if (window == 0) return asked;
    return std::min(asked == 0 ? usual : asked, window);
  }
  const http_file& file() const noexcept { return described_.file(); }
  line* wanted_line() noexcept {
    if (file().in_one_answer()) return &over_.first();
    return queue_.empty() ? nullptr : queue_.front().over;
  }
  // ---- what the state machine asks ----
  /// Takes what it asks, and goes on with what was asked. Whether anything has moved.
  template <class Pull, class Checked>
  result<bool> turn(Pull& pull, Checked& checked) {
    auto& t = pull.transfer();
    bool moved = false;
    frame f;
    while (!queue_.full() && t.next(f)) {
      moved = true;
      if (const auto ok = asked(f, pull, checked); !ok) return failure(ok.error());
      if (t.ended()) return true;
    }
    const auto did = step(pull);
    if (!did) return did;
    return moved || *did;
  }
  template <class Pull, class Checked>
  result<void> asked(const frame& f, Pull& pull, Checked& checked) {
    switch (f.kind) {
      case frame_kind::describe: return describe(f, pull, checked);
      case frame_kind::confirm: return confirm(f, pull);
      case frame_kind::pull: {
        const std::uint64_t rest = file().total - std::min(file().total, f.offset);
        const std::uint64_t length = file().known() ? std::min<std::uint64_t>(f.length, rest) : f.length;
        queue_.push(f.id, f.offset, length);
        return {};
      }
      default: break;
    }
    frame m = frame_about(file(), frame_kind::refused, f.id, f.ref);
    m.status = f.kind == frame_kind::schema ? status::schema_mismatch : status::unsupported;
    pull.transfer().on(m);
    return {};
  }
  template <class Pull, class Checked>
  result<void> describe(const frame& f, Pull& pull, Checked& checked) {
    auto& t = pull.transfer();
    if (!file().known()) {
      const auto ok = described_.ask(pull, f, Limits::tensors);
      if (!ok || !file().known() || t.ended()) return ok;
      queue_.go_on_with(described_.take_rest());
      position_ = described_.prefix().size();
      if (needs_digest_ && !file().verifiable && !file().sha256) {
        t.fail({errc::not_verifiable});
        return {};
      }
      if (version_ != 0 && file().ours && file().stated_xxh3 != version_) {
        t.fail({errc::stale_version});
        return {};
      }
      if (file().sha256) checked.expect(*file().sha256);
    } else if (file().comes == http_delivery::once && t.landed_bytes() > 0) {
      t.fail({errc::connection_lost, 0, 0, std::string_view("and nothing can be gone on with")});
      return {};
    }
    frame m = frame_about(file(), frame_kind::description, f.id, f.ref);
    m.fingerprint = file().fingerprint;
    m.image_bytes = file().total;
    m.data_start = file().data_start;
    m.tensors = file().tensors;
    m.length = static_cast<std::uint32_t>(max_payload_bytes);
    m.window = static_cast<std::uint16_t>(over_.size());
    m.flag = file().verifiable;
    t.on(m);
    return {};
  }

  // ---- chunks ----
  template <class Pull>
  result<bool> step(Pull& pull) {
    auto& t = pull.transfer();
    if (!file().known() || queue_.empty()) return false;
    bool moved = false;
    if (file().in_one_answer()) {
      if (const auto ok = open_whole(pull); !ok) return failure(ok.error());
      if (t.ended()) return true;
    } else {
      const auto did = queue_.ask_ahead(pull);
      if (!did) return did;
      moved = *did;
      if (t.ended() || t.pause().count() > 0 || file().in_one_answer()) return true;
    }
    item& i = queue_.front();
    if (!i.delivered) {
      if (queue_.waits(i)) {
        if (!queue_.is_neglected(i)) return moved;
        queue_.over_one_connection();  // the others hold what comes behind it
        return true;
      }
      deliver(i, t);
      if (!i.delivered) return true;
      moved = true;
    }
    const auto did = land(pull, i);
    if (!did) return did;
    return moved || *did;
  }
  /// Offers the chunk to the transfer, which may want it no more.
  template <class Transfer>
  void deliver(item& i, Transfer& t) {
    frame m = frame_about(file(), frame_kind::chunk, i.id, t.request().ref);
    m.offset = i.offset;
    m.length = static_cast<std::uint32_t>(i.length);
    i.delivered = t.on_chunk(m);
    if (i.delivered || t.ended()) return;
    if (i.over != nullptr) i.over->drop();
    queue_.pop();
  }

  /// Of a server that sends no ranges: the answer that has everything, again from its first byte if the connection was
  /// lost.
  template <class Pull>
  result<void> open_whole(Pull& pull) {
    line& l = over_.first();
    if (l.now() == line::phase::body) return {};
    const auto ok = described_.ask_there(pull, [&] { l.ask(requests_.common()); });
    if (!ok || pull.ended()) return ok;
    if (l.head().status != 200) {
      const frame asked = frame_about(file(), frame_kind::pull, queue_.front().id, pull.transfer().request().ref);
      const auto why = refused_by(pull.transfer(), asked, l.head(), requests_.url());
      return why ? failure(errc::busy) : why;
    }
    position_ = 0;
    return file().check_whole(l.head());
  }

  /// Moves bytes of the first request that is queued to where they belong.
  template <class Pull>
  result<bool> land(Pull& pull, item& i) {
    auto& t = pull.transfer();
    constexpr std::uint64_t most_a_step = 4 << 20;
    bool moved = false;
    for (std::uint64_t in_step = 0; i.landed < i.length && in_step < most_a_step;) {
      const std::uint64_t from = i.offset + i.landed;
      const auto did = from < described_.prefix().size() ? land_prefix(pull, i, from) : land_line(pull, i, from);
      if (!did) return failure(did.error());
      if (*did == 0) return moved;
      in_step += *did;
      moved = true;
      if (t.ended()) return true;
    }
    if (i.landed < i.length) return moved;
    queue_.pop_landed();
    return true;
  }
  using memory_type = std::array<std::span<std::byte>, 16>;
  /// Memory for the next bytes, at most so many; 0: the consumer has none now, and has been waited for.
  template <class Pull>
  prepared memory_for(Pull& pull, const item& i, std::uint64_t most, memory_type& memory) {
    most = std::min<std::uint64_t>({most, i.length - i.landed, pull.transfer().read_piece_bytes});
    const prepared p = pull.transfer().prepare(memory, most);
    if (p.bytes > 0) return p;
    over_.wait(std::chrono::milliseconds(1), nullptr);
    pull.excuse();
    return p;
  }
  template <class Pull>
  static void landed(Pull& pull, item& i, scatter_list memory, std::uint64_t bytes) {
    i.landed += bytes;
    for (const auto& s : memory) {
      const std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(s.size(), bytes));
      if (n > 0) pull.transfer().landed(s.first(n));
      bytes -= n;
    }
  }
  // How many bytes have landed or were passed over; 0: wait.
  template <class Pull>
  result<std::uint64_t> land_prefix(Pull& pull, item& i, std::uint64_t from) {
    memory_type memory;
    const auto there = described_.prefix().subspan(static_cast<std::size_t>(from));
    const prepared p = memory_for(pull, i, there.size(), memory);
    std::size_t copied = 0;
    for (const auto& s : std::span(memory).first(p.pieces)) {
      std::memcpy(s.data(), there.data() + copied, s.size());
      copied += s.size();
    }
    landed(pull, i, std::span(memory).first(p.pieces), p.bytes);
    return p.bytes;
  }
  template <class Pull>
  result<std::uint64_t> land_line(Pull& pull, item& i, std::uint64_t from) {
    const bool whole = file().in_one_answer();
    line& l = whole ? over_.first() : *i.over;
    const auto room = l.available();
    if (!room) return room;
    if (*room == 0 && l.body_ended()) return failure(errc::connection_lost);
    if (*room == 0) return room;
    if (whole && position_ < from) return pass_over(pull, l, std::min(*room, from - position_));
    memory_type memory;
    const prepared p = memory_for(pull, i, *room, memory);
    if (p.bytes == 0) return std::uint64_t{0};
    const auto pieces = std::span(memory).first(p.pieces);
    const io_result io = l.take(pieces);
    if (io.status == io_status::would_block) return std::uint64_t{0};
    if (io.status != io_status::ok) return failure(error_of(io));
    position_ += io.bytes;
    const bool last = from + io.bytes == (whole ? file().total : i.until);
    if (last) {  // before the last byte counts
      const auto ok = over_.until(pull, l, [&] { return l.at_end(); });
      if (!ok) return failure(ok.error());
      if (pull.ended()) return std::uint64_t{io.bytes};
    }
    landed(pull, i, pieces, io.bytes);
    return std::uint64_t{io.bytes};
  }
  /// What has landed comes again.
  template <class Pull>
  result<std::uint64_t> pass_over(Pull& pull, line& l, std::uint64_t most) {
    std::array<std::byte, 4096> passing;
    const std::array<std::span<std::byte>, 1> out{
        std::span(passing).first(static_cast<std::size_t>(std::min<std::uint64_t>(passing.size(), most)))};
    const io_result io = l.take(out);
    if (io.status != io_status::ok && io.status != io_status::would_block) return failure(error_of(io));
    position_ += io.bytes;
    passed_ += io.bytes;
    if (passed_ >= 1 << 20) {
      passed_ = 0;
      pull.excuse();
    }
    return std::uint64_t{io.bytes};
  }

  // ---- the end ----
  /// Tells an owner of this library that we have given up, so that it need not wait for us until our budget has run
  /// out. A recipient that is asked to stop has 0.1 s for that, another one a second; one whose server has gone has
  /// none.
  template <class Pull>
  void say_goodbye(Pull& pull) {
    const auto outcome = pull.transfer().outcome();
    const auto bye = pull.transfer().farewell();
    if (!file().ours || outcome || is_passing(outcome.error().code) || !bye || bye->status == status::looked) return;
    const std::chrono::milliseconds most = options_.stop.stop_requested() ? wait_step : std::chrono::seconds(1);
    const auto time = std::min(options_.per_request_timeout, most);
    const auto deadline = deadline_after(time);
    const std::string text = requests_.about_the_end("/cancel");
    line* free = over_.idle();
    if (free == nullptr) {
      free = &over_.first();
      free->drop();
      if (!over_.connect(*free, requests_.url(), time, stop_token())) return;  // which was asked to end the pull only
    }
    over_.drop_all_but(*free);
    free->ask(text);
    while (clock::now() < deadline) {
      const auto there = free->step();
      if (!there || *there) break;
      over_.wait(std::min(wait_step, time), free);
    }
    free->drop();  // it borrows the text
  }
  /// Tells an owner of this library. Any other server has nothing to be told: the pull has ended well, without a
  /// confirmation.
  template <class Pull>
  result<void> confirm(const frame& f, Pull& pull) {
    auto& t = pull.transfer();
    if (!file().ours) {
      t.fail({errc::unsupported_request});
      return {};
    }
    std::string text = requests_.about_the_end("/confirm");
    std::array<char, 32> digest;
    if (f.flag) add_field(text, "Repr-Digest", ((text_writer(digest) << "xxh3=:").base64(f.digest) << ":").text());
    line& l = over_.first();
    auto how = over_.exchange(pull, l, requests_.url(), [&] { l.ask(text); });
    if (how && !pull.ended()) {
      const unsigned s = l.head().status;
      if (s >= 200 && s < 300) t.on(frame_about(file(), frame_kind::confirmed, f.id, f.ref));
      else if (s == 409) ask_anew(f, t);
      else how = refused_by(t, f, l.head(), requests_.url());
    }
    l.drop();  // it borrows the text
    return how;
  }
  /// The owner does not know that we have every byte: it was started again, or has forgotten us. It is asked again what
  /// there is, and then for the last byte.
  template <class Transfer>
  void ask_anew(const frame& f, Transfer& t) {
    frame m = frame_about(file(), frame_kind::refused, f.id, f.ref);
    m.status = status::bad_request;
    described_.forget();
    t.on(m);
  }

  const pull_options& options_;
  std::uint64_t version_;
  bool needs_digest_;
  http_requests requests_;
  http_connections<Dial> over_;
  http_description<Dial> described_;
  ranges queue_;
  std::uint64_t position_ = 0;  // in the answer, if the file comes in one
  std::uint64_t passed_ = 0;  // bytes since the time-out was put off
};

}  // namespace tensorpull::detail
