// A file whose transfer another process goes on with: what is kept, what is believed, which process may have it.
#include "../support/child_process.hpp"
#include "../support/models.hpp"
#include "../support/own_folder.hpp"

#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/tensorpull.hpp>

#include <gtest/gtest.h>

#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

namespace resumed_file_test {

namespace fs = std::filesystem;
using namespace test;
using tp::safetensors_file;
using net = tp::pipeline<tp::tensor_list, tp::fixed_bytes<4096>, tp::loopback>;

constexpr tp::ref_id name{1, 2};

int no_locks = 0;  ///< what flock() fails with
extern "C" int flock(int fd, int how) noexcept {
  if (no_locks == 0) return static_cast<int>(::syscall(SYS_flock, fd, how));
  errno = no_locks;
  return -1;
}
bool gives_another_owner = false;  ///< the file system, as NFS does to root's files and exFAT to everybody's
extern "C" uid_t geteuid() noexcept {
  return static_cast<uid_t>(::syscall(SYS_geteuid)) + (gives_another_owner ? 1 : 0);
}

/// Stops a transfer after some of its steps.
struct after_steps {
  int* left;
  bool stop_requested() const noexcept { return (*left)-- <= 0; }
};

/// Kills the process after some of its steps.
struct dead_after_steps {
  int* left;
  bool stop_requested() const noexcept { return (*left)-- <= 0 && ::raise(SIGKILL) == 0; }
};

class ResumedFile : public testing::Test {
 protected:
  ResumedFile() { source.add("w", dtype::f32, {100, 1000}).add("b", dtype::u8, {777}).ready().fill(1); }

