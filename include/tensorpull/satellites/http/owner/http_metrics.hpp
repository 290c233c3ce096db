// What an HTTP owner counts, and how Prometheus reads it. No number is about one reference: a reference's ID is the key
// to it.
#pragma once

#include <tensorpull/protocol/owner/owner_memory.hpp>
#include <tensorpull/satellites/http/owner/detail/text_writer.hpp>
#include <tensorpull/std/optional.hpp>
#include <tensorpull/transports/pull_counts.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace tensorpull {

/// The statuses that an owner answers with, in ascending order.
inline constexpr std::array<std::uint16_t, 21> http_statuses{200, 204, 206, 304, 400, 401, 404, 405, 409, 410, 411,
                                                             412, 413, 414, 416, 417, 431, 500, 501, 503, 505};

/// The counts of an HTTP owner at one moment.
struct http_figures {
  std::uint64_t open = 0;  ///< connections that spoke HTTP and are open
  std::uint64_t accepted = 0;  ///< connections that spoke HTTP
  std::uint64_t image_bytes = 0;  ///< of images, sent in answers
  std::array<std::uint64_t, http_statuses.size()> answers{};  ///< in the order of http_statuses
  optional<pull_figures> pulls{};  ///< of the program, if it counts them
};

/// Counts of an HTTP owner, since it was made. Any thread may read them.
class http_counts {
 public:
  /// Connections that spoke HTTP and are open now.
  std::uint64_t open() const noexcept { return open_.load(relaxed); }
  /// Connections that spoke HTTP.
  std::uint64_t accepted() const noexcept { return accepted_.load(relaxed); }
  /// Bytes of images that were sent in answers.
  std::uint64_t image_bytes() const noexcept { return image_bytes_.load(relaxed); }
  /// Answers with this status.
  std::uint64_t answers(std::uint16_t status) const noexcept {
    const std::size_t i = index(status);
    return i < http_statuses.size() ? answers_[i].load(relaxed) : 0;
  }

  /// All of them now.
  operator http_figures() const noexcept {
    http_figures f{open(), accepted(), image_bytes(), {}, {}};
    for (std::size_t i = 0; i < answers_.size(); ++i) f.answers[i] = answers_[i].load(relaxed);
    return f;
  }

  /// For the connections.
  void began() noexcept {
    open_.fetch_add(1, relaxed);
    accepted_.fetch_add(1, relaxed);
  }
  /// For the connections.
  void ended() noexcept { open_.fetch_sub(1, relaxed); }
  /// For the connections.
  void answered(std::uint16_t status) noexcept {
    if (const std::size_t i = index(status); i < http_statuses.size()) answers_[i].fetch_add(1, relaxed);
  }
  /// For the connections.
  void sent(std::uint64_t bytes) noexcept { image_bytes_.fetch_add(bytes, relaxed); }

 private:
  static constexpr auto relaxed = std::memory_order_relaxed;
  static std::size_t index(std::uint16_t status) noexcept {
    std::size_t i = 0;
    while (i < http_statuses.size() && http_statuses[i] != status) ++i;
    return i;
  }
  std::atomic<std::uint64_t> open_{0}, accepted_{0}, image_bytes_{0};
  std::array<std::atomic<std::uint64_t>, http_statuses.size()> answers_{};
};

/// As long as the page of metrics can be.
inline constexpr std::size_t http_metrics_bytes = 6 * 1024;

/// Writes the page in Prometheus's text format into `out`, and gives its length; 0: it does not fit (http_metrics_bytes
/// are enough). Allocates nothing.
inline std::size_t write_http_metrics(const owner_totals& all, const http_figures& http, std::span<char> out) noexcept {
  detail::text_writer page(out);
  const auto about = [&](std::string_view name, std::string_view type, std::string_view help) {
    page << "# HELP " << name << " " << help << "\n# TYPE " << name << " " << type << "\n";
  };
  const auto one = [&](std::string_view name, std::string_view type, std::string_view help, std::uint64_t value) {
    about(name, type, help);
    page << name << " " << value << "\n";
  };
  one("tensorpull_references", "gauge", "References that are published.", all.references);
  about("tensorpull_recipients", "gauge", "Recipients that are remembered, by state.");
  constexpr std::string_view states[]{"unseen", "acquired",  "provisional", "completed", "completed_unverified",
                                      "failed", "cancelled", "vanished",    "absent",    "unfinished"};
  for (std::size_t i = 0; i < 10; ++i)
    page << "tensorpull_recipients{state=\"" << states[i] << "\"} " << all.recipients[i] << "\n";
  about("tensorpull_transfers_total", "counter",
        "Transfers that have ended, by outcome; failed: the bytes were damaged.");
  for (std::size_t i = 3; i < 10; ++i)
    page << "tensorpull_transfers_total{outcome=\"" << states[i] << "\"} " << all.transfers.ended[i] << "\n";
  about("tensorpull_transfer_seconds", "histogram", "From asking to completing, of transfers that have completed.");
  const auto seconds = [&](std::uint64_t ms) -> detail::text_writer& {
    page << ms / 1000 << (ms % 1000 != 0 ? "." : "");
    for (std::uint64_t part = ms % 1000; part != 0; part = part % 100 * 10) page << part / 100;
    return page;
  };
  std::uint64_t within = 0;
  for (std::size_t i = 0; i < transfer_bounds_ms.size(); ++i) {
    page << "tensorpull_transfer_seconds_bucket{le=\"";
    seconds(transfer_bounds_ms[i]) << "\"} " << (within += all.transfers.within[i]) << "\n";
  }
  page << "tensorpull_transfer_seconds_bucket{le=\"+Inf\"} " << all.transfers.completed()
       << "\ntensorpull_transfer_seconds_sum ";
  seconds(all.transfers.completed_ms) << "\ntensorpull_transfer_seconds_count " << all.transfers.completed() << "\n";
  one("tensorpull_transfers_active", "gauge", "Transfers that have not ended and have a connection.", all.active);
  one("tensorpull_sent_bytes_total", "counter", "Bytes of images sent over any protocol.", all.bytes_sent);
  one("tensorpull_http_sent_bytes_total", "counter", "Bytes of images sent over HTTP.", http.image_bytes);
  one("tensorpull_http_connections", "gauge", "HTTP connections that are open.", http.open);
  one("tensorpull_http_connections_total", "counter", "HTTP connections so far.", http.accepted);
  about("tensorpull_http_responses_total", "counter", "Answers by status; those from 400 on are refusals.");
  for (std::size_t i = 0; i < http_statuses.size(); ++i)
    page << "tensorpull_http_responses_total{code=\"" << std::uint64_t{http_statuses[i]} << "\"} " << http.answers[i]
         << "\n";
  if (http.pulls) {
    about("tensorpull_pulls_total", "counter", "Pulls of this program that have ended, by outcome.");
    const std::pair<std::string_view, std::uint64_t> outcomes[]{
        {"completed", http.pulls->completed},
        {"completed_unverified", http.pulls->completed_unverified},
        {"failed", http.pulls->failed},
    };
    for (const auto& [outcome, n] : outcomes)
      page << "tensorpull_pulls_total{outcome=\"" << outcome << "\"} " << n << "\n";
    one("tensorpull_pulled_bytes_total", "counter", "Bytes of the pulls that have completed.", http.pulls->bytes);
    one("tensorpull_damaged_chunks_total", "counter", "Chunks that arrived with wrong bytes and were fetched again.",
        http.pulls->damaged);
  }
  return page.whole() ? page.text().size() : 0;
}

}  // namespace tensorpull
