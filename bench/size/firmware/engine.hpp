// What the rows of the big engine share: its limits, its policies and the table of the model's tensors.
#pragma once

#include "board.hpp"
#include "model.hpp"

#include <tensorpull/chunking/policies.hpp>
#include <tensorpull/consumers/land.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/image/arrange.hpp>
#include <tensorpull/protocol/recipient/transfer.hpp>
#include <tensorpull/protocol/roles.hpp>

namespace engine {

using namespace tensorpull;

/// What a small machine allows: no lists, no slices, no messages, four requests on their way.
struct limits : default_limits {
  static constexpr std::size_t control_frame_bytes = 512, page_bytes = 480, control_frame_segments = 2,
                               traversal_words = 64;
  static constexpr std::size_t application_body_bytes = 64, application_references = 1, window = 4, tensors = 16;
  static constexpr bool slices = false;
};
using framing = basic_word_framing<limits>;

/// The digest of the image, by the portable hash.
struct image_digest {
  using is_integrity_policy = void;
  using hash_type = xxh3_64;
  static constexpr bool whole = true;
  static constexpr bool per_chunk = false;
};

inline constexpr std::uint64_t hidden_weight[]{12, 72}, hidden_bias[]{12}, output_weight[]{10, 12}, output_bias[]{10};

/// The table of the model's tensors.
struct table {
  std::array<tensor_entry, 4> entries{{{.name = "hidden_weight", .type = dtype::f32, .rank = 2, .shape = hidden_weight},
                                       {.name = "hidden_bias", .type = dtype::f32, .rank = 1, .shape = hidden_bias},
                                       {.name = "output_weight", .type = dtype::f32, .rank = 2, .shape = output_weight},
                                       {.name = "output_bias", .type = dtype::f32, .rank = 1, .shape = output_bias}}};
  std::array<std::uintptr_t, 4> where;
  result<image_schema> schema;

  explicit table(perceptron& m) noexcept
      : where{reinterpret_cast<std::uintptr_t>(&m.hidden_weight), reinterpret_cast<std::uintptr_t>(&m.hidden_bias),
              reinterpret_cast<std::uintptr_t>(&m.output_weight), reinterpret_cast<std::uintptr_t>(&m.output_bias)},
        schema(arrange(entries, where)) {}
  destination_view view() const noexcept { return {&*schema, nullptr, where.data()}; }
};

}  // namespace engine
