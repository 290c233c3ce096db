// What a pull over datagrams takes is what pipeline::memory says.
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/transports/over/udp/udp.hpp>

#include <gtest/gtest.h>

namespace tp = tensorpull;

struct pulled_over_datagrams {
  float w[100];
};
BOOST_HANA_ADAPT_STRUCT(pulled_over_datagrams, w);

namespace datagrams_memory_test {

struct small : tp::default_limits {
  static constexpr std::size_t window = 16;
  static constexpr std::size_t control_frame_bytes = 1088;
};

using usual = tp::pipeline<tp::raw_tensors<pulled_over_datagrams>, tp::fixed_bytes<1112>, tp::udp>;
using little = tp::pipeline<tp::raw_tensors<pulled_over_datagrams>, tp::fixed_bytes<1112>, tp::udp, small>;
using over_tcp = tp::pipeline<tp::raw_tensors<pulled_over_datagrams>, tp::fixed_bytes<1112>, tp::tcp>;

static_assert(usual::memory.recipient >
              sizeof(tp::datagram_transfer<tp::land, tp::fixed_bytes<1112>, usual::parts::integrity>) +
                  tp::detail::held_chunk_bytes);
static_assert(little::memory.recipient < usual::memory.recipient - 12 * 1024,
              "a window of 16 and shorter control frames");
static_assert(over_tcp::memory.recipient <= 4096, "a pull over a stream has nothing of it");

TEST(DatagramsMemory, Is_a_constant_of_the_pipeline) {
  RecordProperty("bytes", static_cast<int>(usual::memory.recipient));
}

}  // namespace datagrams_memory_test
