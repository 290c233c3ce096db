// The text of a signed reference, against a second reader that was written another way.
#include "fuzz/target.hpp"

#include <tensorpull/satellites/proofs/signed_reference.hpp>

#include <algorithm>
#include <map>
#include <vector>

namespace test::fuzz {
namespace {

namespace tp = tensorpull;

bool is_hex(const std::string& s, std::size_t digits) {
  return s.size() == digits && s.find_first_not_of("0123456789abcdef") == s.npos;
}
bool is_visible(const std::string& s) {
  return std::all_of(s.begin(), s.end(), [](unsigned char c) { return c >= 32 && c < 127; });
}
bool is_number(const std::string& s) { return !s.empty() && s.find_first_not_of("0123456789") == s.npos; }

/// Whether the text has these fields in this order and nothing else, each on a line of its own.
bool is_one(const std::string& text) {
  if (text.size() > 4096 || text.empty() || text.back() != '\n') return false;
  std::vector<std::string> lines{""};
  for (const char c : text)
    if (c == '\n') lines.emplace_back();
    else lines.back() += c;
  lines.pop_back();
  const char* const names[]{"federation", "round", "expires", "model", "schema",
                            "tree",       "root",  "bytes",   "note",  "signature"};
  if (lines.size() != 1 + std::size(names) || lines[0] != "tensorpull reference 1") return false;
  std::map<std::string, std::string> is;
  for (std::size_t i = 0; i < std::size(names); ++i) {
    const std::string start = std::string(names[i]) + ' ';
    if (lines[i + 1].rfind(start, 0) != 0) return false;
    is[names[i]] = lines[i + 1].substr(start.size());
  }
  const std::string& federation = is["federation"];
  return !federation.empty() && federation.size() <= 255 && is_visible(federation) &&
         federation.find(' ') == federation.npos && is_visible(is["note"]) && is["note"].size() <= 1024 &&
         is_number(is["round"]) && is_number(is["expires"]) && is_number(is["bytes"]) && is_hex(is["model"], 48) &&
         is["model"].find_last_not_of('0') >= 32 && is["model"].find_last_not_of('0') != std::string::npos &&
         is_hex(is["schema"], 16) && is_hex(is["tree"], 48) && is_hex(is["root"], 64) && is_hex(is["signature"], 128);
}

unsigned signed_references(input in) {
  const std::string text(reinterpret_cast<const char*>(in.data()), in.size());
  tp::detail::signed_claims read;
  std::size_t at = 0;
  const auto written = [&] {
    const auto& c = read.claims;
    return tp::detail::claims_text({c.of, std::string(c.federation), c.round, c.expires, std::string(c.note)});
  };
  const bool right = tp::detail::read_signed(text, read, at);
  require(right == is_one(text), "a signed reference has its fields in their order, and nothing else");
  require(at <= text.size(), "what is wrong is in the text");
  if (right) {
    require(text.substr(0, read.text.size()) == read.text && text.size() == read.text.size() + 139,
            "all is signed but the signature");
    const std::string first = written(), again = first + text.substr(read.text.size());
    require(tp::detail::read_signed(again, read, at) && written() == first, "what was read is written as it was");
  }
  require(!tp::verify_reference(text, *tp::trusted_keys::parse(""), {}), "nobody has signed it");
  const auto key = tp::parse_trusted_key(text);
  if (text.find_first_of("\r\n") == text.npos && !text.empty() && text[0] != '#')
    require(key.has_value() == tp::trusted_keys::parse(text).has_value(), "a file has a key in each line");
  (void)tp::trusted_keys::parse(text);
  return right;
}
const registered mine{{"signed_references", signed_references}};

}  // namespace
}  // namespace test::fuzz
