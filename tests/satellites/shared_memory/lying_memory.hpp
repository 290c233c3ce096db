// Owners that pass other memory than their model's.
#pragma once

#include "shm.hpp"

#include <functional>

namespace test {

/// A stream that passes other descriptors than the owner gave it.
class lying_stream : public tp::shared_stream {
 public:
  using lie = std::function<std::vector<int>(std::span<const int>)>;
  lying_stream() = default;
  lying_stream(int fd, lie say) : tp::shared_stream(tp::unix_stream(fd)), say_(std::move(say)) {}
  using tp::shared_stream::write_some;
  tp::io_result write_some(std::span<const const_byte_span> spans, std::span<const int> descriptors) noexcept {
    const auto instead = say_(descriptors);
    return instead.empty() ? tp::shared_stream::write_some(spans)
                           : tp::shared_stream::write_some(spans, std::span<const int>(instead));
  }

 private:
  lie say_;
};

/// How a pull into `to` ends if the owner passes what `lie` makes of its descriptors.
template <class Consumer, class Published>
tp::result<tp::receipt> pull_from(const Published& published, lying_stream::lie lie, Consumer& to,
                                  tp::error* owner_saw = nullptr) {
  int fd[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd), 0);
  auto owner = tp::stream_session<shared_net<>::parts, lying_stream>::over(lying_stream(fd[0], std::move(lie)));
  const auto ref = owner->add_tensors(published, {.recipients = 1});
  EXPECT_TRUE(ref);
  joined_thread serving([&] {
    const auto served = owner->serve(tp::until_settled(*ref), 20s);
    if (!served && owner_saw != nullptr) *owner_saw = served.error();
  });
  tp::shared_stream mine{tp::unix_stream(fd[1])};
  return tp::pull_over<shared_net<>::parts>(mine, *ref, to, {.retry = {.retries = 0}});
}
/// Memory with these bytes, sealed or not.
inline int memory_of(const_byte_span bytes, int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) {
  const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(::write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, seals), 0);
  return fd;
}
inline byte_vector bytes_of(int fd) {
  struct stat about{};
  ::fstat(fd, &about);
  byte_vector all(static_cast<std::size_t>(about.st_size));
  EXPECT_EQ(::pread(fd, all.data(), all.size(), 0), about.st_size);
  return all;
}
/// A lie that passes a copy of the first segment, changed and sealed again, with a digest that fits.
template <class Change>
lying_stream::lie changed(Change change, bool with_digest = true) {
  return [=](std::span<const int> real) {
    auto all = bytes_of(real[0]);
    std::vector<std::uint64_t> index(tp::segment_index::head_words);
    std::memcpy(index.data(), all.data(), 8 * index.size());
    index.resize(std::min<std::size_t>(tp::segment_index::head_words + 2 * index[4], all.size() / 8));
    std::memcpy(index.data(), all.data(), 8 * index.size());
    change(index);
    if (with_digest) {
      tp::xxh3_64 hash;
      const auto raw = std::as_bytes(std::span(index));
      hash.update(raw.first(40));
      hash.update(raw.subspan(48));
      index[5] = hash.digest();
    }
    std::memcpy(all.data(), index.data(), 8 * index.size());
    std::vector<int> out(real.begin(), real.end());
    out[0] = memory_of(all);
    return out;
  };
}

}  // namespace test
