// A wire over datagrams (running_pull.hpp): the step that moves them, and when the endpoint has something to do again.
#pragma once

#include <tensorpull/pull/datagram_step.hpp>
#include <tensorpull/pull/platform.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <span>

namespace tensorpull::detail {

/// The time of an endpoint.
template <platform P, class Endpoint>
typename Endpoint::time endpoint_time() noexcept {
  return std::chrono::duration_cast<typename Endpoint::time>(P::now());
}

/// Waits until a datagram arrives, the endpoint has something to do, or `most` is over.
template <platform P, class Endpoint, class Transfer, datagram_link Link>
void wait_for_datagrams(const Endpoint& end, const Transfer& t, Link& link, bool blocked,
                        std::chrono::milliseconds most) noexcept {
  const auto wake = end.next_time(t, endpoint_time<P, Endpoint>());
  if (wake < most) most = std::chrono::ceil<std::chrono::milliseconds>(wake);
  (void)link.wait(true, blocked, most);
}

/// A wire over a link to one peer. Borrows the endpoint, the link and its memory. `scratch`: of
/// datagram_endpoint::scratch_bytes.
template <platform P, class Endpoint, datagram_link Link>
class datagram_pull_wire {
 public:
  datagram_pull_wire(Endpoint& end, Link& link, std::span<std::byte> scratch, datagram_memory<Link>& come) noexcept
      : end_(&end), link_(&link), scratch_(scratch), come_(&come) {}

  Endpoint& end() noexcept { return *end_; }
  template <class Transfer>
  result<bool> step(Transfer& t) noexcept {
    const auto did = step_datagrams(*end_, t, *link_, scratch_, *come_, endpoint_time<P, Endpoint>());
    if (!did) return failure(did.error());
    blocked_ = did->blocked;
    return did->received > 0 || did->sent > 0;
  }
  template <class Transfer>
  void wait(const Transfer& t, std::chrono::milliseconds most) noexcept {
    wait_for_datagrams<P>(*end_, t, *link_, blocked_, most);
  }
  template <class Transfer>
  void leave(Transfer& t, bool says) noexcept {
    if (says) (void)step(t);
    (void)link_->wait(false, false, {});  // what the link has collected leaves
  }

 private:
  Endpoint* end_;
  Link* link_;
  std::span<std::byte> scratch_;
  datagram_memory<Link>* come_;
  bool blocked_ = false;
};

}  // namespace tensorpull::detail
