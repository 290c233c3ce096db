// The firmware whose model lands in flash, and whose update is the difference to that in 8 bits: a quarter of the
// bytes. Two models would not fit the memory, so the one in flash is the base.
#include "in_flash.hpp"

#include <tensorpull/satellites/differences/embedded_difference.hpp>

namespace microcontroller {

static device<in_flash, tensorpull::embedded_difference<mlp, flash_place>> the_device;

}  // namespace microcontroller

int run() { return microcontroller::the_device.run(); }
