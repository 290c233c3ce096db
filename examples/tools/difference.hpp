// Changes since an older file: send codes them, and recv fetches them. It is compiled where the component is there
// (TENSORPULL_TOOLS_DIFFERENCES).
#pragma once

#include "link_choice.hpp"
#include "tensor_file.hpp"

#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/consumers/resume_cursor.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace tools {

/// Refuses --base in a build without it.
inline void need_differences() {
  if (!TENSORPULL_TOOLS_DIFFERENCES) throw option_error("--base: this program was built without differences");
}

/// A difference that is held in memory.
struct coded_difference {
  tp::source_view image;
  std::uint64_t bytes;
  tp::ref_id id;  ///< under which it is published beside the whole
  std::shared_ptr<const void> keep;
};
/// Codes what has changed. Errors: as model_difference::make; too_large: almost all is new.
tp::result<coded_difference> code_difference(const tp::source_view& old, const tp::source_view& now,
                                             const tp::reference& whole, const tp::stop_token& stop);

struct wanted_difference {
  const link_choice& link;  ///< what is short comes from the first sender
  tp::reference ref;
  const tp::pull_options& options;
  std::uint64_t chunk, most_bytes;
  std::string file;  ///< in whose part the difference is kept until it is applied; it is never made itself
  bool anew = false;  ///< not to go on with what is there
};
struct brought {
  std::uint64_t bytes = 0;  ///< that came now
  std::uint64_t kept = 0;  ///< bytes of a difference with which another call goes on
  std::optional<tp::error> lost{};  ///< why no more of it came, if nothing else would come either
};
/// Makes the file what is published, by the difference to `base` or by the tensors that have changed, if the sender has
/// the one or says the digests of the others; otherwise leaves it to the pull of the whole, which finds out also if
/// what came of it is right. `where` is set if the whole is there then. If it is stopped, or the only sender is lost, a
/// difference stays in its part.
brought bring_difference(const wanted_difference& wanted, const tensor_file& base, tp::safetensors_file& file,
                         tp::resume_cursor& where);

}  // namespace tools
