// What the component freestanding gives, without Boost, Cap'n Proto or xxHash.
#include <tensorpull/core/dtype.hpp>
#include <tensorpull/core/xxh3.hpp>

int main() { return tensorpull::to_string(tensorpull::dtype::f32) == "F32" ? 0 : 1; }
