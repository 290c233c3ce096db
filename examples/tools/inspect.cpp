// inspect FILE...: prints which tensors are in a file, for people or for programs, or why the file is rejected.
// inspect ADDRESS REF: the same of what is published there, without pulling it.
#include "command_line.hpp"
#include "error_text.hpp"
#include "interruption.hpp"
#include "json.hpp"
#include "link_choice.hpp"
#include "tensor_file.hpp"

#include <tensorpull/consumers/any_schema/published_schema.hpp>
#include <tensorpull/core/describe.hpp>
#include <tensorpull/core/sha256.hpp>

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
       inspect [--json] LINK REF [options]

Lists the tensors of safetensors, npy and npz files, or says why a file is rejected. Tensors are read only for --json, and an npz
file's for its checksums, through a buffer of 1 MiB. Files may be larger than memory, except what savez_compressed has packed, which is
unpacked into memory.

  --json       a JSON object on a line for each file:
                 {"file", "verdict": "accept", "format", "bytes", "metadata", "tensors": [{"name", "dtype", "shape", "offsets", "sha256"}]}
                 {"file", "verdict": "reject", "code", "at", "tensor", "message"}
                 {"file", "verdict": "unreadable", "code", "at", "message"}
               `offsets` are those of a safetensors header: [first byte, first byte after it] in the file's data. Of npy and npz
               files offsets and sha256 are those of the image that send publishes: in C order, little-endian.

The second form lists what 'send' publishes under REF at LINK, which is as for 'recv', and pulls none of it: nobody counts for that.
It is what the sender says, and no digest is compared. The JSON object has "address", "ref", "verdict": "published", "version", "bytes",
"metadata" and "tensors" without sha256; or "address", "ref", "verdict": "unreachable", "code" and "message".

      --timeout SECS     how long the sender may take (60)
      --name NAME        who asks, if the sender lets in only whom it expects
      --tls-ca FILE, --tls-crl FILE, --tls-name NAME, --tls-cert FILE, --tls-key FILE   of tls://HOST:PORT, as for 'recv'
  -h, --help   this text

Example:
  inspect model.safetensors
  inspect 127.0.0.1:40123 5d1f0c0a6f0e4c1b9d1f0c0a6f0e4ce2
  inspect --json model.safetensors | python3 -m json.tool

Status: 0 every file is accepted, 1 one is rejected, 2 a wrong option, 3 one cannot be read, or nothing is to be had at LINK.
)";

constexpr int accepted = 0, rejected = 1, unreadable = 3;

/// SHA-256 of a tensor's bytes, through a buffer of 1 MiB whatever its length.
class tensor_hasher {
 public:
  /// The digest of tensor i, read with its reader, in the form in which the image has it. Errors: those of the reader.
  tp::result<tp::sha256_value> operator()(const tp::source_view& source, std::size_t i) {
    const std::uint64_t size = source.schema->tensors[i].size_bytes();
    tp::sha256_hash hash;
    for (std::uint64_t at = 0; at < size;) {
      const std::span part(buffer_.data(),
                           static_cast<std::size_t>(std::min<std::uint64_t>(size - at, buffer_.size())));
      if (const auto ok = source.reader->read(source.reader->context, source.where[i], at, part); !ok)
        return tp::failure(ok.error());
      hash.update(part);
      at += part.size();
    }
    return hash.value();
  }

 private:
  std::vector<std::byte> buffer_ = std::vector<std::byte>(1 << 20);
};

std::vector<std::size_t> in_image_order(const tp::image_schema& schema) {
  std::vector<std::size_t> order(schema.tensor_count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}
/// The tensors in the file's order.
std::vector<std::size_t> in_file_order(const tensor_file& file) {
  std::vector<std::size_t> order = in_image_order(file.schema());
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return file.offsets[a] < file.offsets[b]; });
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

void print_table(const std::string& what, const std::string& format, std::uint64_t bytes,
                 const tp::image_schema& schema, const std::vector<std::size_t>& order) {
  std::printf("%s: %s, %s, %s\n", printable(what).c_str(), format.c_str(),
              count_text(schema.tensor_count, "tensor").c_str(), bytes_text(bytes).c_str());
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
  for (const std::size_t i : order) {
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
    if (!why.name.empty() && why.name.view() != no_arrays && read) line.add("tensor", why.name.view());
    line.add("message", read ? rejected_text(why) : unreadable_text(why));
    line.print();
  } else {
    say("inspect", file_error_text(path, why));
  }
  return read ? rejected : unreadable;
}

/// Adds the metadata and the tensors to what is `about` them, and prints it. `digests`: of each tensor; none: there are
/// none.
int print_json(json_object about, const tp::image_schema& schema, const std::vector<std::size_t>& order,
               const std::vector<std::uint64_t>& offsets, const std::vector<tp::sha256_value>& digests = {}) {
  json_object metadata;
  for (const tp::metadata_entry& pair : schema.pairs()) metadata.add(pair.key, pair.value);
  about.add("metadata", metadata);
  const std::string head = about.text();
  std::printf("%.*s,\"tensors\":[", static_cast<int>(head.size() - 1), head.c_str());
  const char* separator = "";
  for (const std::size_t i : order) {
    const tp::tensor_entry& entry = schema.tensors[i];
    const std::array<std::uint64_t, 2> range{offsets[i], offsets[i] + entry.size_bytes()};
    json_object tensor{{"name", entry.name},
                       {"dtype", to_string(entry.type)},
                       {"shape", entry.extents()},
                       {"offsets", std::span<const std::uint64_t>(range)}};
    if (!digests.empty()) tensor.add("sha256", hex_text(digests[i]));
    std::printf("%s%s", separator, tensor.text().c_str());
    separator = ",";
  }
  std::printf("]}\n");
  return accepted;
}

