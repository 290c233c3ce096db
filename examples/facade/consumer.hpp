// A consumer of which links know only this: a pull is compiled once for each kind of link, whatever it pulls into.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/image/view.hpp>
#include <tensorpull/std/functional.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::facade {

/// A model of `consumer`, with a call of a virtual function for each piece of a chunk.
class any_consumer {
 public:
  /// Whoever pulls asks undoes(), takes_any_order() and group_bytes(), and chooses the pipeline accordingly.
  static constexpr bool irrevocable = false, any_order = true, checks_groups = true;

  /// The whole image has to come in one chunk, or the pull ends with does_not_fit.
  bool in_one_chunk = false;
  /// The owner's description of the image; empty before it has arrived.
  const description& described() const noexcept { return described_; }
  /// Bytes that have arrived, those of chunks that were fetched again among them.
  std::uint64_t came() const noexcept { return came_; }
  /// The longest chunk of the link, which says so before the pull.
  void fits(std::uint64_t bytes) noexcept { most_ = bytes; }

  /// Whether a chunk that was wrong can be undone; if not, each chunk needs a digest of its own.
  virtual bool undoes() const noexcept = 0;
  /// Whether it is `any_order`.
  virtual bool takes_any_order() const noexcept = 0;

  result<void> begin(const description& d) noexcept {
    described_ = d;
    if (in_one_chunk && d.image_bytes > most_) return failure(errc::does_not_fit, d.image_bytes);
    return begin_with(d);
  }
  virtual std::uint64_t fingerprint() const noexcept = 0;
  virtual const image_schema* schema() const noexcept = 0;
  virtual prepared prepare(std::uint64_t offset, std::uint64_t length,
                           std::span<std::span<std::byte>> out) noexcept = 0;
  virtual result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept = 0;
  virtual result<void> chunk(std::uint64_t offset, std::uint64_t length) noexcept = 0;
  virtual result<void> finish(const receipt& r) noexcept = 0;
  virtual result<void> finish(const receipt& r, const basic_callback<bool, const source_view&>& holds) noexcept = 0;
  virtual void abandon(const error& why) noexcept = 0;
  virtual void rewind(std::uint64_t offset) noexcept = 0;
  virtual source_view read_back() const noexcept = 0;
  /// A view without schema, if bytes have to come in order.
  virtual source_view arrived() const noexcept = 0;
  virtual void confirmed() noexcept = 0;
  virtual bool looked() const noexcept = 0;
  /// 0: it checks no groups, and has none of what follows.
  virtual std::uint64_t group_bytes() const noexcept { return 0; }
  virtual std::uint64_t right_bytes() const noexcept { return 0; }
  virtual void in_any_order(std::uint64_t) noexcept {}
  virtual result<void> check(std::uint64_t, std::uint64_t) noexcept { return {}; }
  virtual bool refused() const noexcept { return true; }
  virtual source_view landed() const noexcept { return {}; }

 protected:
  ~any_consumer() = default;

 private:
  virtual result<void> begin_with(const description& d) noexcept = 0;

  description described_{};
  std::uint64_t most_ = max_payload_bytes;

 protected:
  std::uint64_t came_ = 0;
};
static_assert(consumer<any_consumer>);

/// `Consumer` as an any_consumer. Borrows it.
template <consumer Consumer>
class consumer_for final : public any_consumer {
  static constexpr bool out_of_order = requires { requires Consumer::any_order; },
                        in_groups = requires { requires Consumer::checks_groups; };

 public:
  explicit consumer_for(Consumer& to) noexcept : to_(to) {}

  bool undoes() const noexcept override { return !Consumer::irrevocable; }
  bool takes_any_order() const noexcept override { return out_of_order; }
  std::uint64_t fingerprint() const noexcept override { return to_.fingerprint(); }
  const image_schema* schema() const noexcept override { return to_.schema(); }
  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept override {
    return to_.prepare(offset, length, out);
  }
  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept override {
    came_ += bytes.size();
    return to_.commit(offset, bytes);
  }
  result<void> chunk(std::uint64_t offset, std::uint64_t length) noexcept override { return to_.chunk(offset, length); }
  result<void> finish(const receipt& r) noexcept override { return to_.finish(r); }
  result<void> finish(const receipt& r, const basic_callback<bool, const source_view&>& holds) noexcept override {
    if constexpr (requires { to_.finish(r, holds); }) return to_.finish(r, holds);
    else return to_.finish(r);
  }
  void abandon(const error& why) noexcept override { to_.abandon(why); }
  void rewind(std::uint64_t offset) noexcept override {
    if constexpr (requires { to_.rewind(offset); }) to_.rewind(offset);
  }
  source_view read_back() const noexcept override {
    if constexpr (requires { to_.read_back(); }) return to_.read_back();
    else return {};
  }
  source_view arrived() const noexcept override {
    if constexpr (!out_of_order) return {};
    else if constexpr (requires { to_.arrived(); }) return to_.arrived();
    else return to_.read_back();
  }
  void confirmed() noexcept override {
    if constexpr (requires { to_.confirmed(); }) to_.confirmed();
  }
  bool looked() const noexcept override {
    if constexpr (requires { to_.looked(); }) return to_.looked();
    else return false;
  }
  std::uint64_t group_bytes() const noexcept override {
    if constexpr (in_groups) return to_.group_bytes();
    else return any_consumer::group_bytes();
  }
  std::uint64_t right_bytes() const noexcept override {
    if constexpr (in_groups) return to_.right_bytes();
    else return any_consumer::right_bytes();
  }
  void in_any_order(std::uint64_t right) noexcept override {
    if constexpr (in_groups) to_.in_any_order(right);
  }
  result<void> check(std::uint64_t offset, std::uint64_t length) noexcept override {
    if constexpr (in_groups) return to_.check(offset, length);
    else return any_consumer::check(offset, length);
  }
  bool refused() const noexcept override {
    if constexpr (in_groups) return to_.refused();
    else return any_consumer::refused();
  }
  source_view landed() const noexcept override {
    if constexpr (requires { to_.landed(); }) return to_.landed();
    else return any_consumer::landed();
  }

 private:
  result<void> begin_with(const description& d) noexcept override { return to_.begin(d); }

  Consumer& to_;
};

}  // namespace tensorpull::facade
