#include <tensorpull/embedded/flash_landing.hpp>

#include "simulated_flash.hpp"
#include "support/whole_schedule.hpp"

#include <tensorpull/embedded/landing.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

namespace flash_landing_test {

using namespace tensorpull;
using test::power_cut;

/// What flash_landing uses of an embedded_image, with a header of any length.
template <std::uint32_t Header, std::uint32_t Data, std::uint64_t Fingerprint = 77>
struct some_image {
  static constexpr std::uint32_t header_bytes = Header, data_bytes = Data, image_bytes = Header + Data;
  static constexpr std::uint64_t fingerprint = Fingerprint;
  static constexpr std::array<std::byte, Header> header = [] {
    std::array<std::byte, Header> bytes{};
    for (std::size_t i = 0; i < Header; ++i) bytes[i] = static_cast<std::byte>(i * 7 + Header);
    return bytes;
  }();
};

/// Bytes of the next chunk: it ends where a cursor can be kept, if it gets there.
template <class Landing>
constexpr std::uint32_t next_chunk(std::uint32_t at, std::uint32_t chunk) {
  constexpr std::uint32_t header = Landing::image::header_bytes, all = Landing::image::image_bytes;
  const std::uint32_t n = std::min(chunk, all - at);
  const std::uint32_t over = at + n > header ? (at + n - header) % Landing::cursor_step : 0;
  return over < n ? n - over : n;
}

/// One shape of flash, image and chunks.
template <std::uint32_t Page, std::uint32_t Unit, class Image, std::uint32_t Chunk,
          test::flash_kind Kind = test::flash_kind::nor>
struct shape {
  using flash = test::simulated_flash<Page, Unit, Kind>;
  using image = Image;
  using landing = flash_landing<Image, flash>;
  static constexpr std::uint32_t chunk = Chunk, chunks = [] {
    std::uint32_t n = 0;
    for (std::uint32_t at = 0; at < Image::image_bytes; at += next_chunk<landing>(at, Chunk)) ++n;
    return n;
  }();
  /// Chunks that a power cut costs at most: where the flash is programmed once, those of a page, and the one that ends
  /// in its middle with the header in it.
  static constexpr std::uint32_t lost = flash::programs_once ? (Page + Chunk - 1) / Chunk + 1 : 1;
};
using test::flash_kind;
// Each has about 20 chunks: words and chunks that fit each other; chunks that end anywhere; bytes; long units and
// chunks above a page; a header of several chunks; a last unit of one byte that begins a page.
using shapes = testing::Types<shape<256, 4, some_image<120, 1224>, 64>, shape<128, 8, some_image<77, 1003>, 52>,
                              shape<200, 1, some_image<13, 777>, 39>, shape<96, 16, some_image<105, 2310>, 120>,
                              shape<256, 4, some_image<500, 501>, 50>, shape<128, 4, some_image<40, 1281>, 66>,
                              shape<256, 8, some_image<120, 1224>, 64, flash_kind::ecc>,
                              shape<128, 4, some_image<77, 1003>, 52, flash_kind::zero>,
                              shape<96, 16, some_image<105, 2310>, 220, flash_kind::ecc>,
                              shape<512, 512, some_image<50, 2571>, 120, flash_kind::ecc>>;
static_assert(embedded_landing<flash_landing<some_image<8, 8>, test::simulated_flash<256, 4>>>);
static_assert(lasting_landing<flash_landing<some_image<8, 8>, test::simulated_flash<256, 4>>>);

constexpr ref_id ref{3, 4};
constexpr std::uint32_t first_page = 1;

/// An image that an owner has published.
template <class Image>
struct published {
  explicit published(std::uint64_t seed, ref_id under = ref) : id(under) {
    bytes.assign(Image::header.begin(), Image::header.end());
    bytes.resize(Image::image_bytes);
    test::generator(seed).fill(std::span(bytes).subspan(Image::header_bytes));
    xxh3_64 hash;
    hash.update(bytes);
    version = hash.digest();
  }
  ref_id id;
  std::vector<std::byte> bytes;
  std::uint64_t version;
};

struct pulled {
  std::uint64_t chunks = 0;  // fetched
  std::uint64_t from = 0;  // where the transfer began
  std::uint64_t cursors = 0;  // that were kept
  bool completed = false;
};

/// A recipient as embedded_recipient is one: it resumes where the cursor's hash proves the bytes before it, and saves
/// the cursor after each chunk. Ends when the power does.
template <class Landing, class Image>
pulled pull_into(Landing& landing, const published<Image>& what, std::uint32_t chunk) {
  pulled p;
  xxh3_64 hash;
  std::uint32_t at = 0;
  constexpr std::uint32_t header = Image::header_bytes;
  if (const resume_cursor c = landing.cursor(); c && c.ref == what.id && c.version == what.version &&
                                                c.fingerprint == Image::fingerprint && c.offset <= Image::image_bytes) {
    at = static_cast<std::uint32_t>(c.offset);
    std::vector<std::byte> there(Image::header.begin(), Image::header.end());
    there.resize(at);
    const bool good = at <= header || landing.read(0, std::span(there).subspan(header));
    hash.update(there);
    if (!good || hash.digest() != c.digest || (at == Image::image_bytes && c.digest != c.version)) {
      hash = {};
      at = 0;
    }
  }
  p.from = at;
  if (at == Image::image_bytes) {  // the last byte comes again, for the owner's sake, and lands nowhere
    p.chunks = 1;
    p.completed = true;
    return p;
  }
  while (at < Image::image_bytes) {
    const std::uint32_t n = next_chunk<Landing>(at, chunk);
    const std::span<const std::byte> bytes = std::span(what.bytes).subspan(at, n);
    ++p.chunks;
    hash.update(bytes);
    if (at + n > header) {
      const std::uint32_t skip = at < header ? header - at : 0;
      if (!landing.write(at + skip - header, bytes.subspan(skip))) return p;
    }
    at += n;
    if (!landing.save({what.id, Image::fingerprint, what.version, at, hash.digest()})) return p;
    p.cursors += at <= header || at == Image::image_bytes || (at - header) % Landing::cursor_step == 0;
  }
  p.completed = hash.digest() == what.version;
  return p;
}

template <class Flash, class Image>
bool holds(Flash& flash, const published<Image>& what) {
  const std::size_t at = (first_page + 2) * Flash::page_bytes;
  return std::equal(what.bytes.begin() + Image::header_bytes, what.bytes.end(),
                    flash.bytes().begin() + static_cast<std::ptrdiff_t>(at));
}

template <class Shape>
class FlashLanding : public testing::Test {
 protected:
  static constexpr std::uint32_t pages = first_page + Shape::landing::pages + 1;

