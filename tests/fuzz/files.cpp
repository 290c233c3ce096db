// A safetensors file: accepted exactly if a second opinion accepts it, and published as what it says.
#include "support/words.hpp"
#include "target.hpp"

#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/system/files.hpp>
#include <tensorpull/tensors/safetensors/safetensors.hpp>

#include <nlohmann/json.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace test::fuzz {
namespace {

namespace tp = tensorpull;
using json = nlohmann::json;
__extension__ typedef unsigned __int128 wide;

/// A file without a place on a disk, made anew for each content.
class memory_file {
 public:
  memory_file() : file_(::memfd_create("fuzz", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(file_.get())) {
    require(static_cast<bool>(file_), "a file in memory can be made");
  }
  tp::result<tp::safetensors_image> open_with(std::string_view content) const {
    const bool written = ::ftruncate(file_.get(), 0) == 0 &&
                         tp::detail::write_all(file_.get(), 0, std::as_bytes(std::span(content))) == 0;
    require(written, "a file in memory can be written");
    return tp::safetensors_image::open(path_);
  }
  void shrink_to(std::size_t n) const {
    require(::ftruncate(file_.get(), static_cast<off_t>(n)) == 0, "a file in memory can be cut");
  }

 private:
  tp::detail::file_descriptor file_;
  std::string path_;
};

struct tensor {
  std::string type;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin, end;
};

/// What a header says; nothing if the reference library or its specification refuses it.
struct opinion {
  std::map<std::string, tensor> tensors;
  std::map<std::string, std::string> metadata;
  std::uint64_t data_bytes = 0;
};

/// The JSON, unless one key that means something stands twice in its object, or it is nested too deep.
std::optional<json> parsed(const std::string& text) {
  if (text.empty() || text[0] != '{' || text.find('\0') != text.npos || text[text.find_last_not_of(' ')] != '}')
    return std::nullopt;
  bool refused = false;
  std::string member;
  std::set<std::string> members, fields;
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if ((event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) && depth >= 127)
      refused = true;
    if (event != json::parse_event_t::key) return true;
    const std::string key = value;
    if (depth == 1) member = key, fields.clear(), refused |= !members.insert(key).second;
    const bool meant = member == "__metadata__" || key == "dtype" || key == "shape" || key == "data_offsets";
    if (depth == 2 && meant) refused |= !fields.insert(key).second;
    return true;
  };
  json all = json::parse(text, watch, false);
  if (all.is_discarded() || refused) return std::nullopt;
  return all;
}

bool are_numbers(const json& list) {
  return list.is_array() && std::all_of(list.begin(), list.end(), [](const json& n) { return n.is_number_unsigned(); });
}

std::optional<tensor> read_tensor(const json& entry) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets"))
    return std::nullopt;
  const json &type = entry["dtype"], &shape = entry["shape"], &offsets = entry["data_offsets"];
  if (!type.is_string() || !are_numbers(shape) || !are_numbers(offsets) || offsets.size() != 2) return std::nullopt;
  const auto known = tp::dtype_from_string(type.get<std::string>());
  tensor t{type, shape, offsets[0], offsets[1]};
  if (!known || t.end < t.begin || t.shape.size() > 65'535) return std::nullopt;
  wide elements = 1;
  for (const std::uint64_t n : t.shape)
    if ((elements *= n) > ~std::uint64_t{0}) return std::nullopt;
  const wide bits = elements * tp::bits(*known);
  if (bits > ~std::uint64_t{0} || bits % 8 != 0 || bits / 8 != t.end - t.begin) return std::nullopt;
  return t;
}

std::optional<opinion> judge(const std::string& text) {
  const auto all = parsed(text);
  if (!all) return std::nullopt;
  opinion o;
  for (const auto& [name, value] : all->items()) {
    if (name != "__metadata__") {
      const auto t = read_tensor(value);
      if (!t) return std::nullopt;
      o.tensors[name] = *t;
      continue;
    }
    if (!value.is_object()) return std::nullopt;
    for (const auto& [key, text_of] : value.items()) {
      if (!text_of.is_string()) return std::nullopt;
      o.metadata[key] = text_of;
    }
  }
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const auto& [name, t] : o.tensors) ranges.emplace_back(t.begin, t.end);
  std::sort(ranges.begin(), ranges.end());
  for (const auto& [begin, end] : ranges) {
    if (begin != o.data_bytes) return std::nullopt;
    o.data_bytes = end;
  }
  return o;
}

std::string pattern(std::size_t n) {
  std::string s(n, '\0');
  for (std::size_t i = 0; i < n; ++i) s[i] = static_cast<char>(i * 31 + i / 256);
  return s;
}

