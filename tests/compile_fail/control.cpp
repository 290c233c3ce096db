// A right use: compiled by the same command as the wrong ones. What they derive from is right, too.
#include "model.hpp"

#include <tensorpull/framing/capnp/capnp_framing.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>
#include <tensorpull/tensors/structs/raw.hpp>

static_assert(consumer<detail::null_consumer>);

int main() {}
