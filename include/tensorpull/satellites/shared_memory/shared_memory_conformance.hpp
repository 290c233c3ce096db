// Checks a transport that shares memory: that its stream passes descriptors (byte_stream, 7), what its owners pass, and
// its views.
#pragma once

#include <tensorpull/consumers/land.hpp>
#include <tensorpull/pipeline.hpp>
#include <tensorpull/satellites/shared_memory/sealed_memory.hpp>
#include <tensorpull/satellites/shared_memory/shared_view.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/testing/conformance/detail/link_requirements.hpp>
#include <tensorpull/testing/conformance/detail/stream_probe.hpp>
#include <tensorpull/transports/blocking/stream_pull.hpp>
#include <tensorpull/transports/publisher.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

namespace tensorpull::testing {

namespace detail {

template <class Transport, stream_factory Connect>
class shared_memory_requirements : public link_requirements<stream_probe<Connect>> {
  using self = shared_memory_requirements;
  using parts = typename pipeline<tensor_list, fixed_bytes<default_chunk_bytes>, Transport>::parts;
  using owner_type = publisher<parts>;
  using base = link_requirements<stream_probe<Connect>>;
  using base::check, base::probe_, base::report_;
  using typename base::pair;
  static constexpr std::size_t numbers = 100'000;

 public:
  explicit shared_memory_requirements(stream_probe<Connect>& p) : base(p), weights_(numbers) {
    for (std::size_t i = 0; i < numbers; ++i) weights_[i] = static_cast<float>(i);
  }

  void run() {
    check("7.1", "descriptors come with the first byte that is written with them", {}, &self::passes);
    check("7.2", "they are given once, and what nobody takes is closed", {}, &self::closes);
    check_view("M.1", "an owner passes memory that cannot shrink, and that nobody else can write", "7.1",
               [this](const viewed_tensors&, const result<receipt>& done, const owner_type&) {
                 if (!done) report_.fail("a view ended with: %s", to_string(done.error().code).data());
               });
    check_view(
        "M.2", "a view is `completed`, the owner hears of it, and sends no payload", "M.1",
        [this](const viewed_tensors&, const result<receipt>& done, const owner_type& owner) {
          const auto counts = owner.status_of(ref_);
          if (!done || done->outcome != outcome::completed || !done->confirmed || !counts || counts->completed != 1)
            report_.fail("it was not completed and confirmed");
          else if (counts->bytes_sent != 0)
            report_.fail("%llu bytes of payload were sent", static_cast<unsigned long long>(counts->bytes_sent));
        });
    check("M.3", "a view has the bytes that were published, and keeps them when the owner and its connection are gone",
          {"M.1"}, &self::keeps);
    check_view("M.4", "a view cannot be written", "M.1",
               [this](const viewed_tensors& view, const result<receipt>& done, const owner_type&) {
                 int ends[2];
                 if (!done || ::pipe(ends) != 0) return report_.fail("there is no view, or no pipe");
                 // the kernel returns EFAULT if a store would end the program
                 const bool there = ::write(ends[1], "x", 1) == 1;
                 const bool written = ::read(ends[0], const_cast<std::byte*>(view.tensors().address(0)), 1) == 1;
                 ::close(ends[0]);
                 ::close(ends[1]);
                 if (!there || written) report_.fail("the system could write into it");
               });
  }

 private:
  using looks = std::function<void(viewed_tensors&, const result<receipt>&, const owner_type&)>;

