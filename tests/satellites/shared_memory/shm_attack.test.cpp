// Owners that lie about the memory which they pass, and memory that is not what it should be.
#include "lying_memory.hpp"
#include "support/child_process.hpp"

#include <sys/resource.h>

#include <csignal>
#include <functional>
#include <stop_token>

namespace shm_attack_test {

using namespace test;
using net = shared_net<>;

constexpr std::uint64_t header_bytes = tp::raw_tensors<mlp>::schema().header_bytes,
                        image_bytes = tp::raw_tensors<mlp>::schema().image_bytes;

template <class Published>
void expect_refused(const Published& published, lying_stream::lie lie, errc why) {
  const auto copy = blank<mlp>();
  tp::land to(tp::raw_tensors<mlp>::destination(*copy));
  const auto landed = pull_from(published, lie, to);
  ASSERT_EQ(code_of(landed), why);
  EXPECT_EQ(landed.error().at, 0u);
  tp::viewed_tensors view(&tp::raw_tensors<mlp>::schema());
  const auto seen = pull_from(published, lie, view);
  EXPECT_EQ(code_of(seen), why);
}

TEST(SharedAttack, M2_memory_that_can_shrink_or_be_written_is_refused) {
  const auto source = random_model<mlp>(1);
  for (const int seals : {0, F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_WRITE | F_SEAL_GROW, F_SEAL_WRITE | F_SEAL_SHRINK,
                          F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE})
    expect_refused(
        *source, [=](std::span<const int> real) { return std::vector{memory_of(bytes_of(real[0]), seals)}; },
        errc::memory_not_sealed);
}
TEST(SharedAttack, M2_a_file_a_pipe_and_a_device_are_refused) {
  const auto source = random_model<mlp>(2);
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  for (const int other :
       {pipe[0], ::open("/dev/zero", O_RDONLY | O_CLOEXEC), ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)})
    expect_refused(*source, [=](std::span<const int>) { return std::vector{other}; }, errc::memory_not_sealed);
}
TEST(SharedAttack, M2_the_memory_of_a_model_cannot_shrink_once_it_is_published) {
  const auto shared = tp::make_shared_model<mlp>();
  ASSERT_TRUE(shared);
  std::vector<int> after;
  const auto copy = blank<mlp>();
  tp::land to(tp::raw_tensors<mlp>::destination(*copy));
  ASSERT_TRUE(pull_from(
      *shared,
      [&](std::span<const int> real) {
        after = {::ftruncate(real[1], 4096), static_cast<int>(::pwrite(real[1], "x", 1, 0))};
        return std::vector<int>(real.begin(), real.end());
      },
      to));
  EXPECT_EQ(after, (std::vector{-1, -1}));
}

TEST(SharedAttack, M3_memory_of_another_image_or_layout_is_refused) {
  const auto source = random_model<mlp>(3);
  for (std::size_t word = 0; word < 4; ++word)
    expect_refused(*source, changed([=](auto& w) { w[word] ^= 1; }), errc::bad_shared_memory);
  expect_refused(*source, changed([](auto& w) { w[5] ^= 1; }, false), errc::bad_shared_memory);
}
TEST(SharedAttack, M3_an_index_that_lies_is_refused) {
  const auto source = random_model<mlp>(4);
  const auto refused = [&](auto change) { expect_refused(*source, changed(change), errc::bad_shared_memory); };
  refused([](auto& w) { w[4] = 0; });
  refused([](auto& w) { w[4] = ~std::uint64_t{0}; });
  refused([](auto& w) { w[4] = (std::uint64_t{1} << 60) + 1; });
  refused([](auto& w) { w[6] = ~std::uint64_t{0}; });
  refused([](auto& w) { w[6] = w[3] - 8; });
  refused([](auto& w) { w[6] = 0; });  // the index itself
  refused([](auto& w) { w[7] -= 1; });
  refused([](auto& w) { w[7] += 1; });
  refused([](auto& w) { w[7] = ~std::uint64_t{0}; });
}
TEST(SharedAttack, M3_an_index_of_a_model_that_lies_is_refused) {
  const auto shared = tp::make_shared_model<mlp>();
  ASSERT_TRUE(shared);
  const auto refused = [&](auto change) { expect_refused(*shared, changed(change), errc::bad_shared_memory); };
  refused([](auto& w) { w[4] = 1; });
  refused([](auto& w) { w[6] = 0; });
  refused([](auto& w) { w[8] = sizeof(mlp); });
  refused([](auto& w) { w[8] += 1, w[9] = sizeof(mlp); });
}
TEST(SharedAttack, M3_places_that_are_valid_and_wrong_are_found_by_the_digest) {
  const auto shared = tp::make_shared_model<mlp>();
  ASSERT_TRUE(shared);
  generator(5).fill(std::as_writable_bytes(std::span(shared->get(), 1)));
  const auto wrong = changed([](auto& w) { w[10] += 8; });
  const auto copy = blank<mlp>();
  tp::land to(tp::raw_tensors<mlp>::destination(*copy));
  tp::viewed_tensors view(&tp::raw_tensors<mlp>::schema());
  EXPECT_EQ(code_of(pull_from(*shared, wrong, to)), errc::digest_mismatch);
  EXPECT_EQ(code_of(pull_from(*shared, wrong, view)), errc::digest_mismatch);
}

