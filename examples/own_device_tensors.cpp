// A tensor policy of your own for tensors on a device: the CPU cannot address them, so they are copied through memory
// in both directions, 4 KiB at a time.
#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/concept.hpp>

#include <array>
#include <cstdio>
#include <cstring>
#include <vector>

using namespace tensorpull;

/// Takes the place of a device: numbered buffers that are reached by copies. A copy can fail (here: if there is no such
/// buffer).
struct device {
  std::vector<std::vector<float>> buffers;
  int copies = 0;

  bool copy_to(std::size_t buffer, std::size_t at, const void* from, std::size_t n) {
    if (buffer >= buffers.size()) return false;
    ++copies;
    std::memcpy(reinterpret_cast<char*>(buffers[buffer].data()) + at, from, n);
    return true;
  }
  bool copy_from(std::size_t buffer, std::size_t at, void* to, std::size_t n) const {
    return buffer < buffers.size() && std::memcpy(to, reinterpret_cast<const char*>(buffers[buffer].data()) + at, n);
  }
};

/// The policy. Its model is a table of names, shapes and tokens (here: numbers of buffers), with the two functions that
/// copy.
struct device_tensors {
  using is_tensor_policy = void;
  using model_type = dynamic_image;
  static constexpr bool is_static = false;

  static result<void> read(const void* from, std::uintptr_t token, std::uint64_t offset,
                           std::span<std::byte> out) noexcept {
    if (static_cast<const device*>(from)->copy_from(token, offset, out.data(), out.size())) return {};
    return failure(errc::io, offset);
  }
  static result<void> write(void* to, std::uintptr_t token, std::uint64_t offset,
                            std::span<const std::byte> bytes) noexcept {
    if (static_cast<device*>(to)->copy_to(token, offset, bytes.data(), bytes.size())) return {};
    return failure(errc::io, offset);
  }
  /// A model of all buffers, named "0", "1", ... One download at a time may use `staging`.
  static result<model_type> make(device& on, std::span<std::byte> staging) {
    constexpr const char* names[] = {"0", "1", "2", "3"};
    std::array<std::uint64_t, 4> lengths{};
    std::vector<mutable_tensor_view> views;
    for (std::size_t i = 0; i < on.buffers.size(); ++i) {
      lengths[i] = on.buffers[i].size();
      views.push_back({names[i], dtype_of<float>::value, {&lengths[i], 1}, reinterpret_cast<std::byte*>(i), {}, true});
    }
    const source_reader reader{&read, &on};
    return dynamic_image::make(views, {}, {&write, &on, staging, &reader});
  }
  static source_view source(const model_type& model) noexcept { return model.source(); }
  static destination_view destination(model_type& model) noexcept { return model.destination(); }
};
static_assert(tensor_policy<device_tensors>);

int main() {
  using net = pipeline<device_tensors, fixed_bytes<64_KiB>, loopback>;
  device there{{std::vector<float>(50'000, 1.5f), std::vector<float>(10, 2.5f)}},
      here{{std::vector<float>(50'000), std::vector<float>(10)}};
  std::array<std::byte, 4096> staging;
  const auto trained = device_tensors::make(there, staging);
  auto mine = device_tensors::make(here, staging);
  static net::downloader owner;
  if (!trained || !mine) return 1;
  const auto ref = owner.add_tensors(*trained);
  if (!ref) return 1;
  const auto done = net::download_tensors(owner, *ref, *mine);
  std::printf("%s, %s, staged in %d copies\n",
              done ? to_string(done->outcome).data() : to_string(done.error().code).data(),
              here.buffers == there.buffers ? "equal" : "not equal", here.copies);
  return done && here.buffers == there.buffers ? 0 : 1;
}
