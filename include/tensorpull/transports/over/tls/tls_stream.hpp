// TLS over any stream, with OpenSSL.
#pragma once

#include <tensorpull/links/posix/pollable_stream.hpp>
#include <tensorpull/std/optional.hpp>
#include <tensorpull/transports/over/tls/detail/certificate_identity.hpp>
#include <tensorpull/transports/over/tls/detail/gather_cursor.hpp>
#include <tensorpull/transports/over/tls/detail/tls_reason.hpp>
#include <tensorpull/transports/over/tls/tls_context.hpp>

#include <cstring>
#include <memory>
#include <new>

namespace tensorpull {

/// One end of a TLS connection over the stream `Next`: a pollable_stream, if Next is one. The handshake is done by
/// establish(), and nothing is read or written before. All its own memory is one allocation made at start.
template <byte_stream Next>
class tls_stream {
 public:
  /// Short-lived heap allocations that OpenSSL (3.0) makes for each record: three when it is sent and one when it is
  /// received, with TLS 1.2 fewer. We make none. A chunk is a record for each 16 KiB, and one more.
  static constexpr std::size_t allocations_per_record_sent = 3;
  static constexpr std::size_t allocations_per_record_received = 1;  ///< as above
  /// Bytes of the longest record (RFC 8446, 5.1).
  static constexpr std::size_t record_bytes = 16384;

