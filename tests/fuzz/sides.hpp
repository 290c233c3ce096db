// The two ends that the targets of streams, and the program that makes their seeds, set up in the same way.
#pragma once

#include "fixture.hpp"

#include "support/pair.hpp"

#include <optional>

namespace test::fuzz {

inline constexpr tp::ref_id first_ref{0x1111, 1}, second_ref{0x2222, 2}, withdrawn_ref{0x3333, 3};
inline constexpr std::uint64_t unverified_version = 77;

/// What an owning end publishes: a model with a digest, another without, and one that is withdrawn already.
struct owning_side {
  party end{7, 2};
  small_model *first, *second;

  owning_side(small_model& a, small_model& b) : first(&a), second(&b) {
    a.fill(1), b.fill(2);
    publish(withdrawn_ref, b, 5, false);
    require(end.references.withdraw(withdrawn_ref).has_value(), "a published reference can be withdrawn");
    publish(first_ref, a, a.version(), true);
    publish(second_ref, b, unverified_version, false);
  }
  void publish(tp::ref_id id, const small_model& m, std::uint64_t version, bool verifiable) {
    require(end.references.publish(m.source(), version, verifiable, id, 0).has_value(), "there is a slot for it");
  }
};

/// What a recipient's end asks for, by the scenario of its input.
struct pull_plan {
  enum class kind : std::uint8_t {
    image,
    chunks_and_image,
    chunks_by_tensor,
    whole_unverified,
  };

  kind type;
  bool subset, version_known, gives_up, twice, answers_in_turn;
  std::uint32_t window;

  explicit pull_plan(std::uint8_t scenario) noexcept
      : type(static_cast<kind>(scenario & 3)), subset((scenario & 4) != 0), version_known((scenario & 8) != 0),
        gives_up((scenario & 16) != 0), twice((scenario & 32) != 0), answers_in_turn((scenario & 128) == 0),
        window((scenario & 64) != 0 ? 1 : 6) {}

  /// Calls f with the chunking and a value of the integrity policy.
  template <class F>
  decltype(auto) with_policies(F f) const {
    switch (type) {
      case kind::image: return f(tp::fixed_bytes<64>{}, tp::image_digest{});
      case kind::chunks_and_image: return f(tp::fixed_bytes<64>{}, tp::chunk_and_image_digest{});
      case kind::chunks_by_tensor: return f(tp::per_tensor<32>{}, tp::chunk_digest{});
      default: return f(tp::whole{}, tp::unverified{});
    }
  }
  /// `names`: those of the destination in image order, which is what a subset is asked for by.
  tp::pull_request request(std::span<const std::string_view> names, std::uint64_t version) const noexcept {
    tp::pull_request r;
    r.ref = first_ref;
    r.version = version_known ? version : 0;
    if (subset) r.subset = names;
    r.window = window;
    return r;
  }
};

/// Lands, and keeps a copy of everything that was landed, so that what the library claims can be checked without it.
class watched_land {
 public:
  static constexpr bool irrevocable = false;

  explicit watched_land(small_model& to) : land_(to.destination()) {}

  byte_vector taken;
  std::vector<tp::byte_range> chunks;  ///< those that the consumer heard of
  std::optional<tp::description> described;
  bool finished = false, abandoned = false;

  std::uint64_t fingerprint() const noexcept { return land_.fingerprint(); }
  const tp::image_schema* schema() const noexcept { return land_.schema(); }
  tp::result<void> begin(const tp::description& d) {
    require(!described, "a consumer begins once");
    described = d;
    return land_.begin(d);
  }
  tp::prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<byte_span> out) {
    require(offset == taken.size() && length > 0 && !finished && !abandoned,
            "memory is asked for the bytes that come next");
    return land_.prepare(offset, length, out);
  }
  tp::result<void> commit(std::uint64_t offset, const_byte_span bytes) {
    require(offset == taken.size() && !finished && !abandoned, "bytes arrive in order, without gaps");
    taken.insert(taken.end(), bytes.begin(), bytes.end());
    return {};
  }
  tp::result<void> chunk(std::uint64_t offset, std::uint64_t length) {
    require(length <= taken.size() && offset == taken.size() - length, "a chunk is what arrived last");
    chunks.push_back({offset, offset + length});
    return {};
  }
  tp::result<void> finish(const tp::receipt&) {
    require(!finished && !abandoned, "a consumer finishes once");
    finished = true;
    return {};
  }
  void abandon(const tp::error&) {
    require(!finished && !abandoned, "a consumer is abandoned at most once, and never after it finished");
    abandoned = true;
  }

 private:
  tp::land land_;
};
static_assert(tp::consumer<watched_land>);

}  // namespace test::fuzz
