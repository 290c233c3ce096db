// A consumer of which links know only this: what pulls into a file, or into tensors that are made, is compiled once and
// not for each link.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/image/view.hpp>

namespace tensorpull::python {

/// A call of a virtual function for each piece of a chunk. Bytes come in order (in any: any_order_consumer).
class any_consumer {
 public:
  static constexpr bool irrevocable = false;
  virtual std::uint64_t fingerprint() const noexcept = 0;
  virtual const image_schema* schema() const noexcept = 0;
  virtual result<void> begin(const description& d) noexcept = 0;
  virtual prepared prepare(std::uint64_t offset, std::uint64_t length,
                           std::span<std::span<std::byte>> out) noexcept = 0;
  virtual result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept = 0;
  virtual result<void> chunk(std::uint64_t offset, std::uint64_t length) noexcept = 0;
  virtual result<void> finish(const receipt& r) noexcept = 0;
  virtual void abandon(const error& why) noexcept = 0;
  virtual void rewind(std::uint64_t offset) noexcept = 0;
  virtual source_view read_back() const noexcept = 0;
  /// The longest chunk of the link.
  virtual void most_in_a_frame(std::uint64_t bytes) noexcept = 0;
  virtual void confirmed() noexcept = 0;
  virtual bool looked() const noexcept = 0;

 protected:
  ~any_consumer() = default;
};
static_assert(consumer<any_consumer>);

/// The same for what cannot undo what it has taken: each chunk needs a digest of its own.
class any_update : public any_consumer {
 public:
  static constexpr bool irrevocable = true;

 protected:
  ~any_update() = default;
};
static_assert(consumer<any_update>);

/// `Consumer` as an any_consumer, or as `As`. Borrows it.
template <class Consumer, class As = any_consumer>
class consumer_for final : public As {
 public:
  explicit consumer_for(Consumer& to) noexcept : to_(to) {}
  std::uint64_t fingerprint() const noexcept override { return to_.fingerprint(); }
  const image_schema* schema() const noexcept override { return to_.schema(); }
  result<void> begin(const description& d) noexcept override { return to_.begin(d); }
  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept override {
    return to_.prepare(offset, length, out);
  }
  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept override {
    return to_.commit(offset, bytes);
  }
  result<void> chunk(std::uint64_t offset, std::uint64_t length) noexcept override { return to_.chunk(offset, length); }
  result<void> finish(const receipt& r) noexcept override { return to_.finish(r); }
  void abandon(const error& why) noexcept override { to_.abandon(why); }
  void rewind(std::uint64_t offset) noexcept override {
    if constexpr (requires { to_.rewind(offset); }) to_.rewind(offset);
  }
  /// Of an any_order_consumer.
  source_view arrived() const noexcept {
    if constexpr (requires { to_.arrived(); }) return to_.arrived();
    else return read_back();
  }
  source_view read_back() const noexcept override {
    if constexpr (requires { to_.read_back(); }) return to_.read_back();
    else return {};
  }
  void most_in_a_frame(std::uint64_t bytes) noexcept override { to_.most_in_a_frame(bytes); }
  void confirmed() noexcept override {
    if constexpr (requires { to_.confirmed(); }) to_.confirmed();
  }
  bool looked() const noexcept override {
    if constexpr (requires { to_.looked(); }) return to_.looked();
    else return false;
  }

 private:
  Consumer& to_;
};

}  // namespace tensorpull::python