  void check_view(std::string_view number, std::string_view what, std::string_view rests_on, const looks& look) {
    if (!base::begins(number, what, {rests_on})) return;
    if (auto c = probe_.connect()) pull(*c, look);
  }
  void keeps(pair& c) {
    viewed_tensors view(nullptr);
    bool opened = false;
    pull(c, [&](viewed_tensors& v, const result<receipt>& done, const owner_type&) {
      opened = done.has_value();
      view = std::move(v);
    });
    if (!opened || std::memcmp(view.tensors().address(0), weights_.data(), numbers * sizeof(float)) != 0)
      report_.fail("the view has other bytes");
  }
  static bool is_open(int fd) noexcept { return ::fcntl(fd, F_GETFD) >= 0; }
  /// Sends one byte with the descriptor, and reads it.
  static bool exchange(pair& c, int fd) {
    const std::byte one{1};
    const std::span<const std::byte> out[]{{&one, 1}};
    std::byte got{};
    const std::span<std::byte> in[]{{&got, 1}};
    const int passed[]{fd};
    return c.left.write_some(out, passed).bytes == 1 && c.right.wait(true, false, std::chrono::seconds(5)).read &&
           c.right.read_some(in).bytes == 1 && got == one;
  }
  void passes(pair& c) {
    const auto memory = tensorpull::detail::make_memory_file(8);
    if (!memory || !exchange(c, memory->get())) return report_.fail("a byte with a descriptor did not arrive");
    const auto came = c.right.take_descriptors();
    struct stat mine{}, theirs{};
    if (came.count != 1) return report_.fail("one descriptor was passed, and %zu came", came.count);
    if (::fstat(memory->get(), &mine) != 0 || ::fstat(came.fd[0].get(), &theirs) != 0 || mine.st_ino != theirs.st_ino)
      report_.fail("another descriptor came");
  }
  void closes(pair& c) {
    const auto memory = tensorpull::detail::make_memory_file(8);
    if (!memory || !exchange(c, memory->get())) return report_.fail("a byte with a descriptor did not arrive");
    int number = -1;
    {
      const auto came = c.right.take_descriptors();
      if (came.count > 0) number = came.fd[0].get();
    }
    if (number >= 0 && is_open(number)) return report_.fail("it is open although nobody has it");
    if (c.right.take_descriptors().count != 0) return report_.fail("it was given twice");
    const int next = ::dup(memory->get());  // the lowest number that is free
    for (int i = 0; i < 20; ++i)
      if (!exchange(c, memory->get())) return report_.fail("a byte with a descriptor did not arrive");
    const int after = ::dup(memory->get());
    if (after > next + 1 + 2) report_.fail("of 20 that nobody took, %d are open", after - next - 1);
    ::close(next);
    ::close(after);
  }

  /// Opens a view over a connection, with both ends on this thread, and inspects it while the owner is there. Then both
  /// are gone.
  void pull(pair& ends, const looks& look) {
    pair c = std::move(ends);
    const std::uint64_t shape = numbers;
    const tensor_view all[]{{"weights", dtype::f32, {&shape, 1}, reinterpret_cast<const std::byte*>(weights_.data())}};
    const auto image = dynamic_image::make(std::span<const tensor_view>(all));
    const auto owner = std::make_unique<owner_type>();
    const auto ref = owner->add_tensors(*image, {.recipients = 1});
    if (!ref) return report_.fail("nothing could be published: %s", to_string(ref.error().code).data());
    ref_ = *ref;
    alignas(64) static std::array<std::byte, 64 * 1024> scratch;
    alignas(8) std::array<std::byte, 2 * parts::limits::control_frame_bytes> memory;
    buffer_pool<> pool(memory, parts::limits::control_frame_bytes);
    ignore_messages handler;
    no_owner none;
    no_transfer nothing;
    viewed_tensors view(nullptr);
    const pull_options options{.retry = {.retries = 0}};
    tensorpull::detail::running_pull<parts, viewed_tensors> pull(*ref, view, options, {}, 1, {1});
    endpoint<typename parts::framing, typename parts::limits, typename owner_type::owner_type, ignore_messages> owning(
        owner->machine(), pool, handler);
    endpoint<typename parts::framing, typename parts::limits, no_owner, ignore_messages> pulling(none, pool, handler);
    pull.begin(pulling);
    const auto start = std::chrono::steady_clock::now();
    while (!pull.ended()) {
      const auto asked = pump_once(pulling, pull.transfer(), c.left, {});
      const auto answered = pump_once(owning, nothing, c.right, scratch);
      if (!asked || !answered) pull.fail(asked ? answered.error() : asked.error());
      else if (std::chrono::steady_clock::now() - start > probe_.options.patience) pull.fail({errc::timed_out});
    }
    (void)pull.finish(pulling);
    owner->deliver();
    look(view, pull.outcome(), *owner);
  }

  std::vector<float> weights_;
  reference ref_{};
};

}  // namespace detail

/// Runs all checks of a transport that shares memory on the caller's thread; its stream has to pass check_byte_stream,
/// too. `connect` is called for each check. Throws only what the stream, `connect` or the heap throws.
template <class Transport, stream_factory Connect>
conformance_report check_shared_memory(Connect connect, const conformance_options& options = {}) {
  static_assert(Transport::shares_memory, "tensorpull: check_shared_memory checks a transport that shares memory");
  conformance_report report;
  detail::stream_probe<Connect> probe(connect, options, report);
  detail::shared_memory_requirements<Transport, Connect>(probe).run();
  return report;
}

}  // namespace tensorpull::testing
