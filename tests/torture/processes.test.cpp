// Real processes that are killed, stopped and kept short: an owner and a recipient forked from this one.
// TENSORPULL_PROCESS_FAULTS: how many faults.
#include "support/child_process.hpp"
#include "support/own_folder.hpp"
#include "support/sanitizers.hpp"
#include "transports/network.hpp"

#include <tensorpull/consumers/any_schema/safetensors_file.hpp>

#include <sys/mman.h>
#include <sys/resource.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

namespace processes_test {

using namespace test;
using net = raw_net<large, tp::tcp>;
constexpr std::uint64_t image_bytes = tp::raw_tensors<large>::schema().image_bytes;
constexpr std::uint32_t window = 4;
constexpr tp::ref_id name{5, 6};
constexpr int exact = 0, left_alone = 1000;

#if defined(TENSORPULL_TEST_SANITIZED)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

/// Whether this process has one thread, so that what it forks may do anything. (ThreadSanitizer has one of its own.)
bool alone() { return threads() == 1; }

/// A file's bytes (or nobody's) as an object that processes share and that outlives them.
template <class T>
class mapped {
 public:
  explicit mapped(const char* file = nullptr) {
    const int fd = file != nullptr ? ::open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd >= 0 && ::ftruncate(fd, sizeof(T)) != 0) std::abort();
    void* const at = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd,
                            0);
    if (fd >= 0) ::close(fd);
    if (at == MAP_FAILED) std::abort();
    object_ = static_cast<T*>(at);
  }
  mapped(const mapped&) = delete;
  ~mapped() { ::munmap(object_, sizeof(T)); }
  T* operator->() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }

 private:
  T* object_;
};

struct shared {
  std::uint16_t port;  ///< of each owner
  std::atomic<bool> listens;
  std::atomic<std::uint64_t> steps;
  std::atomic<std::uint64_t> sent;  ///< by the owner that lives
  std::atomic<std::uint64_t> sent_before;  ///< by those before it
  std::atomic<int> outcome;  ///< of the recipient: an error, or exact
};

int own(const large& model, shared& all) {
  auto owner = net::downloader::open({.listen = local(all.port)});
  if (!owner) return 1;
  const auto ref = owner->add_tensors(model, {.id = name});
  if (!ref) return 2;
  all.listens = true;
  owner->run([&](const auto& o) {
    all.sent = o.status_of(*ref)->bytes_sent;
    ++all.steps;
    return false;
  });
  return 0;
}

/// Takes its time, so that a fault falls into the transfer.
struct slowly : tp::land {
  explicit slowly(large& m) noexcept : tp::land(tp::raw_tensors<large>::destination(m)) {}
  tp::result<void> chunk(std::uint64_t, std::uint64_t) noexcept {
    be_slow(700us);
    return tp::result<void>{};
  }
};
int receive(large& mine, tp::resume_cursor& cursor, shared& all) {
  for (const auto end = within(ample_time); !end.stop_requested();) {
    slowly to(mine);
    const auto done = net::pull(local(all.port), {name}, to,
                                {.per_request_timeout = 2s,
                                 .window = window,
                                 .retry = {.retries = 10, .first_delay = 5ms, .longest_delay = 50ms},
                                 .recipient = {9},
                                 .cursor = &cursor});
    all.outcome = done ? exact : static_cast<int>(done.error().code);
    if (done) return 0;
    // an owner that is not back yet; whatever else goes wrong is the test's to judge
    if (done.error() != errc::connection_failed && !tp::is_passing(done.error().code)) return 1;
    be_slow(10ms);
  }
  return 2;
}

int wanted_faults() {
  const char* const text = std::getenv("TENSORPULL_PROCESS_FAULTS");
  return text != nullptr ? std::atoi(text) : 20;
}

