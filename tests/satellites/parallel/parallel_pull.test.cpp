// Pulls over several connections at a time: to one owner, and to several of which some are slow, silent, gone or wrong.
#include "support/clocks.hpp"
#include "support/frames.hpp"
#include "support/own_folder.hpp"
#include "transports/network.hpp"

#include <tensorpull/consumers/any_schema/digest.hpp>
#include <tensorpull/consumers/any_schema/new_model.hpp>
#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/satellites/parallel/parallel_pull.hpp>

#include <atomic>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <stop_token>

namespace parallel_pull_test {

using namespace test;

/// 8 MiB in tensors of several sizes.
struct layered {
  float a[1 << 20];
  float b[3][777];
  float c[1 << 20];
  std::uint8_t d[8];
};

}  // namespace parallel_pull_test
BOOST_HANA_ADAPT_STRUCT(parallel_pull_test::layered, a, b, c, d);

namespace parallel_pull_test {

template <class T>
std::vector<std::byte> bytes_of(const T& tensor) {
  const auto all = std::as_bytes(std::span(&tensor, 1));
  return {all.begin(), all.end()};
}
std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
using net = raw_net<large, tp::tcp>;

struct after_calls {
  int* left;
  bool stop_requested() const noexcept { return (*left)-- <= 0; }
};
constexpr tp::retry_policy quick{.retries = 3, .first_delay = 5ms, .longest_delay = 20ms};
constexpr std::size_t never = ~std::size_t{0};

/// What somebody on the way does with the answers of one connection. Counted in bytes of answers.
struct habit {
  std::size_t cut = never;  ///< the connection ends there
  std::size_t silent = never;  ///< nothing comes behind it, and the connection stays
  std::size_t wrong = never;  ///< each byte at a multiple of this is another
  std::size_t each_ms = 0;  ///< bytes in a millisecond; 0: any number
  bool no_chunks = false;  ///< answers of more than 1,000 bytes are taken away
};

/// Stands between recipients and an owner, and carries each connection on a thread of its own.
class between {
 public:
  between(std::uint16_t owner, std::function<habit(std::size_t)> habits)
      : each_([owner, habits = std::move(habits)](raw_peer& client, std::size_t n, const std::stop_token& stop) {
          carry(stop, client, owner, habits(n));
        }) {}
  std::string address() const { return each_.address(); }
  std::size_t connections() const { return each_.count(); }

 private:
  static void carry(const std::stop_token& stop, raw_peer& client, std::uint16_t owner_port, const habit& h) {
    std::vector<std::byte> piece(h.each_ms != 0 ? h.each_ms : 16384), came;
    raw_peer owner(owner_port);
    for (std::size_t carried = 0; !stop.stop_requested();) {
      const std::array<std::span<std::byte>, 1> in{piece};
      const auto asked = client.stream().read_some(in);
      if (tp::is_end(asked.status) || (asked.bytes > 0 && !owner.say(std::span(piece).first(asked.bytes)))) return;
      const std::size_t most = std::min({piece.size(), h.cut - carried, h.silent - carried});
      if (most == 0) {
        if (carried == h.cut) return;
        client.stream().wait(true, false, 5ms);
        continue;
      }
      const std::array<std::span<std::byte>, 1> out{std::span(piece).first(most)};
      const auto answered = owner.stream().read_some(out);
      if (tp::is_end(answered.status)) return;
      if (h.no_chunks) {
        came.insert(came.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(answered.bytes));
        while (came.size() >= 8) {  // a frame has one segment: four bytes of 0, its words, and the words
          const std::size_t size = 8 + 8 * (tp::load_le64(came.data()) >> 32);
          if (came.size() < size) break;
          if (size <= 1000 && !client.say(std::span(came).first(size))) return;
          came.erase(came.begin(), came.begin() + static_cast<std::ptrdiff_t>(size));
        }
        if (asked.bytes + answered.bytes == 0) client.stream().wait(true, false, 1ms);
        continue;
      }
      if (const std::size_t ahead = h.wrong - carried % h.wrong; ahead < answered.bytes) piece[ahead] ^= std::byte{1};
      if (answered.bytes > 0 && !client.say(std::span(piece).first(answered.bytes))) return;
      carried += answered.bytes;
      if (h.each_ms != 0) be_slow(1ms);
      else if (asked.bytes + answered.bytes == 0) client.stream().wait(true, false, 1ms);
    }
  }
  each_connection each_;
};

/// One that publishes a model under a reference.
struct publishes {
  tp::result<net::downloader> owner = net::downloader::open();
  tp::result<tp::reference> ref;
  std::optional<serving> server;
  explicit publishes(const large& model, const tp::publish_options& o = {}) : ref(owner->add_tensors(model, o)) {
    EXPECT_TRUE(succeeded(ref));
    server.emplace(*owner);
  }
  std::string address() const { return local(owner->port()); }
  tp::publication_status counts() {
    server.reset();
    return *owner->status_of(*ref);
  }
};

/// A pull from these addresses into a model of this object's.
struct pulled {
  std::unique_ptr<large> model = blank<large>();
  std::uint8_t wrong = 0;
  tp::result<tp::receipt> done = tp::failure(tp::errc::cancelled);

