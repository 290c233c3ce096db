// Every schedule of a small world, the short ones first. A world is a block of bytes at a fixed place, which is saved
// and put back, so what runs in it is the library and no model of it. A state is known by 16 bytes of a hash; how each
// was reached is kept, so the counterexample that is found is a shortest one and can be told.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

/// States, each kept as what differs from the first one.
template <class State>
class kept_states {
 public:
  explicit kept_states(const State& first) : first_(&first) {}
  void add(const State& s) {
    ends_.push_back(0);
    fingerprint::each_difference(&s, first_, sizeof s, [this](std::size_t at, std::uint64_t word) {
      at_.push_back(static_cast<std::uint32_t>(at));
      words_.push_back(word);
    });
    ends_.back() = words_.size();
  }
  void get(std::size_t i, State& to) const noexcept {
    std::memcpy(static_cast<void*>(&to), first_, sizeof to);
    for (std::size_t k = i == 0 ? 0 : ends_[i - 1]; k < ends_[i]; ++k)
      std::memcpy(reinterpret_cast<char*>(&to) + at_[k], &words_[k], 8);
  }
  std::size_t size() const noexcept { return ends_.size(); }
  std::size_t bytes() const noexcept { return words_.size() * 12 + ends_.size() * 8; }
  void clear() noexcept { words_.clear(), at_.clear(), ends_.clear(); }
  void swap(kept_states& other) noexcept { words_.swap(other.words_), at_.swap(other.at_), ends_.swap(other.ends_); }

 private:
  const State* first_;
  std::vector<std::uint64_t> words_;
  std::vector<std::uint32_t> at_;
  std::vector<std::size_t> ends_;
};

/// Which states were seen, and by which step from which state each was reached first.
class seen_states {
 public:
  struct node {
    fingerprint print;
    std::uint32_t from, step;
  };
  /// Its number, and whether it is new.
  std::pair<std::uint32_t, bool> add(const fingerprint& print, std::uint32_t from = 0, std::uint32_t step = 0) {
    if (2 * nodes_.size() >= table_.size()) grow();
    std::size_t at = print.a & (table_.size() - 1);
    for (; table_[at] != 0; at = (at + 1) & (table_.size() - 1))
      if (nodes_[table_[at] - 1].print == print) return {table_[at] - 1, false};
    nodes_.push_back({print, from, step});
    table_[at] = static_cast<std::uint32_t>(nodes_.size());
    return {table_[at] - 1, true};
  }
  const node& operator[](std::size_t i) const noexcept { return nodes_[i]; }
  std::size_t size() const noexcept { return nodes_.size(); }

 private:
  void grow() {
    table_.assign(std::max<std::size_t>(1024, 2 * table_.size()), 0);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      std::size_t at = nodes_[i].print.a & (table_.size() - 1);
      while (table_[at] != 0) at = (at + 1) & (table_.size() - 1);
      table_[at] = static_cast<std::uint32_t>(i + 1);
    }
  }
  std::vector<node> nodes_;
  std::vector<std::uint32_t> table_;
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
        layer.get(i, *now);
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
          if (const auto [number, is_new] = seen_.add(w.print(), numbers[i], step); is_new) {
            next.add(w.state);
            next_numbers.push_back(number);
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
    for (int n = 0; ends_.add(w.rest_print()).second; ++n) {
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
    for (; number != 0; number = seen_[number].from) path.push_back(seen_[number].step);
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

  seen_states seen_, ends_;
  explored done_;
};

}  // namespace test
