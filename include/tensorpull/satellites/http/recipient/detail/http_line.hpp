// One request at a time, as a handle of libcurl: its options, and what has come of its answer.
#pragma once

#include <tensorpull/satellites/http/recipient/detail/http_head.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tensorpull::detail {

class http_line;

/// Takes the body of an answer.
class http_taker {
 public:
  /// Bytes of the body that come next. How many were taken; fewer: the rest is offered again after go_on().
  virtual std::size_t take(http_line& from, std::span<const std::byte> bytes) noexcept = 0;

 protected:
  ~http_taker() = default;
};

class http_line {
 public:
  enum class phase : std::uint8_t {
    idle,  ///< there is no request
    asking,  ///< the head of the answer is awaited
    body,  ///< it has come
    ended,  ///< the answer has ended, or cannot come
  };
  /// Bytes of the longest head, with the interim answers before it and the trailers behind the body.
  static constexpr std::size_t most_head_bytes = 64 * 1024;
  /// Interim answers (1xx) in front of the answer itself. A server that sends more has nothing to say.
  static constexpr unsigned most_interim = 8;

  // The taker's own, about the answer: the next byte of the file in it, and the one behind its last; the
  // last one, which does not count before the answer has ended; whether the head was found to be what was asked for;
  // when it was asked for, and at which place.
  std::uint64_t at = 0, until = 0;
  optional<std::byte> held{};
  bool judged = false;
  std::chrono::steady_clock::time_point asked{};
  unsigned place = 0;

  http_line() = default;
  http_line(const http_line&) = delete;
  http_line& operator=(const http_line&) = delete;

  phase now() const noexcept { return phase_; }
  /// Whether it has a connection, for its request or kept behind the last one.
  bool connected() const noexcept { return connected_; }
  /// Whether a byte of the answer has come.
  bool heard() const noexcept { return heard_ > 0; }
  /// Whether the head of the answer has come. Error: it cannot come.
  result<bool> answered() const noexcept {
    if (phase_ == phase::ended && !whole_head_ && why_.code != errc{}) return failure(why_);
    return whole_head_ || phase_ == phase::ended;
  }
  http_head& head() noexcept { return head_; }
  /// How the answer has ended.
  result<void> outcome() const noexcept {
    if (why_.code != errc{}) return failure(why_);
    return {};
  }
  /// Ends the answer, from within take().
  void refuse(const error& why) noexcept { why_ = why; }
  /// Offers again what was not taken.
  void go_on() noexcept {
    if (std::exchange(paused_, false)) (void)curl_easy_pause(easy_.get(), CURLPAUSE_CONT);
  }

  /// Sets an option of the request.
  template <class T>
  void set(CURLoption what, T to) noexcept {
    set_ = set_ && curl_easy_setopt(easy_.get(), what, to) == CURLE_OK;
  }
  void set(CURLoption what, const std::string& to) noexcept { set(what, to.c_str()); }
  /// Adds a field to the request.
  void add(const char* field) noexcept {
    curl_slist* const all = curl_slist_append(fields_.get(), field);
    set_ = set_ && all != nullptr;
    if (fields_ == nullptr) fields_.reset(all);
  }

 private:
  friend class http_lines;

  static http_line& of(void* self) noexcept { return *static_cast<http_line*>(self); }
  static std::size_t on_head(char* text, std::size_t, std::size_t size, void* self) noexcept {
    return of(self).take_head({text, size}) ? size : 0;
  }
  static std::size_t on_body(char* bytes, std::size_t, std::size_t size, void* self) noexcept {
    return of(self).take_body(std::as_bytes(std::span(bytes, size)));
  }
  static int on_connection(void* self, char*, char*, int, int) noexcept {
    of(self).connected_ = of(self).moved_ = true;
    return CURL_PREREQFUNC_OK;
  }

