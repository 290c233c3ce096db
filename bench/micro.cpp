// The parts that a transfer is made of, each alone: gather and scatter of a range, frames, digest, the header of an
// image.
#include <tensorpull/consumers/average/detail/elements.hpp>
#include <tensorpull/consumers/average/weighing.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/framing/capnp/capnp_framing.hpp>
#include <tensorpull/framing/detail/payload_prefix.hpp>
#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/image/header_reader.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>
#include <tensorpull/protocol/owner/owner.hpp>
#include <tensorpull/satellites/differences/block.hpp>
#include <tensorpull/satellites/differences/scheme/scaled_blocks.hpp>

#include <benchmark/benchmark.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

using namespace tensorpull;

/// Tensors of `bytes` bytes each, 64 bytes apart, so that each is a piece of its own.
struct sample {
  sample(std::size_t count, std::size_t bytes) : memory((bytes + 64) * count), shape{bytes / 4} {
    std::vector<mutable_tensor_view> all;
    for (std::size_t i = 0; i < count; ++i) names.push_back("layers." + std::to_string(i) + ".weight");
    for (std::size_t i = 0; i < count; ++i)
      all.push_back({.name = names[i], .type = dtype::f32, .shape = shape, .data = memory.data() + i * (bytes + 64)});
    image.emplace(*dynamic_image::make(std::span<const mutable_tensor_view>(all)));
  }
  std::vector<std::byte> memory;
  std::array<std::uint64_t, 1> shape;
  std::vector<std::string> names;
  std::optional<dynamic_image> image;
};

/// A chunk in the middle of 400 tensors; range(0): its length, range(1): bytes of a tensor.
static void gather_range(benchmark::State& state) {
  sample s(400, static_cast<std::size_t>(state.range(1)));
  const source_view from = s.image->source();
  const std::uint64_t middle = from.schema->header_bytes + from.schema->data_bytes() / 2;
  std::array<std::span<const std::byte>, 64> spans;
  std::array<std::byte, 64> slice;
  for (auto _ : state)
    benchmark::DoNotOptimize(gather(from, middle, static_cast<std::uint64_t>(state.range(0)), spans, slice));
}
BENCHMARK(gather_range)->ArgNames({"bytes", "tensor"})->Args({65536, 262144})->Args({65536, 4096})->Args({65536, 1024});

static void scatter_range(benchmark::State& state) {
  sample s(400, static_cast<std::size_t>(state.range(1)));
  const destination_view to = s.image->destination();
  const std::uint64_t middle = to.schema->header_bytes + to.schema->data_bytes() / 2;
  std::array<std::span<std::byte>, 64> spans;
  for (auto _ : state) benchmark::DoNotOptimize(scatter(to, middle, static_cast<std::uint64_t>(state.range(0)), spans));
}
BENCHMARK(scatter_range)
    ->ArgNames({"bytes", "tensor"})
    ->Args({65536, 262144})
    ->Args({65536, 4096})
    ->Args({65536, 1024});

static frame a_pull() {
  frame m;
  m.kind = frame_kind::pull;
  m.id = 7;
  m.ref = {1, 2};
  m.version = 3;
  m.offset = 1 << 20;
  m.length = 2 << 20;
  return m;
}
template <class Framing>
static void encode_pull(benchmark::State& state) {
  alignas(8) std::array<std::byte, 512> out;
  frame m = a_pull();
  for (auto _ : state) {
    benchmark::DoNotOptimize(m);
    benchmark::DoNotOptimize(Framing::encode(m, out));
  }
}
BENCHMARK(encode_pull<word_framing>);
BENCHMARK(encode_pull<capnp_framing>);

template <class Framing>
static void decode_pull(benchmark::State& state) {
  alignas(8) std::array<std::byte, 512> bytes;
  const std::size_t n = *Framing::encode(a_pull(), bytes);
  for (auto _ : state) {
    frame m;
    typename Framing::decode_storage lists;
    benchmark::DoNotOptimize(Framing::decode(std::span<const std::byte>(bytes).first(n), m, lists));
    benchmark::DoNotOptimize(m.length);
  }
}
BENCHMARK(decode_pull<word_framing>);
BENCHMARK(decode_pull<capnp_framing>);

static void write_chunk_prefix(benchmark::State& state) {
  std::array<std::byte, detail::payload_prefix::bytes> out;
  frame m = a_pull();
  m.kind = frame_kind::chunk;
  for (auto _ : state) {
    benchmark::DoNotOptimize(m);
    detail::payload_prefix::write(m, out);
    benchmark::DoNotOptimize(out);
  }
}
BENCHMARK(write_chunk_prefix);

