// Files that are complete or not there: every failing system call, full disks, limits, kills; names that must not be
// followed.
#include "../support/allocation_counter.hpp"
#include "../support/child_process.hpp"
#include "../support/few_descriptors.hpp"
#include "../support/own_folder.hpp"
#include "../support/process_entries.hpp"
#include "../support/whole_schedule.hpp"
#include "feed.hpp"

#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/tensorpull.hpp>

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

namespace safetensors_file_test {

/// What the interposed system calls do: the `left`-th call of the chosen kind fails with `error`, or moves one byte
/// (short), once or always.
struct fault {
  enum kind {
    none,
    write,
    long_write,
    short_write,
    sync,
    name,
    no_links,  // neither hard links nor a rename that does not replace
    attributes,
    space
  } which = none;
  int left = 0;
  int error = EIO;
  bool once = true;
  int calls = 0;
};
fault injected;

bool hit(fault::kind kind) {
  if (injected.which != kind) return false;
  const int call = injected.calls++;
  return injected.once ? call == injected.left : call >= injected.left;
}
long failing() {
  errno = injected.error;
  return -1;
}

extern "C" ssize_t pwrite(int fd, const void* from, std::size_t n, off_t at) {
  if (hit(fault::write) || (n > 100 && hit(fault::long_write))) return failing();
  if (hit(fault::short_write)) n = std::min<std::size_t>(n, 1);
  return ::syscall(SYS_pwrite64, fd, from, n, at);
}
extern "C" int fsync(int fd) {
  return hit(fault::sync) ? static_cast<int>(failing()) : static_cast<int>(::syscall(SYS_fsync, fd));
}
extern "C" int renameat(int a, const char* from, int b, const char* to) noexcept {
  return hit(fault::name) ? static_cast<int>(failing()) : static_cast<int>(::syscall(SYS_renameat, a, from, b, to));
}
extern "C" int renameat2(int a, const char* from, int b, const char* to, unsigned flags) noexcept {
  return hit(fault::no_links) || hit(fault::name) ? static_cast<int>(failing())
                                                  : static_cast<int>(::syscall(SYS_renameat2, a, from, b, to, flags));
}
extern "C" int linkat(int a, const char* from, int b, const char* to, int flags) noexcept {
  return hit(fault::no_links) || hit(fault::name) ? static_cast<int>(failing())
                                                  : static_cast<int>(::syscall(SYS_linkat, a, from, b, to, flags));
}
extern "C" int statx(int at, const char* name, int flags, unsigned mask, struct statx* about) noexcept {
  const auto done = static_cast<int>(::syscall(SYS_statx, at, name, flags, mask, about));
  if (hit(fault::attributes)) about->stx_attributes |= static_cast<unsigned>(injected.error);
  return done;
}
extern "C" int fstatvfs(int fd, struct statvfs* about) noexcept {
  static const auto real = reinterpret_cast<decltype(&::fstatvfs)>(::dlsym(RTLD_NEXT, "fstatvfs"));
  const int done = real(fd, about);
  if (hit(fault::space)) {
    about->f_bfree = 0;
    if (injected.error == EOPNOTSUPP) return static_cast<int>(failing());
    if (injected.error == EINVAL) about->f_blocks = 0;
    if (injected.error == EDOM) about->f_frsize = 0;
  }
  return done;
}

namespace fs = std::filesystem;
using namespace test;
using tp::safetensors_file;

class SafetensorsFile : public testing::Test {
 protected:
  ~SafetensorsFile() override { injected = {}; }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
  }
  static byte_vector content(const fs::path& p) {
    std::ifstream in(p, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }
  void put(std::string_view text) const { std::ofstream(path) << text; }
  std::string text() const {
    const auto b = content(path);
    return {reinterpret_cast<const char*>(b.data()), b.size()};
  }
  tp::result<void> write(const model& m, tp::safetensors_file_options options = {.buffer_bytes = 100},
                         std::uint64_t chunk = 512) const {
    auto file = safetensors_file::create(path, options);
    if (!file) return tp::failure(file.error());
    return feeder(*file, m, chunk).run();
  }

  own_folder folder;
  fs::path directory = folder.path();
  std::string path = folder / "model.safetensors";
};

TEST_F(SafetensorsFile, Holds_the_image) {
  const model m = mixed_model().fill(1);
  for (const std::size_t buffer : {1u, 7u, 100u, 4096u, 65536u}) {
    ASSERT_TRUE(write(m, {.buffer_bytes = buffer}));
    EXPECT_EQ(content(path), m.image_bytes()) << buffer;
    EXPECT_EQ(entries(), 1u);
  }
  struct stat s{};
  ASSERT_EQ(::stat(path.c_str(), &s), 0);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  EXPECT_EQ(s.st_mode & 0777, 0644u & ~mask);
}

// What lands behind bytes of another place was moved before it was hashed: over NATS one pull in ten failed.
TEST_F(SafetensorsFile, Holds_the_image_in_whatever_order_it_arrives_and_leaves_bytes_where_they_are_hashed) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const model m = mixed_model().fill(seed);
    for (const std::size_t buffer : {1u, 7u, 100u, 4096u, 65536u}) {
      auto file = safetensors_file::create(path, {.buffer_bytes = buffer});
      ASSERT_TRUE(file);
      ASSERT_TRUE(feed_in_any_order(*file, m, seed));
      EXPECT_EQ(content(path), m.image_bytes()) << buffer;
    }
  }
}
TEST_F(SafetensorsFile, Allocates_nothing_after_create) {
  const model m = mixed_model().fill(1);
  auto file = safetensors_file::create(path);
  ASSERT_TRUE(file);
  feeder f(*file, m, 512);
  const allocation_watch watch;
  ASSERT_TRUE(f.run());
  EXPECT_EQ(watch.count(), 0u);
}

