// How a recipient pulls: patience, persistence, and whom to tell.
#pragma once

#include <tensorpull/consumers/resume_cursor.hpp>
#include <tensorpull/protocol/progress.hpp>
#include <tensorpull/protocol/recipient/recipient.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/std/functional.hpp>
#include <tensorpull/std/stop_token.hpp>
#include <tensorpull/transports/retry.hpp>

#include <string_view>

namespace tensorpull {

/// Everything borrowed lives until the pull has returned.
struct pull_options {
  /// Progress keeps a transfer alive: the time starts anew with each answer and each 1/64 of a chunk.
  std::chrono::milliseconds per_request_timeout = std::chrono::seconds(600);
  /// 0: whatever is published now
  std::uint64_t version = 0;
  /// Names of the tensors to pull: all tensors of the destination, which are a part of what is published. Empty: the whole image.
  std::span<const std::string_view> tensors{};
  /// Requests in flight; the owner may allow fewer.
  std::uint32_t window = 4;
  /// Heard within 0.1 s wherever the transfer waits, in back-off too.
  stop_token stop{};
  /// A number of the application's own that the owner hears when `stop` ends the transfer; read at that moment.
  const std::uint32_t* stop_reason = nullptr;
  /// After a time-out, a lost connection or a busy owner; what has landed stays.
  retry_policy retry{};
  /// Who asks, so that the owner counts one recipient however often it reconnects; none: a random one for this pull.
  recipient_id recipient{};
  /// Where this transfer stands: resumed from where it is not empty and fits, kept up to date with each chunk. Needs a digest of the whole
  /// and a consumer whose memory can be read back (land); otherwise, or where the bytes are not those of the cursor, it starts at 0.
  resume_cursor* cursor = nullptr;
  callback<const progress_event&> progress{};
  std::chrono::milliseconds progress_interval = std::chrono::seconds(30);
};

/// The request behind a pull of `ref`.
inline pull_request make_request(const reference& ref, const pull_options& options) noexcept {
  pull_request r;
  r.ref = ref.id;
  r.version = options.version != 0 ? options.version : ref.version;
  r.subset = options.tensors;
  r.window = options.window;
  r.recipient = options.recipient;
  return r;
}

}  // namespace tensorpull
