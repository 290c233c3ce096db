// What the paths and names of Unix sockets may be, and what their files are.
#include "support/child_process.hpp"
#include "support/few_descriptors.hpp"
#include "support/results.hpp"
#include "unix_folder.hpp"

#include <tensorpull/core/describe.hpp>
#include <tensorpull/transports/over/unix_socket/unix_socket.hpp>

#include <grp.h>
#include <sys/syscall.h>

#include <cerrno>
#include <fstream>
#include <vector>

namespace unix_address_test {

using namespace test;
namespace tp = tensorpull;

using UnixAddress = unix_folder;

bool links_alone = false;  ///< the file system has no flags of rename
extern "C" int renameat2(int a, const char* from, int b, const char* to, unsigned flags) noexcept {
  if (!links_alone) return static_cast<int>(::syscall(SYS_renameat2, a, from, b, to, flags));
  errno = EINVAL;
  return -1;
}

bool gives_another_owner = false;  ///< the file system, as NFS does to root's files
extern "C" uid_t geteuid() noexcept {
  return static_cast<uid_t>(::syscall(SYS_geteuid)) + (gives_another_owner ? 1 : 0);
}

mode_t permissions_of(const std::string& path) {
  struct stat about{};
  return ::lstat(path.c_str(), &about) == 0 ? about.st_mode & 07777 : ~mode_t{0};
}
tp::error refusal(std::string_view address, tp::unix_access access = tp::unix_access::same_user) {
  const auto made = tp::unix_listener::open(address, access);
  return made ? tp::error{} : made.error();
}
/// A socket that the library has not made. `listens`: somebody is behind it.
tp::unix_stream foreign(const std::string& path, bool listens) {
  tp::unix_stream s(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto at = *tp::unix_address::of(path);
  EXPECT_EQ(::bind(s.native_handle(), at.get(), at.size()), 0);
  EXPECT_EQ(listens ? ::listen(s.native_handle(), 1) : 0, 0);
  return s;
}

TEST_F(UnixAddress, U1_APathThatIsTooLongIsAnErrorWithItsName) {
  for (const std::size_t size : {std::size_t{108}, std::size_t{4096}}) {
    const std::string path = "/tmp/" + std::string(size - 5, 'x');
    const tp::error why = refusal(path), other = tp::unix_connect(path, 1s).error();
    EXPECT_EQ(why, errc::bad_address);
    EXPECT_EQ(why.at, size);
    EXPECT_EQ(why.name.view().substr(0, 6), "/tmp/x");
    EXPECT_EQ(other, errc::bad_address);
  }
  const std::string longest = folder() + "/" + std::string(107 - folder().size() - 1, 'x');
  auto made = tp::unix_listener::open(longest);
  ASSERT_TRUE(succeeded(made));
  EXPECT_TRUE(tp::unix_connect(longest, 1s));
  const std::string deep = folder() + "/" + std::string(100 - folder().size() - 1, 'd');
  std::filesystem::create_directory(deep);
  EXPECT_EQ(refusal(deep + "/s"), errc::bad_address) << "there is no room for another name in the folder";
}

TEST_F(UnixAddress, U1_AddressesThatAreNoneAreRefused) {
  for (const std::string_view text : {std::string_view(""), std::string_view("@"), std::string_view("a\0b", 3),
                                      std::string_view("@a\0b", 4), std::string_view("/")})
    EXPECT_EQ(refusal(text), errc::bad_address) << text;
  EXPECT_EQ(refusal(folder() + "/"), errc::bad_address);
  EXPECT_EQ(refusal(folder() + "/none/s").system, ENOENT);
  EXPECT_EQ(refusal(folder() + "/..").system, EADDRINUSE);
  EXPECT_EQ(refusal("@name", tp::unix_access::same_group), errc::invalid_argument);
  EXPECT_EQ(tp::unix_connect(path(), 1s).error().system, ENOENT);
  EXPECT_EQ(files(), 0u);
}

TEST_F(UnixAddress, U1_AFileHasItsPermissionsWhateverTheUmaskIs) {
  for (const mode_t mask : {mode_t{0}, mode_t{022}, mode_t{0777}}) {
    const mode_t before = ::umask(mask);
    {
      const auto own = tp::unix_listener::open(path()),
                 group = tp::unix_listener::open(folder() + "/group", tp::unix_access::same_group),
                 all = tp::unix_listener::open(folder() + "/all", tp::unix_access::anyone);
      ::umask(before);
      EXPECT_TRUE(own && group && all);
      EXPECT_EQ(permissions_of(path()), 0600u);
      EXPECT_EQ(permissions_of(folder() + "/group"), 0660u);
      EXPECT_EQ(permissions_of(folder() + "/all"), 0666u);
      EXPECT_EQ(files(), 3u) << "no other name is left";
    }
    EXPECT_EQ(files(), 0u);
  }
}

TEST_F(UnixAddress, U1_AStaleFileIsReplacedIfItIsOursAndNobodyListens) {
  {
    const auto gone = foreign(path(), true);
  }
  EXPECT_EQ(tp::unix_connect(path(), 1s).error().system, ECONNREFUSED);
  {
    const auto made = tp::unix_listener::open(path());
    ASSERT_TRUE(succeeded(made));
    EXPECT_TRUE(tp::unix_connect(path(), 1s));
    EXPECT_EQ(permissions_of(path()), 0600u);
    EXPECT_EQ(files(), 1u);
    EXPECT_EQ(refusal(path()).system, EADDRINUSE) << "now somebody listens";
    EXPECT_TRUE(tp::unix_connect(path(), 1s));
  }
  EXPECT_EQ(files(), 0u);
  for (rlim_t left = 0; left < 4; ++left) {
    {
      const auto gone = foreign(path(), true);
    }
    const few_descriptors limit(left);
    EXPECT_EQ(refusal(path()).system, EMFILE) << "nobody has the name, with " << left << " descriptors";
    std::filesystem::remove(path());
  }
  {
    const auto gone = foreign(path(), true);
  }
  gives_another_owner = true;
  EXPECT_EQ(refusal(path()).code, errc{}) << "it has the owner that a socket of ours gets there";
  gives_another_owner = false;
  const auto living = foreign(path(), true);
  EXPECT_EQ(refusal(path()).system, EADDRINUSE);
  EXPECT_EQ(refusal(path()), errc::connection_failed);
  EXPECT_EQ(files(), 1u);
}

TEST_F(UnixAddress, A_file_system_that_has_hard_links_and_no_exclusive_rename_has_sockets_too) {
  links_alone = true;
  {
    const auto first = tp::unix_listener::open(path());
    ASSERT_TRUE(first) << describe(first.error());
    EXPECT_EQ(refusal(path()).system, EADDRINUSE) << "somebody listens there";
  }
  {
    const auto gone = foreign(path(), true);
  }
  const auto again = tp::unix_listener::open(path());
  EXPECT_TRUE(again) << describe(again.error());
  EXPECT_TRUE(tp::unix_connect(path(), 10s));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder()), {}), 1);
  links_alone = false;
}

