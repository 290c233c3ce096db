// What users write: references, addresses, links, commands, dtypes; each against a second opinion that was written
// another way.
#include "target.hpp"

#include <tensorpull/core/dtype.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/system/address.hpp>
#include <tensorpull/system/link_url.hpp>
#include <tensorpull/transports/over/pipe/command_words.hpp>
#include <tensorpull/transports/over/serial/serial_address.hpp>

#include <algorithm>
#include <cctype>
#include <set>
#include <vector>

namespace test::fuzz {
namespace {

namespace tp = tensorpull;

unsigned reference(const std::string& text) {
  const auto id = tp::parse_ref_id(text);
  const auto ref = tp::parse_reference(text);
  const bool all_digits = std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
  require(id.has_value() == (all_digits && text.size() == 32), "an ID is 32 hexadecimal digits and nothing else");
  require(ref.has_value() == (all_digits && (text.size() == 32 || text.size() == 48)),
          "a reference is 48 or 32 hexadecimal digits and nothing else");
  if (!ref) return 0;
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto digits = tp::to_digits(*ref);
  require(std::string_view(digits.data(), digits.size()) == (id ? lower + std::string(16, '0') : lower),
          "a reference prints as it was written, in lower case");
  require(!id || (ref->id == *id && ref->version == 0), "an ID is a reference without a version");
  return 1;
}

unsigned address(const std::string& text) {
  const auto parsed = tp::parse_address(text);
  // a host has at most 255 bytes and no zero byte; brackets let it have colons
  const std::size_t colon = text.rfind(':');
  std::string host = colon == std::string::npos ? "" : text.substr(0, colon),
              port = colon == std::string::npos ? "" : text.substr(colon + 1);
  const bool brackets = host.size() >= 2 && host[0] == '[' && host[host.size() - 1] == ']';
  if (brackets) host = host.substr(1, host.size() - 2);
  const bool digits = !port.empty() && port.size() <= 5 &&
                      std::all_of(port.begin(), port.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  const bool expected = colon != std::string::npos && digits && std::stoul(port) <= 65535 && host.size() < 256 &&
                        host.find('\0') == std::string::npos && (brackets || host.find(':') == std::string::npos);
  require(parsed.has_value() == expected, "an address is host:port");
  if (!parsed) {
    require(parsed.error().code == tp::errc::bad_address, "the refusal says that it is the address");
    return 0;
  }
  require(std::memchr(parsed->host.data(), 0, parsed->host.size()) != nullptr && parsed->host.data() == host,
          "the host is what stands before the port");
  require(std::memchr(parsed->port.data(), 0, parsed->port.size()) != nullptr && parsed->port.data() == port,
          "the port is as written");
  require(parsed->number == std::stoul(port), "the port's number is its digits");
  return 1;
}

unsigned link(const std::string& text) {
  const auto url = tp::parse_link_url(text);
  const bool zero = text.find('\0') != std::string::npos;
  // what stands before the first colon, and what the rest has to be then
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string name = text.substr(0, colon), rest = colon < text.size() ? text.substr(colon + 1) : "";
  const auto is = [&](std::initializer_list<const char*> names) {
    return colon < text.size() && std::find(names.begin(), names.end(), name) != names.end();
  };
  const bool is_name = !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == name.npos;
  bool expected = false;
  std::string address = text;
  if (is({"tcp", "tls", "udp"})) expected = rest.rfind("//", 0) == 0 && tp::parse_address(address = rest.substr(2));
  else if (is({"unix", "serial", "pipe"}))
    expected = !rest.empty() && (rest.rfind("//", 0) != 0 || rest.rfind("///", 0) == 0),
    address = rest.rfind("//", 0) == 0 ? rest.substr(2) : rest;
  else if (tp::parse_address(text)) expected = true;
  else if (rest.rfind("//", 0) == 0 && rest.rfind("///", 0) != 0) expected = rest.size() > 2 && is_name;
  else
    expected = is_name && (rest.rfind("/", 0) == 0 || rest.rfind("@", 0) == 0),
    address = rest.rfind("//", 0) == 0 ? rest.substr(2) : rest;
  require(url.has_value() == (expected && !zero), "a link is one of the forms that are listed");
  if (!url) {
    require(url.error().code == tp::errc::bad_address, "the refusal says that it is the address");
    return 0;
  }
  require(url->address == address, "the address is what stands after the link's name");
  require(name == url->scheme || url->scheme == "tcp", "the link is the one that is named");
  return 1;
}

/// Almost every text is one, so that one more says nothing of a seed.
void command(const std::string& text) {
  tp::command_words first, second;
  const auto words = first.split(text);
  if (!words) {
    require(words.error().code == tp::errc::bad_address && words.error().at <= text.size(),
            "the refusal has a place in the text");
    return;
  }
  require(!words->empty() && words->size() <= tp::command_words::most_words, "a command has a word");
  // each word quoted, a quote by a backslash: the same words again, unless the text becomes too long
  std::string quoted;
  for (const char* const word : *words) {
    quoted += quoted.empty() ? "'" : " '";
    for (const char* c = word; *c != '\0'; ++c) quoted += *c == '\'' ? std::string("'\\''") : std::string(1, *c);
    quoted += "'";
  }
  const auto again = second.split(quoted);
  if (quoted.size() > tp::command_words::most_bytes) return;
  require(again.has_value() && std::equal(words->begin(), words->end(), again->begin(), again->end(),
                                          [](const char* a, const char* b) { return std::string_view(a) == b; }),
          "words that are quoted are the same words");
}

unsigned serial(const std::string& text) {
  const auto parsed = tp::parse_serial_address(text);
  static const std::set<std::string> speeds{"1200",    "2400",    "4800",    "9600",    "19200",   "38400",
                                            "57600",   "115200",  "230400",  "460800",  "500000",  "576000",
                                            "921600",  "1000000", "1152000", "1500000", "2000000", "2500000",
                                            "3000000", "3500000", "4000000"};
  const std::size_t question = text.find('?');
  const std::string path = text.substr(0, question);
  bool expected = !path.empty() && path.size() < 256 && path.find('\0') == std::string::npos;
  std::string speed = "115200", flow = "none";
  if (question != std::string::npos) {
    int has_speed = 0, has_flow = 0;
    std::string rest = text.substr(question + 1) + "&";
    for (std::size_t end; (end = rest.find('&')) != std::string::npos; rest.erase(0, end + 1)) {
      const std::string setting = rest.substr(0, end);
      if (setting.substr(0, 6) == "speed=")
        ++has_speed, speed = setting.substr(std::min(setting.find_first_not_of('0', 6), setting.size()));
      else if (setting.substr(0, 5) == "flow=") ++has_flow, flow = setting.substr(5);
      else expected = false;
    }
    expected = expected && has_speed <= 1 && has_flow <= 1 && speeds.contains(speed) &&
               (flow == "none" || flow == "rtscts");
  }
  require(parsed.has_value() == expected,
          "an address of a serial line is a path with settings that are known, each once");
  if (!parsed) return 0;
  require(
      parsed->path.data() == path && parsed->rts_cts == (flow == "rtscts") && std::to_string(parsed->speed) == speed,
      "a serial line is set as its address says");
  return question != std::string::npos;  // without settings almost every text is a path
}

unsigned dtype(const std::string& text) {
  const auto type = tp::dtype_from_string(text);
  if (!type) return 0;
  require(tp::is_valid(*type) && tp::to_string(*type) == text && tp::bits(*type) > 0,
          "a dtype prints as it was written");
  return 1;
}

}  // namespace

static unsigned texts(input in) {
  // memory of exactly this size: a read behind it is seen
  const std::string text(reinterpret_cast<const char*>(in.data()), in.size());
  command(text);
  return reference(text) + address(text) + link(text) + serial(text) + dtype(text);
}
static const registered texts_target{{"texts", texts}};

}  // namespace test::fuzz
