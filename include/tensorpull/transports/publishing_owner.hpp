// The calls of an end that owns: publish, withdraw, ask; and run, if it has many recipients. Owners over streams and
// over datagrams derive from it, and sessions over datagrams.
#pragma once

#include <tensorpull/std/stop_token.hpp>
#include <tensorpull/transports/publisher.hpp>
#include <tensorpull/transports/until_settled.hpp>

#include <span>
#include <utility>

namespace tensorpull {

namespace detail {
/// The same options for one of several owners: it waits for nobody, and does not end because nobody asks.
template <class Options>
Options expecting_nobody(Options o) noexcept {
  o.recipients = o.least = 0;
  o.named = {};
  o.budgets.acquire = o.budgets.transaction_idle = {};
  return o;
}
}  // namespace detail

/// `Self` derives from it, and befriends it, and has `published()`: the image_publisher behind it, const or not as it
/// is itself. `Tensors`: the tensor policy of what it publishes.
template <class Self, class Tensors>
class publishing : public adding_tensors<publishing<Self, Tensors>, Tensors> {
 public:
  /// Publishes any image. The memory behind the view is the caller's, or that of `keep`, which is released when the
  /// transaction has settled.
  result<reference> add_image(const source_view& image, const publish_options& options = {},
                              unique_any keep = {}) noexcept {
    return published().add_image(image, options, std::move(keep));
  }
  /// As publisher::add_images.
  template <class Images>
  result<transaction_id> add_images(Images&& images, const transaction_options& options, unique_any keep = {},
                                    const stop_token& stop = {}) noexcept {
    return published().add_images(images, options, std::move(keep), stop);
  }
  /// As publisher::withdraw.
  result<void> withdraw(const reference& ref, std::uint32_t reason = 0) noexcept {
    return published().withdraw(ref, reason);
  }
  /// As publisher::status_of.
  result<publication_status> status_of(const reference& ref) const noexcept { return published().status_of(ref); }
  /// As publisher::settled.
  bool settled(const reference& ref) const noexcept { return published().settled(ref); }
  /// Opens a transaction for references that settle together: publish each with `{.transaction = id}`, then seal it.
  /// Error: table_full.
  result<transaction_id> open_transaction(const transaction_options& options) noexcept {
    return published().open_transaction(options);
  }
  /// No more references are added to the transaction, so it may settle.
  void seal(transaction_id id) noexcept { published().seal(id); }
  /// As publisher::settlement_of.
  result<settlement> settlement_of(const reference& ref) noexcept { return published().settlement_of(ref); }
  /// As publisher::recipient_of.
  result<recipient_record> recipient_of(const reference& ref, recipient_id who) noexcept {
    return published().recipient_of(ref, who);
  }
  /// As publisher::recipients_of.
  std::size_t recipients_of(const reference& ref, std::span<recipient_record> out) noexcept {
    return published().recipients_of(ref, out);
  }
  /// How many callbacks of transactions have thrown. Their exceptions are dropped.
  std::uint64_t callback_failures() const noexcept { return published().callback_failures(); }

 protected:
  publishing() = default;

 private:
  friend adding_tensors<publishing, Tensors>;
  auto& published() noexcept { return static_cast<Self&>(*this).published(); }
  const auto& published() const noexcept { return static_cast<const Self&>(*this).published(); }
};

/// An owner of many recipients. `Self` derives from it, and befriends it and its publishing, and has besides
/// `serve_a_while()`: serves on this thread for at most 0.05 s.
template <class Self, class Tensors>
class publishing_owner : public publishing<Self, Tensors> {
 public:
  /// Serves on this thread until `until(owner)` is true (until_settled(ref), or a lambda) or `stop` is requested, which
  /// is noticed within 0.1 s. True if `until` held, and of until_settled if what was published was taken. If the
  /// transport's `threads` is true, several threads may call it at the same time. An exception of `until` is passed on.
  template <class Until>
    requires(!std::is_convertible_v<Until, stop_token>)
  bool run(Until until, const stop_token& stop = {}) {
    detail::check_until<Until, Self>();
    auto& self = static_cast<Self&>(*this);
    if constexpr (std::predicate<Until&, const Self&>)
      while (!until(std::as_const(self))) {
        if (stop.stop_requested()) return false;
        self.serve_a_while();
      }
    return detail::outcome_of(until, self).has_value();
  }
  /// Serves until `stop` is requested.
  void run(const stop_token& stop) {
    run([](const Self&) { return false; }, stop);
  }

 private:
  friend Self;
  publishing_owner() = default;
};

}  // namespace tensorpull
