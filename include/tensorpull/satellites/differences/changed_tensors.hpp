// The tensors of a model whose bytes differ from what is published, and where they land.
#pragma once

#include <tensorpull/consumers/land.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/image/arrange.hpp>
#include <tensorpull/image/header.hpp>
#include <tensorpull/integrity/tensor_digests.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace tensorpull {

/// The tensors of a model in memory whose digests differ from an owner's (integrity/tensor_digests.hpp), as a model of
/// their own: a recipient pulls them by name (`pull_options::part`), in place. The owner's digests decide only what
/// is asked for; version_under() tells whether the whole model is then the published one. Memory: 64 bytes a tensor,
/// taken once.
class changed_tensors {
 public:
  /// `published`: the owner's schema, such as published_schema::schema_of_image(); used during the call alone. Borrows
  /// the memory of `model`. If no tensor has changed, the smallest that has bytes counts as changed, so that the owner
  /// hears of the recipient. Cost: one pass over the model. Errors: not_verifiable: the owner has no digests of
  /// tensors; schema_mismatch: its tensors are others, or there are none; invalid_argument: the model cannot be read;
  /// out_of_memory; cancelled: by `stop`; io and others: of the model's reader.
  template <hash Hash>
  static result<changed_tensors> find(const destination_view& model, const image_schema& published,
                                      const stop_token& stop = {}) noexcept {
    const image_schema& mine = *model.schema;
    const std::size_t count = mine.tensor_count;
    if (!model.readable()) return failure(errc::invalid_argument);
    // an owner can make fingerprints agree although the number differs
    if (published.fingerprint != mine.fingerprint || published.tensor_count != count || count == 0)
      return failure(errc::schema_mismatch);
    const std::string_view digests = tensor_digests_of(published);
    if (digests.empty()) return failure(errc::not_verifiable);
    changed_tensors made(model, count);
    if (made.entries_ == nullptr || made.where_ == nullptr) return failure(errc::out_of_memory);
    std::size_t smallest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto is = tensor_digest_of<Hash>(model, i, stop);
      if (!is) return failure(is.error());
      if (!says_digest(digests, i, *is)) made.take(i);
      const std::uint64_t size = mine.tensors[i].size_bytes(), least = mine.tensors[smallest].size_bytes();
      if (least == 0 || (size != 0 && size < least)) smallest = i;
    }
    if (made.count_ == 0) made.take(smallest);
    const auto placed = detail::place_entries({made.entries_.get(), made.count_}, {});
    if (!placed) return failure(placed.error());
    made.schema_ = *placed;
    made.schema_.of_members = mine.of_members;
    return made;
  }

  /// Whether all tensors have changed.
  bool are_all() const noexcept { return count_ == all_.schema->tensor_count; }
  /// Bytes of the other tensors.
  std::uint64_t kept_bytes() const noexcept { return all_.schema->data_bytes() - schema_.data_bytes(); }
  /// Where they land. Valid while this object lives and stays where it is.
  destination_view destination() const noexcept { return {&schema_, all_.base, where_.get(), all_.writer, nullptr}; }
  /// The whole model.
  const destination_view& model() const noexcept { return all_; }

 private:
  changed_tensors(const destination_view& all, std::size_t count) noexcept
      : all_(all), entries_(new(std::nothrow) tensor_entry[count]), where_(new(std::nothrow) std::uintptr_t[count]) {}
  void take(std::size_t i) noexcept {
    entries_[count_] = all_.schema->tensors[i];
    where_[count_++] = all_.where[i];
  }

  destination_view all_;
  std::unique_ptr<tensor_entry[]> entries_;
  std::unique_ptr<std::uintptr_t[]> where_;
  std::size_t count_ = 0;
  image_schema schema_{};
};

/// The version of an image with this header, which describes the same tensors in the same order, perhaps with other
/// metadata. `stop` is asked before every 16 MiB. Cost: one pass over the bytes. Errors: cancelled; io if a
/// source_reader failed.
template <hash Hash>
result<std::uint64_t> version_under(const image_schema& header, const source_view& image,
                                    const stop_token& stop = {}) noexcept {
  Hash h;
  std::byte text[4096];
  for (std::uint64_t at = 0; at < header.header_bytes;) {
    const std::size_t n = write_header(header, at, text);
    h.update({text, n});
    at += n;
  }
  const image_schema& own = *image.schema;
  if (const auto read = hash_range(h, image, own.header_bytes, own.data_bytes(), stop); !read)
    return failure(read.error());
  const std::uint64_t d = h.digest();
  return d == 0 ? 1 : d;
}

/// Lands changed tensors. Before the owner hears of it, the whole model is compared with what is published:
/// digest_mismatch if it differs. The owner is then told to forget the request, also if nothing has landed, so that
/// another pull by the same program does not count as a second recipient.
template <hash Hash>
class changed_landing : public land {
 public:
  /// Borrows its arguments. `published`: the owner's schema; `version`: the digest of the whole.
  changed_landing(const changed_tensors& to, const image_schema& published, std::uint64_t version,
                  const stop_token& stop) noexcept
      : land(to.destination()), all_(to.model()), published_(published), version_(version), stop_(stop) {}

  /// Whether everything had landed and was wrong, or a tensor's name does not fit a request.
  bool in_vain() const noexcept { return in_vain_; }
  /// Whether the owner has found the tensors.
  bool begun() const noexcept { return begun_; }

  result<void> begin(const description& d) noexcept {
    begun_ = true;
    return land::begin(d);
  }
  result<void> finish(const receipt& r) noexcept {
    if (const auto good = land::finish(r); !good) return good;
    const auto is = version_under<Hash>(published_, all_, stop_);
    if (!is) return failure(is.error());
    in_vain_ = *is != version_;
    if (in_vain_) return failure(errc::digest_mismatch);
    all_.complete();
    return {};
  }
  void abandon(const error& why) noexcept {
    in_vain_ = in_vain_ || why.code == errc::does_not_fit;
    land::abandon(why);
  }
  /// Whether the owner is told to forget the request.
  bool looked() const noexcept { return in_vain_ || !begun_; }

 private:
  destination_view all_;
  const image_schema& published_;
  std::uint64_t version_;
  const stop_token& stop_;
  bool begun_ = false, in_vain_ = false;
};

}  // namespace tensorpull