  template <class Net = net>
  pulled(const std::vector<std::string>& addresses, const tp::reference& ref, std::size_t connections = 0,
         const tp::pull_options& options = {.per_request_timeout = 20s, .retry = quick}) {
    const std::vector<std::string_view> texts(addresses.begin(), addresses.end());
    const tp::parallel_addresses<tp::tcp> from(texts, connections);
    done = net::download_tensors(from, ref, *model, options);
    wrong = from.wrong();
  }
  void expect(const large& source) const {
    ASSERT_TRUE(confirmed(done));
    EXPECT_TRUE(same(*model, source));
  }
};

const large& source() {
  static const auto model = random_model<large>(1);
  return *model;
}

TEST(ParallelPull, Several_connections_to_one_owner_are_one_recipient) {
  for (const std::size_t connections : {1u, 2u, 4u, 8u}) {
    publishes one(source(), {.recipients = 1});
    pulled({one.address()}, *one.ref, connections).expect(source());
    const auto counts = one.counts();
    EXPECT_EQ(counts.acquired, 1u) << connections;
    EXPECT_EQ(counts.completed, 1u) << connections;
    EXPECT_EQ(one.owner->settlement_of(*one.ref)->verdict, tp::verdict::completed) << connections;
    EXPECT_LE(counts.bytes_sent, sizeof(large) * 2) << connections;
  }
}

TEST(ParallelPull, Several_owners_give_a_part_each_and_one_of_them_counts_the_recipient) {
  publishes a(source(), {.id = {3, 4}}), b(source(), {.id = {3, 4}}), c(source(), {.id = {3, 4}});
  const auto even = [](std::size_t) { return habit{.each_ms = 8192}; };
  between to_a(a.owner->port(), even), to_b(b.owner->port(), even), to_c(c.owner->port(), even);
  pulled({to_a.address(), to_b.address(), to_c.address()}, *a.ref).expect(source());
  std::uint64_t completed = 0;
  for (publishes* const each : {&a, &b, &c}) {
    const auto counts = each->counts();
    EXPECT_GT(counts.bytes_sent, 64_KiB);
    completed += counts.completed;
  }
  EXPECT_EQ(completed, 1u);
}

TEST(ParallelPull, A_slow_owner_takes_little_and_the_end_is_confirmed_over_a_fast_one) {
  publishes a(source(), {.id = {3, 4}}), b(source(), {.id = {3, 4}});
  between slow(b.owner->port(), [](std::size_t) { return habit{.each_ms = 64}; });  // 12 MiB would take 3 minutes
  pulled({slow.address(), a.address()}, *a.ref).expect(source());
  const auto counts = a.counts();
  EXPECT_GT(counts.bytes_sent, sizeof(large) * 9 / 10);
  EXPECT_EQ(counts.completed, 1u);
}

TEST(ParallelPull, A_slow_owner_that_is_asked_first_does_not_hold_up_the_others) {
  publishes a(source(), {.id = {3, 4}}), b(source(), {.id = {3, 4}});
  between slow(b.owner->port(), [](std::size_t) { return habit{.each_ms = 2}; });  // the first chunk would take minutes
  const auto began = steady_clock::now();
  pulled({slow.address(), a.address()}, *a.ref).expect(source());
  EXPECT_LT(steady_clock::now() - began, 15s);
}

TEST(ParallelPull, It_goes_on_if_owners_die_and_if_they_are_silent_at_any_byte) {
  generator random(7);
  for (int round = 0; round < 6; ++round) {
    publishes a(source(), {.id = {3, 4}}), b(source(), {.id = {3, 4}}), c(source(), {.id = {3, 4}});
    const auto where = static_cast<std::size_t>(random.below(round < 2 ? 2'000 : sizeof(large) / 3));
    between cut(a.owner->port(), [&](std::size_t) { return habit{.cut = where}; }),
        silent(b.owner->port(), [&](std::size_t) { return habit{.silent = where}; });
    pulled({silent.address(), cut.address(), c.address()}, *a.ref).expect(source());
  }
}

TEST(ParallelPull, The_last_line_that_is_left_brings_the_rest) {
  publishes a(source(), {.id = {3, 4}});
  between one(a.owner->port(), [&](std::size_t n) { return habit{.cut = n < 20 ? 500'000 + 10'000 * n : never}; });
  pulled({one.address()}, *a.ref, 3).expect(source());
  EXPECT_EQ(a.counts().acquired, 1u);
}

TEST(ParallelPull, Wrong_bytes_of_one_owner_fail_and_nobody_is_named_without_a_root) {
  publishes a(source(), {.id = {3, 4}}), b(source(), {.id = {3, 4}});
  const auto even = [](std::size_t) { return habit{.each_ms = 16384}; };
  const auto lies = [](std::size_t) { return habit{.wrong = 999'983u, .each_ms = 16384}; };
  between x(a.owner->port(), even), y(b.owner->port(), lies);
  const pulled p({x.address(), y.address()}, *a.ref);
  EXPECT_EQ(code_of(p.done), tp::errc::digest_mismatch);
  EXPECT_EQ(p.wrong, 0u);
}

TEST(ParallelPull, An_owner_whose_bytes_others_may_have_spoilt_serves_the_recipient_again) {
  publishes a(source(), {.recipients = 1, .id = {3, 4}}), b(source(), {.id = {3, 4}});
  const auto even = [](std::size_t) { return habit{.each_ms = 16384}; };
  const auto lies = [](std::size_t) { return habit{.wrong = 999'983u, .each_ms = 16384}; };
  between x(a.owner->port(), even), y(b.owner->port(), lies);
  EXPECT_EQ(code_of(pulled({x.address(), y.address()}, *a.ref).done), tp::errc::digest_mismatch);
  pulled({x.address()}, *a.ref).expect(source());
  const auto counts = a.counts();
  EXPECT_EQ(counts.failed, 0u);
  EXPECT_EQ(counts.completed, 1u);
  // the bytes of one are its own
  EXPECT_EQ(code_of(pulled({y.address()}, *b.ref, 2).done), tp::errc::digest_mismatch);
  EXPECT_TRUE(eventually("the farewell", [&] { return b.owner->status_of(*b.ref)->failed == 1; }));
}

TEST(ParallelPull, Nor_is_one_counted_as_wrong_that_goes_on_where_another_was_cut) {
  publishes a(source(), {.recipients = 1, .id = {3, 4}}), b(source(), {.id = {3, 4}});
  between liar(b.owner->port(), [](std::size_t) { return habit{.cut = 1'500'000, .wrong = 999'983u}; });
  const std::string first = liar.address(), second = a.address();
  const std::array<std::string_view, 2> addresses{first, second};
  const tp::several_addresses<tp::tcp> in_turn(addresses);
  const auto mine = blank<large>();
  EXPECT_EQ(code_of(net::download_tensors(in_turn, *a.ref, *mine, {.per_request_timeout = 20s, .retry = quick})),
            tp::errc::digest_mismatch);
  ASSERT_TRUE(confirmed(net::download_tensors(second, *a.ref, *mine)));
  EXPECT_TRUE(same(*mine, source()));
  const auto counts = a.counts();
  EXPECT_EQ(counts.failed, 0u);
  EXPECT_EQ(counts.completed, 1u);
}

/// Says that it is busy, once, and carries what comes later to an owner.
class busy_once {
 public:
  explicit busy_once(std::uint16_t owner)
      : each_([this, owner](raw_peer& client, std::size_t, const std::stop_token& stop) {
          carry(stop, client, owner);
        }) {}
  std::string address() const { return each_.address(); }

 private:
  void carry(const std::stop_token& stop, raw_peer& client, std::uint16_t owner_port) {
    raw_peer owner(owner_port);
    std::vector<std::byte> asked, piece(16384);
    const std::array<std::span<std::byte>, 1> in{piece};
    while (!stop.stop_requested()) {
      const auto io = client.stream().read_some(in);
      if (tp::is_end(io.status)) return;
      asked.insert(asked.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(io.bytes));
      for (;;) {
        const auto size = tp::detail::measure_frame(asked, 4096, 16);
        if (!size || !*size || asked.size() < **size) break;
        const auto end = asked.begin() + static_cast<std::ptrdiff_t>(**size);
        const std::vector<std::byte> one(asked.begin(), end);
        asked.erase(asked.begin(), end);
        const decoded d{frame(one)};
        if (d.m.kind == tp::frame_kind::describe && !said_.exchange(true)) {
          tp::frame refusal;
          refusal.kind = tp::frame_kind::refused;
          refusal.status = tp::status::busy;
          refusal.id = d.m.id;
          refusal.ref = d.m.ref;
          refusal.delay_ms = 50;
          if (!client.say(encode(refusal).bytes())) return;
        } else if (!owner.say(one)) {
          return;
        }
      }
      const auto answered = owner.stream().read_some(in);
      if (tp::is_end(answered.status)) return;
      if (answered.bytes > 0 && !client.say(std::span(piece).first(answered.bytes))) return;
      if (io.bytes + answered.bytes == 0) client.stream().wait(true, false, 1ms);
    }
  }
  std::atomic<bool> said_{false};
  each_connection each_;
};

TEST(ParallelPull, An_owner_that_was_busy_is_asked_again) {
  publishes a(source(), {.id = {3, 4}}), b(source(), {.id = {3, 4}});
  {
    const own_port nobody;
    const std::string closed = local(nobody);
    busy_once to_a(a.owner->port());
    pulled({to_a.address(), closed}, *a.ref).expect(source());
  }
  busy_once to_a(a.owner->port());
  between to_b(b.owner->port(), [](std::size_t) { return habit{.each_ms = 4096}; });
  pulled({to_a.address(), to_b.address()}, *a.ref).expect(source());
  EXPECT_GT(a.counts().bytes_sent, sizeof(large) * 5 / 4);
}

struct short_chunks : tp::default_limits {
  static constexpr std::uint64_t chunk_cap_bytes = 50'000;
};
TEST(ParallelPull, Chunks_that_an_owner_has_left_are_cut_for_another_that_serves_shorter_ones) {
  using other_net = raw_net<large, tp::tcp, short_chunks>;
  publishes a(source(), {.id = {3, 4}});
  auto b = other_net::downloader::open();
  const auto ref = b->add_tensors(source(), {.id = {3, 4}});
  ASSERT_TRUE(ref);
  const serving server(*b);
  between to_a(a.owner->port(),
               [](std::size_t n) { return n == 0 ? habit{.cut = 3'000'000, .each_ms = 4096} : habit{.cut = 0}; });
  between to_b(b->port(), [](std::size_t) { return habit{.each_ms = 8192}; });
  pulled({to_a.address(), to_b.address()}, *ref).expect(source());
}

TEST(ParallelPull, Owners_of_another_version_or_of_nothing_are_left_out) {
  const auto other = random_model<large>(2);
  publishes a(source(), {.id = {3, 4}}), b(*other, {.id = {3, 4}}), c(*other, {.id = {5, 6}});
  for (const auto& order :
       {std::vector{a.address(), b.address(), c.address()}, std::vector{c.address(), b.address(), a.address()}})
    pulled(order, *a.ref).expect(source());
  const pulled none({b.address(), c.address()}, *a.ref);
  ASSERT_FALSE(none.done);
  EXPECT_TRUE(none.done.error() == tp::errc::stale_version || none.done.error() == tp::errc::unknown_reference)
      << to_string(none.done.error().code);
}

TEST(ParallelPull, Owners_that_only_describe_are_waited_for_as_one_is) {
  publishes one(source());
  // the description comes, and not a byte of the image
  between quiet(one.owner->port(), [](std::size_t) { return habit{.no_chunks = true}; });
  const auto began = steady_clock::now();
  const pulled p({quiet.address()}, *one.ref, 4, {.per_request_timeout = 2900ms, .retry = {.retries = 0}});
  ASSERT_EQ(code_of(p.done), tp::errc::timed_out);
  // other lines take the first one's place after 1 and 2 more seconds; each time the owner describes
  EXPECT_LT(steady_clock::now() - began, 4900ms);
}

TEST(ParallelPull, Nobody_there_fails_as_one_connection_does) {
  const own_port nobody;
  const std::string closed = local(nobody);
  const pulled p({closed, closed}, tp::reference{{3, 4}, 0, 0});
  ASSERT_EQ(code_of(p.done), tp::errc::connection_failed);
  EXPECT_EQ(pulled({}, tp::reference{{3, 4}, 0, 0}).done.error(), tp::errc::bad_address);
}

TEST(ParallelPull, A_time_that_means_never_is_waited_for) {
  const raw_listener full(0);
  const std::string there = local(full.port());
  std::deque<tp::posix_stream> waiting;  // its queue has no room for more
  for (int i = 0; i < 4; ++i) {
    auto to = tp::tcp_addresses::of(there);
    ASSERT_TRUE(to);
    waiting.push_back(*to->start_connect());
  }
  constexpr auto for_ever = std::chrono::milliseconds::max();
  int left = 5;
  const auto mine = blank<large>();
  const std::string_view all[]{there};
  const auto done = net::download_tensors(
      tp::parallel_addresses<tp::tcp>(all, 1, for_ever), tp::ref_id{1, 2}, *mine,
      {.per_request_timeout = for_ever, .stop = after_calls{&left}, .retry = {.retries = 0}});
  EXPECT_EQ(code_of(done), errc::cancelled);
}

// Other consumers, integrity, and parts of an image.

using layered_net = raw_net<layered, tp::tcp>;
const tp::pull_options soon{.per_request_timeout = 20s, .retry = quick};

/// Two owners of the same layers, and what a pull is given to have them from both.
struct two {
  std::unique_ptr<layered> model = random_model<layered>(9);
  std::array<tp::result<layered_net::downloader>, 2> owners{layered_net::downloader::open(),
                                                            layered_net::downloader::open()};
  tp::reference ref;
  std::array<std::string, 2> texts;
  std::array<std::string_view, 2> addresses;
  std::deque<serving> servers;

  two() {
    for (std::size_t i = 0; i < 2; ++i) {
      const auto added = owners[i]->add_tensors(*model, {.id = {3, 4}});
      EXPECT_TRUE(added);
      ref = *added;
      addresses[i] = texts[i] = local(owners[i]->port());
      servers.emplace_back(*owners[i]);
    }
  }
  tp::parallel_addresses<tp::tcp> from(std::size_t connections) const {
    return tp::parallel_addresses<tp::tcp>(addresses, connections);
  }
};

TEST(ParallelPull, A_file_is_the_same_as_over_one_connection) {
  const two t;
  const own_folder folder;
  const std::string one = folder / "one", many = folder / "many";
  auto alone = tp::safetensors_file::create(one);
  ASSERT_TRUE(alone);
  ASSERT_TRUE(layered_net::pull(t.texts[0], t.ref, *alone, soon));
  for (const std::size_t buffer : {777u, 65536u, 1u << 20}) {
    tp::resume_cursor cursor;
    auto file = tp::safetensors_file::create(many,
                                             {.resume = buffer == 65536 ? &cursor : nullptr, .buffer_bytes = buffer});
    ASSERT_TRUE(file);
    auto options = soon;
    options.cursor = &cursor;
    const auto done = layered_net::pull(t.from(4), t.ref, *file, options);
    ASSERT_TRUE(completed(done));
    EXPECT_TRUE(content(many) == content(one));
  }
}

TEST(ParallelPull, A_part_is_a_whole_file_although_another_line_than_the_first_begins) {
  const two t;
  const std::uint64_t many[] = {1 << 20}, few[] = {8};
  const auto mine = blank<layered>();
  const tp::mutable_tensor_view views[] = {{"a", tp::dtype::f32, many, reinterpret_cast<std::byte*>(mine->a)},
                                           {"d", tp::dtype::u8, few, reinterpret_cast<std::byte*>(mine->d)}};
  auto image = tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views));
  ASSERT_TRUE(image);
  auto options = soon;
  options.part = true;
  const own_folder folder;
  const std::string one = folder / "one", more = folder / "more";
  auto alone = tp::safetensors_file::create(one, {.schema = &image->schema()});
  ASSERT_TRUE(alone);
  ASSERT_TRUE(layered_net::pull(t.texts[0], t.ref, *alone, options));
  between quiet(t.owners[0]->port(), [](std::size_t) { return habit{.silent = 300}; });
  const std::string first = quiet.address();
  const std::string_view addresses[] = {first, t.texts[1]};
  auto file = tp::safetensors_file::create(more, {.schema = &image->schema()});
  ASSERT_TRUE(file);
  const tp::parallel_addresses<tp::tcp> from(addresses, 4);
  const auto began = steady_clock::now();
  const auto done = layered_net::pull(from, t.ref, *file, options);
  ASSERT_TRUE(succeeded(done));
  EXPECT_LT(steady_clock::now() - began, 10s) << "what the silent one has not asked for is left to it";
  EXPECT_TRUE(content(more) == content(one));
}

struct heap_tensors {
  std::vector<std::vector<std::byte>> memory;
  tp::result<std::byte*> allocate(const tp::tensor_entry& entry) {
    return memory.emplace_back(static_cast<std::size_t>(entry.size_bytes())).data();
  }
  void clear() noexcept { memory.clear(); }
};

TEST(ParallelPull, A_model_that_is_made_from_the_header) {
  const two t;
  tp::new_model<heap_tensors> made({}, {.max_bytes = sizeof(layered)});
  const auto done = layered_net::pull(t.from(4), t.ref, made, soon);
  ASSERT_TRUE(succeeded(done));
  ASSERT_EQ(made.made().tensor_count, 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const std::string_view name = made.made().tensors[i].name;
    const std::map<std::string_view, std::vector<std::byte>> wanted{{"a", bytes_of(t.model->a)},
                                                                    {"b", bytes_of(t.model->b)},
                                                                    {"c", bytes_of(t.model->c)},
                                                                    {"d", bytes_of(t.model->d)}};
    EXPECT_TRUE(made.allocator().memory[i] == wanted.at(name)) << name;
  }
}

TEST(ParallelPull, Named_tensors) {
  const two t;
  const auto mine = blank<layered>();
  const std::uint64_t many[] = {1 << 20}, few[] = {8};
  const tp::mutable_tensor_view views[] = {{"a", tp::dtype::f32, many, reinterpret_cast<std::byte*>(mine->a)},
                                           {"d", tp::dtype::u8, few, reinterpret_cast<std::byte*>(mine->d)}};
  auto image = tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views));
  ASSERT_TRUE(image);
  tp::land to(image->destination());
  auto options = soon;
  options.part = true;
  const auto done = layered_net::pull(t.from(4), t.ref, to, options);
  ASSERT_TRUE(completed(done));
  EXPECT_TRUE(bytes_of(mine->a) == bytes_of(t.model->a));
  EXPECT_TRUE(bytes_of(mine->d) == bytes_of(t.model->d));
  EXPECT_FALSE(bytes_of(mine->c) == bytes_of(t.model->c));
}

TEST(ParallelPull, Slices_of_tensors_from_several_owners_also_if_the_first_dies) {
  const std::uint64_t rows[] = {1, 1024, 1024};
  for (const bool dies : {false, true}) {
    std::optional<publishes> first(std::in_place, source(), tp::publish_options{.id = {7, 8}});
    const publishes second(source(), {.id = {7, 8}});
    const auto mine = std::make_unique<std::array<float, 1024 * 1024>>();
    const tp::mutable_tensor_view views[] = {{"w", tp::dtype::f32, rows, reinterpret_cast<std::byte*>(mine->data())}};
    auto image = tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views));
    ASSERT_TRUE(image);
    tp::land to(image->destination());
    const std::string first_at = first->address(), second_at = second.address();
    const std::string_view texts[] = {first_at, second_at};
    const tp::tensor_slice middle[] = {{"w", 1, 2}};
    auto end = [&](const tp::progress_event& e) {
      if (dies && e.bytes_done > 0) first.reset();
    };
    const auto done = net::pull(
        tp::parallel_addresses<tp::tcp>(texts, 4), {{7, 8}, second.ref->version, 0}, to,
        {.per_request_timeout = 20s, .slices = middle, .retry = quick, .progress = end, .progress_interval = 0ms});
    ASSERT_TRUE(completed(done)) << dies;
    EXPECT_EQ(done->bytes, sizeof *mine);
    EXPECT_EQ(std::memcmp(mine->data(), source().w[1], sizeof *mine), 0) << dies;
  }
}

TEST(ParallelPull, Slices_of_a_later_dimension_from_several_owners_also_if_the_first_dies) {
  for (const bool dies : {false, true, true, true})
    for (const std::uint16_t dimension : {std::uint16_t{1}, std::uint16_t{2}}) {
      std::optional<publishes> first(std::in_place, source(), tp::publish_options{.id = {7, 8}});
      const publishes second(source(), {.id = {7, 8}});
      const std::string at[] = {first->address(), second.address()};
      const std::string_view texts[] = {at[0], at[1]};
      auto end = [&](const tp::progress_event& e) {
        if (dies && e.bytes_done > 0) first.reset();
      };
      const std::uint64_t shape[] = {3, dimension == 1 ? 512u : 1024u, dimension == 2 ? 512u : 1024u};
      std::vector<float> mine(3 * 512 * 1024);
      const tp::mutable_tensor_view views[] = {{"w", tp::dtype::f32, shape, reinterpret_cast<std::byte*>(mine.data())}};
      auto image = tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views));
      ASSERT_TRUE(image);
      tp::land to(image->destination());
      const tp::tensor_slice part[] = {{"w", 100, 612, dimension}};
      const auto done = net::pull(
          tp::parallel_addresses<tp::tcp>(texts, 4), {{7, 8}, second.ref->version, 0}, to,
          {.per_request_timeout = 20s, .slices = part, .retry = quick, .progress = end, .progress_interval = 0ms});
      ASSERT_TRUE(completed(done)) << dimension;
      for (std::size_t i = 0; i < mine.size(); ++i) {
        const std::size_t x = i % shape[2], y = i / shape[2] % shape[1], z = i / shape[2] / shape[1];
        const float& there = source().w[z][y + (dimension == 1 ? 100 : 0)][x + (dimension == 2 ? 100 : 0)];
        ASSERT_EQ(std::memcmp(&mine[i], &there, sizeof there), 0) << i;  // some are no numbers
      }
    }
}

TEST(ParallelPull, Named_tensors_of_one_owner_are_confirmed) {
  for (int round = 0; round < 20; ++round) {
    const two t;
    const auto mine = blank<layered>();
    const std::uint64_t many[] = {1 << 20};
    const tp::mutable_tensor_view views[] = {{"a", tp::dtype::f32, many, reinterpret_cast<std::byte*>(mine->a)}};
    auto image = tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views));
    ASSERT_TRUE(image);
    tp::land to(image->destination());
    auto options = soon;
    options.part = true;
    const std::string_view one[] = {t.texts[0]};
    const auto done = layered_net::pull(tp::parallel_addresses<tp::tcp>(one, 8), t.ref, to, options);
    ASSERT_TRUE(succeeded(done));
    EXPECT_TRUE(done->confirmed) << to_string(done->unconfirmed_because);
  }
}

