// One connection of a pull over HTTP: sends a request, reads the head of its answer, and hands the body over.
#pragma once

#include <tensorpull/links/byte_stream.hpp>
#include <tensorpull/transports/http/http_response.hpp>
#include <tensorpull/transports/stream/pollable_stream.hpp>

#include <poll.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace tensorpull::detail {

/// The error of a stream that has ended.
inline error error_of(const io_result& io) noexcept {
  const errc code = io.status == io_status::truncated ? errc::truncated
                    : io.status == io_status::refused ? errc::not_authenticated
                    : io.status == io_status::failed  ? errc::io
                                                      : errc::connection_lost;
  return {code, io.system, 0, {}};
}

/// Borrows the text that is common to all requests. Its buffer is the one allocation of each connection, made when the
/// pull begins.
template <pollable_stream Stream>
class http_line {
 public:
  enum class phase : std::uint8_t {
    idle,    ///< nothing is on its way; there may be no connection either
    opening, ///< the connection is being made
    asking,  ///< the request is being sent
    head,    ///< the head of the answer is awaited
    body,    ///< the head has come
  };
  /// Interim answers (1xx) in front of the answer itself. Who sends more has nothing to say.
  static constexpr unsigned most_interim = 8;

  phase now() const noexcept { return phase_; }
  /// Whether there is a connection, or one is being made.
  bool connected() const noexcept { return stream_.has_value(); }
  /// Whether an earlier answer has come over this connection, which the server may be closing meanwhile.
  bool used() const noexcept { return answers_ > 0; }
  /// Whether a byte of the answer has come.
  bool heard() const noexcept { return end_ > 0 || phase_ == phase::body; }
  Stream& stream() noexcept { return *stream_; }
  void connect(Stream stream) noexcept {
    drop();
    stream_.emplace(std::move(stream));
  }
  /// Takes a connection that is still being made: establish() goes on with it.
  void open(Stream stream) noexcept {
    connect(std::move(stream));
    phase_ = phase::opening;
    opens_ = {false, true};
  }
  /// Goes on with a connection that is being made. True: it is there; false: wait. Errors: the stream's.
  result<bool> establish() noexcept {
    if constexpr (requires { stream_->establish(); }) {
      const establishment now = stream_->establish();
      if (now.status == io_status::would_block) {
        opens_ = now.waits_for;
        return false;
      }
      if (now.status != io_status::ok) return failure(now.code, 0, {}, now.system);
    }
    phase_ = phase::idle;
    return true;
  }
  /// Whether an idle connection can be asked again: the server has not closed it, and has said nothing that nobody has
  /// asked for.
  bool still_there() noexcept {
    std::byte one{};
    const std::array<std::span<std::byte>, 1> in{std::span(&one, 1)};
    return stream_->read_some(in).status == io_status::would_block;
  }
  void drop() noexcept {
    stream_.reset();
    phase_ = phase::idle;
    begin_ = end_ = 0;
    answers_ = 0;
  }

  /// The line that asks for [from, to), under a condition if there is one.
  void ask(std::string_view common, std::uint64_t from, std::uint64_t to, std::string_view if_range) noexcept {
    start(common);
    add("Range: bytes="), add(from), add("-"), add(to - 1), add("\r\n");
    if (!if_range.empty()) add("If-Range: "), add(if_range), add("\r\n");
    add("\r\n");
  }
  /// Asks with other fields than a range; they are at most 256 bytes.
  void ask(std::string_view common, std::string_view fields = {}) noexcept {
    start(common);
    add(fields), add("\r\n");
  }