TEST_F(UnixAddress, U1_OtherFilesAreNeitherReplacedNorFollowed) {
  std::ofstream(path()) << "precious";
  EXPECT_EQ(refusal(path()).system, EADDRINUSE);
  EXPECT_EQ(std::filesystem::file_size(path()), 8u);
  std::filesystem::remove(path());
  std::filesystem::create_directory(path());
  EXPECT_EQ(refusal(path()).system, EADDRINUSE);
  std::filesystem::remove(path());

  {
    const auto gone = foreign(folder() + "/stale", true);
  }
  std::filesystem::create_symlink(folder() + "/stale", path());
  EXPECT_EQ(refusal(path()).system, EADDRINUSE);
  EXPECT_TRUE(std::filesystem::is_symlink(path()));
  EXPECT_TRUE(std::filesystem::is_socket(folder() + "/stale"));
  std::filesystem::remove(path());
  std::filesystem::create_symlink(folder() + "/nothing", path());
  EXPECT_EQ(refusal(path()).system, EADDRINUSE);
  EXPECT_FALSE(std::filesystem::exists(folder() + "/nothing"));
}

TEST_F(UnixAddress, U1_OnlyTheListenersOwnFileIsRemoved) {
  {
    auto made = tp::unix_listener::open(path());
    ASSERT_TRUE(made);
    auto moved = std::move(*made);
    std::filesystem::remove(path());
    std::ofstream(path()) << "another's";
  }
  EXPECT_TRUE(std::filesystem::is_regular_file(path())) << "an attacker's, or another program's";
  std::filesystem::remove(path());
  {
    const auto made = tp::unix_listener::open(path());
    ASSERT_TRUE(made);
    std::filesystem::remove(path());
    const auto next = tp::unix_listener::open(path());
    ASSERT_TRUE(next);
  }
  EXPECT_EQ(files(), 0u);
}