std::string file_of(const std::string& text, const std::string& data) {
  std::string file;
  for (unsigned i = 0; i < 8; ++i) file += static_cast<char>(std::uint64_t{text.size()} >> (8 * i) & 0xff);
  return file + text + data;
}

std::string bytes_of(const tp::safetensors_image& image, std::size_t slice_bytes) {
  std::string all;
  byte_vector slice(slice_bytes);
  std::array<const_byte_span, 3> out;
  while (all.size() < image.schema().image_bytes) {
    const auto got = tp::gather(image.source(), all.size(), image.schema().image_bytes - all.size(), out, slice);
    for (std::size_t i = 0; i < got.pieces; ++i)
      all.append(reinterpret_cast<const char*>(out[i].data()), out[i].size());
    if (got.failed) break;
    require(got.bytes != 0, "an image that can be read is read to its end");
  }
  return all;
}

void check_image(const tp::safetensors_image& image, const opinion& expected, const std::string& data) {
  const tp::image_schema& schema = image.schema();
  require(schema.tensor_count == expected.tensors.size() && schema.metadata_count == expected.metadata.size(),
          "every tensor is published, and all metadata");
  std::size_t room = 512, at = 0;
  const std::string bytes = bytes_of(image, 509);
  require(bytes.size() == schema.image_bytes && schema.data_bytes() == data.size(), "an image has the data's length");
  for (const tp::tensor_entry& e : schema.entries()) {
    const auto found = expected.tensors.find(std::string(e.name));
    require(found != expected.tensors.end(), "a tensor has its name");
    const tensor& t = found->second;
    require(tp::to_string(e.type) == t.type && std::ranges::equal(e.extents(), t.shape), "a tensor is as described");
    const std::string here = bytes.substr(static_cast<std::size_t>(schema.header_bytes + e.begin),
                                          static_cast<std::size_t>(e.size_bytes()));
    require(here.size() == t.end - t.begin && here == data.substr(static_cast<std::size_t>(t.begin), here.size()),
            "a tensor has its bytes");
    require(image.file_offset(at++) + data.size() == image.file().size() + t.begin, "a tensor lies where it was found");
    room += 64 + 8 * e.rank + e.name.size();
  }
  for (const tp::metadata_entry& pair : schema.pairs()) {
    const auto found = expected.metadata.find(std::string(pair.key));
    require(found != expected.metadata.end() && found->second == pair.value, "metadata is as described");
    room += 32 + pair.key.size() + pair.value.size();
  }
  require(image.table_bytes() <= room, "a table is no larger than the contract says");
}

}  // namespace

/// An even first byte: a file as it is. An odd one: the text of a header, whose length and data are made to fit.
static unsigned files(input given) {
  static const memory_file file, again;
  if (given.empty()) return 0;
  const bool as_it_is = (static_cast<unsigned>(given[0]) & 1) == 0;
  const std::string rest(reinterpret_cast<const char*>(given.data()) + 1, given.size() - 1);
  std::string text = rest, data;
  bool fits = true;
  if (as_it_is) {
    std::uint64_t length = 0;
    for (unsigned i = 0; i < 8 && i < rest.size(); ++i)
      length |= std::uint64_t{static_cast<unsigned char>(rest[i])} << (8 * i);
    fits = rest.size() >= 8 && length <= rest.size() - 8;
    text = fits ? rest.substr(8, static_cast<std::size_t>(length)) : std::string();
    data = fits ? rest.substr(8 + text.size()) : std::string();
  }
  auto expected = fits ? judge(text) : std::nullopt;
  if (!as_it_is && expected && expected->data_bytes <= 1 << 16)
    data = pattern(static_cast<std::size_t>(expected->data_bytes));
  if (expected && expected->data_bytes != data.size()) expected.reset();
  const std::string content = as_it_is ? rest : file_of(text, data);
  const auto image = file.open_with(content);
  require(image.has_value() == expected.has_value(), "a file is accepted exactly where another reader accepts it");
  if (!image) return 0;

  check_image(*image, *expected, data);
  const std::string bytes = bytes_of(*image, 64);
  const auto second = again.open_with(bytes);
  require(second && second->schema().fingerprint == image->schema().fingerprint && bytes_of(*second, 1000) == bytes,
          "what was published is a file of the same tensors");
  if (!data.empty()) {
    file.shrink_to(content.size() - 1);
    const std::string part = bytes_of(*image, 64);
    require(part.size() < bytes.size() && bytes.starts_with(part),
            "a file that shrinks is an error, and no other bytes");
  }
  return static_cast<unsigned>(1 + expected->tensors.size());
}
static const registered files_target{{"files", files}};

}  // namespace test::fuzz
