// Limits that cannot be kept.
#include "model.hpp"

struct mine : default_limits {
  // CASE limits_below_zero
  // EXPECT: tensorpull: a limits policy has each constant of default_limits (requirement 2)
  static constexpr int window = -1;
  // CASE limits_of_zero
  // EXPECT: tensorpull: a limits policy has each constant of default_limits (requirement 2)
  static constexpr std::uint64_t chunk_cap_bytes = 0;
  // CASE limits_with_a_fraction
  // EXPECT: tensorpull: a limits policy has each constant of default_limits (requirement 2)
  static constexpr double page_bytes = 1088.5;
  // CASE limits_with_a_frame_above_64_KiB
  // EXPECT: tensorpull: a control frame of a limits policy holds an answer about one named tensor and is no longer than 64 KiB (requirement 3)
  static constexpr std::size_t control_frame_bytes = 65544;
  // CASE limits_with_a_frame_below_an_answer
  // EXPECT: tensorpull: a control frame of a limits policy holds an answer about one named tensor and is no longer than 64 KiB (requirement 3)
  static constexpr std::size_t control_frame_bytes = 159;
  // CASE limits_with_a_page_below_a_word
  // EXPECT: tensorpull: a control frame of a limits policy holds an answer about one named tensor and is no longer than 64 KiB (requirement 3): control_frame_bytes is 160 to 65536, page_bytes at least 8
  static constexpr std::size_t page_bytes = 4;
  // CASE limits_with_pages_too_deep_to_read
  // EXPECT: tensorpull: a control frame of a limits policy holds an answer about one named tensor and is no longer than 64 KiB (requirement 3): control_frame_bytes is 160 to 65536, page_bytes at least 8, and nesting_levels at least 5
  static constexpr int nesting_levels = 4;
  // CASE limits_without_a_constant
  // EXPECT: tensorpull: a limits policy has each constant of default_limits (requirement 2)
  struct none {};
  static constexpr none references{};
  // EACH ENDS WITH
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, mine>::model_type model;