TEST_F(SafetensorsFile, Keeps_the_old_file_until_the_new_one_is_complete) {
  put("old");
  const model m = mixed_model().fill(2);
  {
    auto file = safetensors_file::create(path);
    ASSERT_TRUE(file);
    feeder f(*file, m, 512);
    f.stops_before_finish = true;
    ASSERT_TRUE(f.run());
    EXPECT_EQ(text(), "old");
    EXPECT_EQ(entries(), 2u);
  }
  EXPECT_EQ(text(), "old");
  EXPECT_EQ(entries(), 1u) << "the destructor leaves nothing behind";
  auto file = safetensors_file::create(path);
  ASSERT_TRUE(file);
  feeder f(*file, m, 512);
  ASSERT_TRUE(f.run(3000));
  file->abandon({errc::connection_lost, 0, 3000, {}});
  EXPECT_EQ(entries(), 1u) << "nor does abandon()";
  EXPECT_EQ(code_of(file->begin(describe(m))), errc::invalid_argument) << "one file, one transfer";
  ASSERT_TRUE(write(m));
  EXPECT_EQ(content(path), m.image_bytes());
}

TEST_F(SafetensorsFile, A_file_that_replaces_another_has_its_permissions_from_the_start) {
  const model m = mixed_model().fill(2);
  const auto mode_of = [](const fs::path& of) {
    struct stat about{};
    return ::stat(of.c_str(), &about) == 0 ? about.st_mode & 0777 : 0u;
  };
  for (const mode_t mode : {0600u, 0640u, 0666u, 0644u}) {
    put("old");
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    tp::resume_cursor cursor;
    for (tp::resume_cursor* const at : {static_cast<tp::resume_cursor*>(nullptr), &cursor}) {
      auto begun = safetensors_file::create(path, {.resume = at});
      ASSERT_TRUE(begun);
      for (const auto& one : fs::directory_iterator(directory)) EXPECT_EQ(mode_of(one.path()), mode) << one.path();
    }
    ASSERT_TRUE(write(m));
    EXPECT_EQ(content(path), m.image_bytes());
    EXPECT_EQ(mode_of(path), mode);
  }
}