TEST(Processes, Killed_and_stopped_at_random_moments_a_transfer_ends_exact_and_sends_little_again) {
  if (!alone()) GTEST_SKIP() << "a process with threads cannot be forked safely";
  const auto source = random_model<large>(1);
  generator random(11);
  enum {
    kill_owner,
    kill_recipient,
    stop_owner,
    stop_recipient,
    kinds,
  };
  int faults = 0, in_transfer = 0, by_kind[kinds] = {};
  for (int run = 0; faults < wanted_faults(); ++run) {
    const own_folder here;
    const mapped<large> mine((here / "model").c_str());
    const mapped<tp::resume_cursor> cursor((here / "cursor").c_str());
    const mapped<shared> all;
    const own_port port;
    all->port = port;
    std::optional<child_process> owner, recipient;
    const auto start_owner = [&] {
      all->listens = false;
      owner.emplace([&] { return own(*source, *all); });
      EXPECT_TRUE(eventually("an owner listens", [&] { return all->listens || owner->ended(); }));
    };
    const auto start_recipient = [&] { recipient.emplace([&] { return receive(*mine, *cursor, *all); }); };
    start_owner();
    start_recipient();
    const int most = 1 + static_cast<int>(random.below(3));
    std::uint64_t kills = 0, waits = 0;
    for (int i = 0; i < most && faults < wanted_faults(); ++i) {
      be_slow(std::chrono::microseconds(random.below(80'000)));
      const auto kind = static_cast<int>(random.below(kinds));
      const std::uint64_t at = cursor->offset;
      in_transfer += at > 0 && at < image_bytes && !recipient->ended() ? 1 : 0;
      ++faults, ++by_kind[kind];
      switch (kind) {
        case kill_owner:
          owner->kill(), ++kills;
          all->sent_before += all->sent.exchange(0);
          be_slow(std::chrono::microseconds(random.below(60'000)));
          start_owner();
          break;
        case kill_recipient:
          recipient->kill(), ++kills;
          start_recipient();
          break;
        default:
          child_process& p = kind == stop_owner ? *owner : *recipient;
          p.signal(SIGSTOP);
          be_slow(std::chrono::microseconds(20'000 + random.below(100'000)));
          p.signal(SIGCONT);
          ++waits;
      }
    }
    ASSERT_EQ(recipient->wait(), 0) << "run " << run << ": " << to_string(static_cast<errc>(all->outcome.load()));
    ASSERT_EQ(all->outcome, exact);
    EXPECT_TRUE(same(*mine, *source)) << run;
    EXPECT_EQ(cursor->offset, image_bytes);
    ASSERT_TRUE(eventually("the owner notes what it has sent",
                           [&, steps = all->steps.load()] { return all->steps >= steps + 2; }));
    // for each kill: the chunk that was not complete, and the requests whose answers were under way.
    EXPECT_LE(all->sent_before + all->sent, image_bytes + kills * (window + 1) * 64_KiB)
        << "run " << run << ", " << kills << " kills, " << waits << " stops";
  }
  RecordProperty("faults", faults);
  RecordProperty("faults_in_transfer", in_transfer);
  EXPECT_GE(2 * in_transfer, faults) << "most faults should fall into a transfer";
}

/// An owner in a process of its own, for recipients that are kept short.
struct standing_owner {
  std::unique_ptr<large> source = random_model<large>(1);
  mapped<shared> all;
  own_port port;
  child_process owner{[this] {
    all->port = port;
    return own(*source, *all);
  }};
  standing_owner() {
    EXPECT_TRUE(eventually("an owner listens", [this] { return all->listens || owner.ended(); }));
  }
  std::string address() const { return local(port); }
};
/// What became of a recipient with limits of its own: an error's number, or exact.
int limited(shared& all, const std::function<int()>& run) {
  all.outcome = left_alone;
  EXPECT_EQ(in_a_process([&] {
              all.outcome = run();
              return 0;
            }),
            0)
      << "it died";
  return all.outcome;
}
void limit(int what, rlim_t to) {
  rlimit l{};
  ::getrlimit(static_cast<__rlimit_resource>(what), &l);
  l.rlim_cur = to;
  ::setrlimit(static_cast<__rlimit_resource>(what), &l);
}
int to_file(const std::string& address, const std::string& path, const tp::safetensors_file_options& how = {}) {
  auto file = tp::safetensors_file::create(path, how);
  if (!file) return static_cast<int>(file.error().code);
  const auto done = net::pull(address, {name}, *file, {.per_request_timeout = 20s});
  return done ? exact : static_cast<int>(done.error().code);
}
bool holds_image(const std::string& path, const large& source) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  return bytes.size() == image_bytes &&
         std::memcmp(bytes.data() + image_bytes - sizeof source, &source, sizeof source) == 0;
}

TEST(Processes, D5_a_disk_that_is_full_is_an_error_and_leaves_no_file) {
  if (!alone()) GTEST_SKIP() << "a process with threads cannot be forked safely";
  const standing_owner o;
  const own_folder here;
  for (const bool ignored : {true, false})
    for (const rlim_t most :
         {rlim_t{0}, rlim_t{1}, rlim_t{64 * 1024 + 7}, rlim_t{image_bytes / 2}, rlim_t{image_bytes - 1}}) {
      const int how = limited(*o.all, [&] {
        if (ignored) ::signal(SIGXFSZ, SIG_IGN);
        limit(RLIMIT_FSIZE, most);
        return to_file(o.address(), here / "model.safetensors");
      });
      EXPECT_TRUE(how == static_cast<int>(errc::io) || how == static_cast<int>(errc::disk_full))
          << how << " with " << most;
      EXPECT_TRUE(here.empty()) << most;
    }
  EXPECT_EQ(limited(*o.all,
                    [&] {
                      limit(RLIMIT_FSIZE, image_bytes);
                      return to_file(o.address(), here / "model.safetensors");
                    }),
            exact);
  EXPECT_TRUE(holds_image(here / "model.safetensors", *o.source));
}

TEST(Processes, Q2_a_recipient_with_few_descriptors_names_what_it_lacks) {
  if (!alone()) GTEST_SKIP() << "a process with threads cannot be forked safely";
  const standing_owner o;
  const own_folder here;
  int errors = 0, how = left_alone;
  for (rlim_t more = 0; more < 16 && how != exact; ++more) {
    how = limited(*o.all, [&] {
      const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);  // the lowest number that is free
      ::close(next);
      limit(RLIMIT_NOFILE, static_cast<rlim_t>(next) + more);
      return to_file(o.address(), here / "model.safetensors");
    });
    if (how == exact) break;
    ++errors;
    EXPECT_TRUE(how == static_cast<int>(errc::io) || how == static_cast<int>(errc::connection_failed))
        << how << " with " << more;
    EXPECT_TRUE(here.empty()) << more;
  }
  EXPECT_EQ(how, exact);
  EXPECT_EQ(errors, 3) << "directory, file, socket";
  EXPECT_TRUE(holds_image(here / "model.safetensors", *o.source));
}

TEST(Processes, A_recipient_with_little_address_space_names_what_it_lacks) {
  if (sanitized) GTEST_SKIP() << "a sanitizer reserves terabytes";
  if (!alone()) GTEST_SKIP() << "a process with threads cannot be forked safely";
  const standing_owner o;
  const own_folder here;
  int short_of_memory = 0, how = left_alone;
  for (rlim_t more = 0; more <= 64 && how != exact; more += 4) {
    how = limited(*o.all, [&] {
      std::size_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      limit(RLIMIT_AS, pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (more << 20));
      return to_file(o.address(), here / "model.safetensors", {.buffer_bytes = 32u << 20});
    });
    if (how == exact) break;
    EXPECT_TRUE(how == static_cast<int>(errc::out_of_memory) || how == static_cast<int>(errc::bad_address) ||
                how == static_cast<int>(errc::connection_failed))
        << how << " with " << more;
    short_of_memory += how == static_cast<int>(errc::out_of_memory) ? 1 : 0;
    EXPECT_TRUE(here.empty()) << more;
  }
  EXPECT_EQ(how, exact);
  EXPECT_GE(short_of_memory, 8);
  EXPECT_TRUE(holds_image(here / "model.safetensors", *o.source));
  // the same for an owner and for a session, whose memory is made at start
  for (const bool owns : {true, false}) {
    how = limited(*o.all, [&] {
      std::size_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      // what the allocator has left over is used up first
      void* taken = nullptr;
      limit(RLIMIT_AS, pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)));
      for (std::size_t n = 1u << 20; n >= 16 * 1024; n /= 2)
        while (void* const p = std::malloc(n)) *static_cast<void**>(p) = taken, taken = p;
      if (owns) {
        const auto made = net::downloader::open({});
        return made ? exact : static_cast<int>(made.error().code);
      }
      const auto made = net::session::connect(o.address());
      return made ? exact : static_cast<int>(made.error().code);
    });
    EXPECT_EQ(how, static_cast<int>(errc::out_of_memory)) << owns;
  }
}

}  // namespace processes_test
