// Every schedule of a small world, the short ones first. A world is a block of bytes at a fixed place, which is saved
// and put back, so what runs in it is the library and no model of it. A state is known by 8 bytes of a hash; how each
// was reached is kept, so the counterexample that is found is a shortest one and can be told.
#pragma once

#include "support/whole_schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace test {

struct fingerprint {
  std::uint64_t a = 0x9e3779b97f4a7c15, b = 0xc2b2ae3d27d4eb4f;

  /// `n`: a multiple of 8.
  fingerprint& add(const void* bytes, std::size_t n) noexcept {
    for (const char *p = static_cast<const char*>(bytes), *const end = p + n; p != end; p += 8) {
      std::uint64_t word;
      std::memcpy(&word, p, 8);
      a = (a ^ word) * 0xff51afd7ed558ccd;
      b = (b + word) * 0xc4ceb9fe1a85ec53;
      a ^= a >> 32;
      b ^= b >> 29;
    }
    return *this;
  }
  /// The same for what differs from `from`, which has as many bytes.
  fingerprint& add_difference(const void* bytes, const void* from, std::size_t n) noexcept {
    each_difference(bytes, from, n, [this](std::size_t at, std::uint64_t word) {
      const std::uint64_t both[] = {at, word};
      add(both, sizeof both);
    });
    return *this;
  }
  /// `f(at, word)` for each word, of 8 bytes, that differs.
  template <class F>
  static void each_difference(const void* bytes, const void* from, std::size_t n, F f) noexcept {
    static constexpr std::size_t block = 64;
    const auto *is = static_cast<const char*>(bytes), *was = static_cast<const char*>(from);
    for (std::size_t i = 0; i < n; i += block) {
      const std::size_t end = std::min(n, i + block);
      if (std::memcmp(is + i, was + i, end - i) == 0) continue;
      for (std::size_t k = i; k < end; k += 8) {
        std::uint64_t word, old;
        std::memcpy(&word, is + k, 8);
        std::memcpy(&old, was + k, 8);
        if (word != old) f(k, word);
      }
    }
  }
  friend bool operator==(const fingerprint&, const fingerprint&) noexcept = default;
};

/// States in a row, each kept as what differs from the one before it: those of a layer that are reached one after the
/// other are much alike.
template <class State>
class kept_states {
  static_assert(sizeof(State) / 8 <= 0x10000);

 public:
  explicit kept_states(const State& first) : first_(&first) { clear(); }
  void add(const State& s) {
    const std::size_t before = words_.size();
    fingerprint::each_difference(&s, &last_->state, sizeof s, [this](std::size_t at, std::uint64_t word) {
      at_.push_back(static_cast<std::uint16_t>(at / 8));
      words_.push_back(word);
    });
    counts_.push_back(static_cast<std::uint16_t>(words_.size() - before));
    std::memcpy(static_cast<void*>(&last_->state), &s, sizeof s);
  }
  /// The next one, after rewind() the first. `to` has to be as this has left it.
  void next(State& to) noexcept {
    if (read_ == 0) std::memcpy(static_cast<void*>(&to), first_, sizeof to);
    for (std::size_t n = counts_[read_++]; n > 0; --n, ++word_)
      std::memcpy(reinterpret_cast<char*>(&to) + std::size_t{8} * at_[word_], &words_[word_], 8);
  }
  void rewind() noexcept { read_ = word_ = 0; }
  std::size_t size() const noexcept { return counts_.size(); }
  std::size_t bytes() const noexcept { return words_.size() * 10 + counts_.size() * 2; }
  void clear() noexcept {
    words_.clear(), at_.clear(), counts_.clear();
    rewind();
    std::memcpy(static_cast<void*>(&last_->state), first_, sizeof *first_);
  }
  void swap(kept_states& other) noexcept {
    words_.swap(other.words_), at_.swap(other.at_), counts_.swap(other.counts_), last_.swap(other.last_);
    rewind(), other.rewind();
  }

