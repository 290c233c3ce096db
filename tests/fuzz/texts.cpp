// What users write: references, addresses, dtypes; each against a second opinion that was written another way.
#include "target.hpp"

#include <tensorpull/core/dtype.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/system/address.hpp>

#include <algorithm>
#include <cctype>

namespace test::fuzz {
namespace {

namespace tp = tensorpull;

unsigned reference(const std::string& text) {
  const auto id = tp::parse_ref_id(text);
  const bool expected = text.size() == 32 && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
  require(id.has_value() == expected, "a reference is 32 hexadecimal digits and nothing else");
  if (!id) return 0;
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto digits = tp::to_digits(*id);
  require(lower == std::string_view(digits.data(), digits.size()), "a reference prints as it was written, in lower case");
  return 1;
}

unsigned address(const std::string& text) {
  const auto parsed = tp::parse_address(text);
  // a host has at most 255 bytes and no zero byte; brackets let it have colons
  const std::size_t colon = text.rfind(':');
  std::string host = colon == std::string::npos ? "" : text.substr(0, colon), port = colon == std::string::npos ? "" : text.substr(colon + 1);
  const bool brackets = host.size() >= 2 && host[0] == '[' && host[host.size() - 1] == ']';
  if (brackets) host = host.substr(1, host.size() - 2);
  const bool digits = !port.empty() && port.size() <= 5 && std::all_of(port.begin(), port.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  const bool expected = colon != std::string::npos && digits && std::stoul(port) <= 65535 && host.size() < 256 && host.find('\0') == std::string::npos &&
                        (brackets || host.find(':') == std::string::npos);
  require(parsed.has_value() == expected, "an address is host:port");
  if (!parsed) {
    require(parsed.error().code == tp::errc::bad_address, "the refusal says that it is the address");
    return 0;
  }
  require(std::memchr(parsed->host.data(), 0, parsed->host.size()) != nullptr && parsed->host.data() == host, "the host is what stands before the port");
  require(std::memchr(parsed->port.data(), 0, parsed->port.size()) != nullptr && parsed->port.data() == port, "the port is as written");
  require(parsed->number == std::stoul(port), "the port's number is its digits");
  return 1;
}

unsigned dtype(const std::string& text) {
  const auto type = tp::dtype_from_string(text);
  if (!type) return 0;
  require(tp::is_valid(*type) && tp::to_string(*type) == text && tp::bits(*type) > 0, "a dtype prints as it was written");
  return 1;
}

}  // namespace

unsigned texts(input in) {
  // memory of exactly this size: a read behind it is seen
  const std::string text(reinterpret_cast<const char*>(in.data()), in.size());
  return reference(text) + address(text) + dtype(text);
}

}  // namespace test::fuzz
