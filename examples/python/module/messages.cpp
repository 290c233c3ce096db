// What message structs need of the library: the encoding of their bodies is Python's (src/tensorpull/_decomposed.py).
#include "parts.hpp"
#include "slices.hpp"

#include <tensorpull/messages/locator.hpp>

#include <string_view>

namespace tensorpull::python {

void bind_messages(py::module_& m) {
  m.def("fingerprint", [](const py::sequence& tensors) {
    const device_reader devices;
    return devices.image_of(tensor_table(tensors), {}).schema().fingerprint;
  });
  m.def("may_be_handed_on",
        [](std::string_view address) { return locator(reference{{0, 1}, 0, 0}).add(address).has_value(); });
}

}  // namespace tensorpull::python
