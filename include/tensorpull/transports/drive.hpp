// Runs one transfer over one byte stream until it ends, hearing the abort signal and keeping the request's time-out.
#pragma once

#include <tensorpull/core/min_max.hpp>
#include <tensorpull/core/plain_optional.hpp>
#include <tensorpull/protocol/endpoint.hpp>
#include <tensorpull/protocol/receipt.hpp>
#include <tensorpull/transports/any_stop_token.hpp>
#include <tensorpull/transports/chrono.hpp>
#include <tensorpull/transports/pump.hpp>

#include <string_view>

namespace tensorpull {

/// How to pull.
struct pull_options {
  /// Progress keeps a transfer alive: the time starts anew with each answer and each 1/64 of a chunk.
  std::chrono::milliseconds per_request_timeout = std::chrono::seconds(600);
  /// 0: whatever is published now
  std::uint64_t version = 0;
  /// Names of the tensors to pull: all tensors of the destination, which are a part of what is published. Empty: the whole image.
  std::span<const std::string_view> tensors{};
  /// Requests in flight; the owner may allow fewer.
  std::uint32_t window = 4;
  /// Heard within 0.1 s wherever the transfer waits.
  any_stop_token stop{};
};

namespace detail {

inline constexpr std::chrono::milliseconds wait_step{50};

/// A deadline that real progress moves: at least 1/64 of a chunk, or an answer to a request.
class progress_deadline {
 public:
  using clock = std::chrono::steady_clock;
  progress_deadline(std::chrono::milliseconds budget, std::uint64_t step_bytes) noexcept : budget_(budget), step_(step_bytes), start_(clock::now()) {}

  /// Looks at the clock only when there was progress or a wait.
  template <class Transfer>
  void note(const Transfer& t) noexcept {
    if (t.landed_bytes() < landed_ + step_ && t.answers() == answers_) return;
    landed_ = t.landed_bytes();
    answers_ = t.answers();
    start_ = clock::now();
  }
  bool over() const noexcept { return left() <= std::chrono::milliseconds::zero(); }
  /// Time left; computed by subtraction, so that the largest budget does not wrap.
  std::chrono::milliseconds left() const noexcept {
    const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - start_);
    return spent >= budget_ ? std::chrono::milliseconds::zero() : budget_ - spent;
  }

 private:
  std::chrono::milliseconds budget_;
  std::uint64_t step_, landed_ = 0;
  std::uint32_t answers_ = 0;
  clock::time_point start_;
};

/// The length that progress is measured against.
template <class Chunking>
constexpr std::uint64_t chunk_length_of(const Chunking& c) noexcept {
  if constexpr (requires { c.chunk_bytes; }) return c.chunk_bytes;
  else return Chunking::max_chunk_bytes != 0 ? Chunking::max_chunk_bytes : default_chunk_bytes;
}

/// The outcome of `t`, which is bound to `end` by begin_pull(). `broken`: set where the connection cannot be used any more.
template <class Endpoint, class Transfer, byte_stream Stream>
result<receipt> drive(Endpoint& end, Transfer& t, Stream& stream, std::span<std::byte> scratch, const pull_options& options,
                      std::uint64_t chunk_bytes, plain_optional<error>& broken) noexcept {
  end.begin_pull();
  progress_deadline deadline(options.per_request_timeout, chunk_bytes / 64 + 1);
  while (!t.ended()) {
    if (options.stop.stop_requested()) {
      t.fail({errc::cancelled, 0, 0, {}});
      break;
    }
    const auto did = pump_once(end, t, stream, scratch, wait_step);
    if (!did) {
      broken = did.error();
      t.fail(did.error());
      break;
    }
    deadline.note(t);
    if (t.ended() || did->received > 0 || did->sent > 0) continue;
    if (deadline.over()) {
      t.fail({errc::timed_out, 0, 0, {}});
      break;
    }
    if (!did->waited) stream.wait(did->wants_read, did->wants_write, std::min(wait_step, deadline.left()));
  }
  end.end_pull(t);
  if (!broken)
    if (const auto bye = t.farewell(); bye && end.send_control(*bye))
      (void)pump_once(end, t, stream, scratch);  // the owner hears of it if the connection takes it at once
  return t.outcome();
}

}  // namespace detail
}  // namespace tensorpull