  /// No connection.
  tls_stream() noexcept = default;
  /// The end that has connected. `name`: a name or an address that the other end's certificate has to have; at most 255
  /// bytes. Errors: invalid_argument: no context, no name, or one that begins with a dot (it would stand for every name
  /// below); out_of_memory.
  static result<tls_stream> client(Next next, const tls_context& context, std::string_view name) noexcept {
    auto s = begin(std::move(next), context);
    if (!s) return s;
    std::array<char, 256> text{};
    if (name.empty() || name.front() == '.' || name.size() >= text.size() || name.find('\0') != std::string_view::npos)
      return failure(errc::invalid_argument, 0, name);
    std::memcpy(text.data(), name.data(), name.size());
    SSL* const ssl = s->ssl();
    X509_VERIFY_PARAM* const checks = SSL_get0_param(ssl);
    X509_VERIFY_PARAM_set_hostflags(checks, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    const bool number = X509_VERIFY_PARAM_set1_ip_asc(checks, text.data()) == 1;
    if (!number && (SSL_set1_host(ssl, text.data()) != 1 || SSL_set_tlsext_host_name(ssl, text.data()) != 1))
      return failure(errc::invalid_argument, 0, name);
    SSL_set_connect_state(ssl);
    ERR_clear_error();
    return s;
  }
  /// The end that has accepted. Errors: invalid_argument: no context; out_of_memory.
  static result<tls_stream> server(Next next, const tls_context& context) noexcept {
    auto s = begin(std::move(next), context);
    if (!s) return s;
    SSL* const ssl = s->ssl();
    if ((SSL_get_verify_mode(ssl) & SSL_VERIFY_FAIL_IF_NO_PEER_CERT) == 0)
      SSL_set_verify(ssl, SSL_VERIFY_NONE, nullptr);
    SSL_set_accept_state(ssl);
    return s;
  }

  /// The descriptor; -1: no connection.
  int native_handle() const noexcept
    requires pollable_stream<Next>
  {
    return s_ != nullptr ? s_->next.native_handle() : -1;
  }
  /// The stream below.
  Next& next() noexcept { return s_->next; }
  /// The stream below.
  const Next& next() const noexcept { return s_->next; }

  /// The identity of the other end, once the stream is established: the names in its certificate, which has been
  /// checked. `none`: it has shown none, or there is no connection.
  peer_identity peer() const noexcept { return s_ != nullptr ? s_->identity.names() : peer_identity{}; }
  /// Why the other end's certificate was refused, as OpenSSL numbers it (X509_V_ERR_...); 0: it was not.
  long refusal() const noexcept { return SSL_get_verify_result(s_->ssl.get()); }
  /// The version that is spoken, such as "TLSv1.3", and the cipher suite, once the stream is established; for logs.
  std::string_view version() const noexcept { return SSL_get_version(s_->ssl.get()); }
  /// The cipher that was agreed on, as OpenSSL names it.
  std::string_view cipher() const noexcept { return SSL_get_cipher_name(s_->ssl.get()); }

  /// Continues with what Next has to do first, and then with the handshake. not_authenticated: one end has no
  /// certificate that the other end accepts. handshake_failed: there is nothing that both ends speak; it is final.
  establishment establish() noexcept {
    if (s_->established) return {};
    if constexpr (requires { s_->next.establish(); })
      if (const auto under = s_->next.establish(); under.status != io_status::ok) return under;
    if (s_->end) return {s_->end->status, s_->end->system, {}, s_->failed, s_->why};
    ERR_clear_error();
    const int done = SSL_do_handshake(s_->ssl.get());
    if (done == 1) {
      s_->established = true;
      s_->drained = false;  // the peer's first bytes may have come with the last of its handshake
      if (const detail::certificate_ptr peer{SSL_get1_peer_certificate(s_->ssl.get())}; peer != nullptr)
        s_->identity.take(peer.get());
      // those that it has sent besides its own have been checked, and would be kept as long as the connection
      if (STACK_OF(X509)* const sent = SSL_get_peer_cert_chain(s_->ssl.get()); sent != nullptr)
        while (sk_X509_num(sent) > 0) X509_free(sk_X509_pop(sent));
      // a peer may ask for shorter records
      if (const auto shorter = SSL_SESSION_get_max_fragment_length(SSL_get_session(s_->ssl.get()));
          shorter != TLSEXT_max_fragment_length_DISABLED)
        s_->most_in_record = std::size_t{256} << shorter;
      ERR_clear_error();
      return {};
    }
    const int why = SSL_get_error(s_->ssl.get(), done);
    if (why == SSL_ERROR_WANT_READ) return {io_status::would_block, 0, {true, false}};
    if (why == SSL_ERROR_WANT_WRITE) return {io_status::would_block, 0, {false, true}};
    if (const int reason = why == SSL_ERROR_SSL ? detail::tls_reason() : 0; detail::is_final_reason(reason)) {
      s_->failed = detail::is_about_certificates(reason) ? errc::not_authenticated : errc::handshake_failed;
      const char* const words = refusal() != X509_V_OK ? X509_verify_cert_error_string(refusal())
                                                       : ERR_reason_error_string(ERR_peek_last_error());
      s_->why = words != nullptr ? words : "";
    }
    const io_result end = ended(why);
    return {io_status::failed, end.system != 0 ? end.system : ECONNRESET, {}, s_->failed, s_->why};
  }

  /// Reads until the spans are full, or nothing that could be decrypted is left, here or below.
  io_result read_some(scatter_list spans) noexcept {
    if (!s_->established) return {io_status::would_block, 0, 0};
    if (s_->end) return *s_->end;
    ERR_clear_error();
    std::size_t got = 0;
    for (const auto span : spans)
      for (std::size_t at = 0; at < span.size();) {
        std::size_t n = 0;
        if (const int done = SSL_read_ex(s_->ssl.get(), span.data() + at, span.size() - at, &n); done != 1) {
          const io_result why = outcome(done, s_->read_wants_write, true);
          s_->drained = true;
          return got > 0 ? io_result{io_status::ok, 0, got} : why;
        }
        s_->drained = s_->read_wants_write = false;
        s_->patience = {};  // OpenSSL may have had these bytes already
        at += n;
        got += n;
      }
    return {io_status::ok, 0, got};
  }
  /// The same, and the first read from Next may wait, if Next can.
  io_result read_or_wait(scatter_list spans, std::chrono::milliseconds timeout) noexcept
    requires requires(Next& n, scatter_list in) { n.read_or_wait(in, timeout); }
  {
    s_->patience = timeout;
    const io_result io = read_some(spans);
    s_->patience = {};
    return io;
  }

  /// As that of Next.
  void expect_bytes(bool on) noexcept
    requires requires(Next& n) { n.expect_bytes(on); }
  {
    if (s_ != nullptr) s_->next.expect_bytes(on);
  }

  /// Sends records: long spans go as they are, short ones are gathered.
  io_result write_some(gather_list spans) noexcept {
    if (!s_->established) return {io_status::would_block, 0, 0};
    if (s_->end) return *s_->end;
    if (s_->write_end) return *s_->write_end;
    ERR_clear_error();
    state& s = *s_;
    detail::gather_cursor from{spans};
    std::size_t taken = 0;
    if (s.stuck > 0) {
      // OpenSSL has encrypted this record already, and looks at no byte of what it is given
      if (const auto why = send_record(s.gathered.data(), std::exchange(s.stuck, 0)); why)
        return s.stuck > 0 ? io_result{io_status::would_block, 0, 0} : *why;
    }
    if (s.untold && from.left() > 0) {
      from.skip(1);
      s.untold = false;
      taken = 1;
    }
    while (from.left() > 0) {
      auto record = from.here();
      if (record.size() >= s.most_in_record) record = record.first(s.most_in_record);
      else record = from.copy(std::span(s.gathered).first(s.most_in_record));
      if (const auto why = send_record(record.data(), record.size()); why) {
        // The record is on its way, so its bytes are taken. All but the last: the caller returns with that one, and
        // must, until the record has left.
        if (s.stuck > 0) {
          s.untold = true;
          taken += record.size() - 1;
        }
        return taken > 0 ? io_result{io_status::ok, 0, taken} : *why;
      }
      from.skip(record.size());
      taken += record.size();
    }
    return {taken > 0 ? io_status::ok : io_status::would_block, 0, taken};
  }

  /// Returns at once if decrypted bytes may be here already.
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    if (read && !s_->drained && SSL_has_pending(s_->ssl.get()) == 1)
      return {true, write && s_->next.wait(false, true, {}).write};
    const io_ready wants = of_next({read, write});
    const io_ready is = s_->next.wait(wants.read, wants.write, timeout);
    return {read && (s_->read_wants_write ? is.write : is.read), write && (s_->write_wants_read ? is.read : is.write)};
  }
  /// The directions of the descriptor to wait for.
  io_ready interest(io_ready wanted) const noexcept {
    const io_ready here = of_next(wanted);
    if constexpr (requires { s_->next.interest(here); }) return s_->next.interest(here);
    else return here;
  }

