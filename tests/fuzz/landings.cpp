// An image that is written by ranges, in any order, twice, or beside where it belongs, and read by ranges.
#include "fixture.hpp"
#include "support/words.hpp"

#include <tensorpull/consumers/any_schema/image_landing.hpp>
#include <tensorpull/image/gather_scatter.hpp>

#include <memory>

namespace test::fuzz {
namespace {

/// Each tensor ends where nobody may write.
struct guarded_tensors {
  std::vector<std::pair<std::string, guarded_bytes>> made;
  std::uint64_t bytes = 0;

  tp::result<std::byte*> allocate(const tp::tensor_entry& entry) {
    bytes += entry.size_bytes();
    require(bytes <= 1u << 20, "no more is allocated than the limits allow");
    return made.emplace_back(std::string(entry.name), guarded_bytes(static_cast<std::size_t>(entry.size_bytes())))
        .second.bytes()
        .data();
  }
  void clear() noexcept { made.clear(); }
};
using landing = tp::image_landing<guarded_tensors>;

/// The same rules in another way: which bytes are there, one flag each.
struct shadow {
  std::vector<bool> there;
  byte_vector bytes;
  std::size_t header = 0;  ///< where the tensors begin; 0: not known

  std::size_t first_missing() const {
    return static_cast<std::size_t>(std::find(there.begin(), there.end(), false) - there.begin());
  }
};

std::uint64_t number(input in, std::size_t at, std::size_t width) {
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < width && at + i < in.size(); ++i)
    n |= std::uint64_t{static_cast<std::uint8_t>(in[at + i])} << (8 * i);
  return n;
}

/// Reads of any range give the image's bytes there.
void check_reads(const tp::source_view& source, const_byte_span image, input in) {
  std::array<std::byte, 64> slice;
  for (std::size_t i = 0; i + 4 <= in.size() && i < 64; i += 4) {
    std::size_t at = static_cast<std::size_t>(number(in, i, 2)) % image.size();
    std::size_t left = std::min<std::size_t>(static_cast<std::size_t>(number(in, i + 2, 2)), image.size() - at);
    while (left > 0) {
      std::array<const_byte_span, 3> pieces;
      const tp::gathered g = tp::gather(source, at, left, pieces, slice);
      require(!g.failed && g.bytes > 0 && g.bytes <= left, "a read gives something, and no more than was asked for");
      for (std::size_t k = 0; k < g.pieces; ++k) {
        require(pieces[k].size() <= left &&
                    std::equal(pieces[k].begin(), pieces[k].end(), image.begin() + static_cast<std::ptrdiff_t>(at)),
                "a read gives the image's bytes");
        at += pieces[k].size(), left -= pieces[k].size();
      }
    }
  }
}

}  // namespace

