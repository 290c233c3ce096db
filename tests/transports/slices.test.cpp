// Slices by the public interface: workers whose structs have a part of the rows of the owner's.
#include "network.hpp"
#include "support/own_folder.hpp"

#include <tensorpull/transports/over/udp/udp.hpp>
#include <tensorpull/transports/over/unix_socket/unix_socket.hpp>

namespace slices_test {

using namespace test;

/// A quarter of `dense`: 32 of its 128 rows.
struct quarter {
  float w[32][784];
  float b[32];
};
struct quarter_of_mlp {
  quarter hidden;
  std::int64_t step;
};

/// Of `dense` a part of every row, and all of the rest.
template <std::size_t Columns>
struct columns_of_dense {
  float w[128][Columns];
  float b[128];
};
template <std::size_t Columns>
struct columns_of_mlp {
  columns_of_dense<Columns> hidden;
  std::int64_t step;
};

/// A layer of `rows` outputs.
template <std::size_t Rows>
struct layer {
  float w[Rows][6];
  float b[Rows];
};
/// Forty tensors: more than an owner with short control frames has memory for.
template <std::size_t Rows>
struct layers {
  layer<Rows> a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t;
};
using whole_layers = layers<8>;
using quarter_of_layers = layers<2>;

}  // namespace slices_test

BOOST_HANA_ADAPT_STRUCT(slices_test::quarter, w, b);
BOOST_HANA_ADAPT_STRUCT(slices_test::quarter_of_mlp, hidden, step);
BOOST_HANA_ADAPT_STRUCT(slices_test::columns_of_dense<196>, w, b);
BOOST_HANA_ADAPT_STRUCT(slices_test::columns_of_mlp<196>, hidden, step);
BOOST_HANA_ADAPT_STRUCT(slices_test::columns_of_dense<49>, w, b);
BOOST_HANA_ADAPT_STRUCT(slices_test::columns_of_mlp<49>, hidden, step);
BOOST_HANA_ADAPT_STRUCT(slices_test::layer<8>, w, b);
BOOST_HANA_ADAPT_STRUCT(slices_test::layer<2>, w, b);
BOOST_HANA_ADAPT_STRUCT(slices_test::whole_layers, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t);
BOOST_HANA_ADAPT_STRUCT(slices_test::quarter_of_layers, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t);

