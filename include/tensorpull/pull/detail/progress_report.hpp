// A recipient's progress events, made from the state of its transfer.
#pragma once

#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/protocol/progress.hpp>
#include <tensorpull/protocol/recipient/recipient.hpp>
#include <tensorpull/pull/platform.hpp>
#include <tensorpull/std/algorithm.hpp>

namespace tensorpull::detail {

/// Tells what options with `progress` and `progress_interval` ask for.
template <class Options, platform P>
class progress_report {
 public:
  template <class Transfer>
  void note(const Transfer& t, const Options& options) noexcept {
    if (!options.progress || t.landed_bytes() == bytes_) return;
    if (sequence_ == 0) tell(t, options, progress_phase::started, 0, {});
    else if (told_.spent() < options.progress_interval) return;
    else tell(t, options, progress_phase::active, t.landed_bytes(), {});
    told_.restart();
  }
  template <class Transfer>
  void ended(const Transfer& t, const Options& options, const result<receipt>& how) noexcept {
    if (!options.progress) return;
    if (sequence_ == 0) tell(t, options, progress_phase::started, 0, {});
    auto phase = progress_phase::completed;
    if (!how) phase = how.error() == errc::cancelled ? progress_phase::aborted : progress_phase::failed;
    tell(t, options, phase, t.landed_bytes(), how ? errc{} : how.error().code);
  }

 private:
  /// The same for a pull of some tensors, in image order: no header travels with them.
  static void count_named(progress_event& e, const pull_request& asked, std::uint64_t bytes) noexcept {
    e.bytes_total = e.tensors_total = e.tensors_done = 0;
    for (const tensor_entry& entry : asked.schema->entries()) {
      bool wanted = asked.part;
      for (const std::string_view name : asked.subset) wanted = wanted || name == entry.name;
      if (!wanted) continue;
      e.bytes_total += entry.size_bytes();
      ++e.tensors_total;
      e.tensors_done += e.bytes_total <= bytes;
    }
    e.bytes_done = std::min(bytes, e.bytes_total);
  }
  template <class Transfer>
  void tell(const Transfer& t, const Options& options, progress_phase phase, std::uint64_t bytes, errc code) noexcept {
    bytes_ = std::max(bytes_, bytes);  // the count does not go back if a chunk is fetched again
    progress_event e;
    e.sequence = ++sequence_;
    e.phase = phase;
    e.ref = t.request().ref;
    e.recipient = t.request().recipient;
    e.bytes_done = bytes_;
    e.bytes_total = t.total_bytes();
    const pull_request& asked = t.request();
    if (asked.schema != nullptr && asked.by_name()) count_named(e, asked, bytes_);
    else if (asked.schema != nullptr) count_done(e, *asked.schema, bytes_);
    e.code = code;
    call(options, e);
  }
  static void call(const Options& options, const progress_event& e) noexcept {
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
