// One line of a pull over several connections, as an endpoint drives it.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/framing/frame.hpp>

#include <cstdint>
#include <span>

namespace tensorpull::detail {

/// A model of transfer_role, whose members are those of that concept. Borrows the pull, which befriends it.
template <class All>
class line_role {
 public:
  static constexpr std::size_t read_piece_bytes = All::read_piece_bytes;
  line_role(All& all, std::uint8_t number) noexcept : all_(&all), number_(number) {}

  bool next(frame& out) noexcept {
    const bool asks = all_->next(number_, out);
    if (asks && out.kind == frame_kind::pull) all_->lines_[number_].has_asked = true;
    return asks;
  }
  bool next_is_long() const noexcept { return number_ == all_->first_ && all_->next_is_long(); }
  void on(const frame& m) noexcept { all_->on(number_, m); }
  bool on_chunk(const frame& m) noexcept { return all_->on_chunk(number_, m); }
  prepared prepare(std::span<std::span<std::byte>> out, std::uint64_t most) noexcept {
    return all_->prepare(number_, out, most);
  }
  void landed(std::span<const std::byte> bytes) noexcept { all_->landed(number_, bytes); }
  /// Chunks that nobody wants any more arrive, too, and are read like others.
  bool awaiting_chunk() const noexcept { return !all_->ended() && all_->lines_[number_].has_asked; }
  bool described() const noexcept { return all_->lines_[number_].has_asked || !all_->machine(number_).describing(); }
  bool ended() const noexcept { return all_->drops(number_); }
  /// Ends the whole transfer.
  void fail(const error& why) noexcept { all_->fail(why); }
  std::uint32_t next_id() const noexcept { return all_->machine(number_).next_id(); }

 private:
  All* all_;
  std::uint8_t number_;
};

}  // namespace tensorpull::detail
