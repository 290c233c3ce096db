// The seeds of this folder's targets.
#include "fuzz/seeds.hpp"
#include "support/messages.hpp"

namespace test::fuzz {
namespace {

using kind = tp::frame_kind;

/// Frames of a stream, one by one.
std::vector<bytes> frames_of(const_byte_span stream) {
  std::vector<bytes> all;
  while (!stream.empty()) {
    const auto size = tp::detail::measure_frame(stream, ~std::size_t{0}, 16);
    require(size && *size && **size <= stream.size(), "a recorded stream is frames");
    all.emplace_back(stream.begin(), stream.begin() + static_cast<std::ptrdiff_t>(**size));
    stream = stream.subspan(**size);
  }
  return all;
}
/// What a recipient and a coordinator say, in turns: a replica asks the coordinator for no chunk but the last.
void make_replicas() {
  constexpr unsigned honest = 1, answers_rest = 2, signs = 4, unreachable = 8, late = 16, withdraws = 32, hangs_up = 64,
                     dies = 128;
  const auto turns = [](const recording& r) {
    const auto asked = frames_of(r.to_owner), answered = frames_of(r.to_recipient);
    std::size_t last = 0;
    for (std::size_t i = 0; i < answered.size(); ++i)
      if (tp::detail::payload_prefix::announces_payload(answered[i])) last = i;
    bytes all;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      all = joined({all, asked[i]});
      if (i < answered.size() && (i == last || !tp::detail::payload_prefix::announces_payload(answered[i])))
        all = joined({all, answered[i]});
    }
    return all;
  };
  for (const unsigned plan : {0u, 1u, 2u, 4u, 32u + 1u, 64u}) {
    const recording r = record(pull_plan(static_cast<std::uint8_t>(plan)));
    const std::string name = std::to_string(plan);
    write("replicas", "valid-honest-" + name, joined({head(honest), r.to_owner}));
    write("replicas", "valid-honest-in-pieces-" + name,
          joined({head(honest | signs | hangs_up, {1, 7, 80, 13}, {3, 200, 50}), r.to_owner}));
    write("replicas", "valid-turns-" + name, joined({head(hangs_up | dies), turns(r)}));
    write("replicas", "valid-turns-in-pieces-" + name, joined({head(late, {9, 64, 1, 30}, {5, 100, 41}), turns(r)}));
  }
  const recording r = record(pull_plan(0));
  write("replicas", "unreachable", joined({head(unreachable), r.to_owner}));
  write("replicas", "withdrawn", joined({head(honest | withdraws), r.to_owner}));
  write("replicas", "coordinator-late-and-dead", joined({head(honest | late | dies), r.to_owner}));
  write("replicas", "unasked", joined({head(answers_rest), r.to_recipient, r.to_owner}));
  // a coordinator that lies about what it describes
  const auto asked = frames_of(r.to_owner), answered = frames_of(r.to_recipient);
  const auto lying = [&](const char* name, auto change) {
    tp::frame m;
    const frame description(answered[0]);
    tp::word_framing::decode_storage lists;
    require(tp::word_framing::decode(description.bytes(), m, lists).has_value() && m.kind == kind::description,
            "the first answer is a description");
    change(m);
    const frame lie = encode(m);
    bytes all = joined({head(signs), asked[0], lie.bytes()});
    for (std::size_t i = 1; i < asked.size(); ++i) all = joined({all, asked[i]});
    write("replicas", name, all);
  };
  lying("lie-version", [](tp::frame& m) { ++m.version; });
  lying("lie-nonce", [](tp::frame& m) { ++m.nonce; });
  lying("lie-exabyte", [](tp::frame& m) { m.image_bytes = std::uint64_t{1} << 60; });
  lying("lie-no-byte", [](tp::frame& m) { m.image_bytes = 0; });
  lying("lie-no-chunk", [](tp::frame& m) { m.length = 0; });
  lying("lie-reference", [](tp::frame& m) { m.ref = second_ref; });
}
const seeds mine{make_replicas};

}  // namespace
}  // namespace test::fuzz
