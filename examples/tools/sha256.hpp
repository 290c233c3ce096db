// SHA-256 of a tensor's bytes, through a buffer of 1 MiB whatever its length.
#pragma once

#include <tensorpull/core/sha256.hpp>
#include <tensorpull/image/view.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace tools {

class tensor_hasher {
 public:
  /// The digest of tensor i, read with its reader, in the form in which the image has it. Errors: those of the reader.
  tensorpull::result<tensorpull::sha256_value> operator()(const tensorpull::source_view& source, std::size_t i) {
    const std::uint64_t size = source.schema->tensors[i].size_bytes();
    tensorpull::sha256_hash hash;
    for (std::uint64_t at = 0; at < size;) {
      const std::span part(buffer_.data(),
                           static_cast<std::size_t>(std::min<std::uint64_t>(size - at, buffer_.size())));
      if (const auto ok = source.reader->read(source.reader->context, source.where[i], at, part); !ok)
        return tensorpull::failure(ok.error());
      hash.update(part);
      at += part.size();
    }
    return hash.value();
  }

 private:
  std::vector<std::byte> buffer_ = std::vector<std::byte>(1 << 20);
};

inline std::string hex_text(const tensorpull::sha256_value& bytes) {
  std::string out;
  for (const std::byte octet : bytes)
    (out += "0123456789abcdef"[std::to_integer<unsigned>(octet >> 4)]) +=
        "0123456789abcdef"[std::to_integer<unsigned>(octet & std::byte{15})];
  return out;
}

}  // namespace tools
