// All schedules of a pull between two small machines, as far as the faults of each case go.
#include "explored/small_flash.hpp"
#include "explored/small_world.hpp"

#include <tensorpull/embedded/flash_landing.hpp>

#include <gtest/gtest.h>

#include <memory>

namespace explored_test {

using namespace test;

struct in_memory {
  static constexpr std::size_t chunk_bytes = 72, datagram_bytes = 152;
  template <class Image>
  using landing = tp::model_landing<tiny_model>;
  using target = tiny_model;
  static tp::embedded_pull pull(std::uint64_t) { return {.ref = {}, .recipient = {7}}; }
};
/// After a restart it is another recipient for its owner.
struct nameless : in_memory {
  static tp::embedded_pull pull(std::uint64_t) { return {}; }
};
struct of_a_version : in_memory {
  static tp::embedded_pull pull(std::uint64_t version) { return {.ref = {}, .version = version, .recipient = {7}}; }
};
/// The description travels in four pieces.
struct by_radio : in_memory {
  static constexpr std::size_t chunk_bytes = 48, datagram_bytes = 128;
};

template <bool Once>
struct in_flash : in_memory {
  template <class Image>
  using landing = tp::flash_landing<Image, small_flash<Once>>;
  using target = small_flash<Once>;
};

/// The same model is there, under another reference.
struct in_used_flash : in_flash<false> {
  static constexpr bool used_flash = true;
};

template <class Setting>
void explore(const faults& f) {
  explore_world(*std::make_unique<small_world<Setting>>(f), transitions_of_a_search(1, 60'000'000, 60));
}

TEST(SmallEngine, A_frame_that_lies) {
  explore<in_memory>({.lies = 1});
  explore<by_radio>({.lies = 1});
  explore<in_memory>({.same_models = 1, .lies = 1});
  explore<in_memory>({.losses = 1, .doubles = 1, .ticks = 1, .lies = 1});
  explore<in_memory>({.ticks = 1, .recipient_restarts = 1, .owner_restarts = 1, .lies = 1});
  explore<in_memory>({.other_models = 1, .lies = 1});
  explore<of_a_version>({.ticks = 1, .lies = 1});
  explore<in_memory>({.jumps = 1, .lies = 1});
  explore<by_radio>({.ticks = 1, .lies = 1});
}
TEST(SmallEngine, Two_frames_that_lie) { explore<in_memory>({.lies = 2}); }
TEST(SmallEngine, A_link_that_loses_doubles_and_reorders) {
  explore<in_memory>({.losses = 2, .doubles = 2, .ticks = 3});
}
TEST(SmallEngine, A_recipient_that_starts_again) {
  explore<in_memory>({.losses = 1, .doubles = 1, .ticks = 2, .recipient_restarts = 1});
  explore<nameless>({.losses = 1, .doubles = 1, .ticks = 2, .recipient_restarts = 1});
}
TEST(SmallEngine, An_owner_that_starts_again) {
  explore<in_memory>({.losses = 1, .doubles = 1, .ticks = 2, .owner_restarts = 1});
}
TEST(SmallEngine, Both_start_again) {
  explore<in_memory>({.doubles = 1, .ticks = 1, .recipient_restarts = 1, .owner_restarts = 1});
}
TEST(SmallEngine, A_model_that_is_published_anew) {
  explore<in_memory>({.losses = 1, .doubles = 1, .ticks = 2, .other_models = 1});
  explore<in_memory>({.losses = 1, .doubles = 1, .ticks = 2, .same_models = 1});
  explore<of_a_version>({.losses = 1, .doubles = 1, .ticks = 2, .other_models = 2});
}
TEST(SmallEngine, An_owner_that_withdraws_or_is_busy) {
  explore<in_memory>({.losses = 1, .doubles = 1, .ticks = 2, .withdrawals = 1, .busy = 1});
}
TEST(SmallEngine, A_clock_that_jumps) {
  explore<in_memory>({.losses = 1, .doubles = 1, .ticks = 2, .jumps = 2});
  explore<in_memory>({.jumps = 2, .owner_restarts = 1});
}
TEST(SmallEngine, A_description_in_pieces) { explore<by_radio>({.losses = 1, .doubles = 1, .ticks = 2}); }
TEST(SmallEngine, A_landing_in_flash_whose_power_goes) {
  explore<in_flash<false>>({.recipient_restarts = 1, .lies = 1});
  explore<in_flash<false>>({.losses = 1, .doubles = 1, .ticks = 1, .power_cuts = 2});
  explore<in_flash<true>>({.losses = 1, .doubles = 1, .ticks = 1, .power_cuts = 2});
  explore<in_flash<false>>({.ticks = 1, .power_cuts = 2, .other_models = 1});
  explore<in_flash<true>>({.recipient_restarts = 1, .owner_restarts = 1, .power_cuts = 1});
  explore<in_flash<false>>({.power_cuts = 1, .lies = 1});
  explore<in_used_flash>({.doubles = 1, .ticks = 1, .power_cuts = 1, .other_models = 1});
}

}  // namespace explored_test
