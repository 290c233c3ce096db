// The seeds of this folder's targets.
#include "fuzz/seeds.hpp"

#include <tensorpull/satellites/differences/deflate/deflate.hpp>
#include <tensorpull/satellites/differences/difference.hpp>

namespace test::fuzz {
namespace {

void make_differences() {
  tp::deflate_coder coder;
  generator g(1);
  // one block: as one_block() draws the old elements
  const auto block = [&](const char* name, tp::dtype type, std::size_t width, std::size_t n, std::uint64_t most,
                         std::size_t every = 1) {
    generator of_old(7);
    bytes old(n * width), scratch(n * width), out(tp::coded_block_bound(n * width));
    of_old.fill(old);
    bytes now = old;
    for (std::size_t i = 0; i < now.size(); i += width * every) now[i] ^= static_cast<std::byte>(g.below(most));
    out.resize(tp::encode_block(coder, type, old, now, out, scratch));
    const bytes start{std::byte{0}, static_cast<std::byte>(type), static_cast<std::byte>(n),
                      static_cast<std::byte>(n >> 8), std::byte{7}};
    write("differences", name, joined({start, out}));
  };
  block("valid-f32", tp::dtype::f32, 4, 300, 8);
  block("valid-bf16-of-nothing", tp::dtype::bf16, 2, 100, 1);
  block("valid-i64-of-noise", tp::dtype::i64, 8, 20, 256);
  block("valid-c64", tp::dtype::c64, 4, 200, 4);
  block("valid-bool", tp::dtype::boolean, 1, 90, 2);
  block("valid-sparse-bf16", tp::dtype::bf16, 2, 900, 4, 90);
  block("valid-sparse-f64", tp::dtype::f64, 8, 200, 256, 20);
  block("valid-no-element", tp::dtype::f64, 8, 0, 2);

  static small_model model;
  model.fill(1);
  const bytes before = model.image_bytes();
  static small_model other;
  other.fill(1);
  const auto to = other.destination();
  for (std::size_t i = 0; i < to.schema->tensor_count; ++i)
    if (to.schema->tensors[i].type != tp::dtype::boolean && to.schema->tensors[i].size_bytes() != 0)
      to.address(i)[0] ^= std::byte{5};
  const auto made = tp::model_difference::make(model.destination(), to, coder);
  const bytes lengths{std::byte{40}, std::byte{6}};
  write("differences", "valid-whole", joined({bytes{std::byte{2}}, lengths, made->bytes()}));
  write("differences", "valid-blocks", joined({bytes{std::byte{1}}, lengths, made->bytes().subspan(64)}));
  write("differences", "block-too-long", joined({bytes{std::byte{1}}, lengths, bytes(8, std::byte{0xff})}));
  write("differences", "prologue-alone", joined({bytes{std::byte{2}}, lengths, made->bytes().first(64)}));
}

const seeds mine{make_differences};

}  // namespace
}  // namespace test::fuzz