int inspect(const std::string& path, bool json) {
  const auto file = tensor_file::open(path);
  if (!file) return report(path, file.error(), json);
  if (json) {
    std::vector<tp::sha256_value> digests;  // all are computed before anything is printed, so that a file's object is
                                            // complete or missing
    tensor_hasher hash;
    for (std::size_t i = 0; i < file->schema().tensor_count; ++i) {
      const auto digest = hash(file->source, i);
      if (!digest) return report(path, digest.error(), true);
      digests.push_back(*digest);
    }
    return print_json({{"file", path}, {"verdict", "accept"}, {"format", file->format}, {"bytes", file->file_bytes}},
                      file->schema(), in_file_order(*file), file->offsets, digests);
  }
  print_table(path, std::string(file->format), file->file_bytes, file->schema(), in_file_order(*file));
  return accepted;
}

/// What is published somewhere, and how it is asked for.
struct elsewhere {
  link_choice link;
  std::string ref_text, name;
  tp::reference ref{};
  std::uint64_t timeout_ms = 60'000;
};

int list(const elsewhere& at, bool json) {
  struct interrupted {
    bool stop_requested() const noexcept { return interrupted_by != 0; }
  };
  tp::published_schema seen({});
  const tp::recipient_id who = at.name.empty() ? tp::recipient_id{} : tp::recipient_named(at.name);
  const tp::pull_options options{.per_request_timeout = std::chrono::milliseconds(at.timeout_ms),
                                 .unverified = true,
                                 .believe = true,  // a list is no model, and no digest is compared
                                 .window = 1,
                                 .stop = interrupted{},
                                 .recipient = who};
  const auto done = pull_call{.link = at.link, .ref = at.ref, .options = options, .chunk = 64 * 1024}.into(seen);
  if (interrupted_by != 0) return interrupted_status();
  const std::string where = at.link.text + " " + at.ref_text;
  if (!seen.complete()) {
    const error why = done ? error{errc::bad_frame, 0, 0, {}} : done.error();
    const std::string text(describe(why).view());
    if (json)
      json_object{{"address", at.link.text},
                  {"ref", at.ref_text},
                  {"verdict", "unreachable"},
                  {"code", code_name(why.code)},
                  {"message", text}}
          .print();
    else say("inspect", "nothing is to be had at " + printable(where) + ": " + text);
    return unreadable;
  }
  const tp::image_schema& schema = seen.schema_of_image();
  if (!json) {
    print_table(where, "published", seen.described().image_bytes, schema, in_image_order(schema));
    return accepted;
  }
  std::vector<std::uint64_t> offsets;
  for (const tp::tensor_entry& entry : schema.entries()) offsets.push_back(entry.begin);
  return print_json({{"address", at.link.text},
                     {"ref", at.ref_text},
                     {"verdict", "published"},
                     {"version", formatted("%016llx", wide(seen.described().version))},
                     {"bytes", seen.described().image_bytes}},
                    schema, in_image_order(schema), offsets);
}

/// Whether the words are an address and a reference, and no files.
bool is_elsewhere(const std::vector<std::string>& words) {
  if (words.size() != 2 || !tp::parse_reference(words[1]) || is_url(words[0]) || !facade::scheme_of(words[0]))
    return false;
  return ::access(words[0].c_str(), F_OK) != 0 && ::access(words[1].c_str(), F_OK) != 0;
}

}  // namespace

int main(int count, char** arguments) {
  bool json = false, of_link = false;
  elsewhere at;
  const option_form forms[]{{"json", false}, {"timeout", true}, {"name", true}, {"tls-name", true},
                            link_forms[0],   link_forms[1],     link_forms[2],  link_forms[3]};
  const auto set = [&](std::string_view name, std::string_view value) {
    if (name == "json") return static_cast<void>(json = true);
    of_link = true;
    if (name == "timeout") at.timeout_ms = parse_seconds("--timeout", value);
    else if (name == "name") at.name = value;
    else if (name == "tls-name") at.link.tls.check_hostname = value;
    else set_link_option(name, value, at.link);
  };
  const auto paths = read_command_line(count, arguments, "inspect", help, forms, set, [&](const auto& words) {
    if (words.empty()) throw option_error("which file? 'inspect model.safetensors' lists its tensors");
    if (!is_elsewhere(words)) {
      if (of_link) throw option_error("all options but --json are for an address and a reference, as send prints them");
      return;
    }
    parse_link(words[0], "HOST:PORT is wanted, as in 127.0.0.1:8002, or a link such as unix:/run/model", at.link);
    check_link_options(at.link);
    at.ref_text = words[1];
    at.ref = *tp::parse_reference(words[1]);
  });
  int status = accepted;
  try {
    if (at.ref.id) {
      hear_signals();
      status = list(at, json);
      return flushed("inspect") ? status : unreadable;
    }
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
