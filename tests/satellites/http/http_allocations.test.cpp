// A pull over HTTP allocates nothing for a chunk, as many as one answer brings. A request is libcurl's, which allocates
// for it. The server is another process.
#include "http_server.hpp"
#include "support/allocation_counter.hpp"
#include "support/child_process.hpp"

#include <tensorpull/satellites/http/recipient/http_pull.hpp>


namespace http_allocations_test {

using namespace test;

template <class Chunks>
std::uint64_t allocations_of(const std::string& url, std::uint32_t connections, std::uint64_t& chunks) {
  using net = tp::pipeline<tp::raw_tensors<mlp>, Chunks, tp::http>;
  const auto mine = blank<mlp>();
  const allocation_watch watch;
  const auto done = net::download_tensors(tp::http_address{.url = url, .connections = connections}, tp::ref_id{}, *mine,
                                          {.unverified = true});
  const std::uint64_t count = watch.count();
  EXPECT_TRUE(done);
  chunks = done ? done->chunks : 0;
  return count;
}

TEST(HttpAllocations, More_chunks_are_not_more_allocations) {
  const one_word<std::uint16_t> port;
  const child_process child([&] {
    const auto source = random_model<mlp>(3);
    http_server server(file_of<tp::raw_tensors<mlp>>(*source));
    port.tell(server.port());
    for (;;) ::pause();
    return 0;
  });
  const std::string url = "http://" + local(port.hear()) + "/model.safetensors";
  std::uint64_t few = 0, many = 0;
  (void)allocations_of<tp::fixed_bytes<128_KiB>>(url, 1, few);  // the resolver's own, once
  for (const std::uint32_t connections : {0u, 1u, 4u}) {
    const std::uint64_t of_few = allocations_of<tp::fixed_bytes<128_KiB>>(url, connections, few),
                        of_many = allocations_of<tp::fixed_bytes<4_KiB>>(url, connections, many);
    EXPECT_GT(many, few + 50);
    const std::uint64_t most = connections == 0 ? 8 : 64 * (many - few);  // how often libcurl waits is chance
    EXPECT_LE(of_many, of_few + most) << connections;
  }
}

}  // namespace http_allocations_test