  struct pulled {
    tp::result<tp::receipt> how;
    std::uint64_t began = 0;  // what the file's cursor said
    tp::resume_cursor cursor{};
  };
  /// One try of one process: an owner of its own, which publishes `m` under the same name, and a new consumer.
  template <class Stop = after_steps>
  pulled pull(const model& m, int steps = 1 << 30, std::size_t buffer_bytes = 1000) const {
    const auto owner = std::make_unique<net::downloader>();
    const auto published = owner->add_image(m.source(), {.id = name});
    EXPECT_TRUE(published);
    pulled p{tp::failure(errc::invalid_argument)};
    auto file = safetensors_file::create(path, {.fsync = false, .resume = &p.cursor, .buffer_bytes = buffer_bytes});
    if (!file) {
      p.how = tp::failure(file.error());
      return p;
    }
    p.began = p.cursor.offset;
    p.how = net::pull(*owner, tp::reference{name, 0, 0}, *file, {.stop = Stop{&steps}, .cursor = &p.cursor});
    return p;
  }
  byte_vector content() const {
    std::ifstream in(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
  }
  void overwrite(std::uint64_t at, char c) const {
    std::fstream(part, std::ios::binary | std::ios::in | std::ios::out).seekp(static_cast<std::streamoff>(at)) << c;
  }
  /// Leaves a part of about a half.
  std::uint64_t half() const {
    const auto first = pull(source, 60);
    EXPECT_EQ(code_of(first.how), errc::cancelled);
    EXPECT_FALSE(fs::exists(path));
    EXPECT_TRUE(fs::exists(part));
    EXPECT_GT(first.cursor.offset, source.schema().image_bytes / 8);
    return first.cursor.offset;
  }

  own_folder folder;
  fs::path directory = folder.path();
  std::string path = folder / "model.safetensors", part = folder / ".model.safetensors.part";
  model source;
};

TEST_F(ResumedFile, Goes_on_where_it_stood_until_it_is_complete) {
  std::uint64_t stood = 0;
  int tries = 0;
  for (bool done = false; !done; ++tries) {
    ASSERT_LT(tries, 100);
    const auto p = pull(source, 12, tries % 2 == 0 ? 1000 : 65536);
    EXPECT_EQ(p.began, stood) << "the file says where it stands";
    EXPECT_GE(p.cursor.offset, stood);
    stood = p.cursor.offset;
    done = p.how.has_value();
    EXPECT_EQ(fs::exists(path), done);
    EXPECT_EQ(entries(), 1u);
  }
  EXPECT_GT(tries, 5);
  EXPECT_EQ(content(), source.image_bytes());
}

TEST_F(ResumedFile, Fetches_only_what_is_missing) {
  const std::uint64_t stood = half();
  const auto rest = pull(source);
  ASSERT_TRUE(rest.how);
  EXPECT_EQ(rest.how->outcome, tp::outcome::completed);
  EXPECT_EQ(rest.how->chunks, (source.schema().image_bytes - stood + 4095) / 4096);
  EXPECT_EQ(content(), source.image_bytes());
  EXPECT_EQ(entries(), 1u);
}

TEST_F(ResumedFile, A_pull_that_ends_within_a_chunk_goes_on_within_it) {
  using one_chunk = tp::pipeline<tp::tensor_list, tp::fixed_bytes<1 << 20>, tp::loopback>;
  struct tired : safetensors_file {
    tired(safetensors_file f, std::uint64_t bytes) noexcept : safetensors_file(std::move(f)), last(bytes) {}
    tp::result<void> commit(std::uint64_t offset, const_byte_span bytes) noexcept {
      if (offset + bytes.size() > last) return tp::failure(errc::cancelled);
      return safetensors_file::commit(offset, bytes);
    }
    std::uint64_t last;
  };
  const std::uint64_t all = source.schema().image_bytes;
  std::uint64_t stood = 0;
  for (std::uint64_t end = 5'000;; end = std::min(end + 77'777, all)) {
    const auto owner = std::make_unique<one_chunk::downloader>();
    ASSERT_TRUE(owner->add_image(source.source(), {.id = name}));
    tp::resume_cursor where;
    auto file = safetensors_file::create(path, {.fsync = false, .resume = &where, .buffer_bytes = 1000});
    ASSERT_TRUE(file);
    ASSERT_EQ(where.offset, stood);
    tired file_of_it(std::move(*file), end);
    const auto how = one_chunk::pull(*owner, tp::reference{name, 0, 0}, file_of_it, {.cursor = &where});
    stood = where.offset;
    ASSERT_GT(stood + 1001, end);
    if (end < all) continue;
    ASSERT_TRUE(how);
    break;
  }
  EXPECT_EQ(content(), source.image_bytes());
  EXPECT_EQ(entries(), 1u);
}

TEST_F(ResumedFile, D4_APartThatWasChangedIsFetchedAnew) {
  const std::uint64_t image_bytes = source.schema().image_bytes;
  const std::function<void(std::uint64_t)> changes[] = {
      [&](std::uint64_t stood) { overwrite(stood / 2, '?'); },
      [&](std::uint64_t) { overwrite(0, '?'); },
      [&](std::uint64_t) { fs::resize_file(part, 100); },
      [&](std::uint64_t) { fs::resize_file(part, 0); },
      [&](std::uint64_t) { fs::resize_file(part, image_bytes); },
      [&](std::uint64_t) { fs::resize_file(part, image_bytes + 1000); },
      [&](std::uint64_t) { overwrite(image_bytes + 40, '?'); },  // the digest in the cursor
      [&](std::uint64_t) { overwrite(image_bytes + 39, '?'); },  // its offset: beyond the file
      [&](std::uint64_t) { overwrite(image_bytes, '?'); },       // its reference
  };
  for (const auto& change : changes) {
    change(half());
    const auto p = pull(source);
    ASSERT_TRUE(p.how) << &change - changes << ": " << to_string(p.how.error().code);
    EXPECT_EQ(p.how->chunks, (image_bytes + 4095) / 4096) << &change - changes;
    EXPECT_EQ(content(), source.image_bytes());
    EXPECT_EQ(entries(), 1u);
    fs::remove(path);
  }
}

TEST_F(ResumedFile, D4_WhatIsNoPlaceIsNothingToGoOnFrom) {
  const std::uint64_t image_bytes = source.schema().image_bytes;
  half();
  ASSERT_EQ(fs::file_size(part), image_bytes + 56);
  fs::copy(part, directory / "kept");
  for (std::uint64_t at = 0; at < 56; ++at) {
    overwrite(image_bytes + at, '?');
    tp::resume_cursor where;
    ASSERT_TRUE(safetensors_file::create(path, {.resume = &where}));
    EXPECT_EQ(where, tp::resume_cursor{}) << at;
    fs::copy(directory / "kept", part, fs::copy_options::overwrite_existing);
  }
  tp::resume_cursor where;
  ASSERT_TRUE(safetensors_file::create(path, {.resume = &where}));
  EXPECT_TRUE(where);
}

TEST_F(ResumedFile, A_name_that_appears_meanwhile_leaves_the_part_to_go_on_with) {
  {
    const auto owner = std::make_unique<net::downloader>();
    ASSERT_TRUE(owner->add_image(source.source(), {.id = name}));
    tp::resume_cursor cursor;
    auto file = safetensors_file::create(path, {.overwrite = false, .resume = &cursor});
    ASSERT_TRUE(file);
    std::ofstream(path) << "another's";
    const auto how = net::pull(*owner, tp::reference{name, 0, 0}, *file, {.cursor = &cursor});
    ASSERT_FALSE(how);
    EXPECT_EQ(how.error().system, EEXIST);
  }
  EXPECT_EQ(content().size(), 9u);
  ASSERT_TRUE(fs::exists(part));
  const auto p = pull(source);
  ASSERT_TRUE(p.how);
  EXPECT_EQ(p.began, source.schema().image_bytes);
  EXPECT_EQ(p.how->chunks, 1u) << "the last byte, so that the owner can be told";
  EXPECT_EQ(content(), source.image_bytes());
  EXPECT_EQ(entries(), 1u);
}

TEST_F(ResumedFile, Another_version_is_said_and_then_fetched_anew) {
  half();
  model other;
  other.add("w", dtype::f32, {100, 1000}).add("b", dtype::u8, {777}).ready().fill(2);
  const auto stale = pull(other);
  ASSERT_FALSE(stale.how);
  EXPECT_EQ(code_of(stale.how), errc::stale_version);
  EXPECT_EQ(entries(), 0u) << "nothing can go on with that part";
  ASSERT_TRUE(pull(other).how);
  EXPECT_EQ(content(), other.image_bytes());
}

TEST_F(ResumedFile, Bytes_that_are_not_those_that_were_published_are_not_kept) {
  const auto owner = std::make_unique<net::downloader>();
  ASSERT_TRUE(owner->add_image(source.source(), {.id = name}));
  source.fill(3);
  tp::resume_cursor cursor;
  {
    auto file = safetensors_file::create(path, {.resume = &cursor});
    ASSERT_TRUE(file);
    EXPECT_EQ(code_of(net::pull(*owner, tp::reference{name, 0, 0}, *file, {.cursor = &cursor})), errc::digest_mismatch);
  }
  EXPECT_EQ(entries(), 0u);
}

TEST_F(ResumedFile, One_process_at_a_time_and_only_a_file_of_its_own) {
  tp::resume_cursor one, two;
  const auto refused = [&](int system) {
    const auto file = safetensors_file::create(path, {.resume = &two});
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().system, system);
  };
  {
    const auto first = safetensors_file::create(path, {.resume = &one});
    ASSERT_TRUE(first);
    refused(EAGAIN);
    EXPECT_EQ(entries(), 1u) << "and the other's part is left alone";
  }
  EXPECT_EQ(entries(), 0u) << "nothing had arrived";
  std::ofstream(directory / "precious") << "precious";
  fs::create_symlink("precious", part);
  refused(ELOOP);
  fs::remove(part);
  fs::create_hard_link(directory / "precious", part);
  refused(EACCES);
  fs::remove(part);
  ASSERT_EQ(::mkfifo(part.c_str(), 0600), 0);
  refused(EACCES);
  fs::remove(part);
  std::ofstream(part) << "precious";
  if (::chown(part.c_str(), 1, 1) == 0) refused(EACCES);
  fs::remove(part);
  EXPECT_EQ(fs::file_size(directory / "precious"), 8u);
  EXPECT_EQ(entries(), 1u);
}