  /// Forgets the last request, and begins the options of another.
  bool begin(http_taker& taker, std::string_view server, const http_proxy& proxy) {
    if (easy_ == nullptr) easy_.reset(curl_easy_init());
    if (easy_ == nullptr) return false;
    curl_easy_reset(easy_.get());
    taker_ = &taker, server_ = server, proxy_ = proxy;
    fields_.reset();
    said_[0] = '\0';
    set(CURLOPT_PRIVATE, this);
    set(CURLOPT_ERRORBUFFER, said_.data());
    set(CURLOPT_HEADERFUNCTION, &on_head);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_WRITEFUNCTION, &on_body);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_PREREQFUNCTION, &on_connection);
    set(CURLOPT_PREREQDATA, this);
    return true;
  }
  /// Is asked now.
  bool start() noexcept {
    if (fields_ != nullptr) set(CURLOPT_HTTPHEADER, fields_.get());
    phase_ = phase::asking;
    connected_ = false;
    kept_ = -1;
    return set_;
  }
  /// The request is no more. The connection is kept if the answer has ended well.
  void forget() noexcept {
    connected_ = connected_ && kept_ >= 0;
    at = until = 0;
    held = {};
    why_ = {};
    taken_ = heard_ = 0;
    interim_ = 0;
    phase_ = phase::idle;
    set_ = true;
    judged = whole_head_ = paused_ = false;
  }
  /// `no_socket`: errno, if there was none.
  void end(CURLcode how, int no_socket) noexcept {
    phase_ = phase::ended;
    moved_ = true;
    if (how == CURLE_OK) (void)curl_easy_getinfo(easy_.get(), CURLINFO_ACTIVESOCKET, &kept_);
    if (how == CURLE_OK || why_.code != errc{}) return;
    why_ = error_of(easy_.get(), how, said_.data(), server_, proxy_, whole_head_);
    if (how == CURLE_COULDNT_CONNECT && no_socket != 0) why_.system = no_socket;
  }

  bool take_head(std::string_view line) noexcept {
    moved_ = true;
    heard_ += line.size();
    if (heard_ > most_head_bytes) refuse({errc::too_large, 0, heard_, std::string_view("header fields")});
    else if (!whole_head_ && line.find_first_not_of("\r\n") == line.npos) end_head();
    return why_.code == errc{};
  }
  void end_head() noexcept {
    try {
      head_ = read_head(easy_.get());
    } catch (...) {
      return refuse({errc::out_of_memory, 0, 0, {}});
    }
    // behind 417 libcurl asks again, without waiting for consent
    whole_head_ = head_.status / 100 != 1 && head_.status != 417;
    if (whole_head_) phase_ = phase::body;
    else if (++interim_ > most_interim || head_.status == 101)
      refuse({errc::unexpected_frame, 0, head_.status, std::string_view("1xx")});
  }
  std::size_t take_body(std::span<const std::byte> bytes) noexcept {
    moved_ = true;
    if (!whole_head_) return bytes.size();  // of 417: a page for people
    const std::size_t took = taker_->take(*this, bytes.subspan(taken_));
    if (why_.code != errc{}) return 0;
    // bytes that were not taken are offered again with those before them
    taken_ += took;
    paused_ = taken_ < bytes.size();
    if (paused_) return CURL_WRITEFUNC_PAUSE;
    taken_ = 0;
    return bytes.size();
  }

  http_taker* taker_ = nullptr;
  curl_easy_ptr easy_;
  curl_fields_ptr fields_;
  std::string server_{};
  http_proxy proxy_{};
  http_head head_{};
  error why_{};
  std::size_t taken_ = 0, heard_ = 0;
  curl_socket_t kept_ = -1;  // the connection of an answer that has ended well
  unsigned interim_ = 0;
  phase phase_ = phase::idle;
  bool set_ = true, connected_ = false, whole_head_ = false, paused_ = false, moved_ = false;
  std::array<char, CURL_ERROR_SIZE> said_{};
};

}  // namespace tensorpull::detail