 private:
  /// The directions of Next.
  io_ready of_next(io_ready wanted) const noexcept {
    return {(wanted.read && !s_->read_wants_write) || (wanted.write && s_->write_wants_read),
            (wanted.write && !s_->write_wants_read) || (wanted.read && s_->read_wants_write)};
  }
  /// Keeps the last error that OpenSSL has noted for this thread while Next is called. A Next with TLS of its own notes
  /// others, or clears it.
  class own_reason {
   public:
    own_reason() noexcept = default;
    own_reason(const own_reason&) = delete;
    own_reason& operator=(const own_reason&) = delete;
    ~own_reason() {
      if constexpr (requires(const Next& n) { n.cipher(); }) {
        ERR_clear_error();
        if (last_ == 0) return;
        ERR_new();
        ERR_set_error(ERR_GET_LIB(last_), ERR_GET_REASON(last_), nullptr);
      }
    }

   private:
    unsigned long last_ = ERR_peek_last_error();
  };
  struct state {
    state(Next n, detail::ssl_ptr s) noexcept : next(std::move(n)), ssl(std::move(s)) {}
    ~state() {
      if (!established || write_end || (end && end->status != io_status::closed)) return;
      ERR_clear_error();
      std::size_t n = 0;
      if (stuck > 0) (void)SSL_write_ex(ssl.get(), gathered.data(), stuck, &n);
      (void)SSL_shutdown(ssl.get());  // tells the peer, if there is room; it waits for nothing
      ERR_clear_error();
    }
    Next next;
    detail::ssl_ptr ssl;
    optional<io_result> end;  // the result of every call from now on
    optional<io_result> write_end;  // the result of every write; earlier bytes can still be read, and the read reports
                                    // what happened
    io_result last{};  // Next's last result
    std::chrono::milliseconds patience{};  // for the next read from Next
    std::size_t most_in_record = record_bytes;
    std::size_t stuck = 0;  // bytes of the record that OpenSSL has encrypted and Next has not taken
    errc failed = errc::connection_failed;  // what a failure of the handshake is called, and why
    std::string_view why{};
    bool untold = false;  // the last byte of a record was taken, and the caller does not know it
    bool established = false;
    bool drained = true;  // the last read found nothing more to decrypt
    bool read_wants_write = false, write_wants_read = false;
    detail::certificate_identity identity;
    std::array<std::byte, record_bytes> gathered;
  };

  explicit tls_stream(std::unique_ptr<state> s) noexcept : s_(std::move(s)) {}
  SSL* ssl() const noexcept { return s_->ssl.get(); }

  static result<tls_stream> begin(Next next, const tls_context& context) noexcept {
    if (!context) return failure(errc::invalid_argument);
    auto ssl = context.begin();
    BIO_METHOD* const calls = methods();
    BIO* const bio = ssl != nullptr && calls != nullptr ? BIO_new(calls) : nullptr;
    if (bio == nullptr) return failure(errc::out_of_memory);
    SSL_set_bio(ssl.get(), bio, bio);
    std::unique_ptr<state> s(new (std::nothrow) state(std::move(next), std::move(ssl)));
    if (s == nullptr) return failure(errc::out_of_memory);
    BIO_set_data(bio, s.get());
    BIO_set_init(bio, 1);
    return tls_stream(std::move(s));
  }

