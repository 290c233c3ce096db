// What the targets of streams share: a model between guard pages, and a byte stream that reads from an input in the
// input's own pieces.
#pragma once

#include "support/words.hpp"
#include "target.hpp"

#include "support/random.hpp"

#include <tensorpull/image/booleans.hpp>
#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>
#include <tensorpull/links/byte_stream.hpp>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace test::fuzz {

namespace tp = tensorpull;

/// Memory of n bytes that ends where a page begins that nobody may touch; the rest of its own pages is filled with one
/// value.
class guarded_bytes {
 public:
  static constexpr std::byte canary{0xa5};

  explicit guarded_bytes(std::size_t n)
      : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))), inner_((n / page_ + 1) * page_), size_(n) {
    void* const all = mmap(nullptr, inner_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || mprotect(static_cast<std::byte*>(all) + page_, inner_, PROT_READ | PROT_WRITE) != 0)
      throw std::bad_alloc();
    start_ = static_cast<std::byte*>(all) + page_;
    reset();
  }
  guarded_bytes(guarded_bytes&& other) noexcept
      : page_(other.page_), inner_(other.inner_), size_(other.size_), start_(std::exchange(other.start_, nullptr)) {}
  ~guarded_bytes() {
    if (start_ != nullptr) munmap(start_ - page_, inner_ + 2 * page_);
  }
  void reset() noexcept { std::memset(start_, static_cast<int>(canary), inner_); }
  byte_span bytes() const noexcept { return {start_ + inner_ - size_, size_}; }
  bool intact() const noexcept { return same(start_, inner_ - size_); }
  /// Whether the bytes from i on are as reset() left them.
  bool untouched_from(std::size_t i) const noexcept { return i >= size_ || same(bytes().data() + i, size_ - i); }

 private:
  static bool same(const std::byte* p, std::size_t n) noexcept {
    return n == 0 || (p[0] == canary && std::memcmp(p, p + 1, n - 1) == 0);
  }

  std::size_t page_, inner_, size_;
  std::byte* start_ = nullptr;
};

/// Seven small tensors: several dtypes, odd sizes, a scalar, empty ones; 169 bytes of data. Made once, filled anew for
/// each input.
class small_model {
 public:
  /// `part`: three of the tensors, as a recipient that asks for a subset has them.
  explicit small_model(std::size_t rows = 3, bool part = false) {
    add("w", tp::dtype::f32, {rows, 5});
    add("step", tp::dtype::i64, {});
    add("mask", tp::dtype::boolean, {1, 67});
    if (!part) {
      add("b.\xc3\xa9", tp::dtype::f32, {5});
      add("none", tp::dtype::u8, {0, 3});
      add("scale", tp::dtype::f16, {7});
      add("hole", tp::dtype::f64, {5, 0});
    }
    std::vector<tp::mutable_tensor_view> views;
    for (tensor& t : tensors_) views.push_back({t.name, t.type, t.shape, t.memory.bytes().data()});
    auto made = tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views));
    require(made.has_value(), "the model of the fixture is valid");
    image_.push_back(std::move(*made));
  }

  const tp::image_schema& schema() const { return image_.front().schema(); }
  tp::source_view source() const { return image_.front().source(); }
  tp::destination_view destination() { return image_.front().destination(); }

  void fill(std::uint64_t seed) {
    generator random(seed);
    for (tensor& t : tensors_) random.fill(t.memory.bytes());
    tp::mend_booleans(destination(), schema().data_bytes());
  }
  void reset() {
    for (tensor& t : tensors_) t.memory.reset();
  }
  bool guards_intact() const {
    return std::all_of(tensors_.begin(), tensors_.end(), [](const tensor& t) { return t.memory.intact(); });
  }
  /// Nothing was written from byte `at` of the data section on.
  bool untouched_from(std::uint64_t at) const {
    const auto entries = schema().entries();
    return std::all_of(entries.begin(), entries.end(), [&](const tp::tensor_entry& e) {
      const tensor& t = *std::find_if(tensors_.begin(), tensors_.end(),
                                      [&](const tensor& x) { return x.name == e.name; });
      return at >= e.end || t.memory.untouched_from(at > e.begin ? static_cast<std::size_t>(at - e.begin) : 0);
    });
  }
  byte_vector image_bytes() const {
    byte_vector all(static_cast<std::size_t>(schema().header_bytes));
    tp::write_header(schema(), 0, all);
    for (const tp::tensor_entry& e : schema().entries()) {
      const tensor& t = *std::find_if(tensors_.begin(), tensors_.end(),
                                      [&](const tensor& x) { return x.name == e.name; });
      all.insert(all.end(), t.memory.bytes().begin(), t.memory.bytes().end());
    }
    return all;
  }
  std::vector<std::string_view> names() const {
    std::vector<std::string_view> in_order;
    for (const tp::tensor_entry& e : schema().entries()) in_order.push_back(e.name);
    return in_order;
  }
  std::uint64_t version() const { return *tp::image_version<tp::xxhash_digest>(source()); }

 private:
  struct tensor {
    std::string name;
    tp::dtype type;
    std::vector<std::uint64_t> shape;
    guarded_bytes memory;
  };
  void add(std::string name, tp::dtype type, std::vector<std::uint64_t> shape) {
    const std::size_t n = static_cast<std::size_t>(*tp::size_bytes(type, shape));
    tensors_.push_back({std::move(name), type, std::move(shape), guarded_bytes(n)});
  }

  std::vector<tensor> tensors_;
  std::vector<tp::dynamic_image> image_;
};

