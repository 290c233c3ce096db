// Message structs between two programs: a task or a result with numbers, strings and sets of tensors goes as one Cap'n
// Proto message, in which small tensors are inline and large ones are references that the other end pulls, at once or
// later.
#pragma once

#include <tensorpull/messages/detail/recompose.hpp>
#include <tensorpull/protocol/owner/transaction.hpp>
#include <tensorpull/transports/until_settled.hpp>

#include <memory>

namespace tensorpull {

/// The default threshold: tensors of at most `Bytes` travel in the message itself, others are pulled. Decided for each
/// tensor, so a set may be split: the biases arrive at once, the weights are one published image.
template <std::uint64_t Bytes>
struct inline_up_to {
  static constexpr std::uint64_t bytes = Bytes;  ///< The threshold.
};

/// A message that was taken apart: ready to be sent, any number of times and to any number of connections. Owns its
/// body (one allocation). Large tensors are published by then; they stay so until their recipients have settled them or
/// withdraw() is called, whatever becomes of this object.
template <class Limits = default_limits>
class decomposed {
 public:
  /// The references that the body names by index, for session.send. Valid while this object lives.
  std::span<const reference> references() const noexcept { return {references_.data(), reference_count_}; }
  /// One Cap'n Proto message, for session.send. Valid while this object lives.
  std::span<const std::byte> body() const noexcept {
    return {reinterpret_cast<const std::byte*>(body_.get()), body_bytes_};
  }

  /// Whether every set of large tensors that was published for this message is settled; at once if there was none.
  template <class Owner>
  bool settled(const Owner& owner) const noexcept {
    for (std::size_t i = 0; i < reference_count_; ++i)
      if (published_here_[i] && !owner.settled(references_[i])) return false;
    return true;
  }
  /// After that: why a set was not delivered, as serve(until_settled(message)) gives it.
  template <class Owner>
  result<void> outcome(Owner& owner) const noexcept {
    for (std::size_t i = 0; i < reference_count_; ++i)
      if (published_here_[i])
        if (const auto ok = until_settled(references_[i]).outcome(owner); !ok) return ok;
    return {};
  }
  /// Ends what was published for this message: nothing reads its models any more.
  template <class Owner>
  void withdraw(Owner& owner) const noexcept {
    for (std::size_t i = 0; i < reference_count_; ++i)
      if (published_here_[i]) (void)owner.withdraw(references_[i]);
  }

 private:
  template <class, class>
  friend struct tensor_decomposer;
  template <class, class>
  friend struct detail::body_writer;

  /// The index of a reference in the list; measured before that there is room.
  std::uint16_t add(const reference& r, bool published_here) noexcept {
    references_[reference_count_] = r;
    published_here_[reference_count_] = published_here;
    return static_cast<std::uint16_t>(reference_count_++);
  }

  std::array<reference, Limits::application_references> references_{};
  std::array<bool, Limits::application_references> published_here_{};
  std::size_t reference_count_ = 0, body_bytes_ = 0;
  std::unique_ptr<std::uint64_t[]> body_;
};

/// How to receive a message struct.
struct receive_options {
  std::chrono::milliseconds timeout = std::chrono::seconds(600);  ///< for the message itself
  pull_options pull{};  ///< for the tensors of sets that have a destination; its `stop` also ends the wait
};

/// `Net`: a pipeline; its limits bound the message, and with chunk size 0 (`whole`) every tensor is inline.
/// `Threshold`: inline_up_to<N>. A message that would be longer than the limits let it has fewer tensors inline: with
/// chunk size 0 those up to `Threshold`, or else up to half of that, a quarter, and so on. The others are pulled, with
/// chunk size 0 in one chunk.
///
/// The struct is the same at both ends. Members of tensors_of<Model> hold a model to send, a destination
/// (`into(model)`: received eagerly), or nothing (received as a handle, pulled later). One message has at most
/// Limits::application_references sets and locators with a reference.
template <class Net, class Threshold = inline_up_to<16 * 1024>>
struct tensor_decomposer {
  using limits = typename Net::limits;  ///< Of the pipeline.
  using message_type = decomposed<limits>;  ///< The message that decompose() gives.

  /// Tensors above it are references, and tensors below it too if they are too much for one message.
  static constexpr std::uint64_t inline_bytes = Net::chunking::max_chunk_bytes == 0
                                                    ? std::numeric_limits<std::uint64_t>::max()
                                                    : Threshold::bytes;

