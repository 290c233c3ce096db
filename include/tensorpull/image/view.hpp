// An image with the memory that holds its tensors: to read from, or to write to. Decides how an address is found.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/image/schema.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace tensorpull {

/// Gives the bytes of tensors that no address leads to: in a file, on another device. Called on the owner's threads,
/// under its lock when digests are computed, so it must wait for nothing but its medium, and must not call the owner.
struct source_reader {
  /// Writes the bytes [offset, offset + out.size()) of one tensor, as the image has them; they exist. `token`: what
  /// tensor_view::data was. An error withdraws the publication: recipients never get other bytes than those that were
  /// published.
  result<void> (*read)(const void* context, std::uintptr_t token, std::uint64_t offset,
                       std::span<std::byte> out) noexcept = nullptr;
  const void* context = nullptr;  ///< Given to each call. Borrowed.
};

/// Where the bytes of an image come from. Four words; owns nothing; all that it points to outlives it.
/// Tensor i, in image order, starts at base + where[i]: one table of offsets serves every object of a static model, and
/// a dynamic image has absolute addresses and a null base.
struct source_view {
  const image_schema* schema = nullptr;  ///< The tensors. Never null in a view that has an image.
  const std::byte* base = nullptr;  ///< Added to each element of `where`.
  const std::uintptr_t* where = nullptr;  ///< One value for each tensor; of an indirect tensor, its token.
  /// for entries that are `indirect`
  const source_reader* reader = nullptr;

  /// Where tensor i begins. Requires that it is not indirect.
  const std::byte* address(std::size_t i) const noexcept {
    return reinterpret_cast<const std::byte*>(reinterpret_cast<std::uintptr_t>(base) + where[i]);
  }
};

/// Takes the bytes of tensors that no address leads to: on another device, in a file. The mirror image of
/// source_reader.
struct destination_writer {
  /// Takes the bytes [offset, offset + bytes.size()) of one tensor, as the image has them; they are within it. Any
  /// range: it may begin or end within an element, and after a damaged chunk a range is sent again. `bytes` is part of
  /// `staging` and valid during the call. `token`: the value of mutable_tensor_view::data. An error ends the transfer
  /// with that error and the tensor's name. Called on the thread that receives, so all time that it takes is time in
  /// which nothing is received.
  result<void> (*write)(void* context, std::uintptr_t token, std::uint64_t offset,
                        std::span<const std::byte> bytes) noexcept = nullptr;
  void* context = nullptr;  ///< Given to each call. Borrowed.
  /// Memory that the transport receives into before write() is called. Not empty; 64 KiB is plenty. It is borrowed by
  /// every destination that has this writer, and only one transfer at a time may use it.
  std::span<std::byte> staging = {};
  /// Reads what was written, so that an interrupted transfer can be resumed and the tensors can be published; null:
  /// neither is possible.
  const source_reader* reader = nullptr;
};

/// Where the bytes of an image go to. Five words; owns nothing; all that it points to outlives it. Every tensor is
/// contiguous: whatever makes a destination refuses other layouts (`unsupported_layout`).
struct destination_view {
  const image_schema* schema = nullptr;  ///< The tensors. Never null in a view that has an image.
  std::byte* base = nullptr;  ///< Added to each element of `where`.
  const std::uintptr_t* where = nullptr;  ///< One value for each tensor; of an indirect tensor, its token.
  /// for entries that are `indirect`; required if there are any
  const destination_writer* writer = nullptr;
  /// Does what is left to do in the memory behind `here`, this view, when the last byte has landed and was checked.
  /// Null: nothing is left. Whatever completes a landing calls complete(), so that no caller has to know. It may be
  /// called again.
  void (*landed)(const destination_view& here) noexcept = nullptr;

  /// Whatever has landed all of the image calls it, before anybody reads the tensors.
  void complete() const noexcept {
    if (landed != nullptr) landed(*this);
  }
  /// Where tensor i begins. Requires that it is not indirect.
  std::byte* address(std::size_t i) const noexcept {
    return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(base) + where[i]);
  }
  /// The same memory for reading: to hash what has landed, or to publish it. Reading an indirect tensor fails if the
  /// writer has no reader.
  constexpr operator source_view() const noexcept {
    return {schema, base, where, writer != nullptr ? writer->reader : nullptr};
  }
  /// Whether all of it can be read.
  constexpr bool readable() const noexcept { return writer == nullptr || writer->reader != nullptr; }
};

static_assert(std::is_trivially_copyable_v<source_view> && std::is_trivially_copyable_v<destination_view>);

}  // namespace tensorpull