/// A mode (whose header, and how long the image is said to be), the number of writes, writes of five bytes each (what,
/// offset, length); the image of the input lies behind them.
static unsigned landings(input in) {
  static small_model model;
  model.fill(1);
  static const byte_vector valid = model.image_bytes();
  const unsigned mode = static_cast<unsigned>(number(in, 0, 1));
  const std::size_t writes = static_cast<std::size_t>(number(in, 1, 1));
  in = in.subspan(std::min<std::size_t>(in.size(), 2));
  const input ops = in.first(std::min(in.size(), 5 * writes)), rest = in.subspan(ops.size());
  byte_vector image(rest.begin(), rest.end());
  if ((mode & 1) == 0 || image.empty()) image = valid;
  if ((mode & 6) == 2) image.resize(valid.size(), std::byte{0});
  std::uint64_t stated = image.size();
  if ((mode & 8) != 0) stated = number(in, 0, 8);
  const bool claims = stated != image.size();

  landing to({}, stated, {.max_bytes = 1u << 19, .max_header_bytes = 4096, .max_tensors = 64});
  shadow model_of{std::vector<bool>(image.size(), false), byte_vector(image.size()), 0};
  unsigned taken = 0;
  bool over = false;
  for (std::size_t i = 0; i < ops.size() && !over; i += 5) {
    const unsigned what = static_cast<unsigned>(number(ops, i, 1));
    std::uint64_t offset = number(ops, i + 1, 2);
    const std::size_t length = std::min<std::size_t>(static_cast<std::size_t>(number(ops, i + 3, 2)), 4096);
    if ((what & 3) == 1) offset = to.first_missing();  // what comes next
    if ((what & 3) == 2) offset = ~std::uint64_t{0} - offset;
    if ((what & 3) == 3) offset += to.made().header_bytes;
    byte_vector bytes(length, static_cast<std::byte>(what));
    const bool inside = offset < image.size();
    if (inside && (what & 128) == 0)
      std::copy_n(image.begin() + static_cast<std::ptrdiff_t>(offset),
                  std::min<std::size_t>(length, image.size() - static_cast<std::size_t>(offset)), bytes.begin());
    // of the exact size, so that a sanitizer sees a read behind it
    const std::unique_ptr<std::byte[]> exact(new std::byte[length]);
    std::copy(bytes.begin(), bytes.end(), exact.get());

    const bool had_header = to.header_complete();
    const std::uint64_t before = to.written();
    const auto how = to.write(offset, {exact.get(), length});
    over = to.over();
    if (how) {
      require(offset <= stated && length <= stated - offset, "nothing behind the end is taken");
      require(to.written() == before + length, "what is taken is counted");
      ++taken;
      if (claims) continue;
      for (std::size_t k = 0; k < length; ++k) {
        const std::size_t at = static_cast<std::size_t>(offset) + k;
        require(!model_of.there[at], "no byte is taken twice");
        model_of.there[at] = true;
        model_of.bytes[at] = bytes[k];
      }
      require(had_header || offset == before || length == 0, "the header comes in order");
      if (!model_of.there.empty()) require(to.first_missing() == model_of.first_missing(), "it knows what is missing");
    } else if (!over) {
      require(to.written() == before, "what is refused changes nothing");
      const auto code = how.error().code;
      require(code == tp::errc::out_of_range || code == tp::errc::bad_request || code == tp::errc::too_large,
              "a refusal has one of three names");
      if (claims) continue;
      bool twice = false;
      for (std::size_t k = 0; inside && k < length && offset + k < image.size(); ++k)
        twice = twice || model_of.there[static_cast<std::size_t>(offset) + k];
      if (code == tp::errc::bad_request) require(twice, "only what is there is refused as there");
      if (code == tp::errc::out_of_range)
        require(offset > stated || length > stated - offset || !had_header,
                "only what lies outside is refused as outside");
    }
    for (const auto& [name, memory] : to.allocator().made)
      require(memory.intact(), "nothing is written around a tensor");
  }
  if (over) {
    require(to.allocator().made.empty(), "what was made is freed when it is over");
    require(to.write(0, {}).error().code == tp::errc::invalid_argument, "nothing is taken when it is over");
    return taken;
  }
  const bool whole = !claims && model_of.first_missing() == image.size();
  const auto done = to.finish<tp::xxhash_digest>(0);
  if (!claims) require(done.has_value() == whole || !done, "nothing finishes before all of it is there");
  if (!done) {
    require(done.error().code == tp::errc::out_of_range || to.over(), "what can still come is awaited");
    return taken;
  }
  require(whole && *done == digest_of(model_of.bytes), "what has finished has the digest of what was written");
  std::uint64_t at = to.made().header_bytes;
  require(to.allocator().made.size() == to.made().entries().size(), "each tensor was made once");
  std::vector<tp::tensor_view> views;
  std::size_t i = 0;
  for (const tp::tensor_entry& e : to.made().entries()) {
    const auto memory = to.allocator().made[i++].second.bytes();
    require(std::equal(memory.begin(), memory.end(), model_of.bytes.begin() + static_cast<std::ptrdiff_t>(at)),
            "each tensor has its bytes");
    at += memory.size();
    views.push_back({e.name, e.type, std::span(e.shape, e.rank), memory.data()});
  }
  if (to.made().pairs().empty()) {
    const auto again = tp::dynamic_image::make(std::span<const tp::tensor_view>(views));
    if (again) check_reads(again->source(), model_of.bytes, ops);
  }
  return taken + 100;
}
static const registered landings_target{{"landings", landings}};

}  // namespace test::fuzz
