// Another file of the same program: each definition of the header may be in both.
#include <tensorpull_embedded.hpp>

struct tiny_model {
  float weight[16][8], bias[16];
};

template <>
inline constexpr auto tensorpull::members_of<tiny_model> = tensorpull::members(
    tensorpull::member{"weight", &tiny_model::weight}, tensorpull::member{"bias", &tiny_model::bias});

std::size_t bytes_in_another_file();
std::size_t bytes_in_another_file() { return tensorpull::embedded_image<tiny_model>::image_bytes; }
