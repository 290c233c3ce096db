// The pipeline of a machine with kilobytes of memory: the words of every pipeline, and the engine of embedded/. No
// heap, threads, operating system or Hana.
#pragma once

#include <tensorpull/composed_pipeline.hpp>
#include <tensorpull/embedded/flash_landing.hpp>
#include <tensorpull/embedded/line.hpp>
#include <tensorpull/embedded/small_ends.hpp>
#include <tensorpull/pull/platform.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/tensors/members/raw_tensors.hpp>

namespace tensorpull {

/// A policy for the transport slot of a small machine: a serial line, with COBS and a CRC32C around each datagram. At
/// its other end is a host's `serial`, or a small machine. `Device` reads and writes bytes (embedded_device). `Bytes`:
/// of the longest datagram that the other end sends if it pulls and publishes at once, as `basic_serial<Bytes>` of a
/// host.
template <class Device, std::size_t Bytes = 640>
struct serial_over {
  using is_transport_policy = void;  ///< marks the slot
  using device = Device;  ///< what a program hands in
  static constexpr std::size_t datagram_bytes = Bytes;  ///< room that a session has
  /// The end of a link for datagrams of at most `In` and `Out` bytes. A transport of your own has the calls of
  /// embedded_line.
  template <std::size_t In, std::size_t Out>
  using small_line = embedded_line<Device, In, Out>;
};

/// A policy for the integrity slot of a small machine that publishes: recipients may ask for a CRC32C with each chunk,
/// as a server that averages does. It has the line's table, so it costs little. This machine's own pulls compare the
/// digest of the image alone.
struct answers_crc32c {
  using is_integrity_policy = void;  ///< marks the slot
  static constexpr bool whole = true;  ///< of an image the digest is compared
  static constexpr bool per_chunk = true;  ///< recipients may ask for one with each chunk
};

namespace detail {

/// The model of a policy, as embedded_image takes it.
template <class Tensors>
struct small_model {};
template <class Model>
struct small_model<raw_tensors<Model>> {
  using type = Model;
};
template <class Chunking>
inline constexpr std::uint64_t small_chunk = 0;
template <std::uint64_t Bytes>
inline constexpr std::uint64_t small_chunk<fixed_bytes<Bytes>> = Bytes;
/// The hash of the whole image that lands, and that of a chunk for recipients that ask for one.
template <class Integrity>
struct small_hashes {
  template <class Landing>
  using whole = typename Integrity::hash_type;
  using chunk = std::conditional_t<Integrity::per_chunk, chunk_hash_of<Integrity>, no_hash>;
};
template <>
struct small_hashes<usual_integrity> {
  template <class Landing>
  using whole = typename embedded::hash_for<Landing>::type;
  using chunk = no_hash;
};
template <>
struct small_hashes<answers_crc32c> : small_hashes<usual_integrity> {
  using chunk = basic_crc32c<crc32c_small>;
};
template <class Integrity>
inline constexpr bool compares_images = requires {
  requires integrity_policy<Integrity>;
  requires Integrity::whole;
};
template <>
inline constexpr bool compares_images<usual_integrity> = true;
template <>
inline constexpr bool compares_images<answers_crc32c> = true;
/// Whether milliseconds go on where the clock wraps: others of 32 bits would jump back.
template <class Period, class Rep>
constexpr bool counts_on(std::chrono::duration<Rep, Period>) noexcept {
  return sizeof(Rep) > 4 || std::is_signed_v<Rep> || 1000 * Period::num % Period::den == 0;
}

/// The longest datagram that the other end of a session sends besides those for a pull.
template <class Transport>
inline constexpr std::size_t session_room = 0;
template <class Transport>
  requires requires { Transport::datagram_bytes; }
inline constexpr std::size_t session_room<Transport> = Transport::datagram_bytes;

/// The parts of a small machine's pipeline. With a mistake in them it has what the sentence needs and no more.
template <class Tensors, class Chunking, class Transport, class Integrity, class Platform>
struct small_parts {
  static constexpr bool is_struct = requires { typename small_model<Tensors>::type; };
  static_assert(is_struct,
                "tensorpull: a small machine's model is a struct that the compiler knows: raw_tensors<Struct>");
  static constexpr std::uint64_t chunk_bytes = small_chunk<Chunking>;
  static_assert(chunk_bytes > 0, "tensorpull: a small machine has chunks of one length: fixed_bytes<N>");
  static_assert(chunk_bytes <= 0x10000,
                "tensorpull: a small machine has chunks of at most 64 KiB: choose a smaller N for fixed_bytes<N>");
  static constexpr bool has_line = requires { typename Transport::template small_line<128, 128>; };
  static_assert(
      has_line,
      "tensorpull: a small machine has a line: serial_over<Device>, or a transport of your own that names a `small_line` (device.hpp)");
  static_assert(
      compares_images<Integrity>,
      "tensorpull: a small machine compares the digest of the image: leave the integrity policy out, or use one whose hash is XXH3-64 and whose `whole` is true");
  static constexpr bool has_clock = counts_on(decltype(Platform::now()){});
  static_assert(
      has_clock,
      "tensorpull: a small machine's clock of 32 bits counts milliseconds, or several: one of shorter units wraps in the middle of a time-out");
  static constexpr bool accepted = is_struct && chunk_bytes > 0 && chunk_bytes <= 0x10000 &&
                                   has_line&& compares_images<Integrity>&& has_clock;
};

template <class Tensors, class Chunking, class Transport, class Integrity, class Platform,
          class Parts = small_parts<Tensors, Chunking, Transport, Integrity, Platform>, bool Accepted = Parts::accepted>
struct small_pipeline;

/// The type behind pipeline<Policies...> of a small machine.
template <class Tensors, class Chunking, class Transport, class Integrity, class Platform, class Parts>
struct small_pipeline<Tensors, Chunking, Transport, Integrity, Platform, Parts, true> {
  using platform = Platform;  ///< clock and random numbers
  using image = embedded_image<typename small_model<Tensors>::type>;  ///< of the model: its constants
  using model_type = typename image::model_type;  ///< what is published and landed in
  using device = typename Transport::device;  ///< what the line goes over
  using hashes = small_hashes<Integrity>;
  static constexpr std::size_t chunk_bytes = static_cast<std::size_t>(Parts::chunk_bytes);  ///< of a chunk at most