  /// Nothing: the record was sent. Otherwise why not; if it is encrypted and only waits for room, `stuck` is its
  /// length.
  optional<io_result> send_record(const std::byte* bytes, std::size_t size) noexcept {
    std::size_t n = 0;
    // A peer that has asked for new keys gets its answer before the record, and while that waits for room the record is
    // not encrypted yet.
    int done = SSL_in_init(s_->ssl.get()) ? SSL_do_handshake(s_->ssl.get()) : 1;
    if (done == 1) done = SSL_write_ex(s_->ssl.get(), bytes, size, &n);
    if (done != 1) {
      const io_result why = outcome(done, s_->write_wants_read, false);
      if (why.status == io_status::would_block && !s_->write_wants_read && !SSL_in_init(s_->ssl.get()))
        s_->stuck = size;
      return why;
    }
    s_->write_wants_read = false;
    if (n != size) return ended(SSL_ERROR_SSL);  // we have asked for no more than one record
    return {};
  }
  io_result outcome(int done, bool& wants_other, bool reading) noexcept {
    const int why = SSL_get_error(s_->ssl.get(), done);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
      wants_other = (why == SSL_ERROR_WANT_READ) != reading;
      return {io_status::would_block, 0, 0};
    }
    return ended(why, reading);
  }
  /// The connection cannot be used any more; if Next took no bytes, it cannot be written.
  io_result ended(int why, bool reading = true) noexcept {
    io_result end{io_status::closed, 0, 0};
    if (why == SSL_ERROR_SYSCALL) {
      end = s_->last;
      if (!is_end(end.status)) end = {io_status::closed, ECONNRESET, 0};
    } else if (why != SSL_ERROR_ZERO_RETURN) {
      const int reason = detail::tls_reason();
      if (reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) end.status = io_status::truncated;
      else if (detail::is_about_certificates(reason))
        end = {io_status::refused, EACCES, 0};  // with TLS 1.3 a client may hear of it after its handshake
      else end.system = reason == SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC ? EBADMSG : EPROTO;
    }
    ERR_clear_error();
    (reading || why != SSL_ERROR_SYSCALL ? s_->end : s_->write_end) = end;
    return end;
  }
  /// OpenSSL's way to Next: Next raises no SIGPIPE, which OpenSSL's own sockets would.
  static BIO_METHOD* methods() noexcept {
    static BIO_METHOD* const made = []() noexcept {
      BIO_METHOD* const m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tensorpull");
      if (m == nullptr) return m;
      BIO_meth_set_read_ex(m, [](BIO* b, char* to, std::size_t size, std::size_t* n) noexcept {
        state& s = *static_cast<state*>(BIO_get_data(b));
        const own_reason kept;
        const std::array<std::span<std::byte>, 1> in{std::span(reinterpret_cast<std::byte*>(to), size)};
        if constexpr (requires { s.next.read_or_wait(in, s.patience); }) {
          const auto patience = std::exchange(s.patience, {});  // only the first read waits
          s.last = patience.count() > 0 ? s.next.read_or_wait(in, patience) : s.next.read_some(in);
        } else s.last = s.next.read_some(in);
        *n = s.last.bytes;
        BIO_clear_retry_flags(b);
        if (s.last.status == io_status::would_block) BIO_set_retry_read(b);
        return s.last.bytes > 0 ? 1 : 0;
      });
      BIO_meth_set_write_ex(m, [](BIO* b, const char* from, std::size_t size, std::size_t* n) noexcept {
        state& s = *static_cast<state*>(BIO_get_data(b));
        const own_reason kept;
        const std::array<std::span<const std::byte>, 1> out{std::span(reinterpret_cast<const std::byte*>(from), size)};
        s.last = s.next.write_some(out);
        *n = s.last.bytes;
        BIO_clear_retry_flags(b);
        if (s.last.status == io_status::would_block) BIO_set_retry_write(b);
        return s.last.bytes > 0 ? 1 : 0;
      });
      BIO_meth_set_ctrl(m, [](BIO* b, int command, long, void*) noexcept -> long {
        const state& s = *static_cast<state*>(BIO_get_data(b));
        if (command == BIO_CTRL_EOF) return s.last.status == io_status::closed && s.last.system == 0;
        return command == BIO_CTRL_FLUSH;
      });
      return m;
    }();
    return made;
  }

  std::unique_ptr<state> s_;
};

}  // namespace tensorpull