  /// Goes on with the request and the head. True: the head is there; false: wait for the stream. Errors: the stream's;
  /// those of http_response_reader.
  result<bool> step() noexcept {
    while (phase_ == phase::asking) {
      const std::string_view fields(own_.data(), own_size_);
      std::array<std::span<const std::byte>, 2> out{};
      std::size_t pieces = 0;
      if (sent_ < common_.size()) out[pieces++] = std::as_bytes(std::span(common_.substr(sent_)));
      const std::size_t of_own = sent_ - std::min(sent_, common_.size());
      if (of_own < fields.size()) out[pieces++] = std::as_bytes(std::span(fields.substr(of_own)));
      if (pieces == 0) {
        phase_ = phase::head;
        begin_ = end_ = 0, interim_ = 0;
        reader_.emplace();
        break;
      }
      const io_result io = stream_->write_some(std::span<const std::span<const std::byte>>(out.data(), pieces));
      if (io.status == io_status::would_block) return false;
      if (io.status != io_status::ok) return failure(error_of(io));
      sent_ += io.bytes;
    }
    while (phase_ == phase::head) {
      if (const auto got = fill(); !got || !*got) return got;
      for (;;) {
        const auto used = reader_->take({reinterpret_cast<const char*>(in_.data()) + begin_, end_ - begin_});
        if (!used) return failure(used.error());
        if (*used == 0) break;
        begin_ += *used;
        if (const unsigned status = reader_->head().status; status < 200) {
          if (status == 101 || ++interim_ > most_interim)
            return failure(errc::unexpected_frame, status, std::string_view("1xx"));
          reader_.emplace();
          continue;
        }
        begin_body();
        break;
      }
      if (phase_ == phase::head && end_ == in_.size()) {
        if (begin_ == 0) return failure(errc::too_large, end_, std::string_view("header fields"));
        std::memmove(in_.data(), in_.data() + begin_, end_ - begin_);
        end_ -= std::exchange(begin_, 0);
      }
    }
    return phase_ == phase::body;
  }
  /// Interim answers since the request was sent.
  unsigned interim() const noexcept { return interim_; }
  http_head& head() noexcept { return reader_->head(); }

  /// How many bytes of the body may be read at once, at least one unless body_ended(); of a body in pieces it reads the
  /// next length. 0: wait, or the error.
  result<std::uint64_t> available() noexcept {
    if (form_ != body_form::pieces || left_ > 0 || ended_) return ended_ ? 0 : left_;
    for (;;) {
      if (const auto line = next_line(); !line) return failure(line.error());
      else if (!*line) return std::uint64_t{0};
      const std::string_view text(line_.data(), line_size_);
      const auto after = std::exchange(piece_, piece_state::length);
      if (after == piece_state::end_of_piece) {
        line_size_ = 0;
        if (!text.empty()) return failure(errc::bad_frame, 0, std::string_view("a piece of the body"));
        continue;
      }
      if (after == piece_state::trailer) {
        const bool last = text.empty();
        line_size_ = 0;
        piece_ = piece_state::trailer;
        if (!last && ++trailers_ > 64) return failure(errc::too_large, 0, std::string_view("trailer fields"));
        if (last) return ended_ = true, std::uint64_t{0};
        continue;
      }
      const std::string_view digits = text.substr(0, text.find_first_of("; \t"));
      std::uint64_t n = 0;
      const auto [end, bad] = std::from_chars(digits.data(), digits.data() + digits.size(), n, 16);
      const bool ok = !digits.empty() && is_digit(digits.front()) && bad == std::errc{} &&
                      end == digits.data() + digits.size();
      line_size_ = 0;
      if (!ok) return failure(errc::bad_frame, 0, std::string_view("a piece of the body"));
      piece_ = n == 0 ? piece_state::trailer : piece_state::end_of_piece;
      left_ = n;
      if (n > 0) return n;
    }
  }
  /// Reads bytes of the body, at most as many as available() said.
  io_result take(std::span<const std::span<std::byte>> out) noexcept {
    io_result io{};
    if (begin_ < end_) {
      for (const auto& span : out) {
        const std::size_t n = std::min(span.size(), end_ - begin_);
        std::memcpy(span.data(), in_.data() + begin_, n);
        begin_ += n, io.bytes += n;
        if (begin_ == end_) break;
      }
    } else {
      io = stream_->read_some(out);
    }
    if (form_ == body_form::until_close && io.status == io_status::closed && io.system == 0) ended_ = true;
    if (io.status == io_status::ok && form_ != body_form::until_close)
      left_ -= std::min<std::uint64_t>(left_, io.bytes);
    if (form_ == body_form::length && left_ == 0) ended_ = true;
    return io;
  }
  bool body_ended() const noexcept { return ended_; }
  /// Whether nothing of the body is left behind what was wanted of it. False: wait. Error: wrong_payload: there is
  /// more.
  result<bool> at_end() noexcept {
    const auto more = [] {
      return failure(errc::wrong_payload, 0, std::string_view("more bytes than were asked for"));
    };
    if (ended_) return true;
    if (form_ == body_form::length) return left_ == 0 ? result<bool>(true) : more();
    if (form_ == body_form::pieces) {
      const auto n = available();
      if (!n) return failure(n.error());
      if (*n > 0) return more();
      return ended_;
    }
    if (begin_ < end_) return more();
    std::byte one{};
    const std::array<std::span<std::byte>, 1> in{std::span(&one, 1)};
    const io_result io = stream_->read_some(in);
    if (io.status == io_status::would_block) return false;
    if (io.status == io_status::ok) return more();
    return ended_ = true;
  }
  /// Ends with this answer. The connection stays if the answer has ended, nothing more has come, and the server lets
  /// it.
  void done() noexcept {
    if (form_ == body_form::pieces && !ended_ && left_ == 0) (void)available();  // the last length, if it is here
    if (!ended_ || !reader_->head().persists || begin_ != end_) return drop();
    ++answers_;
    phase_ = phase::idle;
    begin_ = end_ = 0;
  }