static void read_chunk_prefix(benchmark::State& state) {
  std::array<std::byte, detail::payload_prefix::bytes> bytes;
  frame m = a_pull();
  m.kind = frame_kind::chunk;
  detail::payload_prefix::write(m, bytes);
  for (auto _ : state) {
    benchmark::DoNotOptimize(bytes);
    benchmark::DoNotOptimize(detail::payload_prefix::read(bytes));
  }
}
BENCHMARK(read_chunk_prefix);

/// range(0) bytes that are in the cache, as they are when a chunk is hashed as it lands.
template <class Hash>
static void digest(benchmark::State& state) {
  const std::vector<std::byte> bytes(static_cast<std::size_t>(state.range(0)), std::byte{1});
  for (auto _ : state) {
    Hash h;
    h.update(bytes);
    benchmark::DoNotOptimize(h.digest());
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * state.range(0));
}
BENCHMARK(digest<xxhash_digest>)->Arg(4096)->Arg(262144);
BENCHMARK(digest<xxh3_64>)->Arg(4096)->Arg(262144);

static std::vector<std::byte> header_of(const sample& s) {
  std::vector<std::byte> text(static_cast<std::size_t>(s.image->schema().header_bytes));
  write_header(s.image->schema(), 0, text);
  return text;
}
/// range(0) tensors
static void write_header_text(benchmark::State& state) {
  const sample s(static_cast<std::size_t>(state.range(0)), 64);
  std::vector<std::byte> text = header_of(s);
  for (auto _ : state) benchmark::DoNotOptimize(write_header(s.image->schema(), 0, text));
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
}
BENCHMARK(write_header_text)->Arg(16)->Arg(400)->Arg(10000);

static void parse_header_text(benchmark::State& state) {
  const sample s(static_cast<std::size_t>(state.range(0)), 64);
  const std::vector<std::byte> text = header_of(s);
  for (auto _ : state) {
    header_reader rows(1 << 20);
    if (!rows.take(text) || !rows.complete()) state.SkipWithError("the header was refused");
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
}
BENCHMARK(parse_header_text)->Arg(16)->Arg(400)->Arg(10000);

/// What an owner does before it can publish: order, offsets, fingerprint.
static void arrange_tensors(benchmark::State& state) {
  const sample s(static_cast<std::size_t>(state.range(0)), 64);
  std::vector<mutable_tensor_view> all;
  for (const std::string& name : s.names)
    all.push_back(
        {.name = name, .type = dtype::f32, .shape = s.shape, .data = const_cast<std::byte*>(s.memory.data())});
  for (auto _ : state) benchmark::DoNotOptimize(dynamic_image::make(std::span<const mutable_tensor_view>(all)));
}
BENCHMARK(arrange_tensors)->Arg(16)->Arg(400)->Arg(10000);

// An average of models that are larger than any cache: what one update adds, and the result, from zero and as a
// difference to the old model. Bytes are those of one model.

template <class Element, class Origin>
struct averaging {
  static constexpr std::size_t n = (std::size_t{64} << 20) / Element::bytes;
  std::vector<std::byte> update = std::vector<std::byte>(n * Element::bytes, std::byte{0x3c}), old = update;
  std::vector<typename Element::sum> sums = std::vector<typename Element::sum>(n);

  Origin origin() const noexcept {
    if constexpr (std::is_same_v<Origin, detail::no_old_model>) return {};
    else return {old.data()};
  }
  static void count(benchmark::State& state) {
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * n * Element::bytes));
  }
};

template <class Element, class Origin>
static void average_adds(benchmark::State& state) {
  averaging<Element, Origin> a;
  for (auto _ : state) {
    detail::add_weighted<Element>(a.sums.data(), a.update.data(), a.n, typename Element::sum{0.25}, a.origin());
    benchmark::ClobberMemory();
  }
  a.count(state);
}
template <class Element, class Origin>
static void average_writes(benchmark::State& state) {
  averaging<Element, Origin> a;
  double weight = 2.5;
  benchmark::DoNotOptimize(weight);  // of a constant, compilers divide floats in the place of doubles
  for (auto _ : state) {
    detail::write_quotients<Element>(a.update.data(), a.sums.data(), a.n, weight, a.origin());
    benchmark::ClobberMemory();
  }
  a.count(state);
}
using f32 = detail::native_float<float>;
using f64 = detail::native_float<double>;
using bf16 = detail::small_float<detail::bf16_format>;
BENCHMARK(average_adds<f32, detail::no_old_model>);
BENCHMARK(average_adds<f32, detail::old_model>);
BENCHMARK(average_adds<f64, detail::no_old_model>);
BENCHMARK(average_adds<f64, detail::old_model>);
BENCHMARK(average_adds<bf16, detail::no_old_model>);
BENCHMARK(average_adds<bf16, detail::old_model>);
BENCHMARK(average_writes<f32, detail::no_old_model>);
BENCHMARK(average_writes<f32, detail::old_model>);

