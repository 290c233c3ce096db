// A model goes from an owner to a recipient through two ring buffers, with the component freestanding alone: no heap,
// no exceptions, no RTTI, no library besides the standard's headers. What a microcontroller does, less the wire. Status
// 0: every byte landed and was confirmed.
#include <tensorpull/chunking/policies.hpp>
#include <tensorpull/consumers/land.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/image/arrange.hpp>
#include <tensorpull/links/pump.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/protocol/owner/owner.hpp>
#include <tensorpull/protocol/recipient/transfer.hpp>
#include <tensorpull/protocol/roles.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

namespace {

using namespace tensorpull;

/// Control frames as plain memory of this machine: enough if both ends are one program. Carries no lists.
struct plain_framing {
  using is_framing_policy = void;
  struct decode_storage {};
  struct fields {
    std::uint64_t ref_high, ref_low, version, nonce, fingerprint, digest, offset, image_bytes, data_start, tensors;
    std::uint32_t id, length, delay_ms, application;
    std::uint16_t kind, status, window, flag;
  };
  static constexpr std::size_t frame_bytes = 8 + sizeof(fields);
  static_assert(std::is_trivially_copyable_v<fields> && sizeof(fields) % 8 == 0);

  static result<std::size_t> encode(const frame& m, std::span<std::byte> out) noexcept {
    if (out.size() < frame_bytes) return failure(errc::does_not_fit);
    const fields f{m.ref.high,
                   m.ref.low,
                   m.version,
                   m.nonce,
                   m.fingerprint,
                   m.digest,
                   m.offset,
                   m.image_bytes,
                   m.data_start,
                   m.tensors,
                   m.id,
                   m.length,
                   m.delay_ms,
                   m.application,
                   static_cast<std::uint16_t>(m.kind),
                   static_cast<std::uint16_t>(m.status),
                   m.window,
                   std::uint16_t{m.flag}};
    const std::array<std::uint32_t, 2> segment_table{0, sizeof(fields) / 8};
    std::memcpy(out.data(), &segment_table, 8);
    std::memcpy(out.data() + 8, &f, sizeof f);
    return frame_bytes;
  }
  static result<void> decode(std::span<const std::byte> bytes, frame& m, decode_storage&) noexcept {
    if (bytes.size() != frame_bytes) return failure(errc::bad_frame, bytes.size());
    fields f;
    std::memcpy(&f, bytes.data() + 8, sizeof f);
    m = {};
    m.kind = static_cast<frame_kind>(f.kind), m.status = static_cast<status>(f.status), m.id = f.id,
    m.ref = {f.ref_high, f.ref_low};
    m.version = f.version, m.nonce = f.nonce, m.fingerprint = f.fingerprint, m.digest = f.digest, m.offset = f.offset;
    m.image_bytes = f.image_bytes, m.data_start = f.data_start, m.tensors = f.tensors, m.length = f.length,
    m.delay_ms = f.delay_ms;
    m.application = f.application, m.window = f.window, m.flag = f.flag != 0;
    return {};
  }
};

/// One direction: takes and gives what there is room for.
class ring {
 public:
  std::size_t put(std::span<const std::byte> in) noexcept {
    std::size_t n = 0;
    while (n < in.size() && size_ < bytes_.size()) bytes_[(first_ + size_++) % bytes_.size()] = in[n++];
    return n;
  }
  std::size_t take(std::span<std::byte> out) noexcept {
    std::size_t n = 0;
    for (; n < out.size() && size_ > 0; --size_, first_ = (first_ + 1) % bytes_.size()) out[n++] = bytes_[first_];
    return n;
  }

