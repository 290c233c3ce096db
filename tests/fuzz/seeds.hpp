// What the makers of seeds share. A maker writes the seeds of some targets, and registers itself: `const seeds mine{f,
// g};`.
#pragma once

#include "sides.hpp"

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <vector>

namespace test::fuzz {

using bytes = byte_vector;

/// All makers of seeds that are linked.
inline std::vector<void (*)()>& seed_makers() {
  static std::vector<void (*)()> all;
  return all;
}
struct seeds {
  seeds(std::initializer_list<void (*)()> makers) { seed_makers().insert(seed_makers().end(), makers); }
};

/// Writes one seed of a target into its corpus.
inline void write(std::string_view target, const std::string& name, const_byte_span content) {
  const std::filesystem::path folder = named(target).corpus();
  std::filesystem::create_directories(folder);
  std::ofstream(folder / name, std::ios::binary)
      .write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(content.size()));
}
inline void write(std::string_view target, const std::string& name, std::string_view text) {
  write(target, name, std::as_bytes(std::span(text)));
}

inline bytes joined(std::initializer_list<const_byte_span> parts) {
  bytes all;
  for (const auto& p : parts) all.insert(all.end(), p.begin(), p.end());
  return all;
}
/// The head of a stream: scenario, reads, writes.
inline bytes head(unsigned scenario, std::array<unsigned, 4> reads = {}, std::array<unsigned, 3> writes = {}) {
  bytes h{static_cast<std::byte>(scenario)};
  for (const unsigned n : reads) h.push_back(static_cast<std::byte>(n));
  for (const unsigned n : writes) h.push_back(static_cast<std::byte>(n));
  return h;
}

/// One transfer between two honest ends; what each of them sent.
struct recording {
  bytes to_owner, to_recipient;
};
/// What was put into a wire since the last call, and not yet taken out.
inline void keep_new(bytes& kept, const wire& w) {
  kept.insert(kept.end(), w.bytes.end() - static_cast<std::ptrdiff_t>(w.carried - kept.size()), w.bytes.end());
}

inline recording record(const pull_plan& plan) {
  static small_model a, b(4), all, part(3, true);
  owning_side owner(a, b);
  party recipient(22, 2);
  small_model& into = plan.subset ? part : all;
  into.reset();
  wire up, down;
  pipe_end left(up, down, {}, {}), right(down, up, {}, {});
  recording r;
  const auto scratch = [](party& p) { return byte_span(reinterpret_cast<std::byte*>(p.scratch.get()), 65536); };
  plan.with_policies([&]<class Chunking, class Integrity>(Chunking, Integrity) {
    for (int i = 0; i < (plan.twice ? 2 : 1); ++i) {
      watched_land to(into);
      const auto names = into.names();
      tp::transfer<watched_land, Chunking, Integrity> t(to, plan.request(names, a.version()), Chunking{},
                                                        recipient.end.next_id());
      recipient.end.begin_pull();
      tp::no_transfer idle;
      for (int round = 0; round < 1000 && !t.ended(); ++round) {
        const auto asked = tp::pump_once(recipient.end, t, right, scratch(recipient));
        keep_new(r.to_owner, up);
        const auto answered = tp::pump_once(owner.end.end, idle, left, scratch(owner.end));
        require(asked && answered, "two honest ends understand each other");
        keep_new(r.to_recipient, down);
      }
      require(t.ended() && t.outcome().has_value(), "a recorded transfer completes");
      recipient.end.end_pull(t);
    }
  });
  return r;
}

}  // namespace test::fuzz
