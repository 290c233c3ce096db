// The library itself at the job of job/job.hpp: one owner, recipients that land in place. Variants: plain (no digest),
// digest (of the whole), chunks (of the whole and of each chunk).
#include "job/job.hpp"

#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/host/owner.hpp>

#include <optional>
#include <stop_token>
#include <thread>

using namespace tensorpull;

template <class Integrity, class Transport>
using net = pipeline<tensor_list, bytes_up_to<16_MiB>, Transport, Integrity>;

struct views {
  template <class View, class Model>
  static dynamic_image image(Model& m) {
    std::vector<std::uint64_t> shapes(m.count());
    std::vector<View> all;
    for (std::size_t i = 0; i < m.count(); ++i) {
      shapes[i] = m.tensor(i).size() / 4;
      all.push_back({.name = m.name(i), .type = dtype::f32, .shape = {&shapes[i], 1}, .data = m.tensor(i).data()});
    }
    auto made = dynamic_image::make(std::span<const View>(all));
    if (!made) bench::give_up(describe(made.error()).c_str());
    return std::move(*made);
  }
};

/// land, and the time at which the first tensor was whole.
struct timed_land : land {
  timed_land(const destination_view& to, std::uint64_t first) : land(to), first_(first) {}
  result<void> begin(const description& d) noexcept {
    first_ += d.data_start;
    return land::begin(d);
  }
  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    if (offset < first_ && offset + bytes.size() >= first_) at = bench::clock::now();
    return {};
  }
  bench::clock::time_point at{};

 private:
  std::uint64_t first_;
};

template <class Transport>
class owning {
 public:
  using downloader = typename net<image_digest, Transport>::downloader;

  owning(const bench::job& j, const bench::model& m)
      : image_(views::image<tensor_view>(m)),
        owner_(*downloader::open({.host = {.reserved_connections = j.recipients}})) {
    ref_ = *owner_.add_tensors(image_);
    for (std::size_t i = 0; i < j.threads; ++i) threads_.emplace_back([this] { owner_.run(std::stop_token{}); });
  }
  std::string address() const {
    char text[128];
    const auto half = [](std::uint64_t n) { return static_cast<unsigned long long>(n); };
    std::snprintf(text, sizeof text, "%016llx%016llx/%s", half(ref_.id.high), half(ref_.id.low),
                  bench::loopback_address(owner_.port()).c_str());
    return text;
  }

 private:
  dynamic_image image_;
  downloader owner_;
  reference ref_;
  std::vector<std::thread> threads_;
};

/// One thread, or several.
class sender {
 public:
  sender(const bench::job& j, const bench::model& m) {
    if (j.threads > 1) many_.emplace(j, m);
    else one_.emplace(j, m);
  }
  std::string address() const { return many_ ? many_->address() : one_->address(); }

 private:
  std::optional<owning<tcp>> one_;
  std::optional<owning<tcp_on_threads>> many_;
};

class receiver {
 public:
  receiver(const bench::job& j) : chunk_{j.chunk}, options_{.window = static_cast<std::uint32_t>(j.window)} {
    const auto half = [&](std::size_t at) { return std::strtoull(j.address.substr(at, 16).c_str(), nullptr, 16); };
    ref_.id = {half(0), half(16)};
    const auto where = j.address.substr(33);
    if (j.variant == "plain") plain_.emplace(*net<unverified, tcp>::session::connect(where));
    else if (j.variant == "chunks") chunks_.emplace(*net<chunk_and_image_digest, tcp>::session::connect(where));
    else digest_.emplace(*net<image_digest, tcp>::session::connect(where));
  }
  bench::clock::time_point pull(bench::model& m) {
    if (m.block().data() != made_for_) {
      image_.emplace(views::image<mutable_tensor_view>(m));
      made_for_ = m.block().data();
    }
    timed_land to(image_->destination(), m.first_tensor_ends_at());
    const auto done = [&] {
      if (plain_) return plain_->pull(ref_, to, options_, chunk_);
      if (chunks_) return chunks_->pull(ref_, to, options_, chunk_);
      return digest_->pull(ref_, to, options_, chunk_);
    }();
    if (!done) bench::give_up(describe(done.error()).c_str());
    return to.at;
  }

 private:
  bytes_up_to<16_MiB> chunk_;
  pull_options options_;
  reference ref_{};
  std::optional<dynamic_image> image_;
  const std::byte* made_for_ = nullptr;
  std::optional<net<unverified, tcp>::session> plain_;
  std::optional<net<image_digest, tcp>::session> digest_;
  std::optional<net<chunk_and_image_digest, tcp>::session> chunks_;
};

int main(int count, char** arguments) { return bench::run_job<sender, receiver>(count, arguments); }
