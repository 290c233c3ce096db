// A right use: compiled by the same command as the wrong ones.
#include <tensorpull/framing/capnp/capnp_framing.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>
#include <tensorpull/tensors/structs/raw.hpp>

int main() {}
