// Random tensors for the image's law tests: every dtype, odd names, empty tensors, scalars, strided layouts. One seed,
// one list.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/image/dynamic.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace tensorpull::test {

/// A name of up to five pieces, some of which JSON has to escape. `below(n)`: a number below n.
template <class Below>
std::string random_name(Below below) {
  static const std::string pieces[] = {"weight",
                                       "bias",
                                       ".",
                                       "0",
                                       "10",
                                       "2",
                                       "\"",
                                       "\\",
                                       "\n",
                                       "\x01",
                                       "\x7f",
                                       "\xc3\xa9",
                                       "\xf0\x9f\x98\x80",
                                       " ",
                                       "/",
                                       std::string("\0", 1)};
  std::string name;
  for (std::size_t n = below(6); n > 0; --n) name += pieces[below(std::size(pieces))];
  return name;
}

class random_tensors {
 public:
  struct tensor {
    std::string name;
    dtype type;
    std::vector<std::uint64_t> shape;
    std::vector<std::int64_t> strides;
    std::vector<std::byte> memory;
    std::size_t origin = 0;
    std::vector<std::byte> packed;  // what the image must hold, computed element by element
  };

  /// The tensor's bytes in C order as memory has them: those of the image, or on a big-endian machine the bytes of each
  /// number in reverse.
  static std::vector<std::byte> in_memory(const tensor& t) { return in_machine_order(t.type, t.packed); }

  random_tensors(unsigned seed, std::size_t count, bool strided) : generator_(seed) {
    while (tensors_.size() < count) add(strided);
  }

  std::vector<tensor_view> views() const {
    std::vector<tensor_view> out;
    for (const tensor& t : tensors_) out.push_back({t.name, t.type, t.shape, t.memory.data() + t.origin, t.strides});
    return out;
  }
  std::vector<mutable_tensor_view> mutable_views() {
    std::vector<mutable_tensor_view> out;
    for (tensor& t : tensors_) out.push_back({t.name, t.type, t.shape, t.memory.data() + t.origin, t.strides});
    return out;
  }
  std::vector<tensor>& tensors() { return tensors_; }

  /// The image, the slow way: text by concatenation, elements one at a time.
  std::vector<std::byte> expected_image(const std::vector<metadata_entry>& metadata = {}) const {
    std::vector<const tensor*> order;
    for (const tensor& t : tensors_) order.push_back(&t);
    std::sort(order.begin(), order.end(), [](const tensor* a, const tensor* b) {
      return a->type != b->type ? a->type > b->type : a->name < b->name;
    });
    std::string text = "{";
    for (const metadata_entry& m : metadata)
      text += (&m == &metadata.front() ? "\"__metadata__\":{" : ",") + quoted(m.key) + ":" + quoted(m.value);
    if (!metadata.empty()) text += "}";
    std::size_t at = 0;
    std::vector<std::byte> data;
    for (const tensor* t : order) {
      if (text.size() > 1) text += ",";
      text += quoted(t->name) + ":{\"dtype\":\"" + std::string(to_string(t->type)) + "\",\"shape\":[";
      for (std::size_t i = 0; i < t->shape.size(); ++i) text += (i == 0 ? "" : ",") + std::to_string(t->shape[i]);
      text += "],\"data_offsets\":[" + std::to_string(at) + ",";
      at += t->packed.size();
      text += std::to_string(at) + "]}";
      data.insert(data.end(), t->packed.begin(), t->packed.end());
    }
    text += "}";
    while (text.size() % 8 != 0) text += " ";
    std::vector<std::byte> image;
    for (unsigned i = 0; i < 8; ++i) image.push_back(static_cast<std::byte>(text.size() >> 8 * i & 0xff));
    for (const char c : text) image.push_back(static_cast<std::byte>(c));
    image.insert(image.end(), data.begin(), data.end());
    return image;
  }

  std::mt19937& generator() { return generator_; }
  std::size_t below(std::size_t n) { return generator_() % n; }

 private:
  static std::vector<std::byte> in_machine_order(dtype type, std::vector<std::byte> bytes) {
    if (const std::size_t width = number_bytes(type); !little_endian_machine && width != 0)
      for (std::size_t at = 0; at < bytes.size(); at += width)
        std::reverse(bytes.data() + at, bytes.data() + at + width);
    return bytes;
  }
  static std::string quoted(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
      static constexpr std::string_view plain = "\"\\\b\f\n\r\t", escaped = "\"\\bfnrt";
      char buffer[8];
      if (const auto at = plain.find(c); at != plain.npos) out += std::string("\\") + escaped[at];
      else if (static_cast<unsigned char>(c) < 0x20)
        out += (std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(c)), buffer);
      else out += c;
    }
    return out + "\"";
  }

  void add(bool strided) {
    tensor t;
    t.name = random_name([this](std::size_t n) { return below(n); });
    if (!names_.insert(t.name).second) return;
    t.type = static_cast<dtype>(below(dtype_count));
    for (std::size_t rank = below(5); rank > 0; --rank) t.shape.push_back(below(12) == 0 ? 0 : 1 + below(6));
    const auto size = size_bytes(t.type, t.shape);
    if (!size) {
      names_.erase(t.name);
      return;
    }
    if (strided && bits(t.type) % 8 == 0 && below(3) != 0) make_strided(t);
    else {
      t.memory.resize(*size + 1);
      fill(t.memory);
      t.packed = in_machine_order(t.type, {t.memory.begin(), t.memory.end() - 1});
    }
    tensors_.push_back(std::move(t));
  }

  // A view into a larger array: permuted, stepped, reversed or repeated dimensions.
  void make_strided(tensor& t) {
    const std::int64_t element = bits(t.type) / 8;
    std::vector<std::size_t> order(t.shape.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), generator_);
    t.strides.resize(t.shape.size());
    std::int64_t step = element, lowest = 0, highest = element;
    for (const std::size_t d : order) {
      const auto kind = below(6);
      const auto extent = static_cast<std::int64_t>(std::max<std::uint64_t>(t.shape[d], 1));
      if (kind == 0) t.strides[d] = 0;
      else {
        const std::int64_t factor = kind == 1 ? 2 : 1;
        t.strides[d] = kind == 2 ? -step : step * factor;
        (t.strides[d] < 0 ? lowest : highest) += t.strides[d] * (extent - 1);
        step *= extent * factor;
      }
    }
    t.memory.resize(static_cast<std::size_t>(highest - lowest));
    t.origin = static_cast<std::size_t>(-lowest);
    fill(t.memory);
    std::uint64_t elements = *element_count(t.shape);
    for (std::uint64_t e = 0; e < elements; ++e) {
      std::int64_t at = static_cast<std::int64_t>(t.origin);
      std::uint64_t rest = e;
      for (std::size_t d = t.shape.size(); d-- > 0; rest /= t.shape[d])
        at += t.strides[d] * static_cast<std::int64_t>(rest % t.shape[d]);
      t.packed.insert(t.packed.end(), t.memory.begin() + at, t.memory.begin() + at + element);
    }
    t.packed = in_machine_order(t.type, std::move(t.packed));
  }

  void fill(std::vector<std::byte>& bytes) {
    for (auto& b : bytes) b = static_cast<std::byte>(generator_());
  }

  std::mt19937 generator_;
  std::set<std::string> names_;
  std::vector<tensor> tensors_;
};

}  // namespace tensorpull::test
