// A recipient's progress events, made from the state of its transfer.
#pragma once

#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/protocol/progress.hpp>
#include <tensorpull/pull/platform.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/transports/pull_options.hpp>

namespace tensorpull::detail {

/// Tells what `progress` and `progress_interval` ask for.
template <platform P>
class progress_report {
 public:
  template <class Transfer>
  void note(const Transfer& t, const pull_options& options) noexcept {
    if (!options.progress || t.landed_bytes() == bytes_) return;
    if (sequence_ == 0) tell(t, options, progress_phase::started, 0, {});
    else if (told_.spent() < options.progress_interval) return;
    else tell(t, options, progress_phase::active, t.landed_bytes(), {});
    told_.restart();
  }
  template <class Transfer>
  void ended(const Transfer& t, const pull_options& options, const result<receipt>& how) noexcept {
    if (!options.progress) return;
    if (sequence_ == 0) tell(t, options, progress_phase::started, 0, {});
    auto phase = progress_phase::completed;
    if (!how) phase = how.error() == errc::cancelled ? progress_phase::aborted : progress_phase::failed;
    tell(t, options, phase, t.landed_bytes(), how ? errc{} : how.error().code);
  }

 private:
  template <class Transfer>
  void tell(const Transfer& t, const pull_options& options, progress_phase phase, std::uint64_t bytes,
            errc code) noexcept {
    bytes_ = std::max(bytes_, bytes);  // the count does not go back if a chunk is fetched again
    progress_event e;
    e.sequence = ++sequence_;
    e.phase = phase;
    e.ref = t.request().ref;
    e.recipient = t.request().recipient;
    e.bytes_done = bytes_;
    e.bytes_total = t.total_bytes();
    if (const image_schema* const ours = t.request().schema) {
      const std::uint64_t header = t.request().by_name() ? ours->header_bytes : 0;  // none travels with named tensors
      count_done(e, *ours, header + bytes_);
      e.bytes_total -= header;
      e.bytes_done -= header;
    }
    e.code = code;
    call(options, e);
  }
  static void call(const pull_options& options, const progress_event& e) noexcept {
#if defined(__cpp_exceptions)
    try {
      options.progress(e);
    } catch (...) {  // an observer's exception must not end the transfer
    }
#else
    options.progress(e);
#endif
  }

  std::uint64_t bytes_ = 0, sequence_ = 0;
  stopwatch<P> told_;
};

}  // namespace tensorpull::detail