  pulled run(typename Shape::flash& in, const published<typename Shape::image>& what,
             std::uint32_t chunk = Shape::chunk) {
    typename Shape::landing there(in, first_page);
    return pull_into(there, what, chunk);
  }
  bool valid(typename Shape::flash& in) { return typename Shape::landing(in, first_page).valid(); }
  std::uint64_t finished(typename Shape::flash& in) { return typename Shape::landing(in, first_page).finished(); }
};
TYPED_TEST_SUITE(FlashLanding, shapes);

TYPED_TEST(FlashLanding, Takes_an_image_and_erases_each_page_once) {
  using shape = TypeParam;
  for (const bool blank : {false, true}) {
    typename shape::flash flash(this->pages, 5, blank);
    const auto before = flash.bytes();
    const published<typename shape::image> model(1);
    EXPECT_FALSE(this->valid(flash));
    const pulled p = this->run(flash, model);
    EXPECT_TRUE(p.completed);
    EXPECT_EQ(p.from, 0u);
    EXPECT_EQ(p.chunks, shape::chunks);
    EXPECT_TRUE(holds(flash, model));
    EXPECT_TRUE(this->valid(flash));
    EXPECT_EQ(this->finished(flash), model.version);
    EXPECT_EQ(flash.complaint(), "");
    constexpr std::uint64_t each = cursor_slots<typename shape::flash>::records_per_page;
    EXPECT_EQ(flash.erases(first_page) + flash.erases(first_page + 1), (p.cursors + each - 1) / each);
    for (std::uint32_t page = first_page + 2; page < first_page + shape::landing::pages; ++page)
      EXPECT_EQ(flash.erases(page), 1u) << page;
    for (const std::uint32_t page : {0u, this->pages - 1}) {
      EXPECT_EQ(flash.erases(page), 0u);
      EXPECT_TRUE(std::equal(flash.bytes().begin() + page * flash.page_bytes,
                             flash.bytes().begin() + (page + 1) * flash.page_bytes,
                             before.begin() + page * flash.page_bytes))
          << "page " << page << " is of somebody else";
    }
  }
}

TYPED_TEST(FlashLanding, Goes_on_after_a_power_cut_at_any_operation) {
  using shape = TypeParam;
  const published<typename shape::image> model(1), older(2);
  test::generator random(11);
  std::uint64_t cuts = 0, resumed = 0, refetched = 0;
  for (std::uint64_t start = 0; start < 3; ++start) {  // garbage; blank flash; an older version that is finished
    typename shape::flash fresh(this->pages, 5 + start, start == 1);
    if (start == 2) {
      ASSERT_TRUE(this->run(fresh, older).completed);
      fresh.restart();
    }
    for (const power_cut kind : {power_cut::before, power_cut::within, power_cut::after})
      for (std::uint64_t at = 0;; ++at) {
        bool done = false;
        for (std::uint64_t seed = 0; seed < test::repetitions(kind == power_cut::within ? 8 : 2); ++seed) {
          typename shape::flash flash = fresh;
          // The first cut is at each operation in turn, the ones after it are anywhere.
          flash.cut_after(at, kind);
          std::uint64_t fetched = 0, more = 0;
          for (std::uint64_t attempt = 0;; ++attempt) {
            ASSERT_LT(attempt, 20u);
            const pulled p = this->run(flash, model);
            fetched += p.chunks;
            if (attempt > 0 && p.from > 0) ++resumed;
            if (p.completed) break;
            ASSERT_FALSE(flash.on()) << "only a power cut ends a transfer";
            ++more;
            flash.restart();
            ASSERT_FALSE(this->valid(flash) && !holds(flash, model) && !holds(flash, older))
                << "what is valid is a whole image";
            if (attempt < seed + 1) flash.cut_after(random.below(40), static_cast<power_cut>(random.below(3)));
          }
          if (at == 0 && kind == power_cut::before) {
            ASSERT_GT(more, 0u);
          }
          done = more == 0;
          ASSERT_EQ(flash.complaint(), "") << "operation " << at << " seed " << seed;
          ASSERT_TRUE(holds(flash, model));
          ASSERT_TRUE(this->valid(flash));
          ASSERT_EQ(this->finished(flash), model.version);
          ASSERT_LE(fetched, shape::chunks + more * shape::lost)
              << "a cut costs a chunk, or a page; operation " << at << " seed " << seed;
          cuts += more;
          refetched += fetched - shape::chunks;
        }
        if (done) break;
      }
  }
  EXPECT_GT(cuts, test::repetitions(1000));
  EXPECT_GT(resumed, cuts / 2);
  EXPECT_GT(refetched, cuts / 4);
}

TYPED_TEST(FlashLanding, A_power_cut_at_any_byte_leaves_a_device_whose_next_pull_completes) {
  using shape = TypeParam;
  const published<typename shape::image> model(1), older(2);
  typename shape::flash fresh(this->pages, 5);
  ASSERT_TRUE(this->run(fresh, older).completed);
  std::uint64_t cuts = 0, all = 0, from_zero = 0;
  for (std::uint64_t at = 0; at == 0 || cuts > 0; ++at) {
    cuts = 0;
    for (std::uint64_t byte = at % 7, bytes = byte + 1; byte < bytes; byte += test::whole_schedule() ? 1 : 7, ++cuts) {
      typename shape::flash flash = fresh;
      flash.restart();
      flash.cut_after(at, power_cut::within, byte);
      if (this->run(flash, model).completed) break;
      bytes = flash.bytes_of_cut();
      flash.restart();
      const pulled p = this->run(flash, model);
      ASSERT_TRUE(p.completed) << "operation " << at << " byte " << byte;
      ASSERT_EQ(flash.complaint(), "") << "operation " << at << " byte " << byte;
      ASSERT_TRUE(holds(flash, model));
      ASSERT_TRUE(this->valid(flash));
      ++all;
      from_zero += p.from == 0;
    }
  }
  EXPECT_LT(from_zero, all / 2) << "most go on";
}

TYPED_TEST(FlashLanding, Goes_on_with_chunks_of_another_length_after_a_power_cut) {
  // Then other units are torn than those that come next, and another record follows the torn one.
  using shape = TypeParam;
  const published<typename shape::image> model(1);
  for (const power_cut kind : {power_cut::within, power_cut::after})
    for (std::uint64_t at = 0;; ++at) {
      typename shape::flash flash(this->pages, at);
      flash.cut_after(at, kind);
      const bool done = this->run(flash, model).completed;
      flash.restart();
      ASSERT_TRUE(this->run(flash, model, shape::chunk / 3).completed);
      ASSERT_EQ(flash.complaint(), "") << "operation " << at;
      ASSERT_TRUE(holds(flash, model));
      ASSERT_TRUE(this->valid(flash));
      if (done) break;
    }
}

TYPED_TEST(FlashLanding, Writes_nothing_of_a_finished_image_again) {
  using shape = TypeParam;
  typename shape::flash flash(this->pages, 5);
  const published<typename shape::image> model(1);
  ASSERT_TRUE(this->run(flash, model).completed);
  const std::uint64_t operations = flash.operations();
  flash.restart();
  EXPECT_EQ(this->finished(flash), model.version);
  const pulled p = this->run(flash, model);
  EXPECT_TRUE(p.completed);
  EXPECT_EQ(p.from, shape::image::image_bytes);
  EXPECT_EQ(flash.operations(), operations);
}

TYPED_TEST(FlashLanding, Begins_at_byte_zero_for_anything_else) {
  using shape = TypeParam;
  using image = typename shape::image;
  const published<image> model(1), newer(2), elsewhere(1, {3, 5});
  typename shape::flash flash(this->pages, 5);
  {
    typename shape::landing landing(flash, first_page);
    published<image> wrong = model;
    wrong.version += 1;
    EXPECT_FALSE(pull_into(landing, wrong, shape::chunk).completed) << "the digest differs at the end";
    EXPECT_EQ(landing.finished(), wrong.version);
    EXPECT_FALSE(landing.valid()) << "by its cursor it is there, by its hash it is not";
    flash.restart();
  }
  {
    EXPECT_EQ(this->run(flash, published<image>(3)).from, 0u);
    typename shape::landing landing(flash, first_page);
    EXPECT_TRUE(landing.save({})) << "a program may throw the cursor away";
    EXPECT_EQ(landing.finished(), 0u);
    EXPECT_FALSE(landing.cursor());
    EXPECT_EQ(this->run(flash, published<image>(3)).from, 0u);
  }
  const auto reset = [&] {
    flash.restart();
    ASSERT_TRUE(this->run(flash, model).completed);
    flash.restart();
  };
  reset();
  EXPECT_EQ(this->run(flash, newer).from, 0u) << "another version";
  EXPECT_TRUE(holds(flash, newer));
  EXPECT_TRUE(this->valid(flash));
  reset();
  EXPECT_EQ(this->run(flash, elsewhere).from, 0u) << "another reference";
  reset();
  {
    using other = some_image<image::header_bytes, image::data_bytes, 78>;
    flash_landing<other, typename shape::flash> landing(flash, first_page);
    EXPECT_FALSE(landing.cursor()) << "a cursor of another model";
    EXPECT_EQ(landing.finished(), 0u);
    EXPECT_FALSE(landing.valid());
    EXPECT_EQ(pull_into(landing, published<other>(1), shape::chunk).from, 0u);
  }
  {
    using longer = some_image<image::header_bytes, image::data_bytes - 1>;
    reset();
    flash_landing<longer, typename shape::flash> landing(flash, first_page);
    EXPECT_FALSE(landing.cursor()) << "a cursor behind the image's end";
  }
  // every byte of the data, and with it the cursor, is believed only with its hash
  reset();
  const std::uint32_t data = (first_page + 2) * flash.page_bytes;
  for (std::uint32_t i = 0; i < image::data_bytes; i += 1 + i % 7) {
    flash.bytes()[data + i] ^= std::byte{16};
    EXPECT_FALSE(this->valid(flash)) << i;
    typename shape::flash copy = flash;
    const pulled p = this->run(copy, model);
    EXPECT_EQ(p.from, 0u) << i;
    EXPECT_TRUE(p.completed);
    EXPECT_TRUE(holds(copy, model));
    EXPECT_EQ(copy.complaint(), "");
    flash.bytes()[data + i] ^= std::byte{16};
  }
  EXPECT_TRUE(this->valid(flash));
}

TYPED_TEST(FlashLanding, Finds_pages_that_were_erased_by_half) {
  using shape = TypeParam;
  const published<typename shape::image> model(1);
  typename shape::flash flash(this->pages, 5);
  ASSERT_TRUE(this->run(flash, model).completed);
  std::uint64_t broken = 0;
  for (std::uint32_t page = first_page; page < first_page + shape::landing::pages; ++page) {
    typename shape::flash copy = flash;
    copy.restart();
    copy.cut_after(0, power_cut::within);
    EXPECT_FALSE(copy.erase(page));
    copy.restart();
    if (page >= first_page + 2) {
      const bool whole = holds(copy, model);  // a page with one byte of it may still have that
      broken += !whole;
      EXPECT_EQ(this->valid(copy), whole);
      EXPECT_EQ(this->run(copy, model).from, whole ? shape::image::image_bytes : 0);
    } else {
      EXPECT_TRUE(this->run(copy, model).completed);
    }
    EXPECT_TRUE(this->run(copy, model).completed);
    EXPECT_TRUE(holds(copy, model));
    EXPECT_TRUE(this->valid(copy));
  }
  EXPECT_GE(broken, shape::landing::pages - 3);
}

TYPED_TEST(FlashLanding, Begins_anew_when_an_owner_sends_other_bytes_under_the_same_version) {
  // A chunk that was damaged on its way is in flash, and the power went ahead of its cursor. The right chunk cannot be
  // written over it.
  using shape = TypeParam;
  const published<typename shape::image> model(1);
  auto damaged = model;
  const std::size_t middle = shape::image::header_bytes + shape::image::data_bytes / 2;
  for (std::size_t i = middle; i < damaged.bytes.size(); ++i) damaged.bytes[i] ^= std::byte{0xff};
  std::uint64_t began_anew = 0;
  for (std::uint64_t at = 0;; ++at) {
    typename shape::flash flash(this->pages, 5);
    flash.cut_after(at, power_cut::after);
    (void)this->run(flash, damaged);
    if (flash.on()) break;  // it came to the end, and the digest differs
    flash.restart();
    bool completed = false;
    for (int attempt = 0; attempt < 3 && !completed; ++attempt) {
      const pulled p = this->run(flash, model);
      completed = p.completed;
      if (attempt > 0) {
        EXPECT_EQ(p.from, 0u);
        ++began_anew;
      }
    }
    ASSERT_TRUE(completed) << at;
    ASSERT_TRUE(holds(flash, model)) << at;
    ASSERT_TRUE(this->valid(flash)) << at;
  }
  EXPECT_GT(began_anew, 0u);
}

TYPED_TEST(FlashLanding, A_worn_cell_never_ends_as_completed_with_other_bytes) {
  // Also in a byte that waited for the rest of its unit, and was programmed with a later chunk.
  using shape = TypeParam;
  using image = typename shape::image;
  const published<image> model(1);
  for (const std::uint32_t chunk : {shape::chunk, 24u, 7u})
    for (std::uint32_t at = 0; at < image::data_bytes; at += test::whole_schedule() ? 3 : 11) {
      typename shape::flash flash(this->pages, 5, true);
      flash.wear((first_page + 2) * flash.page_bytes + at, std::byte{0x10});
      typename shape::landing landing(flash, first_page);
      const bool completed = pull_into(landing, model, chunk).completed;
      ASSERT_EQ(completed, holds(flash, model)) << "byte " << at << " with chunks of " << chunk;
      ASSERT_EQ(this->valid(flash), completed);
      ASSERT_EQ(flash.complaint(), "");
      if (!completed) {
        ASSERT_FALSE(landing.cursor()) << "nothing counts other bytes; byte " << at << " with chunks of " << chunk;
      }
    }
}

TYPED_TEST(FlashLanding, A_worn_cell_behind_the_image_is_no_fault) {
  // In the last unit, if that is not whole.
  using shape = TypeParam;
  const published<typename shape::image> model(1);
  typename shape::flash flash(this->pages, 5, true);
  flash.wear((first_page + 2) * flash.page_bytes + shape::image::data_bytes, std::byte{0}, std::byte{0x10});
  EXPECT_TRUE(this->run(flash, model).completed);
  EXPECT_TRUE(this->valid(flash));
}

TYPED_TEST(FlashLanding, A_restart_erases_at_most_a_page_of_the_cursor_more_and_those_that_begin_in_a_chunk) {
  using shape = TypeParam;
  using flash = typename shape::flash;
  const published<typename shape::image> model(1);
  const auto erases = [](const flash& in, std::uint32_t from, std::uint32_t to) {
    std::uint64_t n = 0;
    for (std::uint32_t page = from; page < to; ++page) n += in.erases(page);
    return n;
  };
  constexpr std::uint32_t data = first_page + 2, end = first_page + shape::landing::pages;
  flash whole(this->pages, 5, true);
  ASSERT_TRUE(this->run(whole, model).completed);
  // a chunk that begins anywhere
  constexpr std::uint64_t in_a_chunk = flash::programs_once
                                           ? std::max(1u, shape::chunk / flash::page_bytes)
                                           : (shape::chunk + flash::page_bytes - 1) / flash::page_bytes;
  std::uint64_t most = 0;
  for (const power_cut kind : {power_cut::before, power_cut::within, power_cut::after})
    for (std::uint64_t at = 0; at < whole.operations(); ++at) {
      flash cut(this->pages, 5, true);
      cut.cut_after(at, kind);
      (void)this->run(cut, model);
      cut.restart();
      ASSERT_TRUE(this->run(cut, model).completed);
      ASSERT_LE(erases(cut, first_page, data), erases(whole, first_page, data) + 1) << "operation " << at;
      ASSERT_LE(erases(cut, data, end), erases(whole, data, end) + in_a_chunk) << "operation " << at;
      most = std::max(most, erases(cut, data, end) - erases(whole, data, end));
    }
  EXPECT_EQ(most, in_a_chunk);
}

TYPED_TEST(FlashLanding, Takes_chunks_of_any_length) {
  using shape = TypeParam;
  const published<typename shape::image> model(1);
  for (std::uint32_t chunk : {1u, 3u, 7u, 17u, 250u, shape::image::image_bytes}) {
    typename shape::flash flash(this->pages, chunk);
    ASSERT_TRUE(this->run(flash, model, chunk).completed);
    ASSERT_TRUE(holds(flash, model));
    EXPECT_EQ(flash.complaint(), "");
    for (std::uint32_t page = first_page + 2; page < first_page + shape::landing::pages; ++page)
      EXPECT_EQ(flash.erases(page), 1u) << page;
  }
}

TYPED_TEST(FlashLanding, Refuses_what_is_out_of_place) {
  using shape = TypeParam;
  using image = typename shape::image;
  typename shape::flash flash(this->pages, 5);
  typename shape::landing landing(flash, first_page);
  const std::vector<std::byte> some(image::data_bytes + 1);
  std::vector<std::byte> out(image::data_bytes + 1);
  const auto bytes = std::span(some);
  EXPECT_EQ(landing.data_at(), (first_page + 2) * flash.page_bytes);
  EXPECT_EQ(landing.write(1, bytes.first(1)).error(), errc::invalid_argument) << "nothing is ahead of it";
  EXPECT_EQ(landing.write(0, bytes).error(), errc::invalid_argument) << "longer than the image";
  EXPECT_EQ(landing.write(~0u, bytes.first(1)).error(), errc::invalid_argument);
  EXPECT_EQ(flash.operations(), 0u);
  constexpr std::uint32_t n = std::max(10u, shape::landing::cursor_step);
  EXPECT_TRUE(landing.write(0, bytes.first(n)));
  EXPECT_EQ(landing.write(n + 1, bytes.first(1)).error(), errc::invalid_argument);
  EXPECT_EQ(landing.write(n - 1, bytes.first(1)).error(), errc::invalid_argument);
  EXPECT_EQ(landing.write(n, bytes.first(image::data_bytes - n + 1)).error(), errc::invalid_argument);
  const resume_cursor c{ref, image::fingerprint, 5, image::header_bytes + n, 6};
  for (const std::uint64_t offset :
       {c.offset - 1, c.offset + 1, c.offset + flash.page_bytes, std::uint64_t{image::image_bytes} + 1}) {
    resume_cursor wrong = c;
    wrong.offset = offset;
    EXPECT_EQ(landing.save(wrong).error(), errc::invalid_argument) << offset;
  }
  EXPECT_TRUE(landing.save(c));
  EXPECT_EQ(landing.cursor(), c);
  EXPECT_TRUE(landing.read(0, std::span(out).first(n)));
  EXPECT_EQ(landing.read(0, std::span(out).first(n + 1)).error(), errc::out_of_range);
  EXPECT_EQ(landing.read(n + 1, std::span(out).first(0)).error(), errc::out_of_range);
  EXPECT_EQ(landing.read(~0u, std::span(out).first(2)).error(), errc::out_of_range);
  EXPECT_TRUE(landing.write(n, bytes.first(1)));
  EXPECT_EQ(landing.save(c).error(), errc::invalid_argument) << "behind it are bytes already";
  EXPECT_EQ(landing.cursor(), c);
  EXPECT_EQ(landing.finished(), 0u);
  EXPECT_FALSE(landing.valid());
  flash.cut_after(0, power_cut::before);
  EXPECT_EQ(landing.write(n, bytes.first(image::data_bytes - n)).error(), errc::io);
  EXPECT_EQ(landing.read(0, std::span(out).first(1)).error(), errc::io);
  flash.restart();
  flash.cut_after(0, power_cut::before);
  EXPECT_EQ(landing.save({}).error(), errc::io);
  EXPECT_EQ(flash.complaint(), "");
}

TYPED_TEST(FlashLanding, A_look_at_the_cursor_costs_no_erase) {
  using shape = TypeParam;
  const published<typename shape::image> model(1);
  typename shape::flash flash(this->pages, 5), watched(this->pages, 5);
  ASSERT_TRUE(this->run(flash, model).completed);
  struct watchful : shape::landing {
    using shape::landing::landing;
    result<void> save(const resume_cursor& c) noexcept {
      (void)this->finished();
      return shape::landing::save(c);
    }
  } landing(watched, first_page);
  ASSERT_TRUE(pull_into(landing, model, shape::chunk).completed);
  EXPECT_EQ(watched.operations(), flash.operations());
  EXPECT_EQ(watched.complaint(), "");
}

struct undeclared : test::simulated_flash<128, 8, flash_kind::ecc> {
  using simulated_flash::simulated_flash;
  static constexpr bool programs_once = false;
};

TEST(FlashLandingUndeclared, Flash_that_refuses_a_unit_and_did_not_say_so_begins_anew) {
  using image = some_image<77, 1003>;
  using landing = flash_landing<image, undeclared>;
  const published<image> model(1);
  std::uint64_t refused = 0;
  for (std::uint64_t at = 0, on = 0; on == 0; ++at) {
    undeclared flash(first_page + landing::pages, at);
    flash.cut_after(at, power_cut::within);
    (void)pull_into(*std::make_unique<landing>(flash, first_page), model, 52);
    on = flash.on();
    flash.restart();
    bool completed = false;
    for (int attempt = 0; attempt < 2 && !completed; ++attempt) {
      completed = pull_into(*std::make_unique<landing>(flash, first_page), model, 52).completed;
      refused += !completed;
    }
    ASSERT_TRUE(completed) << at;
    ASSERT_TRUE(holds(flash, model)) << at;
  }
  EXPECT_GT(refused, 0u);
}

TEST(FlashLandingEmpty, An_image_without_data_needs_only_its_cursor) {
  using flash = test::simulated_flash<256, 4>;
  using image = some_image<64, 0>;
  using landing = flash_landing<image, flash>;
  static_assert(landing::pages == 2);
  flash in(3, 1);
  landing there(in, 1);
  EXPECT_TRUE(pull_into(there, published<image>(1), 16).completed);
  EXPECT_TRUE(there.valid());
  EXPECT_EQ(pull_into(there, published<image>(1), 16).from, 64u);
}

TEST(FlashLandingUnverified, An_image_without_a_digest_is_finished_and_not_valid) {
  using flash = test::simulated_flash<256, 4>;
  using image = some_image<64, 640>;
  using landing = flash_landing<image, flash>;
  flash in(1 + landing::pages, 1);
  landing there(in, 1);
  const published<image> what(1);
  ASSERT_TRUE(there.write(0, std::span(what.bytes).subspan(64)));
  ASSERT_TRUE(there.save({ref, image::fingerprint, 4711, image::image_bytes, what.version}));
  EXPECT_EQ(there.finished(), 4711u);
  EXPECT_FALSE(there.valid());
}

}  // namespace flash_landing_test
