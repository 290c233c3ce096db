// The abort signal that blocking calls check while they wait: a stop token of any kind. <stop_token> itself brings
// threads, strings and streams, which costs 0.36 s in each file. A program that uses std::stop_token includes it; code
// that only waits for one need not.
#pragma once

#include <concepts>
#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace tensorpull {

/// Holds a copy of any small token T with `bool t.stop_requested() const`: std::stop_token, the stop token of an
/// executor, or a class of your own with a pointer to a flag. T is at most two pointers large and copied without
/// throwing. Without a token no stop is ever requested. Allocates nothing itself.
class stop_token {
  static constexpr std::size_t room = 2 * sizeof(void*);

 public:
  stop_token() noexcept = default;
  /// Copies the token.
  template <class T>
    requires(!std::same_as<T, stop_token> &&
             requires(const T& t) {
               { t.stop_requested() } -> std::convertible_to<bool>;
             })
  stop_token(T token) noexcept : calls_(&calls_of<T>) {
    static_assert(sizeof(T) <= room && alignof(T) <= alignof(void*) && std::is_nothrow_copy_constructible_v<T>,
                  "tensorpull: a stop token is at most two pointers and copied without throwing");
    ::new (static_cast<void*>(token_)) T(std::move(token));
  }
  stop_token(const stop_token& other) noexcept : calls_(other.calls_) {
    if (calls_ != nullptr) calls_->copy(token_, other.token_);
  }
  stop_token& operator=(const stop_token& other) noexcept {
    if (this == &other) return *this;
    if (calls_ != nullptr) calls_->destroy(token_);
    calls_ = other.calls_;
    if (calls_ != nullptr) calls_->copy(token_, other.token_);
    return *this;
  }
  ~stop_token() {
    if (calls_ != nullptr) calls_->destroy(token_);
  }

  /// Whether the caller wants the call to end.
  bool stop_requested() const noexcept { return calls_ != nullptr && calls_->stop_requested(token_); }
  /// Whether there is a token that may say so.
  bool stop_possible() const noexcept { return calls_ != nullptr; }

 private:
  struct calls {
    bool (*stop_requested)(const void*);
    void (*copy)(void* to, const void* from);
    void (*destroy)(void*);
  };
  template <class T>
  static constexpr calls calls_of{
      [](const void* t) { return static_cast<bool>(static_cast<const T*>(t)->stop_requested()); },
      [](void* to, const void* from) { ::new (to) T(*static_cast<const T*>(from)); },
      [](void* t) { static_cast<T*>(t)->~T(); }};

  const calls* calls_ = nullptr;
  alignas(void*) std::byte token_[room];
};

}  // namespace tensorpull