 private:
  struct one {
    alignas(64) State state;
  };
  const State* first_;
  std::unique_ptr<one> last_ = std::make_unique<one>();
  std::vector<std::uint64_t> words_;
  std::vector<std::uint16_t> at_, counts_;
  std::size_t read_ = 0, word_ = 0;
};

/// Hashes of 64 bits, of which 0 is none. Two states of one hash count as one: of 40 million that happens with a
/// probability of 1 in 20,000, and then one state is left out.
class seen_hashes {
 public:
  /// Whether it is new.
  bool add(const fingerprint& print) {
    const std::uint64_t hash = std::max<std::uint64_t>(print.a ^ print.b, 1);
    if (4 * size_ >= 3 * table_.size()) grow();
    const std::size_t at = place_of(hash);
    if (table_[at] == hash) return false;
    table_[at] = hash;
    ++size_;
    return true;
  }
  std::size_t size() const noexcept { return size_; }

 private:
  std::size_t place_of(std::uint64_t hash) const noexcept {
    std::size_t at = hash & (table_.size() - 1);
    while (table_[at] != 0 && table_[at] != hash) at = (at + 1) & (table_.size() - 1);
    return at;
  }
  void grow() {
    std::vector<std::uint64_t> old(std::max<std::size_t>(1024, 2 * table_.size()));
    old.swap(table_);
    for (const std::uint64_t hash : old)
      if (hash != 0) table_[place_of(hash)] = hash;
  }
  std::vector<std::uint64_t> table_;
  std::size_t size_ = 0;
};

struct explored {
  std::uint64_t transitions = 0, states = 0, rests = 0;
  std::size_t depth = 0, kept_bytes = 0;  // of two layers at most
  bool whole = true;  // or as many transitions as were allowed
  std::string counterexample;  // empty: there is none
};

/// A world W has
///  - `w.state`, trivially copyable, in which everything is that a step changes but what `w.wrong` tells;
///  - `w.wrong`: what is wrong, a pointer to a text; nullptr as long as nothing is;
///  - `w.begin()`; `w.steps(v)`, which appends the steps that may be next; `w.take(step)`, which gives false if the
///  step
///    is none after all; `w.tell(step)` in words;
///  - `w.print()` of the state, and `w.rest_print()` without the faults that are still to come;
///  - `w.rest()`, one step without a fault; false: it has ended. Then `w.at_the_end()` looks at how.
template <class World>
class exploration {
  using state = std::remove_reference_t<decltype(std::declval<World&>().state)>;
  static_assert(std::is_trivially_copyable_v<state>);

 public:
  /// Ends with the last transition of the state at which `most` are exceeded.
  explored run(World& w, std::uint64_t most) {
    w.begin();
    const auto first = std::make_unique<state>(w.state), now = std::make_unique<state>();
    kept_states<state> layer(*first), next(*first);
    std::vector<std::uint32_t> numbers, next_numbers, steps;
    (void)seen_.add(w.print());
    reached_.push_back({});
    if (w.wrong != nullptr || !rests(w)) return tell(w, 0, nullptr);
    layer.add(*first);
    numbers.push_back(0);
    for (; layer.size() > 0; ++done_.depth) {
      next.clear(), next_numbers.clear();
      for (std::size_t i = 0; i < layer.size(); ++i) {
        if (done_.transitions >= most) {
          done_.whole = false;
          return finish();
        }
        layer.next(*now);
        put(w, *now);
        steps.clear();
        w.steps(steps);
        for (const std::uint32_t step : steps) {
          if (!w.take(step)) {
            put(w, *now);
            continue;
          }
          ++done_.transitions;
          if (w.wrong != nullptr) return tell(w, numbers[i], &step);
          if (seen_.add(w.print())) {
            next.add(w.state);
            next_numbers.push_back(static_cast<std::uint32_t>(reached_.size()));
            reached_.push_back({numbers[i], step});
            if (!rests(w)) return tell(w, numbers[i], &step);
          }
          put(w, *now);
        }
      }
      done_.kept_bytes = std::max(done_.kept_bytes, layer.bytes() + next.bytes());
      layer.swap(next), numbers.swap(next_numbers);
    }
    return finish();
  }

