// A recipient's progress events, made from the state of its transfer.
#pragma once

#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/transports/pull_options.hpp>

namespace tensorpull::detail {

class progress_report {
 public:
  template <class Transfer>
  void note(const Transfer& t, const pull_options& options) noexcept {
    if (!options.progress || t.landed_bytes() == bytes_) return;
    const auto now = std::chrono::steady_clock::now();
    if (sequence_ == 0) tell(t, options, progress_phase::started, 0, {});
    else if (std::chrono::duration_cast<std::chrono::milliseconds>(now - told_) < options.progress_interval) return;
    else tell(t, options, progress_phase::active, t.landed_bytes(), {});
    told_ = now;
  }
  template <class Transfer>
  void ended(const Transfer& t, const pull_options& options, const result<receipt>& how) noexcept {
    if (!options.progress) return;
    if (sequence_ == 0) tell(t, options, progress_phase::started, 0, {});
    const auto phase = how                                   ? progress_phase::completed
                       : how.error().code == errc::cancelled ? progress_phase::aborted
                                                             : progress_phase::failed;
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
    if (t.request().schema != nullptr) count_done(e, *t.request().schema, bytes_);
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
  std::chrono::steady_clock::time_point told_{};
};

}  // namespace tensorpull::detail
