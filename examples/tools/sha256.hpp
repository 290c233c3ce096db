// SHA-256 of a tensor's bytes, through a buffer of 1 MiB whatever its length. Uses OpenSSL's EVP.
#pragma once

#include <tensorpull/image/view.hpp>

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tools {

class tensor_hasher {
 public:
  using digest = std::array<unsigned char, 32>;

  /// The digest of tensor i, read with its reader, in the form in which the image has it. Errors: those of the reader;
  /// out_of_memory.
  tensorpull::result<digest> operator()(const tensorpull::source_view& source, std::size_t i) {
    const std::uint64_t size = source.schema->tensors[i].size_bytes();
    digest out{};
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1)
      return tensorpull::failure(tensorpull::errc::out_of_memory);
    for (std::uint64_t at = 0; at < size;) {
      const std::span part(buffer_.data(),
                           static_cast<std::size_t>(std::min<std::uint64_t>(size - at, buffer_.size())));
      if (const auto ok = source.reader->read(source.reader->context, source.where[i], at, part); !ok)
        return tensorpull::failure(ok.error());
      EVP_DigestUpdate(context_.get(), part.data(), part.size());
      at += part.size();
    }
    EVP_DigestFinal_ex(context_.get(), out.data(), nullptr);
    return out;
  }

 private:
  struct release {
    void operator()(EVP_MD_CTX* c) const { EVP_MD_CTX_free(c); }
  };
  std::unique_ptr<EVP_MD_CTX, release> context_{EVP_MD_CTX_new()};
  std::vector<std::byte> buffer_ = std::vector<std::byte>(1 << 20);
};

inline std::string hex_text(const tensor_hasher::digest& bytes) {
  std::string out;
  for (const unsigned char octet : bytes) (out += "0123456789abcdef"[octet >> 4]) += "0123456789abcdef"[octet & 15];
  return out;
}

}  // namespace tools
