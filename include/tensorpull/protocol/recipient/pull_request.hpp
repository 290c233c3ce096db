// What a recipient asks for and expects: the parameters of one transfer.
#pragma once

#include <tensorpull/image/schema.hpp>
#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/core/ids.hpp>

#include <cstdint>
#include <span>
#include <string_view>

namespace tensorpull {

/// What a recipient asks for and expects.
struct pull_request {
  ref_id ref{};
  std::uint64_t version = 0;                      ///< 0: whatever is published now
  std::uint64_t fingerprint = 0;                  ///< 0: any schema
  const image_schema* schema = nullptr;           ///< own schema: to cut by tensors and to name the first difference; borrowed
  std::span<const std::string_view> subset{};     ///< names of the tensors wanted, all of `schema`'s; empty: the whole image; borrowed
  std::uint32_t window = 4;                       ///< requests in flight; the owner may allow fewer
  digest_kind chunk_digest = digest_kind::none;   ///< that every chunk shall carry
  recipient_id recipient{};                       ///< who asks: the same over reconnections; none: the connection is all there is
};

}  // namespace tensorpull