namespace slices_test {

using slices = std::array<tp::tensor_slice, 2>;
slices rows_of(std::uint64_t worker) {
  const std::uint64_t begin = worker % 4 * 32;
  return {{{"hidden.w", begin, begin + 32}, {"hidden.b", begin, begin + 32}}};
}
bool is_quarter(const quarter_of_mlp& mine, const mlp& whole, std::uint64_t worker) {
  return std::memcmp(mine.hidden.w, whole.hidden.w[worker % 4 * 32], sizeof mine.hidden.w) == 0 &&
         std::memcmp(mine.hidden.b, whole.hidden.b + worker % 4 * 32, sizeof mine.hidden.b) == 0 &&
         mine.step == whole.step;
}

template <class Transport>
struct OverTransport : testing::Test {};
using transports = testing::Types<tp::tcp, tp::unix_socket>;
TYPED_TEST_SUITE(OverTransport, transports);

TYPED_TEST(OverTransport, Eight_workers_have_a_quarter_each) {
  using owning = raw_net<mlp, TypeParam>;
  using pulling = raw_net<quarter_of_mlp, TypeParam>;
  const bool is_unix = std::is_same_v<TypeParam, tp::unix_socket>;
  const std::string name = abstract_name();
  auto owner = owning::downloader::open({.listen = is_unix ? name : std::string(any_port)});
  ASSERT_TRUE(succeeded(owner));
  const auto source = random_model<mlp>(1);
  const auto ref = owner->add_tensors(*source, {.recipients = 8});
  ASSERT_TRUE(succeeded(ref));
  std::string at = name;
  if constexpr (!std::is_same_v<TypeParam, tp::unix_socket>) at = local(owner->port());
  serving server(*owner);
  for (std::uint64_t worker = 0; worker < 8; ++worker) {
    const auto mine = blank<quarter_of_mlp>();
    const auto parts = rows_of(worker);
    const auto done = pulling::download_tensors(at, *ref, *mine, {.slices = parts, .recipient = {worker + 1}});
    ASSERT_TRUE(succeeded(done)) << worker;
    EXPECT_EQ(done->outcome, tp::outcome::completed);
    EXPECT_EQ(done->bytes, sizeof(quarter) + sizeof(std::int64_t));
    EXPECT_TRUE(is_quarter(*mine, *source, worker)) << worker;
  }
  server.stop();
  const auto now = owner->status_of(*ref);
  ASSERT_TRUE(now);
  EXPECT_EQ(now->completed, 8u);
  EXPECT_EQ(now->bytes_sent, 2 * sizeof(dense) + 8 * sizeof(std::int64_t));
}

/// Four workers pull some columns each, in chunks as `Chunks` cuts them.
template <class Transport, class Chunks, std::size_t Columns>
void expect_columns(const std::string& listen) {
  using owning = tp::pipeline<tp::raw_tensors<mlp>, Chunks, Transport>;
  using pulling = tp::pipeline<tp::raw_tensors<columns_of_mlp<Columns>>, Chunks, Transport>;
  auto owner = owning::downloader::open({.listen = listen});
  ASSERT_TRUE(succeeded(owner));
  const auto source = random_model<mlp>(1);
  const auto ref = owner->add_tensors(*source, {.recipients = 4});
  ASSERT_TRUE(succeeded(ref));
  std::string at = listen;
  if constexpr (!std::is_same_v<Transport, tp::unix_socket>) at = local(owner->port());
  serving server(*owner);
  for (std::uint64_t worker = 0; worker < 4; ++worker) {
    const auto mine = blank<columns_of_mlp<Columns>>();
    const std::array<tp::tensor_slice, 1> part{{{"hidden.w", Columns * worker, Columns * (worker + 1), 1}}};
    const auto done = pulling::download_tensors(at, *ref, *mine, {.slices = part, .recipient = {worker + 1}});
    ASSERT_TRUE(succeeded(done)) << worker;
    EXPECT_EQ(done->outcome, tp::outcome::completed);
    EXPECT_EQ(done->bytes, sizeof(columns_of_dense<Columns>) + sizeof(std::int64_t));
    for (std::size_t row = 0; row < 128; ++row)
      ASSERT_EQ(std::memcmp(mine->hidden.w[row], source->hidden.w[row] + Columns * worker, 4 * Columns), 0)
          << worker << ' ' << row;
    EXPECT_EQ(std::memcmp(mine->hidden.b, source->hidden.b, sizeof mine->hidden.b), 0);
    EXPECT_EQ(mine->step, source->step);
  }
  server.stop();
  const auto now = owner->status_of(*ref);
  ASSERT_TRUE(now);
  EXPECT_EQ(now->completed, 4u);
}
TYPED_TEST(OverTransport, Four_workers_have_some_columns_each) {
  const auto listen = [] {
    return std::is_same_v<TypeParam, tp::unix_socket> ? abstract_name() : std::string(any_port);
  };
  expect_columns<TypeParam, tp::fixed_bytes<64_KiB>, 196>(listen());
  expect_columns<TypeParam, tp::fixed_bytes<1000>, 196>(listen());  // a run, and a part of another
}
TEST(SlicesOverDatagrams, Four_workers_have_some_columns_each) {
  expect_columns<tp::udp, tp::fixed_bytes<1112>, 49>(std::string(any_port));
  expect_columns<tp::udp, tp::fixed_bytes<1112>, 196>(std::string(any_port));
}

/// An owner that takes 34 names in a request, and 5 slices; a recipient of the default limits sends up to 62 and 21.
struct short_frames : tp::default_limits {
  static constexpr std::size_t control_frame_bytes = 1088;
};

/// Two recipients of the default limits pull a quarter, and all by name, from an owner over `Transport`.
template <class Transport, class Chunks, class Limits>
void expect_pulled(const std::string& listen) {
  using owning = tp::pipeline<tp::raw_tensors<whole_layers>, Chunks, Transport, Limits>;
  auto owner = owning::downloader::open({.listen = listen});
  ASSERT_TRUE(succeeded(owner));
  const auto source = random_model<whole_layers>(1);
  const auto ref = owner->add_tensors(*source, {.recipients = 2});
  ASSERT_TRUE(succeeded(ref));
  std::string at = listen;
  if constexpr (!std::is_same_v<Transport, tp::unix_socket>) at = local(owner->port());
  serving server(*owner);

  std::vector<std::string> names;
  for (char c = 'a'; c <= 't'; ++c) names.push_back({c, '.', 'w'}), names.push_back({c, '.', 'b'});
  std::vector<tp::tensor_slice> rows;
  for (const auto& each : names) rows.push_back({each, 4, 6});
  const auto quarter = blank<quarter_of_layers>();
  using part = tp::pipeline<tp::raw_tensors<quarter_of_layers>, Chunks, Transport>;
  const auto sliced = part::download_tensors(at, *ref, *quarter, {.slices = rows, .recipient = {1}});
  ASSERT_TRUE(succeeded(sliced));
  EXPECT_EQ(sliced->outcome, tp::outcome::completed);
  const auto* const from = reinterpret_cast<const layer<8>*>(source.get());
  const auto* const to = reinterpret_cast<const layer<2>*>(quarter.get());
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(std::memcmp(to[i].w, from[i].w[4], sizeof to[i].w), 0) << names[2 * i];
    EXPECT_EQ(std::memcmp(to[i].b, from[i].b + 4, sizeof to[i].b), 0) << names[2 * i + 1];
  }
  const auto mine = blank<whole_layers>();
  using whole = tp::pipeline<tp::raw_tensors<whole_layers>, Chunks, Transport>;
  ASSERT_TRUE(succeeded(whole::download_tensors(at, *ref, *mine, {.part = true, .recipient = {2}})));
  EXPECT_TRUE(same(*mine, *source));
  server.stop();
  const auto now = owner->status_of(*ref);
  ASSERT_TRUE(now);
  EXPECT_EQ(now->completed, 2u);
  EXPECT_GE(now->bytes_sent, sizeof(whole_layers) / 4 + sizeof(whole_layers));
}

