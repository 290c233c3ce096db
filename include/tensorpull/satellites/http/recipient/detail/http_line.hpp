// One connection of a pull over HTTP: sends a request, reads the head of its answer, and hands the body over.
#pragma once

#include <tensorpull/links/byte_stream.hpp>
#include <tensorpull/links/posix/pollable_stream.hpp>
#include <tensorpull/satellites/http/recipient/http_response.hpp>
#include <tensorpull/satellites/http/text/detail/input_window.hpp>

#include <poll.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace tensorpull::detail {

/// The error of a stream that has ended.
inline error error_of(const io_result& io) noexcept {
  switch (io.status) {
    case io_status::truncated: return {errc::truncated, io.system, 0, {}};
    case io_status::refused: return {errc::not_authenticated, io.system, 0, {}};
    case io_status::failed: return {errc::io, io.system, 0, {}};
    default: return {errc::connection_lost, io.system, 0, {}};
  }
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
  /// Interim answers (1xx) in front of the answer itself. A server that sends more has nothing to say.
  static constexpr unsigned most_interim = 8;

  phase now() const noexcept { return phase_; }
  /// Whether there is a connection, or one is being made.
  bool connected() const noexcept { return stream_.has_value(); }
  /// Whether an earlier answer has come over this connection, which the server may be closing meanwhile.
  bool used() const noexcept { return answers_ > 0; }
  /// Whether a byte of the answer has come.
  bool heard() const noexcept {
    return phase_ == phase::body || (phase_ == phase::head && (!in_.empty() || interim_ > 0));
  }
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
    in_.clear();
    answers_ = 0;
  }

  /// To the end of the file, wherever that is.
  static constexpr std::uint64_t to_the_end = ~std::uint64_t{0};
  /// The line that asks for [from, to), under a condition if there is one.
  void ask(std::string_view common, std::uint64_t from, std::uint64_t to, std::string_view if_range) noexcept {
    text_writer own(own_);
    own << "Range: bytes=" << from << "-";
    if (to != to_the_end) own << to - 1;
    own << "\r\n";
    if (!if_range.empty()) own << "If-Range: " << if_range << "\r\n";
    start(common, own << "\r\n");
  }
  /// Asks without fields of its own.
  void ask(std::string_view common) noexcept {
    text_writer own(own_);
    start(common, own << "\r\n");
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
        in_.clear();
        interim_ = 0;
        reader_.emplace();
        break;
      }
      const io_result io = stream_->write_some(gather_list(out.data(), pieces));
      if (io.status == io_status::would_block) return false;
      if (io.status != io_status::ok) return failure(error_of(io));
      sent_ += io.bytes;
    }
    while (phase_ == phase::head) {
      if (const auto got = fill(); !got || !*got) return got;
      while (phase_ == phase::head) {
        const auto used = reader_->take(in_.text());
        if (!used) return failure(used.error());
        if (*used == 0) break;
        in_.take(*used);
        const unsigned status = reader_->head().status;
        if (status >= 200) {
          begin_body();
          break;
        }
        if (status == 101 || ++interim_ > most_interim)
          return failure(errc::unexpected_frame, status, std::string_view("1xx"));
        reader_.emplace();
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
    while (form_ == body_form::pieces && left_ == 0 && !ended_) {
      const cut_line line = first_line(in_.text());
      if (line.is == cut_line::kind::none && in_.size() < most_piece_line + 2) {
        const auto got = fill();
        if (!got) return failure(got.error());
        if (!*got) return std::uint64_t{0};
        continue;
      }
      if (line.is != cut_line::kind::whole || line.text.size() > most_piece_line || !is_line_text(line.text))
        return failure(bad_piece());
      in_.take(line.bytes);
      if (const auto ok = take_piece_line(line.text); !ok) return failure(ok.error());
    }
    return ended_ ? 0 : left_;
  }
  /// Reads bytes of the body, at most as many as available() said.
  io_result take(scatter_list out) noexcept {
    io_result io{};
    if (in_.empty()) io = stream_->read_some(out);
    else io.bytes = in_.copy(out);
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
    if (!in_.empty()) return more();
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
    if (!ended_ || !reader_->head().persists || !in_.empty()) return drop();
    ++answers_;
    phase_ = phase::idle;
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
    until_close
  };
  /// What a line of a body in pieces is.
  enum class piece_line : std::uint8_t {
    length,
    end_of_piece,
    trailer
  };
  static constexpr std::size_t most_piece_line = 256;
  static constexpr unsigned most_trailers = 64;

  void start(std::string_view common, const text_writer& own) noexcept {
    common_ = common;
    own_size_ = own.text().size();
    sent_ = 0;
    phase_ = phase::asking;
    in_.clear();
  }
  void begin_body() noexcept {
    const http_head& h = reader_->head();
    phase_ = phase::body;
    ended_ = false;
    trailers_ = 0;
    piece_ = piece_line::length;
    form_ = body_form::until_close;
    left_ = ~std::uint64_t{0};
    if (h.chunked) {
      form_ = body_form::pieces;
      left_ = 0;
    } else if (h.has_length) {
      form_ = body_form::length;
      left_ = h.length;
    }
    if (h.status == 204 || h.status == 304) {  // they have no body, whatever their fields say
      form_ = body_form::length;
      left_ = 0;
    }
    ended_ = form_ == body_form::length && left_ == 0;
  }
  static error bad_piece() noexcept { return {errc::bad_frame, 0, 0, std::string_view("a piece of the body")}; }
  result<void> take_piece_line(std::string_view line) noexcept {
    switch (piece_) {
      case piece_line::length: {
        const auto n = hex_number(line.substr(0, line.find_first_of("; \t")));
        if (!n) return failure(bad_piece());
        left_ = *n;
        piece_ = left_ == 0 ? piece_line::trailer : piece_line::end_of_piece;
        return {};
      }
      case piece_line::end_of_piece:
        piece_ = piece_line::length;
        if (!line.empty()) return failure(bad_piece());
        return {};
      case piece_line::trailer:
        ended_ = line.empty();
        if (!ended_ && ++trailers_ > most_trailers)
          return failure(errc::too_large, 0, std::string_view("trailer fields"));
        return {};
    }
    return {};
  }
  /// Reads what has come. True: something has.
  result<bool> fill() noexcept {
    const std::array<std::span<std::byte>, 1> room{in_.room()};
    if (room[0].empty()) return failure(errc::too_large, in_.size(), std::string_view("header fields"));
    const io_result io = stream_->read_some(room);
    if (io.status == io_status::would_block) return false;
    if (io.status != io_status::ok) return failure(error_of(io));
    in_.arrived(io.bytes);
    return true;
  }

  std::optional<Stream> stream_;
  std::optional<http_response_reader> reader_;
  std::string_view common_{};
  std::array<char, 512> own_;
  input_window<http_response_reader::most_bytes> in_;
  std::size_t own_size_ = 0, sent_ = 0;
  std::uint64_t left_ = 0;
  io_ready opens_{};  // what a connection that is being made waits for
  unsigned interim_ = 0, answers_ = 0, trailers_ = 0;
  phase phase_ = phase::idle;
  body_form form_ = body_form::length;
  piece_line piece_ = piece_line::length;
  bool ended_ = false;
};

}  // namespace tensorpull::detail