TEST(SharedAttack, M3_memory_with_holes_is_refused) {
  const auto source = random_model<mlp>(11);
  const auto lie = [](std::span<const int> real) {
    const auto all = bytes_of(real[0]);
    const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(::ftruncate(fd, static_cast<off_t>(all.size())), 0);
    EXPECT_EQ(::pwrite(fd, all.data(), 8192, 0), 8192);
    EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
    return std::vector{fd};
  };
  expect_refused(*source, lie, errc::bad_shared_memory);
}

TEST(SharedAttack, M3_a_view_of_tensors_that_are_said_to_lie_with_the_header_is_refused) {
  // a place in the first segment that the memory of the tensors, which is shorter, does not have
  const auto shared = tp::make_shared_model<mlp>();
  ASSERT_TRUE(shared);
  generator(12).fill(std::as_writable_bytes(std::span(shared->get(), 1)));
  const auto lie = [](std::span<const int> real) {
    const auto first = bytes_of(real[0]), last = bytes_of(real[1]);
    const auto word = [&](std::size_t i) { return tp::load_le64(first.data() + 8 * i); };
    const std::uint64_t at = 16 * last.size();
    const tp::tensor_entry& latest = tp::raw_tensors<mlp>::schema().entries().back();
    const std::array<tp::memory_extent, 2> extents{
        {{at, header_bytes + latest.begin}, {0, image_bytes - header_bytes - latest.begin}}};
    byte_vector all(static_cast<std::size_t>(at + image_bytes));
    tp::segment_index::write(all, word(1), last.size(), extents);
    std::memcpy(all.data() + at, first.data() + word(6), header_bytes);
    return std::vector{memory_of(all), real[1]};
  };
  tp::viewed_tensors view(&tp::raw_tensors<mlp>::schema());
  const auto seen = pull_from(*shared, lie, view);
  EXPECT_EQ(code_of(seen), errc::bad_shared_memory);
}
TEST(SharedAttack, M3_holes_are_not_hidden_by_room_behind_the_end) {
  const auto source = random_model<mlp>(13);
  const auto lie = [](std::span<const int> real) {
    const auto all = bytes_of(real[0]);
    const auto size = static_cast<off_t>(all.size());
    const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(::ftruncate(fd, size), 0);
    EXPECT_EQ(::pwrite(fd, all.data(), 8192, 0), 8192);
    EXPECT_EQ(::fallocate(fd, FALLOC_FL_KEEP_SIZE, (size + 4095) / 4096 * 4096, 2 * size), 0);
    EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
    return std::vector{fd};
  };
  expect_refused(*source, lie, errc::bad_shared_memory);
}

TEST(SharedAttack, A_header_of_another_model_is_refused) {
  const auto source = random_model<mlp>(5);
  tp::viewed_tensors any(nullptr), same_schema(&tp::raw_tensors<mlp>::schema());
  const auto lie = [](std::span<const int> real) {
    auto all = bytes_of(real[0]);
    std::uint64_t at = 0;
    std::memcpy(&at, all.data() + 48, 8);
    const std::string_view text(reinterpret_cast<const char*>(all.data() + at), header_bytes);
    all[static_cast<std::size_t>(at) + text.find("mask")] = std::byte{'n'};
    return std::vector{memory_of(all)};
  };
  for (tp::viewed_tensors* const to : {&any, &same_schema}) {
    const auto seen = pull_from(*source, lie, *to);
    EXPECT_EQ(code_of(seen), errc::schema_mismatch);
  }
}

TEST(SharedAttack, Without_descriptors_the_bytes_are_sent) {
  const auto source = random_model<mlp>(6);
  const auto copy = blank<mlp>();
  tp::land to(tp::raw_tensors<mlp>::destination(*copy));
  ASSERT_TRUE(pull_from(*source, [](std::span<const int>) { return std::vector<int>{}; }, to));
  EXPECT_TRUE(same(*copy, *source));
}
TEST(SharedAttack, More_descriptors_than_there_should_be_take_no_more_places) {
  const auto source = random_model<mlp>(7);
  const auto before = descriptors();
  {
    const auto copy = blank<mlp>();
    tp::land to(tp::raw_tensors<mlp>::destination(*copy));
    std::size_t most = 0;
    int fd[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd), 0);
    tp::shared_stream mine{tp::unix_stream(fd[0])}, other{tp::unix_stream(fd[1])};
    const auto open = descriptors();
    const std::byte one[1]{};
    const const_byte_span out[]{one};
    const int mine_twice[]{fd[0], fd[0]};
    for (int i = 0; i < 50; ++i) {
      ASSERT_EQ(other.write_some(out, mine_twice).bytes, 1u);
      std::byte byte;
      const byte_span in[]{{&byte, 1}};
      ASSERT_EQ(mine.read_some(in).bytes, 1u);
      most = std::max(most, descriptors());
    }
    EXPECT_LE(most, open + 2);
  }
  EXPECT_EQ(descriptors(), before);
}

