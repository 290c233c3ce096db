// The file that the owner here serves, and its fingerprint.
#pragma once

#include "frames.hpp"

#include <capnp/compat/json.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>

namespace foreign {

inline std::uint64_t random_number() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

/// A file as `safetensors.save` writes it, which is an image.
struct safetensors_file {
  std::string image;
  std::uint64_t header_bytes = 0, fingerprint = 0;
  std::uint32_t tensors = 0;
  reference ref{};

  explicit safetensors_file(const char* path) {
    std::ifstream file(path, std::ios::binary);
    image.assign(std::istreambuf_iterator<char>(file), {});
    std::uint64_t length = 0;
    if (image.size() >= 8) std::memcpy(&length, image.data(), 8);
    if (image.size() < 8 || length > image.size() - 8) throw std::runtime_error("no safetensors file");
    header_bytes = 8 + length;
    capnp::MallocMessageBuilder message;
    auto header = message.initRoot<capnp::JsonValue>();
    capnp::JsonCodec().decodeRaw(kj::arrayPtr(image.data() + 8, length), header);
    std::string hashed;
    for (const auto tensor : header.asReader().getObject())
      if (tensor.getName() != "__metadata__") add(tensor, hashed);
    fingerprint = XXH3_64bits(hashed.data(), hashed.size());
    ref = {random_number(), random_number(), XXH3_64bits(image.data(), image.size())};
  }

 private:
  /// Name, dtype and shape, as a fingerprint has them.
  void add(capnp::JsonValue::Field::Reader tensor, std::string& hashed) {
    static constexpr std::string_view dtypes[] = {"BOOL",    "F4",      "F6_E2M3", "F6_E3M2",     "U8",          "I8",
                                                  "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",
                                                  "U16",     "F16",     "BF16",    "I32",         "U32",         "F32",
                                                  "C64",     "F64",     "I64",     "U64"};
    const auto put = [&](std::uint64_t value, unsigned bytes) {
      for (unsigned i = 0; i < bytes; ++i) hashed += static_cast<char>(value >> 8 * i);
    };
    const auto property = [&](const char* name) {
      for (const auto field : tensor.getValue().getObject())
        if (field.getName() == name) return field.getValue();
      throw std::runtime_error("a tensor without a dtype or a shape");
    };
    const std::string_view dtype = property("dtype").getString().cStr();
    const auto shape = property("shape").getArray();
    put(tensor.getName().size(), 4);
    hashed.append(tensor.getName().begin(), tensor.getName().size());
    put(static_cast<std::uint64_t>(std::find(std::begin(dtypes), std::end(dtypes), dtype) - dtypes), 1);
    put(shape.size(), 2);
    for (const auto extent : shape) put(static_cast<std::uint64_t>(extent.getNumber()), 8);
    ++tensors;
  }
};

}  // namespace foreign
