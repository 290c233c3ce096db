// Several sources of which some lie: a pull of a version that was given completes if one of them is honest, in at most
// twice its time, and names whoever lied. Time is counted in turns, in each of which a line carries as many bytes.
#include "random_lies.hpp"

#include <tensorpull/consumers/any_schema/new_model.hpp>
#include <tensorpull/satellites/parallel/parallel_transfer.hpp>

#include <deque>
#include <map>

namespace liars_test {

using namespace test;

constexpr std::size_t bytes_in_a_turn = 16 * 1024;
constexpr tp::ref_id id{1, 2};

model blank_model() {
  model m;
  m.add("a", tp::dtype::f32, {256 * 1024}).add("b", tp::dtype::f32, {256 * 1024}).add("c", tp::dtype::u8, {7}).ready();
  return m;
}
const model& published() {
  static const model m = std::move(blank_model().fill(1));
  return m;
}

/// Whether a source says or gives something else than what is published.
enum class is : std::uint8_t {
  right,  ///< nobody may name it
  wrong,  ///< it is named
  unproved,  ///< about what bytes do not prove: it is named only if that was refused
};
/// How a source answers.
struct habit {
  const char* name;
  is what;
  /// Of each pull anew.
  std::function<tampering()> make;
};

template <class Change>
std::function<tampering()> always(tp::frame_kind kind, Change change) {
  return [=] { return tampering(lie_about(kind, change)); };
}
std::uint64_t offset_of(const byte_vector& f) {
  return tp::detail::payload_prefix::read(std::span<const std::byte, 80>(f.data(), 80))->offset;
}
/// Another byte in the chunks that begin in [from, to); silent behind the first one, if it says so.
std::function<tampering()> wrong_bytes(std::uint64_t from, std::uint64_t to, std::size_t at = 80,
                                       bool then_silent = false, std::size_t how_often = ~std::size_t{0}) {
  return [=] {
    return [=, lied = std::size_t{0}](byte_vector& f) mutable {
      if (lied > 0 && then_silent) return f.clear();
      if (!is_chunk(f) || f.size() <= at + 8 || offset_of(f) < from || offset_of(f) >= to || lied == how_often) return;
      f[at] ^= std::byte{1};
      ++lied;
    };
  };
}
constexpr std::uint64_t everywhere = ~std::uint64_t{0}, behind_header = 1024;

const habit honest{"honest", is::right, [] { return tampering(); }};
const habit liars[] = {
    {"a longer image", is::wrong, always(tp::frame_kind::description, [](tp::frame& m) { m.image_bytes += 8; })},
    {"a longer header", is::wrong,
     always(tp::frame_kind::description, [](tp::frame& m) { m.image_bytes += 8, m.data_start += 8; })},
    {"a shorter header", is::wrong,
     always(tp::frame_kind::description, [](tp::frame& m) { m.image_bytes -= 8, m.data_start -= 8; })},
    {"an endless image", is::wrong,
     always(tp::frame_kind::description, [](tp::frame& m) { m.image_bytes = ~std::uint64_t{0} / 2; })},
    {"another schema", is::unproved, always(tp::frame_kind::description, [](tp::frame& m) { ++m.fingerprint; })},
    {"more tensors", is::unproved, always(tp::frame_kind::description, [](tp::frame& m) { ++m.tensors; })},
    {"no digest", is::unproved, always(tp::frame_kind::description, [](tp::frame& m) { m.flag = false; })},
    {"another version", is::right, always(tp::frame_kind::description, [](tp::frame& m) { ++m.version; })},
    {"nothing published", is::right,
     always(tp::frame_kind::description,
            [](tp::frame& m) {
              m.kind = tp::frame_kind::refused;
              m.status = tp::status::unknown_reference;
            })},
    {"busy for ever", is::right,
     always(tp::frame_kind::description,
            [](tp::frame& m) {
              m.kind = tp::frame_kind::refused;
              m.status = tp::status::busy;
              m.delay_ms = 1;
            })},
    {"silent", is::right, [] { return tampering([](byte_vector& f) { f.clear(); }); }},
    {"describes and is silent", is::right,
     [] {
       return tampering([](byte_vector& f) {
         if (is_chunk(f)) f.clear();
       });
     }},
    {"chunks of another length", is::right,
     [] { return tampering(lie_about_chunks([](tp::frame& m) { m.length -= m.offset > 0 ? 1 : 0; })); }},
    {"another header", is::wrong, wrong_bytes(0, 1, 80 + 20)},
    {"wrong bytes", is::wrong, wrong_bytes(behind_header, everywhere)},
    {"wrong bytes once", is::wrong, wrong_bytes(behind_header, everywhere, 80, false, 1)},
    {"wrong bytes once, then silent", is::wrong, wrong_bytes(behind_header, everywhere, 80, true)},
    {"wrong bytes at the end", is::wrong, wrong_bytes(1'500'000, everywhere)},
    {"wrong bytes at the beginning", is::wrong, wrong_bytes(behind_header, 500'000)},
};

/// One line to a source of its own.
struct line {
  std::unique_ptr<pair> to;
  std::uint64_t quiet = 0;
  bool over = false;
};

/// The pull of `Consumer`, driven as parallel_pull.hpp drives it.
template <class Consumer>
struct pulled {
  using transfer_type = tp::parallel_transfer<Consumer, tp::fixed_bytes<65'536>, tp::image_digest>;
  std::uint64_t turns = 0;
  std::uint8_t wrong = 0;
  tp::result<tp::receipt> done = tp::failure(tp::errc::timed_out);

  pulled(Consumer& to, const std::vector<const habit*>& habits) {
    tp::error last{tp::errc::connection_failed};
    const tp::pull_request request{.ref = id, .version = version_of(published()), .recipient = {9}};
    transfer_type t(to, request, {}, 1);
    std::deque<line> lines;
    for (const habit* const h : habits) {
      line& l = lines.emplace_back();
      l.to = std::make_unique<pair>(cut{bytes_in_a_turn});
      l.to->left.publish(published(), id);
      l.to->owner_lies = h->make();
    }
    for (std::size_t i = 0; i < lines.size(); ++i) t.coming(static_cast<std::uint8_t>(i), true);
    tp::no_transfer idle;
    std::uint64_t patience = 20;
    for (; turns < 5000 && !t.ended(); ++turns) {
      std::size_t over = 0;
      for (std::size_t i = 0; i < lines.size() && !t.ended(); ++i) {
        line& l = lines[i];
        const auto n = static_cast<std::uint8_t>(i);
        over += l.over;
        if (l.over) continue;
        if (turns == 0) {
          l.to->right.end.begin_pull();
          t.up(n, n, l.to->right.end.next_id());
        }
        const std::uint64_t before = l.to->to_right.carried;
        auto role = t.line_of(n);
        l.to->pump(idle, role);
        l.quiet = l.to->to_right.carried == before ? l.quiet + 1 : 0;
        if (const auto why = t.line_ended(n); (why || l.to->right_error || l.to->left_error) && !t.ended()) {
          l.over = true;
          t.coming(n, false);
          t.lost(n);
          if (why) last = *why;
          continue;
        }
        if (n != t.first_line() && t.line_pause(n).count() > 0) t.resume_line(n);
        if (n == t.first_line() && t.awaits(n) && l.quiet >= patience && t.replace_first()) patience *= 2;
      }
      if (over == lines.size() && !t.ended()) t.fail(last);
    }
    if (t.ended()) done = t.outcome();
    wrong = t.wrong();
  }
};

struct own_memory {
  std::deque<byte_vector> memory;
  tp::result<std::byte*> allocate(const tp::tensor_entry& entry) {
    return memory.emplace_back(static_cast<std::size_t>(entry.size_bytes())).data();
  }
  void clear() noexcept { memory.clear(); }
};

struct into_a_model {
  model mine = blank_model();
  tp::land to{mine.destination()};
  bool is_right() const { return mine.same_tensors(published()) && mine.guards_intact(); }
};
struct into_a_new_model {
  tp::new_model<own_memory> to{{}, {.max_bytes = 4 << 20}};
  bool is_right() {
    if (to.made().tensor_count != 3) return false;
    for (std::size_t i = 0; i < 3; ++i)
      if (to.allocator().memory[i] != published().bytes_of(to.made().tensors[i].name)) return false;
    return true;
  }
};

template <class Into>
class Liars : public testing::Test {
 public:
  using consumer = decltype(Into::to);
  static std::uint64_t turns_alone() {
    Into into;
    const pulled<consumer> alone(into.to, {&honest});
    EXPECT_TRUE(alone.done);
    return alone.turns;
  }
  static void expect_it_completes(const std::vector<const habit*>& sources, std::uint64_t alone, bool must_name) {
    Into into;
    const pulled<consumer> p(into.to, sources);
    std::string how;
    std::uint8_t must_be = 0, may_be = 0;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      how += std::string(how.empty() ? "" : " | ") + sources[i]->name;
      const auto bit = static_cast<std::uint8_t>(1u << i);
      if (sources[i]->what == is::wrong) must_be |= bit;
      if (sources[i]->what != is::right) may_be |= bit;
    }
    ASSERT_TRUE(p.done) << how << ": " << to_string(p.done.error().code) << " after " << p.turns;
    EXPECT_EQ(p.done->outcome, tp::outcome::completed) << how;
    EXPECT_TRUE(into.is_right()) << how;
    // waiting for silent ones, and a few turns for each description
    EXPECT_LE(p.turns, 2 * alone + 100) << how;
    EXPECT_EQ(p.wrong & ~may_be, 0) << how << " names somebody who gave nothing wrong";
    if (must_name) {
      EXPECT_EQ(p.wrong & must_be, must_be) << how;
    }
  }
};
using destinations = testing::Types<into_a_model, into_a_new_model>;
TYPED_TEST_SUITE(Liars, destinations);

TYPED_TEST(Liars, An_honest_source_is_found_among_liars_of_one_kind_in_twice_its_time) {
  const std::uint64_t alone = this->turns_alone();
  for (const habit& liar : liars)
    for (std::size_t n = 2; n <= 4; ++n)
      for (std::size_t place = 0; place < n; ++place) {
        std::vector<const habit*> all(n, &liar);
        all[place] = &honest;
        this->expect_it_completes(all, alone, true);
      }
}

TYPED_TEST(Liars, An_honest_source_is_found_among_liars_of_all_kinds) {
  const std::uint64_t alone = this->turns_alone();
  generator random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<const habit*> all(2 + random.below(6));
    for (auto& each : all) each = &liars[random.below(std::size(liars))];
    all[random.below(all.size())] = &honest;
    this->expect_it_completes(all, alone, false);  // a liar that was silent soon may not have been heard
  }
}

}  // namespace liars_test
