// What the other end of a line owns: the model that the pipeline pulls.
#pragma once

#include "engine.hpp"

#include <tensorpull/protocol/owner/owner.hpp>

namespace host {

using namespace tensorpull;

/// A host's limits, less what needs memory that this board does not have.
struct limits : default_limits {
  static constexpr std::size_t control_frame_bytes = 1024, page_bytes = 960, application_body_bytes = 64,
                               application_references = 1;
  static constexpr std::size_t transfers_per_connection = 2, references = 2, recipients = 2, digest_jobs = 1,
                               window = 4, tensors = 16;
};
using framing = basic_word_framing<limits>;
using owner_type = owner<xxh3_64, limits>;

inline owner_storage<2, 2> storage;

/// Publishes a model with a pattern in it as 1-2. False: it could not.
inline bool publish(owner_type& references, perceptron& model, const engine::table& table) noexcept {
  for (std::size_t i = 0; i < 10; ++i) model.output_bias[i] = model.hidden_weight[i][i] = static_cast<float>(i) - 0.5f;
  return table.schema && references.publish(table.view(), *image_version<xxh3_64>(table.view()), true, {1, 2}, 1);
}

}  // namespace host
