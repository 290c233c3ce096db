// The other half of round_trip.py: reads descriptions of state dicts from standard input, publishes them with
// torch_tensors, pulls each three times, into a file, into a new state dict and in place, and writes what came of it to
// standard output. The file that Python saved of the same dict lies beside (.expected): it is published, too, and has
// to become the same new state dict.
//
// Input, repeated, all numbers u64 little-endian, strings and bytes as {length, bytes}: path of the file to write;
// count of storages, each bytes; count of metadata pairs, each {key, value}; count of tensors, each {name, torch's name
// of the dtype, storage, offset in elements, rank, sizes, strides, 1 conjugated | 2 negated}. Output for each: 0; count
// of tensors of the new state dict, each {name, torch's name of the dtype, rank, sizes, bytes, index of the first
// tensor with the same memory}; or 2^64-1 and a refusal {code, name}.
#include "../support/standard_streams.hpp"

#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/pipeline.hpp>
#include <tensorpull/tensors/safetensors/safetensors.hpp>
#include <tensorpull/tensors/torch/torch.hpp>
#include <tensorpull/tensors/torch/torch_state.hpp>
#include <tensorpull/transports/over/loopback/loopback.hpp>

#include <ATen/ops/_neg_view.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace tensorpull;
using namespace test;
using test::must;
using net = pipeline<torch_tensors, fixed_bytes<4096>, loopback>;

template <class T>
auto& must(result<T>& r, const char* what) {
  if (!r)
    std::fprintf(stderr, "%s: %s %s\n", what, to_string(r.error().code).data(),
                 std::string(r.error().name.view()).c_str()),
        std::exit(1);
  return *r;
}

at::ScalarType type_named(const std::string& name) {
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i)
    if (name == c10::toString(static_cast<at::ScalarType>(i))) return static_cast<at::ScalarType>(i);
  must(false, name.c_str());
  return {};
}
std::vector<std::int64_t> numbers(std::uint64_t count) {
  std::vector<std::int64_t> list(count);
  for (auto& n : list) n = static_cast<std::int64_t>(number());
  return list;
}

void answer(const std::string& path) {
  std::vector<std::string> storages(number());
  for (auto& storage : storages) storage = text();
  std::vector<std::string> strings(2 * number());
  for (auto& s : strings) s = text();
  std::vector<metadata_entry> metadata;
  for (std::size_t i = 0; i < strings.size(); i += 2) metadata.push_back({strings[i], strings[i + 1]});

  std::vector<std::pair<std::string, at::Tensor>> dict, blank;
  std::map<const void*, at::Tensor> blanks;
  for (std::uint64_t left = number(); left > 0; --left) {
    const std::string name = text();
    const auto type = type_named(text());
    std::string& storage = storages.at(number());
    const std::uint64_t offset = number(), rank = number();
    const auto sizes = numbers(rank), strides = numbers(rank);
    const std::uint64_t lazy = number();
    at::Tensor t = at::from_blob(storage.data() + offset * c10::elementSize(type), sizes, strides,
                                 at::TensorOptions().dtype(type));
    if (lazy & 1) t = t.conj();
    if (lazy & 2) t = at::_neg_view(t);
    dict.emplace_back(name, t);
    // tied here if tied there
    at::Tensor& empty = blanks[t.numel() == 0 ? static_cast<const void*>(&left + left) : t.data_ptr()];
    if (!empty.defined() || empty.sizes() != t.sizes() || empty.scalar_type() != type || !t.is_contiguous())
      empty = at::empty(sizes, at::TensorOptions().dtype(type));
    blank.emplace_back(name, empty);
  }

  const auto model = torch_model::make(dict, metadata);
  if (!model) {
    put(~std::uint64_t{0});
    put(to_string(model.error().code));
    put(model.error().name.view());
    return;
  }
  const auto owner = std::make_unique<net::downloader>();
  auto published = owner->add_tensors(*model);
  const reference& ref = must(published, "publication");

  auto file = safetensors_file::create(path, {.fsync = false});
  must(net::pull(*owner, ref, must(file, "file")).has_value(), "pull into a file");
  put(std::uint64_t{0});

  new_state_dict made({.max_bytes = 64u << 20});
  must(net::pull(*owner, ref, made).has_value(), "pull into a new state dict");
  const auto state = made.state();
  must(state.has_value(), "state dict");
  put(std::uint64_t{state->size()});
  std::map<const void*, std::uint64_t> first;
  std::uint64_t index = 0;
  for (const auto& [name, t] : *state) {
    put(name);
    put(c10::toString(t.scalar_type()));
    put(static_cast<std::uint64_t>(t.dim()));
    for (const std::int64_t n : t.sizes()) put(static_cast<std::uint64_t>(n));
    put(std::string_view(static_cast<const char*>(t.data_ptr()), t.nbytes()));
    put(t.numel() == 0 ? index : first.emplace(t.data_ptr(), index).first->second);
    ++index;
  }

  const auto saved = safetensors_image::open(path + ".expected");
  must(saved.has_value(), "the file that Python saved");
  const auto file_owner = std::make_unique<pipeline<safetensors_tensors, fixed_bytes<4096>, loopback>::downloader>();
  auto file_ref = file_owner->add_tensors(*saved);
  new_state_dict loaded({.max_bytes = 64u << 20});
  must(net::pull(*file_owner, must(file_ref, "publication of the file"), loaded).has_value(), "pull of the file");
  const auto other = loaded.state();
  must(other && other->size() == state->size(), "the file has other tensors");
  for (const auto& [name, t] : *state) {
    const auto same = other->find(name);
    must(same != other->end() && same->second.scalar_type() == t.scalar_type() && same->second.sizes() == t.sizes() &&
             (t.nbytes() == 0 || std::memcmp(same->second.data_ptr(), t.data_ptr(), t.nbytes()) == 0),
         "a tensor of the file differs");
  }

  auto landing = torch_model::make_writable(blank);
  if (!landing || landing->schema().fingerprint != model->schema().fingerprint)
    return put(std::uint64_t{0});  // a tie of strided tensors
  must(net::download_tensors(*owner, ref, must(landing, "landing")).has_value(), "pull in place");
  put(std::uint64_t{1});
  for (const auto& [name, t] : blank) put(std::string_view(static_cast<const char*>(t.data_ptr()), t.nbytes()));
}

}  // namespace

int main() {
  std::uint64_t length = 0;
  while (try_number(length)) {
    answer(text(length));
    std::fflush(stdout);
  }
}
