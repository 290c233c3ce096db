// Files of NumPy's: one array, or an archive of them.
#include "fuzz/target.hpp"

#include "support/zip_archive.hpp"

#include <tensorpull/image/utf8.hpp>
#include <tensorpull/satellites/numpy_files/detail/inflate.hpp>
#include <tensorpull/satellites/numpy_files/detail/npy_header.hpp>
#include <tensorpull/satellites/numpy_files/detail/npy_reader.hpp>
#include <tensorpull/satellites/numpy_files/detail/zip_directory.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace test::fuzz {
namespace {

namespace tp = tensorpull;
__extension__ typedef unsigned __int128 wide;  // sizes whose products cannot wrap

bool same(const tp::npy_header& a, const tp::npy_header& b) {
  return a.format.type == b.format.type && a.format.swap_bytes == b.format.swap_bytes &&
         a.fortran_order == b.fortran_order && a.data_bytes == b.data_bytes &&
         std::ranges::equal(a.extents(), b.extents());
}

/// The header as NumPy would write it.
std::string rewritten(const tp::npy_header& h) {
  std::string descr, shape = "(";
  for (const char* kind : {"b1", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8"})
    if (tp::parse_numpy_descr(kind)->type == h.format.type)
      descr = (h.format.swap_bytes != 0 ? ">" : "<") + std::string(kind);
  if (descr.empty()) descr = tp::numpy_name(h.format.type);
  for (const std::uint64_t n : h.extents()) shape += std::to_string(n) + ", ";
  return "{'descr': '" + descr + "', 'fortran_order': " + (h.fortran_order ? "True" : "False") + ", 'shape': " + shape +
         "), }";
}

tp::result<tp::npy_header> parsed(std::string_view file) {
  return tp::parse_npy_header(std::as_bytes(std::span(file)).first(std::min(file.size(), tp::npy_header_most_bytes)),
                              file.size());
}

unsigned one_array(std::string_view file) {
  const auto header = parsed(file);
  if (!header) return 0;
  const tp::npy_header& h = *header;
  wide bytes = tp::bits(h.format.type) / 8;
  for (const std::uint64_t n : h.extents()) bytes *= n;
  require(tp::is_valid(h.format.type) && bytes == h.data_bytes, "an array has the bytes that its shape says");
  require(h.data_offset <= file.size() && h.data_bytes <= file.size() - h.data_offset, "an array lies in its file");
  const std::string_view data = file.substr(h.data_offset, h.data_bytes);

  for (const unsigned version : {1u, 2u, 3u}) {
    const auto again = parsed(npy(rewritten(h), data, version));
    require(again && same(h, *again), "what is read can be written, and is read as the same");
  }
  const auto with_tail = parsed(std::string(file) + "tail");
  require(with_tail && same(h, *with_tail), "what lies behind an array says nothing");
  require(!parsed(file.substr(0, h.data_offset + h.data_bytes - (h.data_bytes != 0))) == (h.data_bytes != 0),
          "an array that is not whole is none");

  const memory_file content{std::string(file)};
  tp::detail::npy_place place;
  place.offset = h.data_offset;
  place.element_bytes = static_cast<std::uint8_t>(tp::bits(h.format.type) / 8);
  place.swap_bytes = h.format.swap_bytes;
  if (h.fortran_order && h.rank > 1 && h.data_bytes != 0) {
    place.rank = h.rank;
    place.shape = h.shape.data();
  }
  const auto read = [&](std::uint64_t offset, std::size_t n) {
    std::string out(n, '\xff');
    require(tp::detail::npy_reader(content, place).read(offset, std::as_writable_bytes(std::span(out))).has_value(),
            "an array can be read");
    return out;
  };
  const std::string whole = read(0, data.size());
  for (std::size_t at = 0, step = 1 + file.size() % 13; at < whole.size(); at += step)
    require(read(at, std::min(step, whole.size() - at)) == whole.substr(at, step),
            "a part of an array is a part of its whole");
  require(std::is_permutation(whole.begin(), whole.end(), data.begin(), data.end()),
          "every byte of an array is a byte of its file");
  return 1;
}

unsigned archive(std::string_view file) {
  const memory_file content{std::string(file)};
  const auto members = tp::detail::zip_directory(content).read(100);
  if (!members) return 0;
  unsigned arrays = 1;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
  for (const tp::detail::zip_member& m : *members) {
    require(m.offset <= file.size() && m.packed <= file.size() - m.offset, "a member lies in its archive");
    require(tp::is_utf8(m.name) && m.name.find('\0') == m.name.npos, "a name is UTF-8");
    places.emplace_back(m.offset, m.packed);
    if (!m.deflated) {
      arrays += one_array(file.substr(m.offset, m.size));
      continue;
    }
    constexpr std::uint64_t most = 1 << 20;  // what an archive claims costs no more time than this
    const std::uint64_t size = std::min(m.size, most);
    const auto unpacked = tp::detail::inflater(content, m.offset, m.offset + m.packed).unpack(size);
    if (!unpacked) continue;
    require(unpacked->size() == size, "a member has the bytes that it is said to have");
    arrays += one_array({reinterpret_cast<const char*>(unpacked->data()), unpacked->size()});
  }
  std::sort(places.begin(), places.end());
  for (std::size_t i = 1; i < places.size(); ++i)
    require(places[i - 1].first + places[i - 1].second <= places[i].first, "members do not overlap");
  return arrays;
}

}  // namespace

static unsigned arrays(input given) {
  const std::string_view file(reinterpret_cast<const char*>(given.data()), given.size());
  return file.starts_with("PK") ? archive(file) : one_array(file);
}
static const registered arrays_target{{"arrays", arrays}};

}  // namespace test::fuzz