  /// Takes a message apart and publishes its large tensors with `owner` (a session, a downloader, a host's
  /// published()). Sets that were received from somebody else are sent on without having been pulled: their inline
  /// tensors again, the rest by its addresses. `options.recipients`: how many will pull each; 0: published until
  /// withdraw(), or until nobody has used it for the budget `transaction_idle`. Models are borrowed as by tensors_of.
  /// Errors, which name the field if one is to blame: does_not_fit (the body above the limit of application messages,
  /// with no tensor inline; too many references); invalid_argument (a set that holds nothing, or was received without
  /// an address of its owner; a locator with addresses and no reference; `options.id` if more than one set has tensors
  /// that are published, `at` is how many have); those of publishing (table_full, ...); out_of_memory. After an error
  /// nothing stays published. Cost: one pass over the published bytes for the digest, one allocation for the body and
  /// some for each split set.
  template <class Owner, class Message>
  static result<message_type> decompose(Owner& owner, const Message& message,
                                        const publish_options& options = {.recipients = 1}) noexcept {
    message_type out;
    if constexpr (detail::message_checks<Message>::accepted) {
      detail::body_measure<limits> size{inline_bytes};
      while (!detail::walk_fields(message, size) && size.status.error().code == errc::does_not_fit &&
             size.inline_up_to > 0)
        size = {size.inline_up_to > Threshold::bytes ? Threshold::bytes : size.inline_up_to / 2};
      if (!size.status) return failure(size.status.error());
      // under one ID the second set would replace the first
      if (options.id && size.published > 1) return failure(errc::invalid_argument, size.published, {"id"});
      const auto words = static_cast<std::size_t>(size.words);
      out.body_.reset(new (std::nothrow) std::uint64_t[words]());
      if (out.body_ == nullptr) return failure(errc::out_of_memory);
      result<void> written{};
      const bool ok = detail::quietly([&] {
        capnp::FlatMessageBuilder builder(kj::arrayPtr(reinterpret_cast<capnp::word*>(out.body_.get() + 1), words - 1));
        auto fields = builder.initRoot<wire::Decomposed>().initFields(
            static_cast<unsigned>(detail::count_fields<Message>()));
        detail::body_writer<Owner, message_type> writer{owner, options, size.inline_up_to, out, fields};
        (void)detail::walk_fields(message, writer);
        written = writer.status;
        out.body_[0] = std::uint64_t{builder.getSegmentsForOutput()[0].size()} << 32;
        out.body_bytes_ = (builder.getSegmentsForOutput()[0].size() + 1) * 8;
      });
      if (!ok || !written) {
        out.withdraw(owner);
        return failure(written ? error{errc::does_not_fit} : written.error());
      }
    }
    return out;
  }

  /// decompose(), and sends it over a session. The published sets stay published: serve until it is settled, or
  /// withdraw() it. Further errors: those of session.send, after which nothing stays published.
  template <class Session, class Message>
  static result<message_type> send(Session& session, std::uint32_t kind, const Message& message,
                                   const publish_options& options = {.recipients = 1},
                                   std::chrono::milliseconds timeout = std::chrono::seconds(600),
                                   const stop_token& stop = {}) noexcept {
    auto apart = decompose(session, message, options);
    if (!apart) return apart;
    if (const auto sent = session.send(kind, apart->references(), apart->body(), timeout, stop); !sent) {
      apart->withdraw(session);
      return failure(sent.error());
    }
    return apart;
  }

  /// Puts a message together again without pulling: every set becomes a handle, also one that has a destination. For
  /// handlers of a host; the views may end with the call. The body must be aligned to 8, as what sessions and handlers
  /// give is. Elements that lists, maps and optionals have before stay if there are such in the message: sets among
  /// them may have a destination. Errors, which name the field if one is to blame, with the path to it: missing_field,
  /// unknown_field, duplicate_name (a key), wrong_kind, value_out_of_range (a number, a length or text that is not
  /// UTF-8), schema_mismatch, digest_mismatch (inline tensors), bad_address, bad_frame, out_of_memory. Memory: of a
  /// list or a map one element for each that has arrived. After an error the struct is unspecified, and no model has
  /// changed.
  template <class Message>
  static result<void> recompose(std::span<const reference> references, std::span<const std::byte> body,
                                Message& out) noexcept {
    if constexpr (detail::message_checks<Message>::accepted) return detail::read_body(references, body, out);
    else return {};
  }

  /// Waits for the next message of a session and puts it together; pulls the sets that have a destination, one after
  /// the other, from the other end. Sets whose owner is a third party (they came with addresses) stay handles: the
  /// program decides which addresses to connect to. Returns the message's kind. Errors: those of session.receive,
  /// recompose() and the pulls; they name the set whose pull failed.
  template <class Session, class Message>
  static result<std::uint32_t> receive(Session& session, Message& out, const receive_options& options = {}) noexcept {
    const auto m = session.receive(options.timeout, options.pull.stop);
    if (!m) return failure(m.error());
    const std::uint32_t kind = m->kind;
    if (const auto ok = recompose(m->references, m->body, out); !ok) return failure(ok.error());
    if (const auto ok = download_tensors(session, out, options.pull); !ok) return failure(ok.error());
    return kind;
  }

  /// The second half of receive(): pulls the sets that have a destination.
  template <class Session, class Message>
  static result<void> download_tensors(Session& session, const Message& message,
                                       const pull_options& options = {}) noexcept {
    pull_sets<Session> visit{session, options};
    if constexpr (detail::message_checks<Message>::accepted) (void)detail::walk_fields(message, visit);
    return visit.status;
  }

 private:
  template <class Session>
  struct pull_sets {
    Session& session;
    const pull_options& options;
    result<void> status{};

    template <detail::field_kind Kind, class T>
    bool field(std::string_view name, const T& set) noexcept {
      if constexpr (Kind == detail::field_kind::tensors) {
        auto* const to = detail::set_access::into(set);
        const auto rest = set.remote();
        if (to == nullptr || !set.received() || (rest && rest->addresses() != 0)) return true;
        if (const auto done = set.download_tensors(session, *to, options); !done) {
          error why = done.error();
          if (why.name.empty()) why.name = name;
          status = failure(why);
          return false;
        }
      } else if constexpr (detail::is_nested(Kind) || Kind == detail::field_kind::optional) {
        if (!detail::walk_inside<Kind>(set, *this)) {
          status = failure(detail::inside(name, status.error()));
          return false;
        }
      }
      return true;
    }
  };
};

}  // namespace tensorpull