TEST_F(UnixAddress, Relative_paths_and_links_to_folders_are_those_of_the_moment) {
  const auto before = std::filesystem::current_path();
  std::filesystem::create_directory(folder() + "/in");
  std::filesystem::create_directory_symlink(folder() + "/in", folder() + "/link");
  std::filesystem::current_path(folder());
  {
    const auto made = tp::unix_listener::open("relative"), dot = tp::unix_listener::open("./@name"),
               link = tp::unix_listener::open("link/s");
    EXPECT_TRUE(made && dot && link);
    EXPECT_TRUE(tp::unix_connect("relative", 1s));
    EXPECT_TRUE(tp::unix_connect("./@name", 1s));
    EXPECT_TRUE(tp::unix_connect("in/s", 1s));
    std::filesystem::current_path(before);
    std::filesystem::remove(folder() + "/link");
  }
  EXPECT_EQ(files(), 1u);
  EXPECT_TRUE(std::filesystem::is_empty(folder() + "/in"));
}

TEST_F(UnixAddress, An_abstract_name_is_no_file_and_belongs_to_one_listener) {
  const std::string name = "@" + folder();
  {
    const auto made = tp::unix_listener::open(name);
    ASSERT_TRUE(succeeded(made));
    EXPECT_EQ(refusal(name).system, EADDRINUSE);
    EXPECT_TRUE(tp::unix_connect(name, 1s));
    EXPECT_EQ(tp::unix_connect(name + "x", 1s).error().system, ECONNREFUSED) << "the whole name counts";
  }
  EXPECT_EQ(tp::unix_connect(name, 1s).error().system, ECONNREFUSED);
  EXPECT_EQ(files(), 0u);
}

TEST_F(UnixAddress, U1_ASocketWhereNobodyAnswersTimesOutAndHearsAStop) {
  const auto busy = foreign(path(), true);
  std::vector<tp::unix_stream> queue;
  for (;;) {
    auto one = tp::unix_connect(path(), 0ms);
    if (!one) {
      EXPECT_EQ(code_of(one), errc::timed_out);
      break;
    }
    queue.push_back(std::move(*one));
    ASSERT_LT(queue.size(), 100u);
  }
  auto place = *tp::unix_destination::of(path());
  EXPECT_TRUE(place.more());
  EXPECT_EQ(place.start_connect().error().system, EAGAIN);
  EXPECT_FALSE(place.more());
  struct soon {
    std::chrono::steady_clock::time_point at;
    bool stop_requested() const noexcept { return std::chrono::steady_clock::now() > at; }
  };
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(code_of(tp::unix_connect(path(), 100s, soon{start + 20ms})), errc::cancelled);
  EXPECT_EQ(code_of(tp::unix_connect(path(), std::chrono::milliseconds::max(), soon{start + 200ms})), errc::cancelled);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 50s);
}

