// The firmware whose model lands in flash, and whose update is a whole model.
#include "in_flash.hpp"

namespace microcontroller {

static device<in_flash> the_device;

}  // namespace microcontroller

int run() { return microcontroller::the_device.run(); }
