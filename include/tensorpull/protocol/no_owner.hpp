// The owner role of an end that owns nothing: it answers no request and takes no memory.
#pragma once

#include <tensorpull/image/view.hpp>
#include <tensorpull/protocol/pending_reply.hpp>
#include <tensorpull/std/mutex.hpp>

#include <span>

namespace tensorpull {

struct no_owner {
  struct link {};
  static constexpr bool owns = false;
  using lock_type = no_lock;
  static constexpr std::size_t waiting_replies = 1;

  static constexpr bool handle(link&, const frame&, pending_reply&) noexcept { return false; }
  static constexpr void locate(link&, const frame& m, std::span<byte_range>, frame& answer) noexcept {
    answer = {};
    answer.kind = frame_kind::refused;
    answer.status = status::unknown_reference;
    answer.id = m.id;
    answer.ref = m.ref;
  }
  static constexpr void forget(link&) noexcept {}
  static constexpr const source_view* pin(const pending_reply&) noexcept { return nullptr; }
  static constexpr void unpin(const pending_reply&, std::uint64_t) noexcept {}
  static constexpr void refuse_gone(pending_reply&) noexcept {}
  static constexpr frame expand(const pending_reply&, std::span<schema_row>) noexcept { return {}; }
};

}  // namespace tensorpull
