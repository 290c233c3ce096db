// A queue whose elements hold its links.
#pragma once

namespace tensorpull::detail {

/// The links are members of the elements, `T *before_, *after_`, and this class is a friend of theirs. An element is in
/// one queue at a time and does not move meanwhile. No heap. Known elsewhere as an intrusive list.
template <class T>
struct linked_queue {
  T *first = nullptr, *last = nullptr;

  bool empty() const noexcept { return first == nullptr; }
  void append(T& e) noexcept {
    e.before_ = last;
    e.after_ = nullptr;
    (last != nullptr ? last->after_ : first) = &e;
    last = &e;
  }
  void take_out(T& e) noexcept {
    (e.before_ != nullptr ? e.before_->after_ : first) = e.after_;
    (e.after_ != nullptr ? e.after_->before_ : last) = e.before_;
  }
};

}  // namespace tensorpull::detail
