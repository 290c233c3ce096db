// Updates a model by a difference (delta update), by the tensors that have changed, or by a pull of the whole.
#pragma once

#include <tensorpull/chunking/policies.hpp>
#include <tensorpull/consumers/any_schema/published_schema.hpp>
#include <tensorpull/consumers/resume_cursor.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/pull/running_pull.hpp>
#include <tensorpull/satellites/differences/applied_difference.hpp>
#include <tensorpull/satellites/differences/changed_tensors.hpp>
#include <tensorpull/transports/concept.hpp>
#include <tensorpull/transports/pull_options.hpp>

#include <functional>
#include <type_traits>

namespace tensorpull {

namespace detail {

/// Whether a pull uses an existing connection.
template <class Net, class Where>
inline constexpr bool is_session_of = std::is_same_v<std::remove_cvref_t<Where>, typename Net::session>;

/// One recipient for all pulls that may follow: a late request of the first counts nobody else. The connection of a
/// session stands for it.
template <class Net, class Where>
void count_once(pull_options& how) noexcept {
  if constexpr (!is_session_of<Net, Where>)
    if (!how.recipient) how.recipient = random_recipient<typename Net::parts::platform>();
}

template <class Net, class Where, class Consumer>
result<receipt> pull_changes(Where& where, const reference& ref, Consumer& to, const pull_options& options) noexcept {
  if constexpr (is_session_of<Net, Where>) return where.pull(ref, to, options);
  else return Net::pull(where, ref, to, options);
}

/// Whether an error of the first pull ends the whole call: a further pull would not reach the owner, either.
constexpr bool ends_all(errc code) noexcept {
  return code == errc::cancelled || code == errc::timed_out || code == errc::connection_failed ||
         code == errc::connection_lost || code == errc::bad_address || code == errc::unknown_host ||
         code == errc::handshake_failed || code == errc::not_authenticated;
}

/// Whether no difference to such a model is possible: it is not in memory, or two tensors would have one name.
constexpr bool is_for_no_difference(errc code) noexcept {
  return code == errc::unsupported_layout || code == errc::duplicate_name;
}

/// The bytes that are held of a difference to a model until their digest was right: a chunk, as the pipeline asks for
/// them, or the usual one if its chunks have no bound.
template <class Net>
std::uint64_t held_chunk(const image_schema& model) noexcept {
  constexpr std::uint64_t most = Net::parts::chunking::max_chunk_bytes;
  return std::min<std::uint64_t>(most == 0 ? default_chunk_bytes : most, model.image_bytes);
}

/// Pulls the whole into the model.
template <class Net, class Where>
result<receipt> pull_whole(Where& where, const reference& whole, typename Net::model_type& model,
                           const pull_options& options) noexcept {
  if constexpr (is_session_of<Net, Where>) return where.download_tensors(whole, model, options);
  else return Net::download_tensors(where, whole, model, options);
}

/// The same pipeline with chunks as long as the expected header, but no longer than the pipeline's.
template <class Parts>
struct looking_parts : Parts {
  using usual = typename Parts::chunking;
  static constexpr std::uint64_t most = 1024 * 1024;
  static constexpr std::uint64_t longest = usual::max_chunk_bytes == 0 || usual::max_chunk_bytes > most
                                               ? most
                                               : usual::max_chunk_bytes;
  using chunking = bytes_up_to<longest>;
};

/// Asks what is published, whose header has about `header_bytes`. The pull ends as `cancelled` once `seen` is complete.
template <class Net, class Where>
result<receipt> pull_description(Where& where, const reference& whole, published_schema& seen,
                                 std::uint64_t header_bytes, pull_options options) noexcept {
  options.window = 1;
  options.unverified = true;
  options.progress = {};
  using parts = looking_parts<typename Net::parts>;
  if constexpr (is_session_of<Net, Where>) return where.pull(whole, seen, options);
  else if constexpr (parts::transport::reliable && parts::transport::ordered &&
                     pulls_from<typename parts::transport, parts, Where&, published_schema>)
    return parts::transport::template pull<parts>(where, whole, seen, options, typename parts::chunking{header_bytes});
  else return Net::pull(where, whole, seen, options);
}

}  // namespace detail

/// Makes `model` what is published under `whole`, whatever it was, by pulling the tensors whose digests differ. The
/// owner publishes with publish_options::tensor_digests. The whole is pulled if the owner has no digests of tensors or
/// other tensors, if it cannot give some by name (an owner over HTTP, a microcontroller, a name that does not fit a
/// request), or if every tensor has changed. The digest of the whole is compared before the owner counts the recipient,
/// which it does once; if tensors' digests were wrong, the whole is pulled. The receipt is of `whole`; `kept_bytes`, if
/// it is not null, is the bytes of tensors that were not pulled.
///
/// `where` is as in Net::download_tensors, or a Net::session. There are two pulls: of the header, for which the owner
/// counts nobody, and of the tensors. The first takes up to twice the length of the header; over a session and over
/// datagrams two chunks of the pipeline, if these are longer. If nothing has changed, the smallest tensor is pulled
/// nevertheless. `options` hold for each pull; its cursor and its names are not used, and slices are refused
/// (invalid_argument). After an error some tensors are new and the others old, except those that were landing: the next
/// call pulls what is missing.
///
/// Errors: those of Net::download_tensors; value_out_of_range as land. Cost besides the bytes: two passes over the
/// model. Memory besides the pull's: the published header with its table (new_model_limits), including 16 bytes a
/// tensor for the digests, and 64 bytes a tensor.
template <class Net, hash Hash = xxh3_64, class Where>
result<receipt> download_changes(Where&& where, const reference& whole, typename Net::model_type& model,
                                 const pull_options& options = {}, std::uint64_t* kept_bytes = nullptr) noexcept {
  if (kept_bytes != nullptr) *kept_bytes = 0;
  if (!options.slices.empty()) return failure(errc::invalid_argument, 0, options.slices[0].name);
  pull_options how = options;
  how.cursor = nullptr;
  how.tensors = {};
  how.part = false;
  const destination_view to = Net::parts::tensors::destination(model);
  // as long as ours with the digests, and room for metadata such as an order or a tree
  const std::uint64_t own = to.schema->header_bytes, tensors = to.schema->tensor_count;
  published_schema seen({.max_header_bytes = 2 * own + 16 * tensors + 64 * 1024, .max_tensors = tensors});
  const auto looked = detail::pull_description<Net>(where, whole, seen, own + 16 * tensors + 64, how);
  if (!seen.complete() && !looked && detail::ends_all(looked.error().code)) return looked;
  if (!seen.complete() || !seen.described().verifiable) return detail::pull_whole<Net>(where, whole, model, how);

  detail::count_once<Net, Where>(how);
  const description& d = seen.described();
  const image_schema& published = seen.schema_of_image();
  const auto changed = changed_tensors::find<Hash>(to, published, options.stop);
  if (!changed && changed.error().code == errc::cancelled) return failure(changed.error());
  if (!changed || changed->are_all()) return detail::pull_whole<Net>(where, whole, model, how);

  changed_landing<Hash> landing(*changed, published, d.version, options.stop);
  const bool given = whole.version != 0 || options.version != 0;
  pull_options of_these = how;
  of_these.part = true;
  of_these.version = d.version;
  of_these.believe = options.believe || given;  // any answer will do: the whole is compared with the version
  auto got = detail::pull_changes<Net>(where, whole, landing, of_these);
  if (got) {
    got->outcome = outcome::completed;
    got->bytes = d.image_bytes;
    got->version = got->digest = d.version;
    got->fingerprint = d.fingerprint;
    got->believed = !given;
    if (kept_bytes != nullptr) *kept_bytes = changed->kept_bytes();
    return got;
  }
  const errc why = got.error().code;
  // does_not_fit: a name is longer than a request may be; stale_version: another version was published since the look
  const bool refused = !landing.begun() && (why == errc::unsupported_request || why == errc::does_not_fit ||
                                            (why == errc::stale_version && !given));
  return landing.in_vain() || refused ? detail::pull_whole<Net>(where, whole, model, how) : got;
}

namespace detail {

template <class Consumer>
Consumer& consumer_of(Consumer& made) noexcept {
  return made;
}
template <class Consumer>
Consumer& consumer_of(std::reference_wrapper<Consumer>& kept) noexcept {
  return kept;
}

/// How many differences of earlier rounds a recipient pulls one after the other.
inline constexpr unsigned most_rounds_missed = 16;

/// The part that both kinds of differences share. `made()` gives the consumer that applies one to `model`. With
/// `found`, `difference` was found by the model's version, and so are those that follow it.
template <class Net, hash Hash, class Where, class Made>
result<receipt> download_changes_by(Where& where, const reference& whole, reference difference,
                                    typename Net::model_type& model, const Made& made, const pull_options& options,
                                    std::uint64_t* difference_bytes, bool found) noexcept {
  if (difference_bytes != nullptr) *difference_bytes = 0;
  if (!options.slices.empty()) return failure(errc::invalid_argument, 0, options.slices[0].name);
  pull_options how = options;
  how.cursor = nullptr;
  count_once<Net, Where>(how);
  const destination_view to = Net::parts::tensors::destination(model);
  resume_cursor here;
  bool moved = false;
  for (unsigned left = found ? most_rounds_missed : 1;
       left-- != 0 && whole.version != 0 && difference.id && difference.id != whole.id;) {
    auto applied = made();
    if (!applied && is_for_no_difference(applied.error().code)) return pull_whole<Net>(where, whole, model, how);
    if (!applied) return failure(applied.error());
    pull_options of_difference = how;
    of_difference.version = 0;  // that is the version of the whole
    const auto got = pull_changes<Net>(where, difference, consumer_of(*applied), of_difference);
    if (!got && ends_all(got.error().code)) return got;
    if (!got) {  // it is gone, or does not fit this model
      if (!moved) break;
      // after the last of them the header may be all that is missing
      return download_changes<Net, Hash>(where, whole, model, how);
    }
    moved = true;
    if (difference_bytes != nullptr) *difference_bytes += got->bytes;
    const auto is = image_version<Hash>(to, options.stop);
    if (!is) return failure(is.error());
    if (*is == whole.version) {
      // there is nothing left to pull then, and the owner is told
      here = {whole.id, to.schema->fingerprint, whole.version, to.schema->image_bytes, whole.version};
      break;
    }
    if (left == 0) return download_changes<Net, Hash>(where, whole, model, how);
    difference.id = difference_id(whole, *is);
  }
  how.cursor = &here;
  return pull_whole<Net>(where, whole, model, how);
}
/// Calls `f` with the reference of the difference from the model's version; that reference has no version.
template <class Net, hash Hash, class F>
result<receipt> with_difference_of(const reference& whole, typename Net::model_type& model, const pull_options& options,
                                   const F& f) noexcept {
  const auto from = image_version<Hash>(Net::parts::tensors::destination(model), options.stop);
  if (!from) return failure(from.error());
  pull_options how = options;
  how.believe = options.believe || whole.version != 0;  // the difference has no version, and is compared with the whole
  return f(reference{difference_id(whole, *from), 0, 0}, how);
}
/// download_changes() of a difference that has a coder.
template <class Net, hash Hash, class Where, class Coder>
result<receipt> download_coded(Where& where, const reference& whole, const reference& difference,
                               typename Net::model_type& model, Coder& coder, const pull_options& options,
                               std::uint64_t* difference_bytes, bool found) noexcept {
  const auto made = [&] {
    const destination_view to = Net::parts::tensors::destination(model);
    return applied_difference<Coder, Hash>::make(to, coder, held_chunk<Net>(*to.schema));
  };
  return download_changes_by<Net, Hash>(where, whole, difference, model, made, options, difference_bytes, found);
}

}  // namespace detail

/// Makes `model` what is published under `whole`, whatever it was. If it is the version that `difference` begins from,
/// the difference is pulled and applied in place. Otherwise, or if the result has another digest than `whole`, all of
/// it is pulled. The owner counts a recipient of `whole` once it has the bytes. Its budgets run while the difference is
/// pulled, unless that is published with publish_options::beside. The receipt is of `whole`;
/// `difference_bytes`, if it is not null, is the bytes that were pulled of the difference.
///
/// `where` is as in Net::download_tensors, and each of the two pulls makes a connection; or it is a Net::session, whose
/// connection serves both. The second pull costs round trips (three over a session), so a small model far away is
/// faster as a whole.
///
/// `whole` needs a version: without one the result cannot be checked, and all is pulled. `options` hold for each of the
/// two pulls; its cursor is not used, and slices are refused (invalid_argument). Errors: those of
/// Net::download_tensors. An error that would end that as well (a
/// stop request, a time-out, or no connection) ends the call, with a model that may be partly changed. Cost besides the
/// bytes: four passes over the model.
template <class Net, class Where, difference_coder Coder, hash Hash = xxh3_64>
result<receipt> download_changes(Where&& where, const reference& whole, const reference& difference,
                                 typename Net::model_type& model, Coder& coder, const pull_options& options = {},
                                 std::uint64_t* difference_bytes = nullptr) noexcept {
  return detail::download_coded<Net, Hash>(where, whole, difference, model, coder, options, difference_bytes, false);
}

/// The same with a consumer of `model` that the caller keeps. After an error that has ended the call, such as a lost
/// connection or a stop request, another call with the same references and consumer goes on with the difference: the
/// blocks that it has applied are not needed again.
template <class Net, class Where, difference_coder Coder, hash Hash>
result<receipt> download_changes(Where&& where, const reference& whole, const reference& difference,
                                 typename Net::model_type& model, applied_difference<Coder, Hash>& kept,
                                 const pull_options& options = {}, std::uint64_t* difference_bytes = nullptr) noexcept {
  const auto made = [&] { return result<std::reference_wrapper<applied_difference<Coder, Hash>>>(std::ref(kept)); };
  return detail::download_changes_by<Net, Hash>(where, whole, difference, model, made, options, difference_bytes,
                                                false);
}

/// The same if the owner has published the difference under difference_id(), of `whole` and the model's version: no
/// second reference is needed. A recipient that missed rounds whose differences the owner keeps (kept_differences)
/// pulls these, up to 16. Costs one more pass over the model, and one after each difference. One more error:
/// unsupported_layout: the model cannot be read.
template <class Net, class Where, difference_coder Coder, hash Hash = xxh3_64>
result<receipt> download_changes(Where&& where, const reference& whole, typename Net::model_type& model, Coder& coder,
                                 const pull_options& options = {}, std::uint64_t* difference_bytes = nullptr) noexcept {
  return detail::with_difference_of<Net, Hash>(
      whole, model, options, [&](const reference& found, const pull_options& how) {
        return detail::download_coded<Net, Hash>(where, whole, found, model, coder, how, difference_bytes, true);
      });
}

}  // namespace tensorpull
