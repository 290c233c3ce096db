// The other end of a line of datagrams: a host's engine, as the transport `serial` drives it. It asks for an update of
// the model when the model was pulled, with a digest of each chunk; pipelines that have none do not answer.
#include "host.hpp"
#include "rings.hpp"
#ifdef NARROWED
#include "members.hpp"

#include <tensorpull/embedded/landing.hpp>
#include <tensorpull/satellites/differences/embedded_difference.hpp>
#endif

#ifdef PROVED
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/satellites/proofs/blake3.hpp>
#endif

#include <tensorpull/embedded/owner.hpp>
#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/links/serial/serial_link.hpp>
#include <tensorpull/protocol/datagrams/datagram_endpoint.hpp>
#include <tensorpull/protocol/datagrams/datagram_transfer.hpp>
#include <tensorpull/pull/datagram_step.hpp>

using namespace tensorpull;
using namespace std::string_view_literals;

#ifdef SIGNED
extern std::string_view reference_text;
#elif defined(PROVED)
extern std::array<blake3_value, 1> known_root;
#endif

namespace {

#ifdef SIGNED
/// Writes a reference that nobody has signed.
void write_reference(const reference& model, const blake3_value& root, std::uint64_t image_bytes) noexcept {
  static char text[512];
  const auto id = to_digits(model), tree = to_digits(reference{});
  const auto digest = detail::hex_digits(root);
  const auto signature = detail::hex_digits(std::array<std::byte, 64>{});
  const detail::decimal bytes(image_bytes);
  std::size_t n = 0;
  for (const std::string_view part :
       {"tensorpull reference 1\nfederation hospitals\nround 12\nexpires 2000000000\nmodel "sv, id.view(),
        "\nschema 0000000000000000\ntree "sv, tree.view(), "\nroot "sv, digest.view(), "\nbytes "sv, bytes.view(),
        "\nnote \nsignature "sv, signature.view(), "\n"sv})
    for (const char c : part) text[n++] = c;
  reference_text = {text, n};
}
#endif

/// Publishes the model, and tells the pipeline its root.
bool publishes(host::owner_type& references, perceptron& model, const engine::table& table) noexcept {
  if (!host::publish(references, model, table)) return false;
#ifdef PROVED
  blake3_hash hash;
  if (!hash_range(hash, table.view(), 0, table.view().schema->image_bytes)) return false;
#ifdef SIGNED
  write_reference({{1, 2}, *image_version<xxh3_64>(table.view()), 0}, hash.value(), table.view().schema->image_bytes);
#else
  known_root[0] = hash.value();
#endif
#endif
  return true;
}

struct device {
  io_result read(std::span<std::byte> memory) noexcept { return moved(rings::read(memory)); }
  io_result write(std::span<const std::byte> bytes) noexcept { return moved(rings::write(bytes)); }
  io_ready wait(bool read, bool write, std::chrono::milliseconds) noexcept { return {read, write}; }

 private:
  static io_result moved(std::size_t bytes) noexcept {
    return {bytes > 0 ? io_status::ok : io_status::would_block, 0, bytes};
  }
};

using link_type = serial_link<device, chunk_bytes + 80>;
using end_type = datagram_endpoint<host::framing, host::limits, host::owner_type, ignore_messages>;
perceptron model;
#ifdef NARROWED
using update_image = embedded_image<embedded_difference<perceptron, model_landing<perceptron>>>;
/// A difference as it comes.
struct update_table {
  alignas(8) std::byte data[update_image::data_bytes];
  std::uintptr_t where[update_image::tensor_count];

  update_table() noexcept {
    for (std::size_t i = 0; i < update_image::tensor_count; ++i)
      where[i] = static_cast<std::uintptr_t>(update_image::schema.tensors[i].begin);
  }
  destination_view view() noexcept { return {&update_image::schema, data, where}; }
};
#else
perceptron update;
struct update_table : engine::table {
  update_table() noexcept : engine::table(update) {}
};
#endif
struct digests {
  using is_integrity_policy = void;
  using hash_type = xxh3_64;
  using chunk_hash_type = basic_crc32c<crc32c_small>;
  static constexpr bool whole = true;
  static constexpr bool per_chunk = true;
};
detail::datagram_memory<link_type> come;
alignas(8) std::byte scratch[end_type::scratch_bytes(chunk_bytes + 80) / 8 * 8 + 8];

}  // namespace

void other_end() {
  static const engine::table table(model);
  static host::owner_type references(host::storage, [] { return std::uint64_t{12345}; });
  static const bool published = publishes(references, model, table);
  static ignore_messages inbox;
  static buffer_pool<> pool;
  static link_type link{device()};
  static end_type end(references, pool, inbox, link.datagram_bytes(), 0x1234567812345678);
  static update_table updates;
  static land to(updates.view());
  static datagram_transfer<land, fixed_bytes<chunk_bytes>, digests, host::limits> pull(
      to, {.ref = {5, 6}, .recipient = {7}}, {}, 1);
  static bool pulls = false;
  if (!pulls && references.status_of({1, 2})->completed == 1) {
    pulls = true;
    pull.fits(link.datagram_bytes());
    end.begin_pull();
  }
  if (pulls && !pull.ended()) {
    (void)step_datagrams(end, pull, link, scratch, come, std::chrono::milliseconds(board::now_ms()));
    return;
  }
  no_transfer idle;
  if (published) (void)step_datagrams(end, idle, link, scratch, come, std::chrono::milliseconds(board::now_ms()));
}