TEST(ParallelPull, A_digest_of_each_chunk_ends_the_line_that_damages_them) {
  two t;
  using checked = raw_net<layered, tp::tcp, tp::chunk_and_image_digest>;
  between bad(t.owners[0]->port(), [](std::size_t) { return habit{.wrong = 99'991}; });
  between good(t.owners[1]->port(), [](std::size_t) { return habit{.each_ms = 4096}; });  // so that both carry some
  t.addresses[0] = t.texts[0] = bad.address();
  t.addresses[1] = t.texts[1] = good.address();
  const auto mine = blank<layered>();
  const auto done = checked::download_tensors(t.from(2), t.ref, *mine, soon);
  ASSERT_TRUE(completed(done));
  EXPECT_GT(done->damaged, 0u);
  EXPECT_TRUE(same(*mine, *t.model));
}

// The first chunk holds the header and comes over one line alone. If that damaged it each time, the pull failed,
// although another line was there.
TEST(ParallelPull, A_line_that_damages_the_first_chunk_is_ended_and_another_one_goes_on) {
  two t;
  using checked = raw_net<layered, tp::tcp, tp::chunk_and_image_digest>;
  std::atomic<int> damaging = 0;  // the first connection of those that come
  const auto habits = [&](std::size_t) { return damaging++ == 0 ? habit{.wrong = 9'973} : habit{}; };
  between one(t.owners[0]->port(), habits);
  between other(t.owners[1]->port(), habits);
  t.addresses[0] = t.texts[0] = one.address();
  t.addresses[1] = t.texts[1] = other.address();
  const auto mine = blank<layered>();
  const auto done = checked::download_tensors(t.from(2), t.ref, *mine, soon);
  ASSERT_TRUE(completed(done));
  EXPECT_EQ(done->damaged, 3u);
  EXPECT_TRUE(same(*mine, *t.model));
}

TEST(ParallelPull, If_every_line_damages_the_first_chunk_the_pull_says_so) {
  two t;
  using checked = raw_net<layered, tp::tcp, tp::chunk_and_image_digest>;
  const auto habits = [](std::size_t) { return habit{.wrong = 9'973}; };
  between one(t.owners[0]->port(), habits);
  between other(t.owners[1]->port(), habits);
  t.addresses[0] = t.texts[0] = one.address();
  t.addresses[1] = t.texts[1] = other.address();
  const auto mine = blank<layered>();
  const auto done = checked::download_tensors(t.from(2), t.ref, *mine, soon);
  ASSERT_EQ(code_of(done), tp::errc::chunk_digest_mismatch);
}

TEST(ParallelPull, Chunks_that_are_never_whole_are_no_progress) {
  const two t;
  using checked = raw_net<layered, tp::tcp, tp::chunk_and_image_digest>;
  between way(t.owners[0]->port(), [](std::size_t n) { return habit{.cut = n == 0 ? 100'000u : 50'000u}; });
  const std::string text = way.address();
  const std::string_view addresses[] = {text};
  auto options = soon;
  options.stop = within(10s);
  const auto mine = blank<layered>();
  const tp::parallel_addresses<tp::tcp> from(addresses, 1);
  const auto done = checked::download_tensors(from, t.ref, *mine, options);
  ASSERT_FALSE(done);
  EXPECT_NE(done.error(), tp::errc::cancelled) << "after " << way.connections() << " connections";
}

TEST(ParallelPull, What_takes_bytes_in_order_has_one_connection_at_a_time) {
  const two t;
  tp::basic_digest<> whole;
  const auto done = layered_net::pull(t.from(4), t.ref, whole, soon);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(done->digest, t.ref.version);
}

TEST(ParallelPull, It_goes_on_from_a_cursor) {
  generator random(3);
  for (int round = 0; round < 6; ++round) {
    const two t;
    const auto mine = blank<layered>();
    tp::resume_cursor cursor;
    std::stop_source stop;
    auto options = soon;
    options.cursor = &cursor;
    options.stop = stop.get_token();
    const std::uint64_t enough = random.below(sizeof(layered));
    options.progress_interval = 0ms;
    const auto look = [&](const tp::progress_event& e) {
      if (e.bytes_done > enough) stop.request_stop();
    };
    options.progress = look;
    (void)layered_net::download_tensors(t.from(4), t.ref, *mine, options);
    options = soon;
    options.cursor = &cursor;
    const auto done = layered_net::download_tensors(t.from(3), t.ref, *mine, options);
    ASSERT_TRUE(succeeded(done));
    EXPECT_TRUE(same(*mine, *t.model));
  }
}

// What completes is the model. If nobody lies and one way has no faults, it completes.
TEST(ParallelPull, Random_ways) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    generator random(seed);
    publishes a(source(), {.id = {3, 4}});
    std::vector<std::unique_ptr<between>> ways;
    std::vector<std::string> addresses;
    const std::size_t n = 1 + random.below(4), good = random.below(n + 1), faults = seed % 2 == 0 ? 4 : 3;
    bool is_one = false;
    for (std::size_t i = 0; i < n; ++i) {
      std::vector<habit> habits(4);
      for (habit& h : habits) {
        if (i == good) continue;
        const std::size_t where = random.below(random.below(2) == 0 ? 3000 : sizeof(large) / 2);
        switch (random.below(faults)) {
          case 0: h.cut = where; break;
          case 1: h.silent = where; break;
          case 2: h.each_ms = 8192; break;
          default: h.wrong = 500'000 + random.below(1'000'000); is_one = true;
        }
      }
      ways.push_back(
          std::make_unique<between>(a.owner->port(), [habits](std::size_t k) { return habits[k % habits.size()]; }));
      addresses.push_back(ways.back()->address());
    }
    const pulled p(addresses, *a.ref, std::max<std::size_t>(n, 1 + random.below(8)),
                   {.per_request_timeout = 5s, .retry = {.retries = 2, .first_delay = 1ms, .longest_delay = 5ms}});
    EXPECT_TRUE(!p.done || same(*p.model, source())) << seed;
    EXPECT_TRUE(p.done || good == n || is_one) << seed << ": " << to_string(p.done.error().code);
  }
}

/// Listens, says something to each that comes, and is silent then.
class says_and_is_silent {
 public:
  explicit says_and_is_silent(byte_vector said)
      : each_([said = std::move(said)](raw_peer& client, std::size_t, const std::stop_token& stop) {
          if (!client.say(said)) return;
          while (!stop.stop_requested() && !client.ended()) look_again_soon();
        }) {}
  std::string address() const { return each_.address(); }

 private:
  each_connection each_;
};

// All lines had one buffer for long frames.
TEST(ParallelPull, Whoever_begins_a_long_frame_and_is_silent_takes_no_buffer_from_others) {
  constexpr std::size_t count = 40;
  const std::uint64_t shape[1] = {64};
  std::vector<std::vector<float>> theirs(count, std::vector<float>(64, 1.5f)), mine(count, std::vector<float>(64));
  std::vector<std::string> names;
  std::vector<tp::tensor_view> published{{"unwanted", tp::dtype::f32, shape, nullptr}};
  std::vector<tp::mutable_tensor_view> wanted;
  for (std::size_t i = 0; i < count; ++i) names.push_back("layer." + std::to_string(10 + i) + ".weight");
  for (std::size_t i = 0; i < count; ++i) {
    published.push_back({names[i], tp::dtype::f32, shape, reinterpret_cast<const std::byte*>(theirs[i].data())});
    wanted.push_back({names[i], tp::dtype::f32, shape, reinterpret_cast<std::byte*>(mine[i].data())});
  }
  published[0].data = published[1].data;
  using list_net = tp::pipeline<tp::tensor_list, tp::fixed_bytes<4096>, tp::tcp>;
  auto owner = list_net::downloader::open();
  const auto image = tp::dynamic_image::make(std::span<const tp::tensor_view>(published));
  auto model = tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(wanted));
  ASSERT_TRUE(image && model);
  const auto ref = owner->add_tensors(*image);
  ASSERT_TRUE(ref);
  const serving server(*owner);
  byte_vector begun(64);
  begun[4] = std::byte{100};  // one segment of 800 bytes
  const says_and_is_silent stranger(begun);
  const std::string there[] = {stranger.address(), local(owner->port())};
  const std::string_view from[] = {there[0], there[1]};
  const auto done = list_net::download_tensors(tp::parallel_addresses<tp::tcp>(from), *ref, *model,
                                               {.per_request_timeout = 20s, .part = true, .retry = {.retries = 0}});
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(mine, theirs);
}

TEST(ParallelPull, Addresses_that_no_line_has_tried_follow_those_that_give_nothing_of_use) {
  publishes a(source(), {.id = {3, 4}});
  const auto other = random_model<large>(2);
  publishes b(*other, {.id = {3, 4}}), c(*other, {.id = {5, 6}});
  pulled({b.address(), c.address(), a.address()}, *a.ref, 1).expect(source());
}

// The only connection was lost once, and ended for good at an address of no use.
TEST(ParallelPull, A_connection_returns_to_an_address_that_it_lost_from_those_that_give_nothing_of_use) {
  publishes a(source(), {.id = {3, 4}});
  between lost_once(a.owner->port(), [](std::size_t n) { return habit{.cut = n == 0 ? 1'000'000 : never}; });
  const auto other = random_model<large>(2);
  publishes b(*other, {.id = {3, 4}}), c(*other, {.id = {5, 6}});
  pulled({lost_once.address(), b.address(), c.address()}, *a.ref, 1).expect(source());
  EXPECT_EQ(lost_once.connections(), 2u);
}

// An address that accepts nothing, and times that mean never.
TEST(ParallelPull, Never_is_no_time_at_all_for_an_address_to_connect) {
  const raw_listener full(0);
  std::vector<tp::posix_stream> waiting;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(full.port());
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (int i = 0; i < 4; ++i) {
    waiting.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)::connect(waiting.back().native_handle(), reinterpret_cast<const sockaddr*>(&to), sizeof to);
  }
  const std::string address = local(full.port());
  const std::string_view from[] = {address};
  int failed = 0;
  const auto tell = [&](const tp::address_attempt& a) { failed += a.failed != tp::errc{}; };
  constexpr auto never_over = std::chrono::milliseconds::max();
  std::stop_source stop;
  const joined_thread later([&] {
    be_slow(200ms);
    pass_time(1h);
    be_slow(200ms);
    stop.request_stop();
  });
  const auto mine = blank<large>();
  const auto done = net::download_tensors(tp::parallel_addresses<tp::tcp>(from, 1, never_over, tell), {{3, 4}, 5, 0},
                                          *mine, {.per_request_timeout = never_over, .stop = stop.get_token()});
  EXPECT_EQ(code_of(done), tp::errc::cancelled);
  EXPECT_EQ(failed, 0);
}

// Each connection brings a few bytes, and would do so for ever.
TEST(ParallelPull, A_few_bytes_give_no_tries_back) {
  publishes a(source(), {.id = {3, 4}});
  between one(a.owner->port(), [](std::size_t) { return habit{.cut = 400}; });
  auto options = tp::pull_options{.per_request_timeout = 20s, .retry = quick};
  options.stop = within(30s);
  const pulled p({one.address()}, *a.ref, 1, options);
  ASSERT_FALSE(p.done);
  EXPECT_NE(p.done.error(), tp::errc::cancelled) << one.connections() << " connections";
}

}  // namespace parallel_pull_test