TEST_F(SafetensorsFile, Does_not_overwrite_where_it_must_not) {
  const model m = mixed_model().fill(3);
  ASSERT_TRUE(write(m, {.overwrite = false}));
  const auto second = write(m, {.overwrite = false});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().system, EEXIST);
  fs::remove(path);
  auto file = safetensors_file::create(path, {.overwrite = false});
  ASSERT_TRUE(file);
  put("appeared meanwhile");
  const auto late = feeder(*file, m, 512).run();
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().system, EEXIST);
  EXPECT_EQ(text(), "appeared meanwhile");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(SafetensorsFile, Takes_no_room_for_a_size_that_is_only_claimed) {
  const model m = mixed_model().fill(3);
  tp::resume_cursor cursor;
  for (tp::resume_cursor* const resume : {static_cast<tp::resume_cursor*>(nullptr), &cursor}) {
    auto file = safetensors_file::create(path, {.resume = resume});
    ASSERT_TRUE(file);
    auto d = describe(m);
    d.image_bytes = std::uint64_t{1} << 30;
    ASSERT_TRUE(file->begin(d));
    struct stat part{};
    ASSERT_EQ(::stat(fs::directory_iterator(directory)->path().c_str(), &part), 0);
    EXPECT_LT(part.st_blocks * 512, 1 << 16) << "blocks come with the bytes";
  }
  EXPECT_EQ(entries(), 0u);
}

TEST_F(SafetensorsFile, A_part_that_another_process_changes_is_noticed_and_its_file_left_alone) {
  const model m = mixed_model().fill(3);
  const auto remove = [](const fs::path& part) { fs::remove(part); };
  const auto cut = [](const fs::path& part) { fs::resize_file(part, 100); };
  const auto replace = [](const fs::path& part) {
    fs::remove(part);
    std::ofstream(part) << "another's";
  };
  tp::resume_cursor cursor;
  for (tp::resume_cursor* const resume : {static_cast<tp::resume_cursor*>(nullptr), &cursor})
    for (const auto& change : {std::function<void(const fs::path&)>(remove), std::function<void(const fs::path&)>(cut),
                               std::function<void(const fs::path&)>(replace)}) {
      fs::path part;
      {
        auto file = safetensors_file::create(path, {.resume = resume, .buffer_bytes = 100});
        ASSERT_TRUE(file);
        feeder f(*file, m, 512);
        f.stops_before_finish = true;
        ASSERT_TRUE(f.run());
        part = fs::directory_iterator(directory)->path();
        change(part);
        const auto late = file->finish({});
        ASSERT_EQ(code_of(late), errc::io);
        EXPECT_EQ(late.error().system, ESTALE);
        file->abandon(late.error());
      }
      EXPECT_FALSE(fs::exists(path));
      if (!fs::exists(part)) continue;
      EXPECT_EQ(content(part).size(), 9u) << "only what the other process put there stays";
      fs::remove(part);
    }
  EXPECT_EQ(entries(), 0u);
}

TEST_F(SafetensorsFile, A_part_that_another_process_writes_into_is_compared_before_it_has_its_name) {
  const model m = mixed_model().fill(3);
  tp::resume_cursor cursor;
  for (tp::resume_cursor* const resume : {static_cast<tp::resume_cursor*>(nullptr), &cursor})
    for (const std::uint64_t at : {std::uint64_t{600}, m.schema().image_bytes})  // in the middle, or once all is there
      for (const bool other : {false, true}) {
        auto file = safetensors_file::create(path, {.resume = resume, .buffer_bytes = 100});
        ASSERT_TRUE(file);
        feeder f(*file, m, 512);
        f.stops_before_finish = true;
        ASSERT_TRUE(f.run(at));
        be_slow(20ms);  // the times of files may be coarse
        char held = 0;
        std::fstream part(fs::directory_iterator(directory)->path(), std::ios::binary | std::ios::in | std::ios::out);
        part.seekg(100).get(held);
        part.seekp(100).put(static_cast<char>(held ^ (other ? 1 : 0)));
        part.close();
        if (f.at() < m.schema().image_bytes) {
          ASSERT_TRUE(f.run());
        }
        const auto done = file->finish({.digest = version_of(m)});
        EXPECT_EQ(done.has_value(), !other) << at;
        EXPECT_EQ(fs::exists(path), !other) << at;
        if (other) {
          EXPECT_EQ(done.error().system, ESTALE);
          file->abandon(done.error());
        } else {
          EXPECT_EQ(content(path), m.image_bytes());
          fs::remove(path);
        }
        EXPECT_EQ(entries(), 0u);
      }
}

TEST_F(SafetensorsFile, Takes_only_its_schema_and_its_length) {
  const model m = mixed_model().fill(4);
  model other;
  other.add("w", dtype::f32, {3}).ready();
  const auto wrong = write(m, {.schema = &other.schema()});
  EXPECT_EQ(code_of(wrong), errc::schema_mismatch);
  const auto longer = write(m, {.max_bytes = m.schema().image_bytes - 1});
  EXPECT_EQ(code_of(longer), errc::too_large);
  EXPECT_TRUE(write(m, {.max_bytes = m.schema().image_bytes, .schema = &m.schema()}));
  EXPECT_EQ(entries(), 1u);
}