/// One that takes 16 names, and 2 slices, and no frame that is as long as a recipient of the default limits sends.
struct shorter_frames : tp::default_limits {
  static constexpr std::size_t control_frame_bytes = 512, page_bytes = 480;
};

TYPED_TEST(OverTransport, An_owner_with_short_control_frames_is_asked_several_times) {
  const auto listen = [] {
    return std::is_same_v<TypeParam, tp::unix_socket> ? abstract_name() : std::string(any_port);
  };
  expect_pulled<TypeParam, tp::fixed_bytes<64_KiB>, short_frames>(listen());
  expect_pulled<TypeParam, tp::fixed_bytes<64_KiB>, shorter_frames>(listen());
}

/// What an owner of a small machine speaks of, too.
struct one_request : shorter_frames {
  static constexpr std::size_t pipelined_requests = 1;
};
TEST(SlicesOverDatagrams, An_owner_of_one_request_at_a_time_is_asked_several_times) {
  expect_pulled<tp::udp, tp::fixed_bytes<1112>, short_frames>(std::string(any_port));
  expect_pulled<tp::udp, tp::fixed_bytes<1112>, shorter_frames>(std::string(any_port));
  expect_pulled<tp::udp, tp::fixed_bytes<1112>, one_request>(std::string(any_port));
}

TEST(SlicesOverASession, Are_pulled_by_either_end) {
  using net = raw_net<mlp, tp::tcp>;
  using part = raw_net<quarter_of_mlp, tp::tcp>;
  auto listener = tp::tcp_listener::open(any_port);
  ASSERT_TRUE(succeeded(listener));
  const auto source = random_model<mlp>(2);
  joined_thread other([&] {
    auto s = net::session::connect(local(listener->port()));
    ASSERT_TRUE(succeeded(s));
    const auto ref = s->add_tensors(*source, {.recipients = 1});
    const std::array refs{*ref};
    EXPECT_TRUE(s->send(1, refs, {}));
    EXPECT_TRUE(s->serve(tp::until_settled(*ref), 60s));
  });
  auto accepted = listener->accept(20s);
  ASSERT_TRUE(succeeded(accepted));
  auto s = part::session::over(std::move(*accepted));
  ASSERT_TRUE(succeeded(s));
  const auto told = s->receive(60s);
  ASSERT_TRUE(succeeded(told));
  const auto mine = blank<quarter_of_mlp>();
  const auto parts = rows_of(3);
  ASSERT_TRUE(succeeded(s->download_tensors(told->references[0], *mine, {.slices = parts})));
  EXPECT_TRUE(is_quarter(*mine, *source, 3));
}

}  // namespace slices_test
