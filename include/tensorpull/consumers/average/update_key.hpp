// The identity of an update, and its state: an average recognises by the key that an update arrives a second time.
#pragma once

#include <tensorpull/core/error.hpp>
#include <tensorpull/core/ids.hpp>

#include <concepts>
#include <cstdint>
#include <string_view>

namespace tensorpull {

/// The sender of an update. It is recognised by its number, and errors name it. Fixed size; copies what it is given.
class update_peer {
 public:
  constexpr update_peer() noexcept = default;  ///< Nobody: an update of nobody is refused.
  /// The peer with this name, such as "client-7"; its number is that of recipient_named(name). An empty name is nobody.
  template <std::convertible_to<std::string_view> Name>
  constexpr update_peer(const Name& name) noexcept : name_(std::string_view(name)) {
    if (!name_.empty()) id_ = recipient_named(name);
  }
  /// The peer with this number. Without a name errors have the number's digits.
  constexpr update_peer(recipient_id id, std::string_view name = {}) noexcept : id_(id), name_(name) {
    if (name.empty() && id) name_ = detail::decimal(id.value).view();
  }

  constexpr recipient_id id() const noexcept { return id_; }  ///< Its number; none for nobody.
  constexpr const error_name& name() const noexcept { return name_; }  ///< Its name in errors; a long name is cut.
  constexpr explicit operator bool() const noexcept { return id_.value != 0; }

  friend constexpr bool operator==(const update_peer& a, const update_peer& b) noexcept { return a.id_ == b.id_; }

 private:
  recipient_id id_{};
  error_name name_{};
};

/// The identity of an update: a peer counts once in a round, whatever reference its update has and however often it
/// arrives. Take both from what the program knows of the peer, such as the task that it answers. The peer's own word is
/// not enough if peers may lie.
struct update_key {
  update_peer peer{};  ///< whose update it is
  std::uint64_t round = 0;  ///< the round that it was made for, from 1 on
};

/// The state of a peer's update in the current round.
enum class update_state : std::uint8_t {
  under_way,  ///< its bytes are arriving
  stopped,  ///< it ended before its last byte was verified; `added_bytes` of it are in the sums
  /// all of it is in the sums, and its digest shows that it is not what the peer published: the round has no average
  spoiled,
  counted,  ///< it counts, and the peer was not told yet: no confirmation was heard
  told,  ///< it counts, and the peer's confirmation was heard
};

/// The state's name.
constexpr std::string_view to_string(update_state s) noexcept {
  constexpr std::string_view names[]{"under_way", "stopped", "spoiled", "counted", "told"};
  return detail::name_among<update_state::told>(names, s);
}

/// One peer's update in the current round, as an average reports it.
struct update_record {
  update_peer peer{};  ///< whose it is
  double weight = 0;  ///< what its values are multiplied by
  std::uint64_t version = 0;  ///< of the image that is in the sums
  /// bytes of the data section that are in the sums, the first ones that arrived; all of them if it counts
  std::uint64_t added_bytes = 0;
  update_state state = update_state::stopped;  ///< how far it is
  bool verifiable = false;  ///< whether the version is a digest of the image
  /// The index in schema() of the tensor for which it was refused: a NaN or an infinity, or a norm that is none. An
  /// error of a pull has its peer's name, and `at` is how much had arrived.
  std::uint32_t refused_tensor = no_tensor;
  double norm = 0;  ///< of its difference before it was shortened, if average_options::longest is set

  static constexpr std::uint32_t no_tensor = ~std::uint32_t{0};  ///< It was not refused for one.

  /// Whether the whole update is in the average.
  constexpr bool counts() const noexcept { return state == update_state::counted || state == update_state::told; }
};

}  // namespace tensorpull
