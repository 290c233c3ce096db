// How a model is published: under which name, and for whom.
#pragma once

#include <tensorpull/protocol/owner/transaction.hpp>

namespace tensorpull {

/// How to publish.
struct publish_options {
  ref_id id{};                      ///< chosen before (to publish again under the same name); none: a random one
  std::uint32_t recipients = 0;     ///< how many have to confirm before the reference is settled; 0: `expect` says
  transaction_options expect{};     ///< who, for how long, and whom to tell
  transaction_id transaction{};     ///< or a part of this one, which says all that
};

}  // namespace tensorpull
