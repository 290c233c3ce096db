// The integrity policies with the digest of hosts: those that pipelines take by name.
#pragma once

#include <tensorpull/integrity/policies.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>

namespace tensorpull {

/// The default: one digest of the whole image.
using image_digest = basic_image_digest<xxhash_digest>;
/// A digest with each chunk, none of the whole.
using chunk_digest = basic_chunk_digest<xxhash_digest>;
/// Both.
using chunk_and_image_digest = basic_chunk_and_image_digest<xxhash_digest>;

}  // namespace tensorpull
