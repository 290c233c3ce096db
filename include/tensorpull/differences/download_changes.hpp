// Brings a model up to date by a difference, or by a pull of the whole.
#pragma once

#include <tensorpull/consumers/resume_cursor.hpp>
#include <tensorpull/differences/applied_difference.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/transports/pull_options.hpp>

#include <type_traits>

namespace tensorpull {

namespace detail {

/// Whether a pull goes over a connection that is there.
template <class Net, class Where>
inline constexpr bool is_session_of = std::is_same_v<std::remove_cvref_t<Where>, typename Net::session>;

template <class Net, class Where, class Consumer>
result<receipt> pull_changes(Where& where, const reference& ref, Consumer& to, const pull_options& options) noexcept {
  if constexpr (is_session_of<Net, Where>) return where.pull(ref, to, options);
  else return Net::pull(where, ref, to, options);
}

}  // namespace detail

/// Makes `model` what is published under `whole`, whatever it is before. If it is the version that `difference` begins
/// from, the difference is pulled and applied in place; otherwise, and also if what has become of it has another digest
/// than `whole`, all of it is pulled. So the bytes are those that `whole` says, and the owner counts a recipient of
/// `whole` once it has them, however they came. The receipt is of `whole`; `difference_bytes`, if it is not null, is
/// how many came of the difference.
///
/// `where` is what Net::download_tensors takes, and each of the two pulls has a connection of its own; or it is a
/// Net::session, whose connection brings both. The second pull costs round trips although nothing may come: three over
/// a session. So a small model is sooner there as a whole if the line is long.
///
/// `whole` has a version: without one nothing says what the difference has to lead to, and all is pulled. `options`
/// hold for each of the two pulls; its cursor is not used. Errors: those of Net::download_tensors; an error that would
/// end that as well (cancelled, timed_out, connection_failed, connection_lost) ends the difference, and the model is
/// partly changed then, as after any pull that fails. Cost besides the bytes: four passes over the model.
template <class Net, class Where, difference_coder Coder, hash Hash = xxh3_64>
result<receipt> download_changes(Where&& where, const reference& whole, const reference& difference,
                                 typename Net::model_type& model, Coder& coder, const pull_options& options = {},
                                 std::uint64_t* difference_bytes = nullptr) noexcept {
  if (difference_bytes != nullptr) *difference_bytes = 0;
  pull_options how = options;
  how.cursor = nullptr;
  const destination_view to = Net::parts::tensors::destination(model);
  resume_cursor here;
  if (whole.version != 0 && difference.id && difference.id != whole.id) {
    auto applied = applied_difference<Coder, Hash>::make(to, coder);
    if (!applied) return failure(applied.error());
    const auto got = detail::pull_changes<Net>(where, difference, *applied, how);
    if (got) {
      if (difference_bytes != nullptr) *difference_bytes = got->bytes;
      const auto is = image_version<Hash>(to, options.stop);
      if (!is) return failure(is.error());
      // there is nothing left to pull then, and the owner is told
      if (*is == whole.version)
        here = {whole.id, to.schema->fingerprint, whole.version, to.schema->image_bytes, whole.version};
    } else {
      switch (got.error().code) {
        case errc::cancelled:
        case errc::timed_out:
        case errc::connection_failed:
        case errc::connection_lost: return got;
        default: break;  // it is gone, or is none to this model
      }
    }
  }
  how.cursor = &here;
  if constexpr (detail::is_session_of<Net, Where>) return where.download_tensors(whole, model, how);
  else return Net::download_tensors(where, whole, model, how);
}

/// The same if the owner has published the difference under difference_id(), of `whole` and the version that the model
/// has: no second reference is needed. Cost besides the bytes: one more pass over the model. One more error:
/// unsupported_layout: the model cannot be read.
template <class Net, class Where, difference_coder Coder, hash Hash = xxh3_64>
result<receipt> download_changes(Where&& where, const reference& whole, typename Net::model_type& model, Coder& coder,
                                 const pull_options& options = {}, std::uint64_t* difference_bytes = nullptr) noexcept {
  const auto from = image_version<Hash>(Net::parts::tensors::destination(model), options.stop);
  if (!from) return failure(from.error());
  pull_options how = options;
  how.believe = options.believe || whole.version != 0;  // the difference has no version, and is compared with the whole
  return download_changes<Net, Where&, Coder, Hash>(where, whole, {difference_id(whole, *from), 0, 0}, model, coder,
                                                    how, difference_bytes);
}

}  // namespace tensorpull
