// The component safetensors, as an installed project finds it.
#include <tensorpull/tensors/safetensors/safetensors.hpp>

int main() { return tensorpull::safetensors_image::open("/").error().code == tensorpull::errc::io ? 0 : 1; }
