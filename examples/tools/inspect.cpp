// inspect FILE...: prints which tensors are in a file, for people or for programs, or why the file is rejected.
#include "command_line.hpp"
#include "error_text.hpp"
#include "json.hpp"
#include "sha256.hpp"
#include "tensor_file.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <new>
#include <numeric>
#include <string>
#include <vector>

namespace {

using namespace tools;

constexpr const char* help = R"(usage: inspect [--json] FILE...

Lists the tensors of safetensors, npy and npz files, or says why a file is rejected. Tensors are read only for --json, through a
buffer of 1 MiB; files may be larger than memory.

  --json       a JSON object on a line for each file:
                 {"file", "verdict": "accept", "format", "bytes", "metadata", "tensors": [{"name", "dtype", "shape", "offsets", "sha256"}]}
                 {"file", "verdict": "reject", "code", "at", "tensor", "message"}
                 {"file", "verdict": "unreadable", "code", "at", "message"}
               `offsets` are those of a safetensors header: [first byte, first byte after it] in the file's data. Of npy and npz
               files offsets and sha256 are those of the image that send publishes: in C order, little-endian.
  -h, --help   this text

Example:
  inspect model.safetensors
  inspect --json model.safetensors | python3 -m json.tool

Status: 0 every file is accepted, 1 one is rejected, 2 a wrong option, 3 one cannot be read.
)";

constexpr int accepted = 0, rejected = 1, unreadable = 3;

/// The tensors in the file's order.
std::vector<std::size_t> in_file_order(const tensor_file& file) {
  std::vector<std::size_t> order(file.schema().tensor_count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return file.data_offset(a) < file.data_offset(b); });
  return order;
}

std::uint64_t elements_of(const tp::tensor_entry& entry) { return entry.size_bytes() * 8 / bits(entry.type); }

/// The width of a text on a terminal if each character takes one column; counts the first octets of UTF-8.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}
std::string padded(std::string text, std::size_t width) {
  const std::size_t has = width_of(text);
  return has < width ? text + std::string(width - has, ' ') : text;
}

void print_table(const std::string& path, const tensor_file& file) {
  const tp::image_schema& schema = file.schema();
  std::printf("%s: %s, %s, %s\n", printable(path).c_str(), std::string(file.format()).c_str(),
              count_text(schema.tensor_count, "tensor").c_str(), bytes_text(file.file_bytes()).c_str());
  for (const tp::metadata_entry& pair : schema.pairs())
    std::printf("  %s = %s\n", printable(pair.key).c_str(), printable(pair.value).c_str());
  if (schema.tensor_count == 0) return;

  constexpr std::size_t widest = 60;  // a longer name shifts the rest of its line
  std::size_t names = 4, shapes = 5;
  std::uint64_t elements = 0;
  for (const tp::tensor_entry& entry : schema.entries()) {
    names = std::max(names, std::min(widest, width_of(printable(entry.name))));
    shapes = std::max(shapes, std::min(widest, shape_text(entry.extents()).size()));
    elements += elements_of(entry);
  }
  std::printf("\n  %s  dtype        %s       size\n", padded("name", names).c_str(), padded("shape", shapes).c_str());
  for (const std::size_t i : in_file_order(file)) {
    const tp::tensor_entry& entry = schema.tensors[i];
    std::printf("  %s  %-11s  %s  %9s\n", padded(printable(entry.name), names).c_str(),
                std::string(to_string(entry.type)).c_str(), padded(shape_text(entry.extents()), shapes).c_str(),
                bytes_text(entry.size_bytes()).c_str());
  }
  std::printf("  %s  %s  %9s\n", padded("total", names).c_str(),
              padded(count_text(elements, "element"), shapes + 13).c_str(), bytes_text(schema.data_bytes()).c_str());
}

int report(const std::string& path, const error& why, bool json) {
  const bool read = !is_unreadable(why);
  if (json) {
    json_object line{
        {"file", path}, {"verdict", read ? "reject" : "unreadable"}, {"code", code_name(why.code)}, {"at", why.at}};
    if (!why.name.empty() && read) line.add("tensor", why.name.view());
    line.add("message", read ? std::string(to_string(why.code)) : unreadable_text(why));
    line.print();
  } else {
    say("inspect", file_error_text(path, why));
  }
  return read ? rejected : unreadable;
}

int print_json(const std::string& path, const tensor_file& file) {
  const tp::source_view source = file.source();
  const tp::image_schema& schema = *source.schema;
  std::vector<tp::sha256_value> digests;  // all are computed before anything is printed, so that a file's object
                                               // is complete or missing
  tensor_hasher hash;
  for (std::size_t i = 0; i < schema.tensor_count; ++i) {
    const auto digest = hash(source, i);
    if (!digest) return report(path, digest.error(), true);
    digests.push_back(*digest);
  }
  json_object metadata;
  for (const tp::metadata_entry& pair : schema.pairs()) metadata.add(pair.key, pair.value);
  const json_object about{{"file", path},
                          {"verdict", "accept"},
                          {"format", file.format()},
                          {"bytes", file.file_bytes()},
                          {"metadata", metadata}};
  const std::string head = about.text();
  std::printf("%.*s,\"tensors\":[", static_cast<int>(head.size() - 1), head.c_str());
  const char* separator = "";
  for (const std::size_t i : in_file_order(file)) {
    const tp::tensor_entry& entry = schema.tensors[i];
    const std::array<std::uint64_t, 2> offsets{file.data_offset(i), file.data_offset(i) + entry.size_bytes()};
    const json_object tensor{{"name", entry.name},
                             {"dtype", to_string(entry.type)},
                             {"shape", entry.extents()},
                             {"offsets", std::span<const std::uint64_t>(offsets)},
                             {"sha256", hex_text(digests[i])}};
    std::printf("%s%s", separator, tensor.text().c_str());
    separator = ",";
  }
  std::printf("]}\n");
  return accepted;
}

int inspect(const std::string& path, bool json) {
  const auto file = tensor_file::open(path);
  if (!file) return report(path, file.error(), json);
  if (json) return print_json(path, *file);
  print_table(path, *file);
  return accepted;
}

}  // namespace

int main(int count, char** arguments) {
  bool json = false;
  const option_form forms[]{{"json", false}};
  const auto paths = read_command_line(
      count, arguments, "inspect", help, forms, [&](std::string_view, std::string_view) { json = true; },
      [](const std::vector<std::string>& words) {
        if (words.empty()) throw option_error("which file? 'inspect model.safetensors' lists its tensors");
      });
  int status = accepted;
  try {
    for (const std::string& path : paths) {
      if (!json && &path != paths.data()) std::printf("\n");
      status = std::max(status, inspect(path, json));
      std::fflush(stdout);
    }
  } catch (const std::bad_alloc&) {
    say("inspect", "there is not enough memory for the table of tensors");
    return unreadable;
  }
  return flushed("inspect") ? status : unreadable;
}