TEST_F(SafetensorsFile, Writes_the_header_of_a_subset) {
  const model m = mixed_model().fill(5);
  for (const std::size_t buffer : {5u, 65536u}) {
    auto file = safetensors_file::create(path, {.schema = &m.schema(), .buffer_bytes = buffer});
    ASSERT_TRUE(file);
    auto d = describe(m);
    d.image_bytes -= d.data_start;
    d.data_start = 0;
    ASSERT_TRUE(file->begin(d));
    const auto image = m.image_bytes();
    const_byte_span data = std::span(image).subspan(static_cast<std::size_t>(m.schema().header_bytes));
    for (std::uint64_t at = 0; at < d.image_bytes;) {
      std::array<byte_span, 1> out;
      const auto p = file->prepare(at, d.image_bytes - at, out);
      std::memcpy(out[0].data(), data.data() + at, out[0].size());
      ASSERT_TRUE(file->commit(at, out[0]));
      at += p.bytes;
    }
    ASSERT_TRUE(file->chunk(0, d.image_bytes));
    ASSERT_TRUE(file->finish({}));
    EXPECT_EQ(content(path), image);
  }
  auto anonymous = safetensors_file::create(path);
  ASSERT_TRUE(anonymous);
  auto d = describe(m);
  d.data_start = 0;
  EXPECT_EQ(code_of(anonymous->begin(d)), errc::schema_mismatch)
      << "a subset without a schema would be a file without a header";
}

TEST_F(SafetensorsFile, D1_EveryFailingWriteIsAnErrorAndLeavesNothing) {
  const model m = mixed_model().fill(6);
  put("old");
  injected = {fault::write, 1 << 20};
  ASSERT_TRUE(write(m));
  const int writes = injected.calls;
  ASSERT_GT(writes, 50);
  put("old");
  for (const int error : {EIO, ENOSPC, EDQUOT, EFBIG})
    for (int k = 0; k < writes; ++k) {
      injected = {fault::write, k, error};
      const auto outcome = write(m);
      ASSERT_FALSE(outcome) << k;
      EXPECT_EQ(outcome.error().code, error == ENOSPC || error == EDQUOT ? errc::disk_full : errc::io);
      EXPECT_EQ(outcome.error().system, error);
      EXPECT_EQ(outcome.error().name.view(), "model.safetensors");
      ASSERT_EQ(text(), "old");
      ASSERT_EQ(entries(), 1u);
    }
}

TEST_F(SafetensorsFile, D1_ShortAndInterruptedWritesGoOn) {
  const model m = mixed_model().fill(7);
  injected = {fault::short_write, 0, 0, false};
  ASSERT_TRUE(write(m));
  EXPECT_EQ(content(path), m.image_bytes());
  for (int k = 0; k < 20; ++k) {
    injected = {fault::write, k, EINTR};
    ASSERT_TRUE(write(m));
    EXPECT_EQ(content(path), m.image_bytes());
  }
}

TEST_F(SafetensorsFile, D1_FailingSynchronisationRenameAndRoom) {
  const model m = mixed_model().fill(8);
  put("old");
  injected = {fault::sync, 0, EIO};
  EXPECT_EQ(write(m).error().system, EIO);
  EXPECT_EQ(text(), "old");
  for (const int call : {0, 1}) {
    injected = {fault::name, call, EXDEV};
    EXPECT_EQ(code_of(write(m)), errc::io);
    EXPECT_EQ(text(), "old");
  }
  injected = {fault::space, 0, ENOSPC};
  auto file = safetensors_file::create(path);
  ASSERT_TRUE(file);
  const auto full = file->begin(describe(m));
  ASSERT_EQ(code_of(full), errc::disk_full) << "before data moves";
  file->abandon(full.error());
  EXPECT_EQ(entries(), 1u);
  for (const int error : {EOPNOTSUPP, EINVAL, EDOM}) {
    injected = {fault::space, 0, error};
    EXPECT_TRUE(write(m)) << "a file system that does not say what is left";
  }
  put("old");
  injected = {fault::sync, 1, EIO};
  EXPECT_EQ(write(m).error().system, EIO) << "the directory's own";
  EXPECT_EQ(content(path), m.image_bytes()) << "complete all the same";
  EXPECT_EQ(entries(), 1u);
  injected = {fault::sync, 0, EIO, false};
  EXPECT_TRUE(write(m, {.fsync = false}));
  put("old");
  auto file_alone = safetensors_file::create(path, {.fsync = false});
  ASSERT_TRUE(file_alone);
  const few_descriptors limit(0);
  const auto unsure = feeder(*file_alone, m, 512).run();
  ASSERT_EQ(code_of(unsure), errc::io) << "there is no second descriptor whose close would tell";
  EXPECT_EQ(unsure.error().system, EIO);
}

