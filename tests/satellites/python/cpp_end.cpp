// The C++ end of a transfer whose other end is Python: serves a file, or a given number of bytes; pulls into a file, or
// into memory, all or what has changed.
#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/make_model.hpp>
#include <tensorpull/tensors/safetensors/safetensors.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/host/owner.hpp>
#if __has_include(<tensorpull/satellites/differences/download_changes.hpp>)
#include <tensorpull/satellites/differences/download_changes.hpp>
#define HAS_DIFFERENCES 1
#endif

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

using namespace tensorpull;
using file_net = pipeline<safetensors_tensors, fixed_bytes<64_KiB>, tcp>;
using list_net = pipeline<tensor_list, fixed_bytes<2_MiB>, tcp>;

static int complain(const error& e) {
  std::fprintf(stderr, "%s (%.*s) at %llu\n", to_string(e.code).data(), static_cast<int>(e.name.view().size()),
               e.name.view().data(), static_cast<unsigned long long>(e.at));
  return 1;
}

template <class Owner>
static void say(const Owner& owner, const reference& ref) {
  const auto digits = to_digits(ref);
  std::printf("127.0.0.1:%u %.48s %llu\n", owner.port(), digits.data(), static_cast<unsigned long long>(ref.version));
  std::fflush(stdout);
}

/// serve FILE, serve-digests FILE: until one recipient has confirmed.
static int serve_file(const char* path, bool tensor_digests) {
  auto image = safetensors_image::open(path);
  if (!image) return complain(image.error());
  auto owner = file_net::downloader::open();
  if (!owner) return complain(owner.error());
  const auto ref = owner->add_tensors(*image, {.recipients = 1, .tensor_digests = tensor_digests});
  if (!ref) return complain(ref.error());
  say(*owner, *ref);
  owner->run(until_settled(*ref));
  std::printf("%s\n", to_string(owner->settlement_of(*ref)->verdict).data());
  return 0;
}

/// pull ADDRESS REF FILE
static int pull_file(const char* address, const char* digits, const char* path) {
  const auto ref = parse_reference(digits);
  auto to = safetensors_file::create(path);
  if (!ref || !to) return 2;
  const auto done = file_net::pull(address, *ref, *to);
  if (!done) return complain(done.error());
  std::printf("%s %llu\n", to_string(done->outcome).data(), static_cast<unsigned long long>(done->digest));
  return 0;
}

#ifdef HAS_DIFFERENCES
/// changed ADDRESS REF OLD NEW: reads the file OLD into memory, pulls what has changed, writes it as NEW.
static int pull_changed(const char* address, const char* digits, const char* from, const char* to) {
  const auto ref = parse_reference(digits);
  const auto old = safetensors_image::open(from);
  if (!ref || !old) return 2;
  const source_view there = old->source();
  const auto memory = std::make_unique<std::byte[]>(static_cast<std::size_t>(there.schema->data_bytes()) + 1);
  std::vector<mutable_tensor_view> views;
  for (const tensor_entry& t : there.schema->entries()) {
    const std::span bytes(memory.get() + t.begin, static_cast<std::size_t>(t.size_bytes()));
    if (const auto ok = detail::read_range(there, there.schema->header_bytes + t.begin, bytes); !ok)
      return complain(ok.error());
    views.push_back({t.name, t.type, t.extents(), bytes.data()});
  }
  auto image = dynamic_image::make(views);
  if (!image) return complain(image.error());
  std::uint64_t kept = 0;
  const auto done = download_changes<list_net>(address, *ref, *image, {}, &kept);
  if (!done) return complain(done.error());
  std::vector<std::byte> all(static_cast<std::size_t>(image->schema().image_bytes));
  const std::size_t header = write_header(image->schema(), 0, all);
  std::memcpy(all.data() + header, memory.get(), all.size() - header);
  std::FILE* const out = std::fopen(to, "wb");
  if (out == nullptr || std::fwrite(all.data(), 1, all.size(), out) != all.size() || std::fclose(out) != 0) return 2;
  std::printf("%s %llu %llu\n", to_string(done->outcome).data(), static_cast<unsigned long long>(done->version),
              static_cast<unsigned long long>(kept));
  return 0;
}
#endif

/// 16 float32 tensors of 1/16 of the bytes each, in huge pages: what the benchmark moves.
class blocks {
 public:
  explicit blocks(std::uint64_t bytes)
      : bytes_(bytes), memory_(static_cast<std::byte*>(detail::take_pages(bytes))), extent_(bytes / 64) {
    std::memset(memory_, 1, bytes);
    for (int i = 0; i < 16; ++i) names_.push_back("layers." + std::to_string(i) + ".weight");
    std::vector<mutable_tensor_view> views;
    for (std::size_t i = 0; i < 16; ++i)
      views.push_back({names_[i], dtype::f32, {&extent_, 1}, memory_ + i * (bytes / 16)});
    auto made = dynamic_image::make(views);
    if (!made) std::exit(complain(made.error()));
    image_.push_back(std::move(*made));
  }
  ~blocks() { detail::give_pages(memory_, bytes_); }
  blocks(const blocks&) = delete;
  blocks& operator=(const blocks&) = delete;
  dynamic_image& image() { return image_.front(); }

 private:
  std::uint64_t bytes_;
  std::byte* memory_;
  std::uint64_t extent_;
  std::vector<std::string> names_;
  std::vector<dynamic_image> image_;
};

/// serve-bytes BYTES: until it is killed.
static int serve_bytes(std::uint64_t bytes) {
  blocks model(bytes);
  auto owner = list_net::downloader::open();
  if (!owner) return complain(owner.error());
  const auto ref = owner->add_tensors(model.image());
  if (!ref) return complain(ref.error());
  say(*owner, *ref);
  owner->run(std::stop_token{});
  return 0;
}

/// pull-bytes ADDRESS REF BYTES: once for each line of input; says how many seconds it took.
static int pull_bytes(const char* address, const char* digits, std::uint64_t bytes) {
  const auto ref = parse_reference(digits);
  if (!ref) return 2;
  blocks model(bytes);
  for (char line[8]; std::fgets(line, sizeof line, stdin) != nullptr;) {
    const auto start = std::chrono::steady_clock::now();
    const auto done = list_net::download_tensors(address, *ref, model.image());
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!done) return complain(done.error());
    std::printf("%.6f\n", seconds);
    std::fflush(stdout);
  }
  return 0;
}

int main(int count, char** a) {
  const std::string_view what = count > 1 ? a[1] : "";
  if ((what == "serve" || what == "serve-digests") && count == 3) return serve_file(a[2], what != "serve");
  if (what == "pull" && count == 5) return pull_file(a[2], a[3], a[4]);
#ifdef HAS_DIFFERENCES
  if (what == "changed" && count == 6) return pull_changed(a[2], a[3], a[4], a[5]);
#endif
  if (what == "serve-bytes" && count == 3) return serve_bytes(std::strtoull(a[2], nullptr, 10));
  if (what == "pull-bytes" && count == 5) return pull_bytes(a[2], a[3], std::strtoull(a[4], nullptr, 10));
  std::fprintf(
      stderr,
      "usage: %s serve FILE | serve-digests FILE | pull ADDRESS REF FILE | changed ADDRESS REF OLD NEW | serve-bytes "
      "BYTES | pull-bytes ADDRESS REF BYTES\n",
      a[0]);
  return 2;
}