 private:
  std::array<std::byte, 300> bytes_{};
  std::size_t first_ = 0, size_ = 0;
};

struct ring_stream {
  ring* in;
  ring* out;
  io_result read_some(std::span<const std::span<std::byte>> spans) noexcept {
    std::size_t n = 0;
    for (const auto& s : spans) n += in->take(s);
    return {n > 0 ? io_status::ok : io_status::would_block, 0, n};
  }
  io_result write_some(std::span<const std::span<const std::byte>> spans) noexcept {
    std::size_t n = 0;
    for (const auto& s : spans) n += out->put(s);
    return {n > 0 ? io_status::ok : io_status::would_block, 0, n};
  }
  io_ready wait(bool read, bool write, std::chrono::milliseconds) noexcept { return {read, write}; }
};

struct small_digest {
  using is_integrity_policy = void;
  using hash_type = xxh3_64;
  static constexpr bool whole = true;
  static constexpr bool per_chunk = false;
};

struct small_model {
  std::array<std::array<float, 12>, 20> weights;
  std::array<float, 20> bias;
  std::array<std::int8_t, 13> codes;
};

constexpr std::uint64_t weights_shape[]{20, 12}, bias_shape[]{20}, codes_shape[]{13};

/// The table of one model's tensors, in arrays of its own.
struct small_image {
  std::array<tensor_entry, 3> entries{{{.name = "layer.weight", .type = dtype::f32, .rank = 2, .shape = weights_shape},
                                       {.name = "layer.bias", .type = dtype::f32, .rank = 1, .shape = bias_shape},
                                       {.name = "codes", .type = dtype::i8, .rank = 1, .shape = codes_shape}}};
  std::array<std::uintptr_t, 3> where;
  result<image_schema> schema;

  explicit small_image(small_model& m) noexcept
      : where{reinterpret_cast<std::uintptr_t>(&m.weights), reinterpret_cast<std::uintptr_t>(&m.bias),
              reinterpret_cast<std::uintptr_t>(&m.codes)},
        schema(arrange(entries, where)) {}
  destination_view view() const noexcept { return {&*schema, nullptr, where.data()}; }
};

/// What the ends keep on their stacks and in their scratch memory follows from these.
struct small_limits : default_limits {
  static constexpr std::size_t control_frame_bytes = 256;
};

using small_owner = owner<xxh3_64, small_limits>;
using owning_end = endpoint<plain_framing, small_limits, small_owner, ignore_messages>;
using pulling_end = endpoint<plain_framing, small_limits, no_owner, ignore_messages>;

small_model published, mine;
ring there, back;
alignas(64) std::byte owner_scratch[1024], recipient_scratch[1024];

int run() {
  for (std::size_t i = 0; i < published.codes.size(); ++i) published.codes[i] = static_cast<std::int8_t>(i + 1);
  for (std::size_t i = 0; i < published.bias.size(); ++i)
    published.bias[i] = published.weights[i][i % 12] = static_cast<float>(i) - 0.5f;
  small_image source(published), destination(mine);
  if (!source.schema || !destination.schema) return 1;

  static owner_storage<1, 2> storage;
  small_owner references(storage, [] { return std::uint64_t{12345}; });
  const auto id = references.publish(source.view(), *image_version<xxh3_64>(source.view()), true, {1, 2}, 1);
  if (!id) return 2;

  buffer_pool<> no_buffers;
  ignore_messages inbox;
  no_owner nothing;
  owning_end left(references, no_buffers, inbox);
  pulling_end right(nothing, no_buffers, inbox);
  ring_stream left_stream{&there, &back}, right_stream{&back, &there};

  land to(destination.view());
  transfer<land, fixed_bytes<256>, small_digest, small_limits> pull(to, {.ref = *id}, {}, 1);
  no_transfer idle;
  right.begin_pull();
  for (int steps = 0; !pull.ended(); ++steps) {
    if (steps > 100'000) return 3;
    if (!pump_once(right, pull, right_stream, recipient_scratch)) return 4;
    if (!pump_once(left, idle, left_stream, owner_scratch)) return 5;
  }
  const auto done = pull.outcome();
  if (!done || done->outcome != outcome::completed) return 6;
  if (published.weights != mine.weights || published.bias != mine.bias || published.codes != mine.codes) return 7;
  return references.status_of(*id)->completed == 1 ? 0 : 8;
}

}  // namespace

int main() { return run(); }
