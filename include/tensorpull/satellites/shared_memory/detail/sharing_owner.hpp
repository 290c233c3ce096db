// An owner that passes the memory of its publications to recipients that ask for it.
#pragma once

#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/protocol/owner/owner.hpp>
#include <tensorpull/satellites/shared_memory/sealed_memory.hpp>
#include <tensorpull/satellites/shared_memory/segment_index.hpp>
#include <tensorpull/satellites/shared_memory/shared_region.hpp>
#include <tensorpull/satellites/shared_memory/shared_stream.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/mutex.hpp>

#include <array>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace tensorpull::detail {

inline constexpr std::uint64_t memory_page = 4096;

/// The memory of one publication.
struct shared_image {
  std::uint32_t slot = 0, generation = 0;  // as in pending_reply: the same bytes may be published again; 0: of nothing
  std::array<int, passed_descriptors::most> fd{-1, -1};
  std::size_t descriptors = 0;
  std::uint64_t image_at = 0, copied = 0, bytes = 0;  // of a copy
  std::uint32_t sends = 0;  // of its descriptors that are under way
  bool ready = false, failed = false;  // neither: it is being copied

  void clear() noexcept {
    for (int& f : fd)
      if (f >= 0) ::close(std::exchange(f, -1));
    *this = {};
  }
};

template <class Owner, std::uint64_t MostCopied>
class sharing_owner;

/// An owner_role. The memory of a shared_region is passed as it is. Anything else is copied once into sealed memory,
/// when the first recipient asks, a slice at a time; all copies together have at most `MostCopied` bytes. The rest is
/// sent.
template <hash Hash, class Limits, class Lock, tensorpull::hash ChunkHash, std::uint64_t MostCopied>
class sharing_owner<owner<Hash, Limits, Lock, ChunkHash>, MostCopied> : public owner<Hash, Limits, Lock, ChunkHash> {
  using base = owner<Hash, Limits, Lock, ChunkHash>;

 public:
  using base::base;
  using typename base::peer;
  sharing_owner(const sharing_owner&) = delete;
  sharing_owner& operator=(const sharing_owner&) = delete;
  ~sharing_owner() {
    for (shared_image& s : shared_) s.clear();
  }

  /// `image` was published as `ref`, and its tensors lie in `region`. If they cannot be passed as they are, they are
  /// copied.
  void share(const reference& ref, const source_view& image, const std::shared_ptr<shared_region>& region) noexcept {
    if (!region) return;
    auto index = index_of(ref.version, image, *region);
    file_descriptor data(::fcntl(region->descriptor(), F_DUPFD_CLOEXEC, 0));
    if (!index || !data || (sealing_of(data.get()) < sealing::others && !seal_memory(data.get(), sealing::others)))
      return;
    const lock_guard hold(lock_);
    sweep();
    const auto now = this->published_as(ref);
    if (shared_image* const place = free_place(); place != nullptr && now.generation != 0)
      *place = {now.slot, now.generation, {index->release(), data.release()}, 2, 0, 0, 0, 0, true, false};
  }

  bool handle(peer& from, const frame& m, pending_reply& out, const identity_source& who = {}) noexcept {
    const bool answers = base::handle(from, m, out, who);
    if (answers && m.kind == frame_kind::describe && m.memory && out.kind == frame_kind::description) offer(out);
    return answers;
  }

  /// Continues with the copy that a description waits for, or with a chunk's digest.
  digest_state digest(pending_reply& r, std::uint64_t& allowance, std::span<std::byte> memory) noexcept {
    if (r.kind != frame_kind::description) return base::digest(r, allowance, memory);
    const lock_guard hold(lock_);
    shared_image* const s = find(r);
    const source_view* const image = s != nullptr && !s->ready && !s->failed ? this->pin(r) : nullptr;
    if (image != nullptr) {
      const auto more = copy(*s, r.version, *image, allowance, memory);
      const bool unreadable = !more && more.error().code == errc::unreadable;
      base::unpin(r, 0);
      if (unreadable) this->unreadable(r);
      if (!more) fail(*s);
      else if (*more) return digest_state::working;
    }
    r.chunk_digest = digest_kind::none;
    r.memory = s != nullptr && s->ready;
    if (r.memory) this->served_whole(r);
    return digest_state::ready;
  }

  /// The descriptors for a description, until unpin().
  std::span<const int> descriptors(const pending_reply& r) noexcept {
    const lock_guard hold(lock_);
    shared_image* const s = find(r);
    if (s == nullptr || !s->ready) return {};
    ++s->sends;
    return {s->fd.data(), s->descriptors};
  }
  void unpin(const pending_reply& r, std::uint64_t payload_bytes_sent) noexcept {
    base::unpin(r, payload_bytes_sent);
    if (!r.memory) return;
    const lock_guard hold(lock_);
    if (shared_image* const s = find(r); s != nullptr && s->sends > 0) --s->sends;
  }

  void advance(std::chrono::milliseconds now) noexcept {
    base::advance(now);
    const lock_guard hold(lock_);
    sweep();
  }