TEST(SharedAttack, Q2_descriptors_that_nobody_has_taken_yet_keep_no_bytes_back) {
  // the kernel counts them for each user, except for root, whichever process lets them lie
  EXPECT_EQ(in_a_process([] {
              int fd[2];
              const rlimit few{16, 16};
              if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd) != 0 ||
                  ::setrlimit(RLIMIT_NOFILE, &few) != 0 || (::geteuid() == 0 && ::setuid(65534) != 0))
                return 1;
              tp::shared_stream mine{tp::unix_stream(fd[0])};
              const std::byte one[1]{};
              const const_byte_span out[]{one};
              const int two[]{fd[0], fd[0]};
              tp::io_result io{tp::io_status::ok, 0, 1};
              for (int i = 0; i < 64 && io.status == tp::io_status::ok; ++i) io = mine.write_some(out, two);
              return io.status == tp::io_status::ok ? 0 : 2;
            }),
            0);
}

TEST(SharedAttack, M1_a_length_that_changes_between_check_and_use_is_read_once) {
  // the index of a model that is published again and again, while it is read from the same memory
  const auto source = random_model<mlp>(8);
  const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const tp::memory_extent good{4096, 1000}, bad{4096, 1u << 20};
  byte_vector one(tp::segment_index::bytes(1)), other(one.size());
  tp::segment_index::write(one, 7, 8192, {&good, 1});
  tp::segment_index::write(other, 7, 8192, {&bad, 1});
  ASSERT_EQ(::ftruncate(fd, 8192), 0);
  auto* const pages = static_cast<std::byte*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  joined_thread flips([&](std::stop_token stop) {
    while (!stop.stop_requested())
      std::memcpy(pages, one.data(), one.size()), std::memcpy(pages, other.data(), other.size());
  });
  std::vector<std::uint64_t> asked;
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    asked.clear();
    const auto read = [&](std::uint64_t at, byte_span to) {
      for (std::uint64_t k = 0; k < to.size(); ++k) asked.push_back(at + k);
      return ::pread(fd, to.data(), to.size(), static_cast<off_t>(at)) == static_cast<ssize_t>(to.size());
    };
    const auto index = tp::segment_index::read(read, 8192, 8192, true, 7, 1000, 100);
    EXPECT_TRUE(std::ranges::is_sorted(asked) && std::ranges::adjacent_find(asked) == asked.end());  // no byte twice
    if (!index) continue;
    ++accepted;
    const auto there = index->find(0);
    EXPECT_EQ(there.at, 4096u);
    EXPECT_EQ(there.bytes, 1000u);
  }
  EXPECT_GE(accepted, 0);
  flips.request_stop();
  flips.join();
  ::munmap(pages, 4096);
  ::close(fd);
}

/// What `f` returns in a process whose files may have at most `most` bytes.
template <class F>
int limited(rlim_t most, F f) {
  return in_a_process([&] {
    const rlimit now{most, most};
    ::setrlimit(RLIMIT_FSIZE, &now);
    return f();
  });
}

TEST(SharedAttack, M4_without_room_a_model_is_an_error_and_a_copy_is_sent_instead) {
  EXPECT_EQ(
      limited(64 * 1024,
              [] {
                const auto shared = tp::make_shared_model<mlp>();
                return !shared && shared.error().code == errc::out_of_memory && shared.error().system == EFBIG ? 0 : 1;
              }),
      0);
  EXPECT_EQ(limited(64 * 1024,
                    [] {
                      const auto source = random_model<mlp>(9);
                      const auto copy = blank<mlp>();
                      shared_owner<net> o;
                      const auto ref = o.add(*source);
                      o.serve();
                      const auto done = net::download_tensors(o.address, ref, *copy);
                      o.stop();
                      return done && same(*copy, *source) && o.owner.status_of(ref)->bytes_sent == image_bytes ? 0 : 1;
                    }),
            0);
}
TEST(SharedAttack, M4_another_user_cannot_open_the_memory) {
  const auto shared = tp::make_shared_model<mlp>();
  ASSERT_TRUE(shared);
  struct stat about{};
  ASSERT_EQ(::fstat(shared->region()->descriptor(), &about), 0);
  EXPECT_EQ(about.st_nlink, 0u);  // it has no name, so there is nothing to collide with or to be left behind
}

}  // namespace shm_attack_test