TEST_F(UnixAddress, U1_EachEndKnowsTheOther) {
  auto made = tp::unix_listener::open(path());
  ASSERT_TRUE(made);
  const auto here = tp::unix_connect(path(), 1s);
  const auto there = made->accept();
  ASSERT_TRUE(here && there);
  for (const tp::peer_identity who : {here->peer(), there->peer()}) {
    EXPECT_EQ(who.kind, tp::identity_kind::user);
    EXPECT_EQ(who.user, ::geteuid());
    EXPECT_EQ(who.group, ::getegid());
    EXPECT_EQ(who.process, ::getpid());
  }
  EXPECT_EQ(tp::unix_stream().peer().kind, tp::identity_kind::none);
  EXPECT_EQ(tp::unix_stream(::socket(AF_UNIX, SOCK_STREAM, 0)).peer().kind, tp::identity_kind::none);
}

/// Runs `act` as another user of this group, in a process of its own. Its result, from 0 to 100.
template <class Act>
int as_nobody(Act act, gid_t also = 65534) {
  return in_a_process(
      [&] { return ::setgroups(1, &also) == 0 && ::setgid(65534) == 0 && ::setuid(65534) == 0 ? act() : 101; });
}

TEST_F(UnixAddress, U1_AnotherUserIsRefusedOnBothSides) {
  if (::geteuid() != 0) GTEST_SKIP() << "it takes root to be another user";
  std::filesystem::permissions(folder(), std::filesystem::perms::all);
  const std::string name = "@" + folder();
  auto file = tp::unix_listener::open(path()), abstract = tp::unix_listener::open(name),
       open = tp::unix_listener::open(folder() + "/all", tp::unix_access::anyone);
  ASSERT_TRUE(file && abstract && open);
  const auto connect = [](const std::string& to, tp::unix_access access = tp::unix_access::same_user) {
    return [=] {
      const auto s = tp::unix_connect(to, 1s, {}, access);
      return s ? 0 : s.error().system;
    };
  };
  EXPECT_EQ(as_nobody(connect(path())), EACCES) << "the file's permissions";
  EXPECT_EQ(as_nobody(connect(name)), 0) << "root is trusted";
  EXPECT_EQ(code_of(abstract->accept()), errc::timed_out) << "a name has no permissions, so the listener looks";
  EXPECT_EQ(as_nobody(connect(folder() + "/all")), 0);
  const auto stranger = open->accept();
  ASSERT_TRUE(stranger);
  EXPECT_EQ(stranger->peer().user, 65534u);

  // a program of nobody finds a socket that nobody's neighbour has put there
  one_word<bool> there;
  child_process squatter([&] {
    if (::setgroups(0, nullptr) != 0 || ::setgid(12345) != 0 || ::setuid(12345) != 0) return 1;
    const auto mine = tp::unix_listener::open(folder() + "/trap", tp::unix_access::anyone);
    there.tell(mine.has_value());
    for (;;) ::pause();
  });
  EXPECT_TRUE(there.hear());
  EXPECT_EQ(as_nobody(connect(folder() + "/trap")), EPERM);
  EXPECT_EQ(as_nobody(connect(folder() + "/trap", tp::unix_access::anyone)), 0);
  const auto connect_in_group = connect(folder() + "/trap", tp::unix_access::same_group);
  EXPECT_EQ(as_nobody(connect_in_group), EPERM) << "of another group";
  EXPECT_EQ(as_nobody(connect_in_group, 12345), 0) << "both are in that group";
  EXPECT_EQ(connect(folder() + "/trap")(), EPERM) << "root, too, expects its own there";
  EXPECT_EQ(connect(folder() + "/trap", tp::unix_access::anyone)(), 0);
  auto at_once = tp::unix_destination::of(folder() + "/trap");
  ASSERT_TRUE(at_once);
  EXPECT_EQ(at_once->start_connect().error().system, EPERM);
  EXPECT_EQ(as_nobody([&] { return refusal(folder() + "/trap").system; }), EADDRINUSE) << "not ours";
  squatter.kill();
  EXPECT_EQ(as_nobody([&] { return refusal(folder() + "/trap").system; }), EADDRINUSE) << "stale, but not ours";
}

}  // namespace unix_address_test
