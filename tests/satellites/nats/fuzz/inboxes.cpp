// Where a message of NATS wants its answers, against a second opinion that was written another way.
#include "fuzz/target.hpp"

#include <tensorpull/core/ids.hpp>
#include <tensorpull/satellites/nats/nats_subject.hpp>

#include <algorithm>
#include <cctype>
#include <vector>

namespace test::fuzz {
namespace {

namespace tp = tensorpull;

/// Where a message of NATS wants its answers.
unsigned inbox(const std::string& text) {
  const auto named = tp::nats_subject::inbox_named(text);
  std::vector<std::string> tokens{""};
  for (const char c : text)
    if (c == '.') tokens.emplace_back();
    else tokens.back() += c;
  const bool printable = std::all_of(text.begin(), text.end(),
                                     [](unsigned char c) { return std::isgraph(c) != 0 && c != '*' && c != '>'; });
  const bool whole = std::none_of(tokens.begin(), tokens.end(), [](const std::string& t) { return t.empty(); });
  require(tp::nats_subject::of(text).has_value() == (printable && whole && text.size() <= 95),
          "a subject is tokens without wildcards");
  const bool expected = printable && whole && text.size() <= 95 && tokens.size() > 1 &&
                        tokens.front().rfind("_INBOX", 0) == 0 && tp::parse_ref_id(tokens.back());
  require(named.has_value() == expected, "answers go to inboxes alone");
  if (named) require(named->view() == text && std::string(named->c_str()) == text, "an inbox is as it was named");
  return named.has_value();
}

unsigned inboxes(input in) { return inbox(std::string(reinterpret_cast<const char*>(in.data()), in.size())); }
const registered mine{{"inboxes", inboxes}};

}  // namespace
}  // namespace test::fuzz
