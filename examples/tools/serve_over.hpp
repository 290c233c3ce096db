// The pipelines of send over one transport.
#pragma once

#include "serving.hpp"

#include <tensorpull/tensorpull.hpp>

namespace tools {

/// Room for the files, and for a difference to each. A chunk is read while it is sent, so a long one takes no memory:
/// 'recv --chunk 0'.
struct room_for_files : tp::default_limits {
  static constexpr std::uint64_t chunk_cap_bytes = tp::max_payload_bytes;
  static constexpr std::size_t references = 2 * most_files, session_references = 2 * most_files;
  static constexpr std::size_t pipelined_requests = 16;  // fills a longer line, for 640 bytes of each connection
};

/// What owners and sessions have alike.
template <class End>
class served_by : public served {
 public:
  explicit served_by(End end) : end_(std::move(end)) {}
  tp::result<tp::reference> add_image(const tp::source_view& image, const tp::publish_options& options) override {
    return end_.add_image(image, options);
  }
  tp::result<tp::publication_status> status_of(const tp::reference& ref) const override { return end_.status_of(ref); }
  bool settled(const tp::reference& ref) const override { return end_.settled(ref); }
  tp::result<tp::recipient_record> recipient_of(const tp::reference& ref, tp::recipient_id who) override {
    return end_.recipient_of(ref, who);
  }
  std::size_t recipients_of(const tp::reference& ref, std::span<tp::recipient_record> out) override {
    return end_.recipients_of(ref, out);
  }

 protected:
  End end_;
};

/// An owner of many recipients.
template <class Owner>
class served_by_owner : public served_by<Owner> {
 public:
  using served_by<Owner>::served_by;
  bool run(const std::function<bool()>& until) override {
    return this->end_.run([&](const auto&) { return until(); });
  }
  std::size_t connections() const override {
    if constexpr (requires { this->end_.connections(); }) return this->end_.connections();
    else return this->end_.peers();
  }
  std::uint16_t port() const override {
    if constexpr (requires { this->end_.port(); }) return this->end_.port();
    else return 0;
  }
};

/// A session, which has one recipient.
template <class Session>
class served_by_session final : public served_by<Session> {
 public:
  using served_by<Session>::served_by;
  bool run(const std::function<bool()>& until) override {
    while (!gone_) {
      const auto held = this->end_.serve([&](const auto&) { return until(); });
      if (held) return true;
      gone_ = held.error().code != tp::errc::timed_out;
    }
    return until();
  }
  std::size_t connections() const override { return gone_ ? 0 : 1; }
  std::uint16_t port() const override { return 0; }

 private:
  bool gone_ = false;
};

template <class Transport, class Chunking = tp::bytes_up_to<room_for_files::chunk_cap_bytes>>
using sending = tp::pipeline<tp::tensor_list, Chunking, Transport, room_for_files>;

template <class Owner>
serving serve_owner(tp::result<Owner> opened) {
  if (!opened) return tp::failure(opened.error());
  return std::unique_ptr<served>(new served_by_owner<Owner>(std::move(*opened)));
}
template <class Session>
serving serve_session(tp::result<Session> opened) {
  if (!opened) return tp::failure(opened.error());
  return std::unique_ptr<served>(new served_by_session<Session>(std::move(*opened)));
}

}  // namespace tools
