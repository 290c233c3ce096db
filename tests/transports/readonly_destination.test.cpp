// A destination that may not be written: the system call says so, the program lives.
#include "network.hpp"

#include <sys/mman.h>

namespace readonly_destination_test {

using namespace test;

/// A model in memory of its own pages, of which one can be closed to writing.
template <class Model>
class guarded {
 public:
  guarded()
      : memory_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
        model_(new(memory_) Model) {}
  ~guarded() { ::munmap(memory_, bytes); }
  Model& operator*() { return *model_; }
  void close_page(std::size_t i) { EXPECT_EQ(::mprotect(static_cast<char*>(memory_) + i * page, page, PROT_READ), 0); }
  void open_all() { EXPECT_EQ(::mprotect(memory_, bytes, PROT_READ | PROT_WRITE), 0); }
  static constexpr std::size_t page = 4096, bytes = (sizeof(Model) + page - 1) / page * page, pages = bytes / page;

 private:
  void* memory_;
  Model* model_;
};

template <class Model, class Chunking, class Integrity>
void expect_io_error(Chunking cut) {
  using net = tp::pipeline<tp::raw_tensors<Model>, Chunking, tp::tcp, Integrity>;
  owner_at_work<net, Model> o;
  using mine_type = guarded<Model>;
  for (const std::size_t closed : {std::size_t{0}, mine_type::pages / 2, mine_type::pages - 1}) {
    mine_type mine;
    mine.close_page(closed);
    const auto once = net::download_tensors(local(o.owner->port()), o.ref, *mine, {.per_request_timeout = 60s}, cut);
    ASSERT_EQ(code_of(once), errc::io) << closed;
    EXPECT_EQ(once.error().system, EFAULT) << closed;
    EXPECT_LE(once.error().at, o.ref.fingerprint != 0 ? tp::raw_tensors<Model>::schema().image_bytes : 0);

    // the same with both roles on the connection: requests of the other end may arrive before the payload
    auto session = *net::session::connect(local(o.owner->port()));
    const auto held = session.download_tensors(o.ref, *mine, {.per_request_timeout = 60s}, cut);
    EXPECT_EQ(code_of(held), errc::io) << closed;

    mine.open_all();
    ASSERT_TRUE(net::download_tensors(local(o.owner->port()), o.ref, *mine, {.per_request_timeout = 60s}, cut));
    EXPECT_TRUE(same(*mine, *o.source));
  }
}

TEST(ReadonlyDestination, L11_is_an_io_error_and_not_a_crash) {
  expect_io_error<mlp, tp::fixed_bytes<64_KiB>, tp::image_digest>({});
  expect_io_error<mlp, tp::bytes_up_to<64_KiB>, tp::unverified>({1000});
}
TEST(ReadonlyDestination, L11_with_a_payload_shorter_than_the_input_buffer) {
  expect_io_error<tiny, tp::fixed_bytes<64_KiB>, tp::chunk_and_image_digest>({});
  expect_io_error<tiny, tp::bytes_up_to<64_KiB>, tp::image_digest>({8});
}

}  // namespace readonly_destination_test
