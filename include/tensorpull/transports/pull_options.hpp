// How a recipient pulls: time limits, retries, callbacks.
#pragma once

#include <tensorpull/consumers/resume_cursor.hpp>
#include <tensorpull/protocol/progress.hpp>
#include <tensorpull/protocol/recipient/recipient.hpp>
#include <tensorpull/protocol/retry.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/std/functional.hpp>
#include <tensorpull/std/stop_token.hpp>

#include <string_view>

namespace tensorpull {

/// How one pull is done. Everything that it points to must live until the pull has ended.
struct pull_options {
  /// How long a request may take without progress: the time starts anew with each answer and with each 1/64 of a chunk
  /// that has landed. An owner that accepts the connection and does not answer costs this much for each try. A
  /// connection that carries nothing any more costs less: over TCP it is lost after 11 s, and `retry` decides what
  /// follows. To connect may take as long, too; an address that is silent is tried anew every few seconds.
  std::chrono::milliseconds per_request_timeout = std::chrono::seconds(600);
  /// The version to pull; 0: that of the reference, or what is published now if it has none, by the word of whoever
  /// answers (receipt::believed).
  std::uint64_t version = 0;
  /// Names of the tensors to pull: all tensors of the destination in any order, which are a part of what is published.
  /// Empty: the whole image. More names than one request carries (about 1 KiB, or what the owner takes), or than 11
  /// ranges hold, cost a request and an answer for each such number of them. A name that is not published is named by
  /// the error (bad_request), maybe after other tensors have landed.
  std::span<const std::string_view> tensors{};
  /// The destination has only a part of what is published, and all its tensors are pulled: as if `tensors` named them,
  /// whatever it names.
  bool part = false;
  /// Of these tensors of the destination, slices of what is published are pulled, which are as long as the
  /// destination's tensors; of its other tensors all (see tensor_slice for the cost). As `part` otherwise. An owner of
  /// an earlier version does not know them (unsupported_request). out_of_range, with a name: what is published has no
  /// such indices, or its packed elements share a byte there with others. invalid_argument and schema_mismatch, with a
  /// name: the slice is empty or reversed, or of no tensor of the destination, or not as long as that is. Thousands are
  /// found quicker in ascending order of their names.
  std::span<const tensor_slice> slices{};
  /// Accepts an image without a digest; the outcome is then completed_unverified. Otherwise a pipeline that compares
  /// the digest of the whole refuses such an image (not_verifiable) before a byte lands. It never makes a digest that
  /// is there count less.
  bool unverified = false;
  /// Over a link where anybody can answer first (a transport's `anyone_answers`: NATS), takes what is described there
  /// although nothing that was given fixes which bytes they have to be: the reference has no version, or some tensors
  /// are pulled by name. Otherwise such a pull is refused before anything is asked (version_required). The receipt is
  /// `believed`. Over other links it changes nothing.
  bool believe = false;
  /// Requests in flight; the owner may allow fewer. 0: over streams as many as an owner usually allows (8), and over
  /// HTTP one for all that is missing, unless the address names a number of connections. Over datagrams it is the
  /// least, since their number follows the path (0: 4).
  std::uint32_t window = 0;
  /// Ends the transfer; noticed within 0.1 s wherever it waits, in back-off too. The system's resolver cannot be
  /// interrupted.
  stop_token stop{};
  /// A number chosen by the application, which the owner is told if `stop` ends the transfer. It is read at that
  /// moment.
  const std::uint32_t* stop_reason = nullptr;
  /// How often to try again after a connection that cannot be made, is lost or times out, and after a busy owner.
  /// Landed bytes stay. It is also how often the confirmation is tried, before the pull ends without one
  /// (receipt::confirmed).
  retry_policy retry{};
  /// The recipient that asks: the owner counts it once, however often it reconnects. None: a random number for this
  /// pull, or that of the session.
  recipient_id recipient{};
  /// Where this transfer stands; updated with each chunk. If it is not empty and fits what is published, the transfer
  /// resumes from it, also under another reference whose version is given. Resuming needs a digest of the whole and a
  /// consumer whose memory can be read back (land). Without them, or if the bytes do not match the cursor, it starts at
  /// 0.
  resume_cursor* cursor = nullptr;
  /// Called on the pulling thread; what it throws is dropped.
  callback<const progress_event&> progress{};
  /// At most one progress event in this time, besides the first and the last.
  std::chrono::milliseconds progress_interval = std::chrono::seconds(30);

  /// Whether tensors are asked for by name. Otherwise it is the whole image.
  bool by_name() const noexcept { return part || !tensors.empty() || !slices.empty(); }
};

/// The request behind a pull of `ref`.
inline pull_request make_request(const reference& ref, const pull_options& options) noexcept {
  pull_request r;
  r.ref = ref.id;
  r.version = options.version != 0 ? options.version : ref.version;
  r.subset = options.tensors;
  r.part = options.part;
  r.slices = options.slices;
  r.fingerprint = r.by_name() ? 0 : ref.fingerprint;  // the reference's is that of the whole
  r.window = options.window;
  r.recipient = options.recipient;
  r.unverified = options.unverified;
  return r;
}

}  // namespace tensorpull
