// A list of a frame that is read one element at a time, so that an end that receives or sends it needs no memory for
// all of its elements.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

namespace tensorpull {

/// The elements of a list, made when they are asked for: from memory, or from the bytes of a frame. Borrows what it
/// reads from; valid as long as that is. Copying it copies no element.
template <class T>
class element_list {
 public:
  /// Makes the element that `from`, `step` and `i` lead to; what they mean is the reader's business. Must not throw.
  using reader = T (*)(const void* from, std::size_t step, std::size_t i) noexcept;

  /// No elements.
  constexpr element_list() noexcept = default;
  /// Elements in memory: a span, or anything that converts to one. Whether a list itself does is not asked: for each
  /// copy a compiler would try it as a range.
  template <class Elements>
    requires(!std::same_as<Elements, element_list>) && std::convertible_to<const Elements&, std::span<const T>>
  constexpr element_list(const Elements& elements) noexcept {
    const std::span<const T> in_memory = elements;
    from_ = in_memory.data();
    count_ = in_memory.size();
    step_ = sizeof(T);
    read_ = &from_memory;
  }
  /// `count` elements that `read` makes.
  constexpr element_list(const void* from, std::size_t step, std::size_t count, reader read) noexcept
      : from_(from), step_(step), count_(count), read_(read) {}

  /// How many elements there are.
  constexpr std::size_t size() const noexcept { return count_; }
  /// Whether there are none.
  constexpr bool empty() const noexcept { return count_ == 0; }
  /// The i-th element; requires i < size().
  T operator[](std::size_t i) const noexcept { return read_(from_, step_, i); }
  /// The first `n` elements; requires n <= size().
  constexpr element_list first(std::size_t n) const noexcept { return {from_, step_, n, read_}; }

  /// Walks through a list. It gives values, not references.
  class iterator {
   public:
    using value_type = T;                    ///< as in std::iterator_traits
    using difference_type = std::ptrdiff_t;  ///< as in std::iterator_traits
    T operator*() const noexcept { return (*of_)[at_]; }
    iterator& operator++() noexcept {
      ++at_;
      return *this;
    }
    iterator operator++(int) noexcept { return {*of_, at_++}; }
    friend bool operator==(const iterator& a, const iterator& b) noexcept { return a.at_ == b.at_; }

    iterator() noexcept = default;
    /// At the element `at` of a list that is borrowed.
    iterator(const element_list& of, std::size_t at) noexcept : of_(&of), at_(at) {}

   private:
    const element_list* of_ = nullptr;
    std::size_t at_ = 0;
  };
  iterator begin() const noexcept { return {*this, 0}; }     ///< At the first element.
  iterator end() const noexcept { return {*this, count_}; }  ///< Behind the last one.

 private:
  static T from_memory(const void* from, std::size_t, std::size_t i) noexcept { return static_cast<const T*>(from)[i]; }

  const void* from_ = nullptr;
  std::size_t step_ = 0, count_ = 0;
  reader read_ = nullptr;
};

}  // namespace tensorpull
