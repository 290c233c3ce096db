// The header of any list of tensors, read back by another program's JSON parser.
#include <tensorpull/core/byte_order.hpp>
#include "target.hpp"

#include <tensorpull/image/dynamic.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

namespace test::fuzz {
namespace {

namespace tp = tensorpull;
using json = nlohmann::ordered_json;
__extension__ typedef unsigned __int128 wide;  // sizes whose sums and products cannot wrap

/// Takes an input apart; what is missing is zero.
class reader {
 public:
  explicit reader(input in) noexcept : in_(in) {}
  std::uint8_t octet() noexcept {
    if (in_.empty()) return 0;
    const auto b = static_cast<std::uint8_t>(in_[0]);
    in_ = in_.subspan(1);
    return b;
  }
  std::string text(std::size_t n) {
    n = std::min(n, in_.size());
    const std::string s(reinterpret_cast<const char*>(in_.data()), n);
    in_ = in_.subspan(n);
    return s;
  }
  bool empty() const noexcept { return in_.empty(); }

 private:
  input in_;
};

struct tensor {
  std::string name;
  tp::dtype type;
  std::vector<std::uint64_t> shape;
};

/// Small extents, and those at which sizes stop to fit.
std::uint64_t extent(reader& in) noexcept {
  const unsigned n = in.octet();
  if (n < 200) return n;
  if (n < 240) return std::uint64_t{1} << (n - 200);
  return ~std::uint64_t{0} >> (n - 240);
}

bool json_takes(const std::string& text) {
  try {
    (void)json(text).dump();  // strict: throws if the text is not UTF-8
    return true;
  } catch (const json::exception&) {
    return false;
  }
}

/// Bytes of a tensor by arithmetic that cannot wrap; nothing for what no address space holds, or for half bytes.
bool has_size(const tensor& t, std::uint64_t& bytes) noexcept {
  wide bits = tp::bits(t.type), elements = 1;
  for (const std::uint64_t n : t.shape)
    if ((elements *= n) > ~std::uint64_t{0}) return false;
  bits *= elements;
  bytes = static_cast<std::uint64_t>(bits / 8);
  return bits <= ~std::uint64_t{0} && bits % 8 == 0;
}

/// Whether an image can be made of it; nothing if that depends on the length of the header.
std::optional<bool> acceptable(const std::vector<tensor>& tensors,
                               const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::set<std::string> names, keys;
  wide total = 0;
  for (const tensor& t : tensors) {
    std::uint64_t bytes = 0;
    if (t.name == "__metadata__" || !json_takes(t.name) || !names.insert(t.name).second || !has_size(t, bytes))
      return false;
    total += bytes;
  }
  for (const auto& [key, value] : metadata)
    if (!json_takes(key) || !json_takes(value) || !keys.insert(key).second) return false;
  if (total > ~std::uint64_t{0}) return false;
  if (total > ~std::uint64_t{0} - (1u << 20)) return std::nullopt;
  return true;
}

void check_text(const std::string& text, const tp::image_schema& schema, const std::vector<tensor>& tensors,
                const std::vector<std::pair<std::string, std::string>>& metadata) {
  const json parsed = json::parse(text);
  require(parsed.is_object() && parsed.size() == tensors.size() + !metadata.empty(),
          "a header has one entry for each tensor");
  if (!metadata.empty())
    for (const auto& [key, value] : metadata)
      require(parsed.at("__metadata__").at(key) == value, "metadata is as given");
  std::uint64_t end = 0;
  for (const auto& [name, entry] : parsed.items()) {  // in the order of the text
    if (name == "__metadata__") continue;
    const auto t = std::find_if(tensors.begin(), tensors.end(),
                                [&key = name](const tensor& x) { return x.name == key; });
    require(t != tensors.end() && entry.size() == 3, "a name is as given");
    require(entry.at("dtype") == std::string(tp::to_string(t->type)) &&
                entry.at("shape").get<std::vector<std::uint64_t>>() == t->shape,
            "dtype and shape are as given");
    std::uint64_t bytes = 0;
    require(has_size(*t, bytes), "a tensor in a header has a size");
    require(entry.at("data_offsets") == json::array({end, end + bytes}), "the data has no hole and no overlap");
    end += bytes;
  }
  require(end == schema.data_bytes(), "the data ends where the image does");
}

}  // namespace

static unsigned headers(input given) {
  reader in(given);
  std::vector<tensor> tensors;
  std::vector<std::pair<std::string, std::string>> metadata;
  const unsigned pairs = in.octet() % 4, window = in.octet();
  for (unsigned i = 0; i < pairs; ++i) {
    const std::size_t key = in.octet() % 24, value = in.octet();
    std::string text = in.text(key);
    metadata.emplace_back(std::move(text), in.text(value));
  }
  while (!in.empty() && tensors.size() < 200) {
    tensor t{{}, static_cast<tp::dtype>(in.octet() % (tp::dtype_count + 1)), {}};
    const unsigned lengths = in.octet();
    for (unsigned rank = lengths % 8; rank > 0; --rank) t.shape.push_back(extent(in));
    t.name = in.text(lengths / 8);
    tensors.push_back(std::move(t));
  }
  static const std::byte somewhere{};  // data is not read
  std::vector<tp::tensor_view> views;
  for (const tensor& t : tensors) views.push_back({t.name, t.type, t.shape, &somewhere});
  std::vector<tp::metadata_entry> entries;
  for (const auto& [key, value] : metadata) entries.push_back({key, value});
  const auto image = tp::dynamic_image::make(std::span<const tp::tensor_view>(views), entries);
  const bool types_valid = std::all_of(tensors.begin(), tensors.end(),
                                       [](const tensor& t) { return tp::is_valid(t.type); });
  const auto expected = types_valid ? acceptable(tensors, metadata) : false;
  require(!expected || image.has_value() == *expected,
          "an image is made of exactly the lists that another reader could read");
  if (!image) return 0;

  const tp::image_schema& schema = image->schema();
  std::string whole(static_cast<std::size_t>(schema.header_bytes), '\xff');
  require(tp::write_header(schema, 0, std::as_writable_bytes(std::span(whole))) == whole.size(),
          "a header has the length that was computed");
  const std::uint64_t length = tp::load_le64(whole.data());
  require(length + 8 == whole.size() && length % 8 == 0, "the text's length stands before it");
  check_text(whole.substr(8), schema, tensors, metadata);
  for (std::size_t at = 0, step = 1 + window; at < whole.size(); at += step) {
    std::string part(step, '\xff');
    const std::size_t n = tp::write_header(schema, at, std::as_writable_bytes(std::span(part)));
    require(n == std::min(step, whole.size() - at) && whole.compare(at, n, part, 0, n) == 0,
            "a part of a header is a part of its whole");
  }
  return static_cast<unsigned>(1 + tensors.size());
}
static const registered headers_target{{"headers", headers}};

}  // namespace test::fuzz
