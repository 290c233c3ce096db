// What the component messages gives: structs that two programs exchange. Its header is generated in the build of the
// program that uses it.
#include "model.hpp"

#include <tensorpull/messages/decomposed.capnp.h>
#include <tensorpull/messages/tensor_decomposer.hpp>

using over_tcp = tensorpull::pipeline<tensorpull::raw_tensors<mlp>, tensorpull::fixed_bytes<256>, tensorpull::tcp>;
struct task {
  std::uint32_t round;
  tensorpull::tensors_of<mlp> model;
};
BOOST_HANA_ADAPT_STRUCT(task, round, model);

bool receive(over_tcp::session& session, task& got) {
  return tensorpull::tensor_decomposer<over_tcp>::receive(session, got).has_value();
}

int main() { return tensorpull::locator{} ? 1 : 0; }