TEST_F(SafetensorsFile, D1_AFullDiskIsFoundBeforeDataMoves) {
  const fs::path mount = directory / "small";
  fs::create_directory(mount);
  if (::mount("tmpfs", mount.c_str(), "tmpfs", 0, "size=1m") != 0) GTEST_SKIP() << "needs the right to mount";
  model m;
  m.add("w", dtype::f32, {1 << 20}).ready();
  path = (mount / "model.safetensors").string();
  auto file = safetensors_file::create(path);
  const auto outcome = file ? file->begin(describe(m)) : tp::result<void>{};
  if (file) file->abandon({});
  const bool empty = fs::is_empty(mount);
  ::umount(mount.c_str());
  ASSERT_EQ(code_of(outcome), errc::disk_full);
  EXPECT_EQ(outcome.error().system, ENOSPC);
  EXPECT_TRUE(empty);
}

TEST_F(SafetensorsFile, D1_WhatHadArrivedWhenTheDiskGotFullStays) {
  using net = tp::pipeline<tp::tensor_list, tp::fixed_bytes<(1 << 16)>, tp::loopback>;
  model m;
  m.add("w", dtype::u8, {3 << 20}).ready().fill(6);
  const fs::path part = directory / ".model.safetensors.part";
  const auto owner = std::make_unique<net::downloader>();
  const auto ref = owner->add_image(m.source());
  ASSERT_TRUE(ref);
  const auto pull = [&](tp::resume_cursor& where) -> tp::result<tp::receipt> {
    auto file = safetensors_file::create(path, {.fsync = false, .resume = &where, .buffer_bytes = 100'000});
    if (!file) return tp::failure(file.error());
    if (where) where.ref = ref->id;
    return net::pull(*owner, *ref, *file, {.cursor = &where});
  };
  for (const auto kind : {fault::long_write, fault::write})  // with room for where it stands, or without
    for (int k = 1; k < 48; k += ::test::whole_schedule() ? 5 : 12) {
      tp::resume_cursor left, found;
      injected = {kind, k, ENOSPC, false};
      const auto full = pull(left);
      injected = {};
      ASSERT_EQ(code_of(full), errc::disk_full) << k;
      EXPECT_EQ(full.error().system, ENOSPC);
      const std::uint64_t lost = (1 << 16) + (kind == fault::long_write ? 0 : 1 << 20);
      EXPECT_GE(left.offset + lost, full.error().at) << k;
      EXPECT_EQ(fs::exists(part), left.offset != 0);
      const auto rest = pull(found);
      ASSERT_TRUE(rest) << k;
      EXPECT_EQ(rest->chunks, (m.schema().image_bytes - left.offset + 0xffff) >> 16) << k;
      EXPECT_EQ(content(path), m.image_bytes());
      EXPECT_EQ(entries(), 1u);
      fs::remove(path);
    }
}

TEST_F(SafetensorsFile, D2_AKillAtAnyTimeLeavesTheOldFileOrTheNewOne) {
  const model m = mixed_model().fill(9);
  const auto image = m.image_bytes();
  put("old");
  generator random(4);
  std::size_t replaced = 0;
  for (int i = 0; i < 200; ++i) {
    child_process child([&] {
      auto file = safetensors_file::create(path, {.buffer_bytes = 64});
      return file && feeder(*file, m, 512).run() ? 0 : 1;
    });
    be_slow(std::chrono::microseconds(random.below(1500)));
    child.kill();
    const auto now = content(path);
    if (now == image) ++replaced, put("old");
    else ASSERT_EQ(text(), "old");
  }
  RecordProperty("replaced", static_cast<int>(replaced));
}

TEST_F(SafetensorsFile, D3_ANameIsGivenWhereThereAreNeitherLinksNorAnExclusiveRename) {
  const model m = mixed_model().fill(3);
  for (const int error : {EINVAL, EPERM, ENOSYS, EOPNOTSUPP}) {
    tp::resume_cursor where;
    for (tp::resume_cursor* const resume : {static_cast<tp::resume_cursor*>(nullptr), &where}) {
      injected = {fault::no_links, 0, error, false};
      ASSERT_TRUE(write(m, {.overwrite = false, .resume = resume}));
      EXPECT_EQ(content(path), m.image_bytes());
      EXPECT_EQ(entries(), 1u);
      fs::remove(path);
    }
  }
  auto file = safetensors_file::create(path, {.overwrite = false});
  ASSERT_TRUE(file);
  put("another's");
  EXPECT_EQ(feeder(*file, m, 512).run().error().system, EEXIST);
  EXPECT_EQ(text(), "another's");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(SafetensorsFile, D3_ANameThatCannotBeGivenIsSaidBeforeAnythingIsAskedFor) {
  for (const bool overwrite : {false, true}) {
    tp::resume_cursor where;
    for (tp::resume_cursor* const resume : {static_cast<tp::resume_cursor*>(nullptr), &where}) {
      injected = {fault::name, 0, EPERM, false};
      const auto file = safetensors_file::create(path, {.overwrite = overwrite, .resume = resume});
      ASSERT_FALSE(file);
      EXPECT_EQ(file.error().system, EPERM);
      EXPECT_EQ(entries(), 0u);
    }
  }
  put("mine");
  for (const int attribute : {STATX_ATTR_IMMUTABLE, STATX_ATTR_APPEND, STATX_ATTR_MOUNT_ROOT}) {
    injected = {fault::attributes, 0, attribute, false};
    EXPECT_EQ(safetensors_file::create(path).error().system, attribute == STATX_ATTR_MOUNT_ROOT ? EBUSY : EPERM);
  }
  injected = {};
  ASSERT_EQ(::chmod(directory.c_str(), 01777), 0);
  if (::geteuid() != 0) GTEST_SKIP() << "another user's file needs root";
  EXPECT_EQ(in_a_process([&] {
              if (::setuid(65534) != 0) return 1;
              const auto file = safetensors_file::create(path);
              return file || file.error().system != EPERM ? 2 : 0;
            }),
            0)
      << "in a folder such as /tmp nobody replaces what is another's";
}

TEST_F(SafetensorsFile, D3_ANameOf143BytesTheMostThatSomeFileSystemsHaveIsGiven) {
  std::string name = "x";
  for (int i = 0; i < 71; ++i) name += "\u00e9";  // two bytes each: a name is not cut within one
  path = (directory / name).string();
  tp::resume_cursor where;
  for (tp::resume_cursor* const resume : {static_cast<tp::resume_cursor*>(nullptr), &where}) {
    const auto file = safetensors_file::create(path, {.resume = resume});
    ASSERT_TRUE(file);
    ASSERT_EQ(entries(), 1u);
    const std::string part = fs::directory_iterator(directory)->path().filename().string();
    EXPECT_LE(part.size(), 143u);
    EXPECT_NE(part[1] & 0xc0, 0x80) << part;
  }
  ASSERT_TRUE(write(mixed_model(), {.overwrite = false}));
  EXPECT_TRUE(fs::exists(path));
}

TEST_F(SafetensorsFile, D3_ASymbolicLinkIsNeitherFollowedNorReplaced) {
  const fs::path target = directory / "target";
  std::ofstream(target) << "precious";
  fs::create_symlink(target, path);
  const auto outcome = write(mixed_model());
  ASSERT_EQ(code_of(outcome), errc::io);
  EXPECT_EQ(outcome.error().system, ELOOP);
  EXPECT_TRUE(fs::is_symlink(path));
  EXPECT_EQ(text(), "precious");
  fs::remove(path);
  auto file = safetensors_file::create(path);
  ASSERT_TRUE(file);
  fs::create_symlink(target, path);
  EXPECT_EQ(feeder(*file, mixed_model(), 512).run().error().system, ELOOP) << "nor one that appears meanwhile";
  EXPECT_EQ(text(), "precious");
  EXPECT_EQ(entries(), 2u);
}

TEST_F(SafetensorsFile, D3_NamesThatAreNoRegularFileAreRefused) {
  const auto refused = [&](int system) {
    const auto outcome = write(mixed_model());
    ASSERT_EQ(code_of(outcome), errc::io);
    EXPECT_EQ(outcome.error().system, system);
    EXPECT_EQ(entries(), 1u);
  };
  fs::create_directory(path);
  refused(EISDIR);
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  refused(EINVAL);
  fs::remove(path);
  put("read-only");
  fs::permissions(path, fs::perms::owner_read);
  refused(EACCES);
  EXPECT_EQ(text(), "read-only");
}

TEST_F(SafetensorsFile, D3_DirectoriesThatAreNotThere) {
  EXPECT_EQ(safetensors_file::create((directory / "no" / "model").string()).error().system, ENOENT);
  put("a file");
  EXPECT_EQ(safetensors_file::create(path + "/model").error().system, ENOTDIR);
  EXPECT_EQ(code_of(safetensors_file::create("/proc/model.safetensors")), errc::io);
  for (const std::string& bad : {std::string(), std::string("/"), directory.string() + "/", std::string("."),
                                 std::string("a/.."), std::string("a\0b", 3)})
    EXPECT_EQ(code_of(safetensors_file::create(bad)), errc::invalid_argument) << bad;
  EXPECT_EQ(safetensors_file::create(std::string(300, 'x')).error().system, ENAMETOOLONG);
  EXPECT_EQ(safetensors_file::create(std::string(5000, 'x') + "/y").error().system, ENAMETOOLONG);
  path = (directory / std::string(255, 'n')).string();
  EXPECT_TRUE(write(mixed_model())) << "the longest name";
}

TEST_F(SafetensorsFile, D3_AMountedFileIsNotReplaced) {
  put("mounted over");
  const fs::path source = directory / "source";
  std::ofstream(source) << "precious";
  if (::mount(source.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0) GTEST_SKIP() << "needs the right to mount";
  const auto outcome = write(mixed_model());
  const std::string now = text();
  ::umount(path.c_str());
  EXPECT_EQ(code_of(outcome), errc::io);
  EXPECT_EQ(now, "precious");
  EXPECT_EQ(entries(), 2u);
}

/// Runs `what` in a child whose files may have at most `limit` bytes; its exit status, or minus the signal that ended
/// it.
int with_file_size_limit(rlim_t limit, const std::function<int()>& what) {
  return in_a_process([&] {
    const rlimit r{limit, limit};
    ::setrlimit(RLIMIT_FSIZE, &r);
    return what();
  });
}

TEST_F(SafetensorsFile, D5_AFileSizeLimitIsAnErrorNotADeath) {
  const model m = mixed_model().fill(10);
  for (const rlim_t limit : {0u, 1u, 100u, 5000u})
    EXPECT_EQ(with_file_size_limit(
                  limit,
                  [&] {
                    const auto outcome = write(m);
                    sigset_t pending;
                    ::sigpending(&pending);
                    if (sigismember(&pending, SIGXFSZ) != 0) return 3;
                    return !outcome && outcome.error().code == errc::io && outcome.error().system == EFBIG ? 7 : 1;
                  }),
              7)
        << limit;
  EXPECT_EQ(entries(), 0u);
}

TEST_F(SafetensorsFile, D5_ASignalThatTheProcessAlreadyHadIsLeftAlone) {
  const model m = mixed_model().fill(10);
  EXPECT_EQ(with_file_size_limit(100,
                                 [&] {
                                   sigset_t set;
                                   sigemptyset(&set);
                                   sigaddset(&set, SIGXFSZ);
                                   ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
                                   ::raise(SIGXFSZ);
                                   if (write(m)) return 1;
                                   sigset_t pending;
                                   ::sigpending(&pending);
                                   return sigismember(&pending, SIGXFSZ) != 0 ? 7 : 2;
                                 }),
            7);
}

TEST_F(SafetensorsFile, Leaves_no_descriptors_behind) {
  const model m = mixed_model().fill(11);
  const auto before = test::descriptors();
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(write(m));
    injected = {fault::write, i, EIO};
    EXPECT_FALSE(write(m));
    injected = {};
  }
  EXPECT_EQ(test::descriptors(), before);
}

}  // namespace safetensors_file_test
