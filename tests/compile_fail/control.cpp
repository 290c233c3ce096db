// A right use: compiled by the same command as the wrong ones.
#include <tensorpull/framing/capnp_framing.hpp>
#include <tensorpull/integrity/xxhash_digest.hpp>
#include <tensorpull/tensors/raw.hpp>

int main() {}