TEST_F(ResumedFile, A_file_system_without_locks_is_no_reason_not_to_receive) {
  for (const int error : {ENOSYS, EOPNOTSUPP, ENOLCK, EINVAL}) {
    no_locks = error;
    {
      tp::resume_cursor where;
      const auto file = safetensors_file::create(path, {.resume = &where});
      ASSERT_TRUE(file);
      EXPECT_FALSE(file->exclusive()) << "and a program can say so";
    }
    half();
    const auto rest = pull(source);
    EXPECT_TRUE(rest.how);
    EXPECT_NE(rest.began, 0u);
    EXPECT_EQ(content(), source.image_bytes());
    fs::remove(path);
  }
  no_locks = 0;
  tp::resume_cursor where;
  EXPECT_TRUE(safetensors_file::create(path, {.resume = &where})->exclusive());
}

TEST_F(ResumedFile, A_file_system_that_gives_files_another_owner_is_no_reason_not_to_receive) {
  gives_another_owner = true;
  half();
  const auto rest = pull(source);
  gives_another_owner = false;
  EXPECT_TRUE(rest.how);
  EXPECT_NE(rest.began, 0u);
  EXPECT_EQ(content(), source.image_bytes());
  EXPECT_EQ(entries(), 1u);
}

TEST_F(ResumedFile, D2_WhatAKilledProcessHadSavedIsNotFetchedAgain) {
  model large;
  large.add("w", dtype::f32, {1 << 20}).ready().fill(5);
  std::uint64_t saved = 0;
  for (int tries = 0; tries < 2; ++tries) {
    ASSERT_LT(in_a_process([&] { return pull<dead_after_steps>(large, 400).how ? 0 : 1; }), 0) << "by a signal";
    tp::resume_cursor where;
    ASSERT_TRUE(safetensors_file::create(path, {.resume = &where}));
    EXPECT_GE(where.offset, saved + 1'000'000);
    saved = where.offset;
  }
  const auto rest = pull(large);
  ASSERT_TRUE(rest.how);
  EXPECT_EQ(rest.how->chunks, (large.schema().image_bytes - saved + 4095) / 4096);
  EXPECT_EQ(content(), large.image_bytes());
}

