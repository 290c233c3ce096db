// Pipelines that are none for a small machine.
// WITHIN_LINES: 8
// MAX_ERRORS: 3
// MAX_LINES: 30
#include <tensorpull/device.hpp>
#include <tensorpull/tensors/tensor_list.hpp>

#include "small_model.hpp"

struct board {
  static std::chrono::milliseconds now() noexcept { return {}; }
  static std::uint64_t random() noexcept { return 1; }
  static void panic(const char*) noexcept {}
};
uart device;
mlp model;

// CASE device_with_a_list_of_tensors
// EXPECT: tensorpull: a small machine's model is a struct that the compiler knows: raw_tensors<Struct>
using net = pipeline<tensor_list, fixed_bytes<512>, serial_over<uart>, small_machine<board>>;
net::model_type* there;

// CASE device_with_chunks_of_any_length
// EXPECT: tensorpull: a small machine has chunks of one length: fixed_bytes<N>
using net = pipeline<raw_tensors<mlp>, bytes_up_to<512>, serial_over<uart>, small_machine<board>>;
net::model_type* there;

// CASE device_with_long_chunks
// EXPECT: tensorpull: a small machine has chunks of at most 64 KiB: choose a smaller N for fixed_bytes<N>
using net = pipeline<raw_tensors<mlp>, fixed_bytes<(1 << 20)>, serial_over<uart>, small_machine<board>>;
net::model_type* there;

// CASE device_without_a_line
// EXPECT: tensorpull: a small machine has a line: serial_over<Device>, or a transport of your own
struct tcp_of_ones_own {
  using is_transport_policy = void;
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<512>, tcp_of_ones_own, small_machine<board>>;
net::model_type* there;

// CASE device_that_compares_nothing
// EXPECT: tensorpull: a small machine compares the digest of the image: leave the integrity policy out
using net = pipeline<raw_tensors<mlp>, fixed_bytes<512>, serial_over<uart>, unverified, small_machine<board>>;
net::model_type* there;

// CASE device_that_compares_another_digest
// EXPECT: tensorpull: a small machine compares the digest of the image: leave the integrity policy out
using net = pipeline<raw_tensors<mlp>, fixed_bytes<512>, serial_over<uart>,
                     basic_image_digest<basic_crc32c<crc32c_small>>, small_machine<board>>;
net::model_type* there;

// CASE device_that_is_not_called_one
// EXPECT: tensorpull: this pipeline needs small_machine<Platform>, or an integrity policy such as basic_image_digest
using net = pipeline<raw_tensors<mlp>, fixed_bytes<512>, serial_over<uart>>;
auto done = net::download_tensors(device, ref_id{1, 2}, model);

// CASE device_with_a_framing
// EXPECT: tensorpull: a small machine has a framing of its own: leave the framing policy out
using net = pipeline<raw_tensors<mlp>, fixed_bytes<512>, serial_over<uart>, word_framing, small_machine<board>>;
net::model_type* there;

// CASE device_whose_clock_wraps_after_an_hour
// EXPECT: tensorpull: a small machine's clock of 32 bits counts milliseconds, or several
struct fast : board {
  static std::chrono::duration<std::uint32_t, std::micro> now() noexcept { return {}; }
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<512>, serial_over<uart>, small_machine<fast>>;
net::model_type* there;

// CASE device_that_publishes_a_temporary
// EXPECT: tensorpull: a small machine's add_tensors was given a temporary, which is gone when somebody pulls
using net = pipeline<raw_tensors<mlp>, fixed_bytes<512>, serial_over<uart>, small_machine<board>>;
net::downloader publisher(device);
auto ref = publisher.add_tensors(mlp{});

// CASE device_with_two_transports
// EXPECT: tensorpull: a pipeline has two transport policies: keep one
using net = pipeline<raw_tensors<mlp>, fixed_bytes<512>, serial_over<uart>, serial_over<uart>, small_machine<board>>;
net::model_type* there;

// CASE device_that_cannot_read
// EXPECT: tensorpull: a line's device has io_result read(memory) and io_result write(bytes), both noexcept
struct writer {
  int write(std::span<const std::byte>) noexcept { return 0; }
};
writer only;
using net = pipeline<raw_tensors<mlp>, fixed_bytes<512>, serial_over<writer>, small_machine<board>>;
auto done = net::download_tensors(only, ref_id{1, 2}, model);

// CASE device_whose_chip_has_units_as_long_as_its_pages
// EXPECT: tensorpull: a page of this flash is too small for a cursor and a unit: let page_bytes be several of its pages
// MAX_ERRORS: 5
struct chip {
  static constexpr std::uint32_t page_bytes = 512, program_bytes = 512;
  bool erase(std::uint32_t) noexcept { return true; }
  bool program(std::uint32_t, std::span<const std::byte>) noexcept { return true; }
  bool read(std::uint32_t, std::span<std::byte>) noexcept { return true; }
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<512>, serial_over<uart>, small_machine<board>>;
chip memory;
net::in_flash<chip> landing(memory);

// CASE device_with_a_tie
// EXPECT: tensorpull: a small machine's model has no ties: a tensor of it is one range of the image
struct both {
  float head[4], embed[4];
};
template <>
inline constexpr auto tensorpull::members_of<both> = members(member{"head", &both::head},
                                                             member{"embed", &both::embed});
using net = pipeline<raw_tensors<tied<both, from_to{"head", "embed"}>>, fixed_bytes<512>, serial_over<uart>,
                     small_machine<board>>;
both tied_model;
auto done = net::download_tensors(device, ref_id{1, 2}, tied_model);

// CASE device_with_a_platform_that_may_throw
// EXPECT: small_machine
struct slow {
  static std::chrono::milliseconds now() { return {}; }
  static std::uint64_t random() noexcept { return 1; }
  static void panic(const char*) noexcept {}
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<512>, serial_over<uart>, small_machine<slow>>;