  /// The recipient's side: lands in a model's own memory. Borrows the model.
  using consumer = model_landing<typename small_model<Tensors>::type>;
  /// The same in flash, where a pull goes on after a power cut.
  template <class Chip>
  using in_flash = flash_landing<image, Chip>;

  /// The state machines and the line, for a driver of the program's own.
  template <class Landing>
  using recipient = embedded_recipient<Landing, chunk_bytes, typename hashes::template whole<Landing>>;
  template <class Published>
  using owner =
      embedded_owner<Published, chunk_bytes, embedded::default_hash<embedded_image<Published>>, typename hashes::chunk,
                     (chunk_bytes < 24 ? 104 : payload_prefix::frame_bytes(chunk_bytes))>;
  template <std::size_t In, std::size_t Out>
  using line = typename Transport::template small_line<In, Out>;

  /// The owner's side: `net::downloader owner(device)`. `Published`: the model, or what is computed from one.
  template <class Published>
  using downloader_of = small_owner<small_pipeline, Published, 0>;
  using downloader = downloader_of<typename small_model<Tensors>::type>;
  /// Both sides over one link: begin_pull(session, ...) pulls, and what is published is served meanwhile.
  template <class Published>
  using session_of =
      small_owner<small_pipeline, Published, std::max(session_room<Transport>, recipient<consumer>::max_in)>;
  using session = session_of<typename small_model<Tensors>::type>;

  /// A pull that the program steps itself. `over`: the device or a session; `to`: the model or a landing, such as
  /// in_flash. All are borrowed. The model is unspecified from the first byte that has landed until it is `completed`.
  template <class Over, class Target>
  [[gnu::always_inline]] static small_pull<small_pipeline, Target, Over> begin_pull(
      Over& over, const reference& ref, Target& to, const small_pull_options& options = {}) noexcept {
    return {over, ref, to, options};
  }
  /// The same without a version: whatever is published under `id` now (receipt::believed).
  template <class Over, class Target>
  [[gnu::always_inline]] static small_pull<small_pipeline, Target, Over> begin_pull(
      Over& over, ref_id id, Target& to, const small_pull_options& options = {}) noexcept {
    return {over, reference{id, 0, 0}, to, options};
  }
  /// A whole pull, which waits. All of it is on the stack.
  template <class Over, class Target>
  static result<receipt> pull(Over& over, const reference& ref, Target& to,
                              const small_pull_options& options = {}) noexcept {
    return begin_pull(over, ref, to, options).wait();
  }
  /// The same into the model's memory.
  template <class Over>
  static result<receipt> download_tensors(Over& over, const reference& ref, model_type& model,
                                          const small_pull_options& options = {}) noexcept {
    return pull(over, ref, model, options);
  }
  /// The same without a version: whatever is published under `id` now (receipt::believed).
  template <class Over>
  static result<receipt> download_tensors(Over& over, ref_id id, model_type& model,
                                          const small_pull_options& options = {}) noexcept {
    return pull(over, reference{id, 0, 0}, model, options);
  }

  /// Bytes that each side needs besides the model, for a static_assert in a program whose memory is limited.
  struct memory_bound {
    static constexpr std::size_t recipient = sizeof(small_pull<small_pipeline, model_type, device>);
    static constexpr std::size_t owner = sizeof(downloader);
    static constexpr std::size_t session = sizeof(small_pipeline::session);
  };
  static constexpr memory_bound memory{};

  /// Milliseconds of the platform's clock, which may wrap.
  static std::uint32_t now_ms() noexcept {
    return static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(Platform::now()).count());
  }
  /// At most 2^30.
  static constexpr std::uint32_t ms(std::chrono::milliseconds time) noexcept {
    if (time.count() < 0) return 0;
    return time.count() < 1 << 30 ? static_cast<std::uint32_t>(time.count()) : 1u << 30;
  }
  /// Nothing has moved: the platform may sleep until something arrives.
  static void rest() noexcept {
    if constexpr (requires { Platform::idle(); }) Platform::idle();
  }
};

/// It stands for a pipeline that was refused.
template <class Tensors, class Chunking, class Transport, class Integrity, class Platform, class Parts>
struct small_pipeline<Tensors, Chunking, Transport, Integrity, Platform, Parts, false>
    : composed_pipeline<missing_parts<Tensors>> {};

}  // namespace detail

/// A policy for the limits slot that makes the pipeline that of a small machine: one model, one request on its way, no
/// heap. `Platform`: clock and random numbers (pull/platform.hpp), and optionally `idle()`, which may sleep until a
/// byte arrives or a millisecond has passed.
template <platform Platform>
struct small_machine : default_limits {
  using has_machine = void;  ///< the pipeline is `machine`, and not that of hosts
  /// The pipeline of these policies.
  template <class Tensors, class Chunking, class Transport, class Integrity>
  using machine = detail::small_pipeline<Tensors, Chunking, Transport, Integrity, Platform>;
};

}  // namespace tensorpull