/// A block of BF16 weights of which a share has changed by one in the last bit, and what leads there and back.
struct differing {
  static constexpr std::size_t n = difference_block_bytes;
  std::vector<std::byte> old = std::vector<std::byte>(n), now, scratch = old, coded, back;
  no_coder coder;

  explicit differing(std::int64_t permille) {
    for (std::size_t i = 0; i < n; i += 2) {
      const auto is = std::bit_cast<std::uint32_t>(0.03f + 1e-4f * static_cast<float>(i % 1000)) >> 16U;
      old[i] = static_cast<std::byte>(is & 0xff), old[i + 1] = static_cast<std::byte>(is >> 8U);
    }
    now = old;
    std::minstd_rand draw(1);
    for (std::size_t i = 0; i < n; i += 2)
      if (static_cast<std::int64_t>(draw() % 1000) < permille) now[i] ^= std::byte{1};
    for (auto* const out : {&coded, &back}) {
      out->resize(coded_block_bound(n));
      const auto& from = out == &coded ? old : now;
      out->resize(encode_block(coder, dtype::bf16, from, out == &coded ? now : old, *out, scratch));
    }
  }
  static void count(benchmark::State& state) {
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * n));
  }
};
/// range(0): thousandths of the elements that have changed.
static void difference_encodes(benchmark::State& state) {
  differing d(state.range(0));
  std::vector<std::byte> out(coded_block_bound(d.n));
  for (auto _ : state) benchmark::DoNotOptimize(encode_block(d.coder, dtype::bf16, d.old, d.now, out, d.scratch));
  d.count(state);
}
static void difference_applies(benchmark::State& state) {
  differing d(state.range(0));
  bool there = false;
  for (auto _ : state) {
    if (!apply_block(d.coder, dtype::bf16, d.old, there ? d.back : d.coded, d.scratch)) std::abort();
    benchmark::ClobberMemory();
    there = !there;
  }
  d.count(state);
}
BENCHMARK(difference_encodes)->ArgName("permille")->Arg(0)->Arg(2)->Arg(10)->Arg(50)->Arg(1000);
BENCHMARK(difference_applies)->ArgName("permille")->Arg(0)->Arg(2)->Arg(10)->Arg(50)->Arg(1000);

// Ten whole updates of 16 MiB, looked at and weighed. Bytes are those of all updates.

struct ten_updates {
  static constexpr std::size_t n = std::size_t{4} << 20;
  std::uint64_t extent = n;
  std::vector<std::vector<float>> memory = std::vector<std::vector<float>>(12, std::vector<float>(n));
  std::vector<dynamic_image> images;
  std::optional<weighing> all;

  ten_updates() {
    for (std::size_t m = 0; m < memory.size(); ++m) {
      for (std::size_t i = 0; i < n; ++i)
        memory[m][i] = 0.03f + 1e-6f * static_cast<float>(i % 1000) + 1e-5f * static_cast<float>((i * 7 + m * 13) % 17);
      const mutable_tensor_view one{.name = "w",
                                    .type = dtype::f32,
                                    .shape = {&extent, 1},
                                    .data = reinterpret_cast<std::byte*>(memory[m].data())};
      images.push_back(*dynamic_image::make(std::span(&one, 1)));
    }
    all.emplace(*weighing::make(images[10].destination(), images[11].source(), 10));
    for (std::uint64_t i = 0; i < 10; ++i) (void)all->add({recipient_id{i + 1}, 1.0, images[i].source()});
  }
  static void count(benchmark::State& state) {
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * 10 * n * 4));
  }
};
/// range(0): how many of the ten are new; the others were looked at when they came.
static void weighing_looks(benchmark::State& state) {
  ten_updates u;
  const auto add = [&](std::uint64_t i) { (void)u.all->add({recipient_id{i + 1}, 1.0, u.images[i].source()}); };
  const auto fresh = static_cast<std::uint64_t>(state.range(0));
  for (auto _ : state) {
    state.PauseTiming();
    u.all->reset();
    for (std::uint64_t i = 0; i < 10 - fresh; ++i) add(i);
    if (fresh < 10) (void)u.all->look();
    for (std::uint64_t i = 10 - fresh; i < 10; ++i) add(i);
    state.ResumeTiming();
    benchmark::DoNotOptimize(u.all->look());
  }
  u.count(state);
}
/// What there is to read, for comparison: memcpy of each update into the result's memory.
static void weighing_copies(benchmark::State& state) {
  ten_updates u;
  for (auto _ : state)
    for (std::size_t i = 0; i < 10; ++i) {
      std::memcpy(u.memory[10].data(), u.memory[i].data(), u.n * sizeof(float));
      benchmark::ClobberMemory();
    }
  u.count(state);
}
static void weighing_finishes(benchmark::State& state) {
  ten_updates u;
  for (auto _ : state) benchmark::DoNotOptimize(u.all->finish(clip_norms{}));
  u.count(state);
}
static void weighing_trims(benchmark::State& state) {
  ten_updates u;
  for (auto _ : state) benchmark::DoNotOptimize(u.all->trimmed_mean(1));
  u.count(state);
}
BENCHMARK(weighing_looks)->ArgName("new")->Arg(10)->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK(weighing_copies)->Unit(benchmark::kMillisecond);
BENCHMARK(weighing_finishes)->Unit(benchmark::kMillisecond);
BENCHMARK(weighing_trims)->Unit(benchmark::kMillisecond);

