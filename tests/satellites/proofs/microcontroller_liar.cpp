// Whoever is at the serial line of the microcontroller: publishes any text as the signed reference of a round, and a
// model of zeros, whose digest is right, as that round's. Prints the version of the model.
// usage: microcontroller_liar LINE FILE ROUND
#include <jobs/microcontroller/network.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

namespace {

struct longer_text {
  std::uint8_t text[513];
};

}  // namespace

BOOST_HANA_ADAPT_STRUCT(longer_text, text);

int main(int, char** arguments) {
  using namespace microcontroller;
  std::ifstream file(arguments[2], std::ios::binary);
  const std::string said{std::istreambuf_iterator<char>(file), {}};
  const auto round = static_cast<std::uint32_t>(std::atoi(arguments[3]));
  auto line = over_line::session::connect(arguments[1]);
  if (!line) return 1;
  const auto model = std::make_unique<mlp>();
  const auto published = line->add_tensors(std::as_const(*model), {.id = model_of(round)});
  const auto publish = [&](auto text) {
    static decltype(text) kept;
    std::memcpy(kept.text, said.data(), std::min(said.size(), sizeof kept.text));
    return line->add_image(tensorpull::raw_tensors<decltype(text)>::source(kept), {.id = reference_of(round)});
  };
  const auto told = said.size() > sizeof(reference_text::text) ? publish(longer_text{}) : publish(reference_text{});
  if (!published || !told) return 1;
  std::printf("%016llx\n", static_cast<unsigned long long>(published->version));
  std::fflush(stdout);
  (void)line->serve([](const auto&) { return false; }, patience);
  return 0;
}
