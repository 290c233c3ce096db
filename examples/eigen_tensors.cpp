// A tensor policy for a type that the library does not know: Eigen's matrices.
#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/concept.hpp>
#include <tensorpull/transports/host/owner.hpp>

#include <Eigen/Core>

#include <array>
#include <cstdio>
#include <stop_token>
#include <thread>
#include <vector>

using namespace tensorpull;
// row-major, as in an image, so bytes can land in it
using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct named_matrix {
  std::string_view name;
  matrix* values;
};

/// The policy. Its model is a table of names, shapes and addresses. The matrices stay the user's, and must keep their
/// sizes.
struct eigen_tensors {
  using is_tensor_policy = void;
  using model_type = dynamic_image;
  static constexpr bool is_static = false;

  static result<model_type> make(const std::vector<named_matrix>& matrices) {
    std::vector<std::array<std::uint64_t, 2>> shapes;
    for (const auto& m : matrices)
      shapes.push_back({static_cast<std::uint64_t>(m.values->rows()), static_cast<std::uint64_t>(m.values->cols())});
    std::vector<mutable_tensor_view> views;
    for (const auto& m : matrices)
      views.push_back(
          {m.name, dtype_of<float>::value, shapes[views.size()], reinterpret_cast<std::byte*>(m.values->data())});
    return dynamic_image::make(views);
  }
  static source_view source(const model_type& model) noexcept { return model.source(); }
  static destination_view destination(model_type& model) noexcept { return model.destination(); }
};
static_assert(tensor_policy<eigen_tensors>);

int main() {
  using net = pipeline<eigen_tensors, fixed_bytes<64_KiB>, tcp>;
  matrix trained_weight = matrix::Random(128, 784), trained_bias = matrix::Random(1, 128), weight(128, 784),
         bias(1, 128);
  const auto trained = eigen_tensors::make({{"weight", &trained_weight}, {"bias", &trained_bias}});
  auto mine = eigen_tensors::make({{"weight", &weight}, {"bias", &bias}});
  auto owner = net::downloader::open();
  if (!trained || !mine || !owner) return 1;
  const auto ref = owner->add_tensors(*trained, {.recipients = 1});
  if (!ref) return 1;
  std::jthread serving([&](std::stop_token stop) { owner->run(until_settled(*ref), stop); });

  const auto done = net::download_tensors("127.0.0.1:" + std::to_string(owner->port()), *ref, *mine);
  const bool equal = done && weight == trained_weight && bias == trained_bias;
  std::printf("%s, %s\n", done ? to_string(done->outcome).data() : describe(done.error()).c_str(),
              equal ? "equal" : "not equal");
  return equal ? 0 : 1;
}
