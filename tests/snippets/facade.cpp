// NEEDS tensorpull::facade
#include "facade/facade.hpp"

#include <tensorpull/consumers/land.hpp>
#include <tensorpull/image/dynamic.hpp>

#include <array>
#include <string>

namespace facade = tensorpull::facade;

static int complain(const tensorpull::error&) { return 0; }
static int pull_from(std::string_view address, const tensorpull::reference& ref,
                     const tensorpull::destination_view& model) {
  tensorpull::land into(model);
  // SNIPPET
  return got ? 1 : 0;
}

int main() {
  std::array<float, 2> numbers{};
  const std::array<std::uint64_t, 1> shape{2};
  const std::array<tensorpull::mutable_tensor_view, 1> views{
      {{"w", tensorpull::dtype::f32, shape, reinterpret_cast<std::byte*>(numbers.data()), {}}}};
  auto image = tensorpull::dynamic_image::make(views);
  // no socket has so long a name, and the pull says so
  return !image || pull_from("unix:" + std::string(200, 'x'), {{0, 1}, 0, 0}, image->destination()) != 0;
}