  /// What poll() has to wait for. `reads`: whether the body is wanted now.
  pollfd waits_for(bool reads) const noexcept {
    if (!stream_) return {-1, 0, 0};
    io_ready wanted = opens_;
    if (phase_ != phase::opening) {
      wanted = {phase_ == phase::head || (phase_ == phase::body && reads), phase_ == phase::asking};
      if (!wanted.read && !wanted.write) return {-1, 0, 0};
      if constexpr (requires { stream_->interest(wanted); }) wanted = stream_->interest(wanted);
    }
    return {stream_->native_handle(), static_cast<short>((wanted.read ? POLLIN : 0) | (wanted.write ? POLLOUT : 0)), 0};
  }

 private:
  enum class body_form : std::uint8_t {
    length,
    pieces,
    until_close,
  };
  enum class piece_state : std::uint8_t {
    length,
    end_of_piece,
    trailer,
  };
  static constexpr bool is_digit(char c) noexcept {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  }

  void start(std::string_view common) noexcept {
    common_ = common;
    own_size_ = sent_ = 0;
    phase_ = phase::asking;
    begin_ = end_ = 0;
  }
  void add(std::string_view text) noexcept {
    const std::size_t n = std::min(text.size(), own_.size() - own_size_);
    if (n > 0) std::memcpy(own_.data() + own_size_, text.data(), n);
    own_size_ += n;
  }
  void add(std::uint64_t n) noexcept {
    own_size_ = static_cast<std::size_t>(std::to_chars(own_.data() + own_size_, own_.data() + own_.size(), n).ptr -
                                         own_.data());
  }

  void begin_body() noexcept {
    const http_head& h = reader_->head();
    phase_ = phase::body;
    ended_ = false;
    left_ = h.length, line_size_ = 0, trailers_ = 0, piece_ = piece_state::length, return_ = false;
    form_ = h.chunked ? body_form::pieces : h.has_length ? body_form::length : body_form::until_close;
    if (form_ == body_form::pieces) left_ = 0;
    if (form_ == body_form::until_close) left_ = ~std::uint64_t{0};
    if (h.status == 204 || h.status == 304)
      form_ = body_form::length, left_ = 0;  // they have no body, whatever their fields say
    if (form_ == body_form::length && left_ == 0) ended_ = true;
  }
  /// Reads what has come. True: something has.
  result<bool> fill() noexcept {
    const std::array<std::span<std::byte>, 1> room{std::span(in_).subspan(end_)};
    const io_result io = stream_->read_some(room);
    if (io.status == io_status::would_block) return false;
    if (io.status != io_status::ok) return failure(error_of(io));
    end_ += io.bytes;
    return true;
  }
  /// A line of a body in pieces, without its end. False: it has not come yet.
  result<bool> next_line() noexcept {
    for (;;) {
      while (begin_ < end_) {
        const char c = static_cast<char>(in_[begin_++]);
        if (std::exchange(return_, false)) {
          if (c != '\n') return failure(errc::bad_frame, 0, std::string_view("a piece of the body"));
          return true;
        }
        if (c == '\r') {
          return_ = true;
          continue;
        }
        if (c == '\n' || line_size_ == line_.size())
          return failure(errc::bad_frame, 0, std::string_view("a piece of the body"));
        line_[line_size_++] = c;
      }
      begin_ = end_ = 0;
      if (const auto got = fill(); !got || !*got) return got;
    }
  }

  std::optional<Stream> stream_;
  std::optional<http_response_reader> reader_;
  std::string_view common_{};
  std::array<char, 512> own_;
  std::array<std::byte, http_response_reader::most_bytes> in_;
  std::array<char, 256> line_;
  std::size_t own_size_ = 0, sent_ = 0, begin_ = 0, end_ = 0, line_size_ = 0;
  std::uint64_t left_ = 0;
  io_ready opens_{};  // what a connection that is being made waits for
  unsigned interim_ = 0, answers_ = 0, trailers_ = 0;
  phase phase_ = phase::idle;
  body_form form_ = body_form::length;
  piece_state piece_ = piece_state::length;
  bool ended_ = false, return_ = false;
};

}  // namespace tensorpull::detail
