// The other half of safetensors_files.py: reads files from standard input, publishes each, pulls it into a file, and
// writes that to standard output.
//
// Input, repeated: {u64 length, bytes} of a file, valid or not. Output for each: a byte, then {u64 length, bytes}: 1
// and the file that the recipient wrote, or 0 and the code of the error that refused the input.
#include "../support/standard_streams.hpp"

#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/safetensors/safetensors.hpp>

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace {

namespace tp = tensorpull;
using net = tp::pipeline<tp::safetensors_tensors, tp::fixed_bytes<4096>, tp::loopback>;

void answer(bool accepted, std::string_view bytes) {
  std::putchar(accepted ? 1 : 0);
  test::put(bytes);
}

int fail(const char* what, const tp::error& e) {
  std::fprintf(stderr, "%s: %s\n", what, to_string(e.code).data());
  return 1;
}

int transfer(net::downloader& owner, const tp::safetensors_image& image, const std::string& path) {
  const auto ref = owner.add_tensors(image);
  if (!ref) return fail("publishing", ref.error());
  auto file = tp::safetensors_file::create(path, {.fsync = false});
  if (!file) return fail("creating", file.error());
  const auto done = net::pull(owner, *ref, *file);
  if (!done || done->outcome != tp::outcome::completed) return fail("pulling", done ? tp::error{} : done.error());
  if (const auto gone = owner.withdraw(*ref); !gone) return fail("withdrawing", gone.error());
  const auto written = tp::positioned_file::open(path);
  if (!written) return fail("reading", written.error());
  std::string bytes(static_cast<std::size_t>(written->size()), '\0');
  if (const auto read = written->read_at(0, std::as_writable_bytes(std::span(bytes))); !read)
    return fail("reading", read.error());
  answer(true, bytes);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: safetensors_files FOLDER\n");
    return 2;
  }
  const auto owner = std::make_unique<net::downloader>();
  std::uint64_t n = 0;
  while (test::try_number(n)) {
    const std::string given = test::text(n);
    const tp::detail::file_descriptor memory(::memfd_create("given", MFD_CLOEXEC));
    if (tp::detail::write_all(memory.get(), 0, std::as_bytes(std::span(given))) != 0) return 2;
    const auto image = tp::safetensors_image::open("/proc/self/fd/" + std::to_string(memory.get()));
    if (!image) answer(false, to_string(image.error().code));
    else if (const int status = transfer(*owner, *image, std::string(arguments[1]) + "/pulled.safetensors");
             status != 0)
      return status;
  }
  return 0;
}
