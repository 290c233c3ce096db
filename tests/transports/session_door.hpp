// A program that gives each connection a session of its own, one after the other, as the owner of a room of laws.hpp.
#pragma once

#include "third_parties.hpp"

#include <memory>

namespace test {

template <class Net, class Listener>
class session_door {
 public:
  explicit session_door(Listener listener) : listener_(std::move(listener)) {}

  tp::result<tp::reference> add_tensors(const mlp& source, const tp::publish_options& how) {
    const auto ref = names_->add_tensors(source, how);
    source_ = &source, ref_ = ref ? *ref : tp::reference{}, all_ = {}, expected_ = how.recipients;
    return ref;
  }
  void run(const std::stop_token& stop) {
    (void)run([](const auto&) { return false; }, stop);
  }
  template <class Until, class Stop>
  bool run(Until until, const Stop& stop) {
    while (!until(*this)) {
      if (stop.stop_requested()) return false;
      if (auto stream = listener_.accept(50ms)) serve(std::move(*stream), stop);
    }
    return true;
  }
  bool settled(const tp::reference&) const { return all_.completed == expected_; }
  tp::result<tp::publication_status> status_of(const tp::reference&) const { return all_; }
  tp::result<tp::settlement> settlement_of(const tp::reference& ref) const {
    tp::settlement s;
    s.verdict = settled(ref) ? tp::verdict::completed : tp::verdict::open;
    return s;
  }

 private:
  using session = typename decltype(Net::session::over(*std::declval<Listener&>().accept(0ms)))::value_type;

  /// Two seconds to ask for what is there.
  template <class Stream, class Stop>
  void serve(Stream stream, const Stop& stop) {
    auto with = session::over(std::move(stream));
    const auto own = with->add_tensors(*source_, {.recipients = 1, .id = ref_.id});
    ASSERT_TRUE(succeeded(own));
    if (with->serve([&](const session& s) { return s.status_of(*own)->acquired > 0; }, 2s, stop))
      (void)with->serve(tp::until_settled(*own), 600s, stop);
    const auto one = with->status_of(*own);
    all_.acquired += one->acquired, all_.completed += one->completed, all_.bytes_sent += one->bytes_sent;
  }
  using names = tp::publisher<typename Net::parts>;

  Listener listener_;
  std::unique_ptr<names> names_ = std::make_unique<names>();
  const mlp* source_ = nullptr;
  tp::reference ref_{};
  tp::publication_status all_{};
  std::uint32_t expected_ = 0;
};

/// A room that can listen() for streams, and whose owner is a program with sessions.
template <class Room>
struct session_room : Room {
  using listener = typename decltype(std::declval<const Room&>().listen())::value_type;
  template <class Model>
  struct owning {
    using downloader = session_door<typename Room::template net<Model>, listener>;
  };
  template <class Model>
  tp::result<typename owning<Model>::downloader> open(const tp::authorise_callback&) {
    auto at = this->listen();
    if (!at) return tp::failure(at.error());
    return typename owning<Model>::downloader(std::move(*at));
  }
};
constexpr std::size_t few_strangers = 2;  ///< at a door that serves one after the other

}  // namespace test