TEST_F(ResumedFile, D2_KilledItLosesAtMostOneChunk) {
  using long_chunks = tp::pipeline<tp::tensor_list, tp::fixed_bytes<1 << 20>, tp::loopback>;
  model large;
  large.add("w", dtype::f32, {3 << 20}).ready().fill(6);
  void* const shared = ::mmap(nullptr, sizeof(std::uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                              0);
  ASSERT_NE(shared, MAP_FAILED);
  auto& landed = *static_cast<volatile std::uint64_t*>(shared);
  std::uint64_t most = 0;
  for (std::uint64_t enough = 5 << 19; enough < 9 << 19; enough += 77'777) {
    const int how = in_a_process([&] {
      const auto owner = std::make_unique<long_chunks::downloader>();
      if (!owner->add_image(large.source(), {.id = name})) return 1;
      tp::resume_cursor where;
      auto file = safetensors_file::create(path, {.fsync = false, .resume = &where});
      if (!file) return 1;
      struct mortal : safetensors_file {
        mortal(safetensors_file f, volatile std::uint64_t& bytes, std::uint64_t last) noexcept
            : safetensors_file(std::move(f)), landed(&bytes), enough(last) {}
        tp::result<void> commit(std::uint64_t offset, const_byte_span bytes) noexcept {
          const auto done = safetensors_file::commit(offset, bytes);
          *landed = offset + bytes.size();
          if (offset + bytes.size() >= enough) ::raise(SIGKILL);
          return done;
        }
        volatile std::uint64_t* landed;
        std::uint64_t enough;
      } dies(std::move(*file), landed, enough);
      (void)long_chunks::pull(*owner, tp::reference{name, 0, 0}, dies, {.cursor = &where});
      return 1;
    });
    ASSERT_LT(how, 0) << "by a signal";
    tp::resume_cursor where;
    {
      const auto left = safetensors_file::create(path, {.resume = &where});
      ASSERT_TRUE(left);
    }
    ASSERT_GE(landed, where.offset);
    most = std::max<std::uint64_t>(most, landed - where.offset);
    fs::remove(part);
  }
  ::munmap(shared, sizeof(std::uint64_t));
  EXPECT_GT(most, 1u << 18) << "it was killed within chunks, too";
  EXPECT_LE(most, 1u << 20);
}

TEST_F(ResumedFile, D2_KilledAtAnyTimeItEndsAsTheWholeImage) {
  model large;
  large.add("w", dtype::f32, {1 << 20}).ready().fill(5);
  generator random(7);
  for (int tries = 0; !fs::exists(path); ++tries) {
    ASSERT_LT(tries, 50);
    child_process child([&] { return pull(large).how ? 0 : 1; });
    if (tries < 40) be_slow(std::chrono::microseconds(random.below(8000))), child.signal(SIGKILL);
    EXPECT_LE(child.wait(), 0) << "it ends well, or by a signal";
    if (fs::exists(path)) break;
  }
  EXPECT_EQ(content(), large.image_bytes()) << "under its name there is the whole or nothing";
  EXPECT_EQ(entries(), 1u);
}

}  // namespace resumed_file_test