/// A block of 256 F32 elements in 8 or 4 bits: its scale and codes, and the move that they make.
template <unsigned Bits>
struct narrowing {
  using blocks = scaled_blocks<256, Bits>;
  static constexpr std::size_t n = 256;
  std::array<float, n> base{}, now{};
  std::array<typename blocks::code_type, blocks::code_bytes(n)> codes{};
  float scale = 0;

  narrowing() {
    for (std::size_t i = 0; i < n; ++i) {
      base[i] = 0.03f + 1e-4f * static_cast<float>(i % 100);
      now[i] = base[i] + 1e-6f * static_cast<float>(i % 37);
    }
    code();
  }
  void code() {
    scale = *blocks::template scale<float>(now, base);
    blocks::template narrow<float>(now, base, scale, codes);
  }
  static void count(benchmark::State& state) {
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * n * 4));
  }
};
template <unsigned Bits>
static void narrowing_codes(benchmark::State& state) {
  narrowing<Bits> b;
  for (auto _ : state) {
    b.code();
    benchmark::ClobberMemory();
  }
  b.count(state);
}
template <unsigned Bits>
static void narrowing_moves(benchmark::State& state) {
  narrowing<Bits> b;
  for (auto _ : state) {
    narrowing<Bits>::blocks::template move<float>(b.base, b.scale, b.codes);
    benchmark::ClobberMemory();
  }
  b.count(state);
}
BENCHMARK(narrowing_codes<8>);
BENCHMARK(narrowing_moves<8>);
BENCHMARK(narrowing_codes<4>);
BENCHMARK(narrowing_moves<4>);

// What one short request costs an owner of 20,000 tensors whose table of recipients is full of strangers.

struct busy_owner {
  sample s{20000, 64};
  owner_storage<4, 2048> storage;
  std::uint64_t numbers = 1;
  owner<xxhash_digest> machine{storage, [this] { return ++numbers; }};
  owner<xxhash_digest>::peer peer;
  frame request;
  busy_owner() {
    (void)machine.publish(s.image->source(), 1, false, {1, 2}, 0u);
    request.ref = {1, 2};
    for (int i = 0; i < 4096; ++i) describe();
  }
  pending_reply describe() {
    request.kind = frame_kind::describe;
    request.recipient = {++numbers};
    return ask();
  }
  pending_reply ask() {
    pending_reply r;
    machine.handle(peer, request, r);
    return r;
  }
};

static void describe_by_a_new_recipient(benchmark::State& state) {
  busy_owner o;
  for (auto _ : state) {
    const pending_reply r = o.describe();
    const bool pinned = o.machine.pin(r) != nullptr;
    if (!pinned) state.SkipWithError("it was refused");
    benchmark::DoNotOptimize(o.machine.expand(r));
    o.machine.unpin(r, 0);
  }
}
BENCHMARK(describe_by_a_new_recipient);

/// range(0): where in the header, in percent.
static void pull_a_byte_of_the_header(benchmark::State& state) {
  busy_owner o;
  o.request.kind = frame_kind::pull;
  o.request.length = 1;
  o.request.offset = (o.s.image->schema().header_bytes - 16) * static_cast<std::uint64_t>(state.range(0)) / 100;
  std::array<std::span<const std::byte>, 16> pieces;
  std::array<std::byte, 4096> slice;
  for (auto _ : state) {
    const pending_reply r = o.ask();
    const source_view* const image = o.machine.pin(r);
    if (image == nullptr || gather(*image, r.offset, r.length, pieces, slice).bytes != 1)
      state.SkipWithError("it was refused");
    o.machine.unpin(r, 1);
  }
}
BENCHMARK(pull_a_byte_of_the_header)->Arg(0)->Arg(50)->Arg(100);

BENCHMARK_MAIN();