 private:
  // The caller of these holds the lock. The base class has a lock of its own, which is taken after this one.
  shared_image* find(const pending_reply& r) noexcept {
    for (shared_image& s : shared_)
      if (s.generation != 0 && s.generation == r.generation && s.slot == r.slot) return &s;
    return nullptr;
  }
  shared_image* free_place() noexcept {
    for (shared_image& s : shared_)
      if (s.generation == 0) return &s;
    return nullptr;
  }
  /// Releases the memory of ended publications. Recipients that have it keep it.
  void sweep() noexcept {
    for (shared_image& s : shared_)
      if (s.generation != 0 && s.sends == 0 && !this->is_published(s.slot, s.generation)) s.clear();
  }
  /// It will be sent from now on.
  static void fail(shared_image& s) noexcept {
    shared_image gone = std::exchange(s, {s.slot, s.generation, {-1, -1}, 0, 0, 0, 0, 0, false, true});
    gone.clear();
  }

  /// A description is asked for by a recipient that would rather have the memory.
  void offer(pending_reply& out) noexcept {
    const lock_guard hold(lock_);
    shared_image* s = find(out);
    if (s == nullptr) s = begin_copy(out);
    if (s == nullptr || s->failed) return;
    out.memory = true;
    // it waits for digest(), even if the memory is ready: that is where it is recorded
    out.chunk_digest = digest_kind::xxh3_64;
  }
  shared_image* begin_copy(const pending_reply& out) noexcept {
    sweep();
    shared_image* const s = free_place();
    const source_view* const image = s != nullptr ? this->pin(out) : nullptr;
    if (image == nullptr) return nullptr;
    const std::uint64_t header = image->schema->header_bytes, bytes = image->schema->image_bytes;
    base::unpin(out, 0);
    std::uint64_t held = 0;
    for (const shared_image& other : shared_) held += other.bytes;
    if (bytes > MostCopied - std::min(MostCopied, held)) return nullptr;
    // the tensors begin at a page
    const std::uint64_t at = (segment_index::bytes(1) + header + memory_page - 1) / memory_page * memory_page - header;
    auto fd = make_memory_file(at + bytes);
    if (!fd) return nullptr;  // there may be a descriptor for the next who asks
    *s = {out.slot, out.generation, {fd->release(), -1}, 1, at, 0, bytes, 0, false, false};
    return s;
  }
  /// Copies at most `allowance` bytes, which are taken off. False: it is ready. Errors: unreadable; io with errno.
  static result<bool> copy(shared_image& s, std::uint64_t version, const source_view& image, std::uint64_t& allowance,
                           std::span<std::byte> slice) noexcept {
    std::array<std::span<const std::byte>, 16> pieces;
    while (s.copied < s.bytes) {
      if (allowance == 0) return true;
      const gathered g = gather(image, s.copied, std::min(allowance, s.bytes - s.copied), pieces, slice);
      if (g.bytes == 0) return failure(errc::unreadable);
      for (std::size_t i = 0; i < g.pieces; ++i) {
        if (const int system = write_all(s.fd[0], s.image_at + s.copied, pieces[i]); system != 0)
          return failure(errc::io, s.copied, {}, system);
        s.copied += pieces[i].size();
      }
      allowance -= g.bytes;
    }
    std::array<std::byte, segment_index::bytes(1)> index;
    const memory_extent all{s.image_at, s.bytes};
    segment_index::write(index, version, s.image_at + s.bytes, {&all, 1});
    if (const int system = write_all(s.fd[0], 0, index); system != 0) return failure(errc::io, 0, {}, system);
    if (const auto ok = seal_memory(s.fd[0], sealing::all); !ok) return failure(ok.error());
    s.ready = true;
    return false;
  }

  /// A segment with the index and the header of an image whose tensors lie in the region, as the image has them.
  static result<file_descriptor> index_of(std::uint64_t version, const source_view& image,
                                          const shared_region& region) noexcept {
    const image_schema& schema = *image.schema;
    const std::size_t most = schema.tensor_count + 1;
    const std::unique_ptr<memory_extent[]> extents(new (std::nothrow) memory_extent[most]);
    if (!extents) return failure(errc::out_of_memory);
    std::size_t count = 1;
    for (std::size_t i = 0; i < schema.tensor_count; ++i) {
      const tensor_entry& t = schema.tensors[i];
      if (t.size_bytes() == 0) continue;
      const std::uintptr_t at = t.in_place() ? reinterpret_cast<std::uintptr_t>(image.address(i)) -
                                                   reinterpret_cast<std::uintptr_t>(region.data())
                                             : region.size() + 1;
      if (at > region.size() || t.size_bytes() > region.size() - at)
        return failure(errc::unsupported_layout, i, t.name);
      if (count > 1 && extents[count - 1].at + extents[count - 1].bytes == at)
        extents[count - 1].bytes += t.size_bytes();
      else extents[count++] = {at, t.size_bytes()};
    }
    if (count == 1) return failure(errc::unsupported_layout);  // no tensor has bytes
    const std::size_t before = segment_index::bytes(count),
                      all = before + static_cast<std::size_t>(schema.header_bytes);
    extents[0] = {before, schema.header_bytes};
    const std::unique_ptr<std::byte[]> text(new (std::nothrow) std::byte[all]);
    if (!text) return failure(errc::out_of_memory);
    segment_index::write({text.get(), all}, version, region.size(), {extents.get(), count});
    (void)write_header(schema, 0, {text.get() + before, all - before});
    auto fd = make_memory_file(all);
    if (!fd) return fd;
    if (const int system = write_all(fd->get(), 0, {text.get(), all}); system != 0)
      return failure(errc::io, 0, {}, system);
    if (const auto ok = seal_memory(fd->get(), sealing::all); !ok) return failure(ok.error());
    return fd;
  }

  std::array<shared_image, Limits::references> shared_{};
  [[no_unique_address]] Lock lock_{};
};

}  // namespace tensorpull::detail
