// What the component crc32c gives.
#include <tensorpull/integrity/crc32c/crc32c.hpp>

#include <string_view>

int main() {
  tensorpull::crc32c hash;
  hash.update(std::as_bytes(std::span(std::string_view("123456789"))));
  return hash.digest() == 0xe3069283u ? 0 : 1;
}