 private:
  static void put(World& w, const state& s) noexcept { std::memcpy(static_cast<void*>(&w.state), &s, sizeof s); }
  explored finish() {
    done_.states = seen_.size();
    done_.rests = ends_.size();
    return done_;
  }
  /// Whether what is left ends well without another fault. A rest that meets one that is known has ended well.
  bool rests(World& w) {
    for (int n = 0; ends_.add(w.rest_print()); ++n) {
      if (n == 1'000) w.wrong = "it never ends";
      if (w.wrong == nullptr && !w.rest()) {
        w.at_the_end();
        return w.wrong == nullptr;
      }
      if (w.wrong != nullptr) return false;
    }
    return true;
  }
  /// The steps to a state, one more, and the rest.
  explored tell(World& w, std::uint32_t number, const std::uint32_t* last) {
    const char* const wrong = w.wrong;
    std::vector<std::uint32_t> path;
    if (last != nullptr) path.push_back(*last);
    for (; number != 0; number = reached_[number].from) path.push_back(reached_[number].step);
    std::string& text = done_.counterexample;
    text = std::string(wrong) + ", after " + std::to_string(path.size()) + " steps:";
    w.wrong = nullptr;
    w.begin();
    for (std::size_t i = path.size(); i-- > 0; w.take(path[i])) text += "\n  " + w.tell(path[i]);
    if (w.wrong == nullptr) {
      text += "\n  and then without a fault:";
      for (int n = 0; n < 40; ++n) {
        text += "\n  " + w.tell_rest();
        if (!w.rest() || w.wrong != nullptr) break;
      }
    }
    w.wrong = wrong;
    return finish();
  }

  /// By which step from which state a state was reached first.
  struct way {
    std::uint32_t from, step;
  };
  seen_hashes seen_, ends_;
  std::vector<way> reached_;
  explored done_;
};

/// Transitions of each search: a part of those that TENSORPULL_EXPLORE asks for, or else as repetitions() has them.
inline std::uint64_t transitions_of_a_search(std::uint64_t part, std::uint64_t whole, std::uint64_t part_by_default) {
  const char* const text = std::getenv("TENSORPULL_EXPLORE");
  return text != nullptr ? std::strtoull(text, nullptr, 10) / part : repetitions(whole, part_by_default);
}
/// Goes through a world, and fails with the first way that leads to what must not be.
template <class World>
void explore_world(World& world, std::uint64_t most) {
  const explored e = exploration<World>().run(world, most);
  std::printf("%llu transitions, %llu states, %llu rests, %zu steps deep, %zu MiB%s\n",
              static_cast<unsigned long long>(e.transitions), static_cast<unsigned long long>(e.states),
              static_cast<unsigned long long>(e.rests), e.depth, e.kept_bytes >> 20, e.whole ? ", all" : "");
  if (!e.counterexample.empty()) ADD_FAILURE() << e.counterexample;
}

/// A link has the numbers of datagrams in `Room` places, the oldest first; 0: none. The new one is lost if all are
/// taken.
template <std::size_t Room>
void enqueue(std::uint32_t* link, std::uint32_t number) noexcept {
  const auto free = std::find(link, link + Room, 0u);
  if (free != link + Room) *free = number;
}
/// Takes the k-th.
template <std::size_t Room>
std::uint32_t dequeue(std::uint32_t* link, std::size_t k) noexcept {
  const std::uint32_t number = link[k];
  std::copy(link + k + 1, link + Room, link + k);
  link[Room - 1] = 0;
  return number;
}

}  // namespace test