inline std::uint64_t digest_of(const_byte_span bytes) {
  tp::xxhash_digest hash;
  hash.update(bytes);
  return hash.digest();
}

/// Gives the input in pieces and keeps what is written, also in pieces. Models byte_stream.
class piecewise {
 public:
  piecewise(const settings& s, input in) noexcept : sizes_(s), in_(in) {}

  byte_vector out;
  std::size_t allowed = ~std::size_t{0};  ///< bytes of the input that may have been read
  std::size_t consumed() const noexcept { return at_; }

  tp::io_result read_some(std::span<const byte_span> spans) noexcept {
    std::size_t left = std::min(size(sizes_.reads[reads_ % sizes_.reads.size()], reads_),
                                std::min(allowed, in_.size()) - std::min(allowed, at_)),
                n = 0;
    ++reads_;
    for (const auto& s : spans) {
      const std::size_t k = std::min(s.size(), left);
      if (k > 0) std::memcpy(s.data(), in_.data() + at_, k);
      at_ += k, left -= k, n += k;
    }
    return {n > 0 ? tp::io_status::ok : tp::io_status::would_block, 0, n};
  }
  tp::io_result write_some(std::span<const const_byte_span> spans) noexcept {
    std::size_t left = size(sizes_.writes[writes_ % sizes_.writes.size()], writes_), n = 0;
    ++writes_;
    for (const auto& s : spans) {
      const std::size_t k = std::min(s.size(), left);
      out.insert(out.end(), s.begin(), s.begin() + static_cast<std::ptrdiff_t>(k));
      left -= k, n += k;
    }
    return {n > 0 ? tp::io_status::ok : tp::io_status::would_block, 0, n};
  }
  tp::io_ready wait(bool read, bool write, std::chrono::milliseconds) noexcept { return {read, write}; }

 private:
  /// Pieces grow after the first hundred: a long stream in single bytes costs time and shows no more.
  static std::size_t size(std::uint8_t stated, std::size_t calls) noexcept {
    if (stated == 0) return ~std::size_t{0};
    return calls < 100 ? stated : stated * std::size_t{32};
  }

  settings sizes_;
  input in_;
  std::size_t at_ = 0, reads_ = 0, writes_ = 0;
};
static_assert(tp::byte_stream<piecewise>);

}  // namespace test::fuzz
