// A status page's rows as text: HTML for people, JSON for programs.
#pragma once

#include <tensorpull/core/error.hpp>
#include <tensorpull/core/version.hpp>
#include <tensorpull/protocol/owner/owner_memory.hpp>
#include <tensorpull/satellites/http/owner/detail/shown_text.hpp>
#include <tensorpull/satellites/http/owner/detail/status_style.hpp>
#include <tensorpull/satellites/http/owner/detail/status_walk.hpp>
#include <tensorpull/satellites/http/owner/http_metrics.hpp>
#include <tensorpull/std/optional.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace tensorpull::detail {

/// What stands above the rows.
struct status_summary {
  owner_totals totals{};
  http_figures http{};
  std::uint64_t up_ms = 0;  ///< since the port answers
  optional<std::uint64_t> rate{};  ///< bytes a second
};

inline constexpr std::array<std::string_view, 10> shown_states{
    "has not asked yet", "pulling", "sent, not confirmed", "has it",      "has it, no digest",
    "digest mismatch",   "gave up", "went silent",         "never asked", "ended before it was done"};

/// A number of three digits or so, and its unit.
inline text_writer& put_bytes(text_writer& to, std::uint64_t n) noexcept {
  constexpr std::string_view units[]{" B", " kB", " MB", " GB", " TB", " PB", " EB"};
  std::size_t unit = 0;
  std::uint64_t part = 0;  // thousandths
  for (; n >= 1000; n /= 1000, ++unit) part = n % 1000;
  to << n;
  if (unit != 0 && n < 10) to << "." << part / 100 << part / 10 % 10;
  else if (unit != 0 && n < 100) to << "." << part / 100;
  return to << units[unit];
}
/// The two largest units.
inline text_writer& put_duration(text_writer& to, std::uint64_t ms) noexcept {
  const std::uint64_t s = ms / 1000;
  if (s < 60) return to << s << " s";
  if (s < 3600) return to << s / 60 << " min";
  if (s < 86'400) return to << s / 3600 << " h " << s / 60 % 60 << " min";
  return to << s / 86'400 << " d " << s / 3600 % 24 << " h";
}
/// The last chunk is asked for before it is sent.
inline recipient_state shown_state(const shown_recipient& r) noexcept {
  const bool under_way = r.state == recipient_state::provisional && r.connected && r.bytes < r.image_bytes;
  return under_way ? recipient_state::acquired : r.state;
}
/// Why its transfer ended before it was done; empty: its state tells all.
inline std::string_view reason_of(const shown_recipient& r) noexcept {
  return r.state == recipient_state::unfinished ? code_name(r.ended_by) : std::string_view();
}

struct html_status {
  static constexpr std::string_view type = "text/html; charset=utf-8";

  static void head(text_writer& to, const status_summary& s) noexcept {
    to << "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"5\">"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>tensorpull: "
       << s.totals.references << " published</title><style>" << status_style
       << "</style></head><body><h1>tensorpull <small>" << library_version << "</small></h1><dl>";
    const auto tile = [&](std::string_view name) -> text_writer& { return to << "<div><dt>" << name << "</dt><dd>"; };
    put_duration(tile("up"), s.up_ms) << "</dd></div>";
    tile("published") << s.totals.references << "</dd></div>";
    tile("pulling now") << s.totals.active << "</dd></div>";
    tile("completed") << s.totals.transfers.completed() << "</dd></div>";
    tile("HTTP clients") << s.http.open << "</dd></div>";
    put_bytes(tile("sent"), s.totals.bytes_sent) << "</dd></div>";
    tile("rate");
    if (s.rate) put_bytes(to, *s.rate) << "/s";
    else to << "\xe2\x80\x93";
    to << "</dd></div></dl>";
    if (s.totals.references == 0) to << "<p>Nothing is published now.</p>";
  }
  static void publication(text_writer& to, const shown_publication& p, std::string_view title, bool) noexcept {
    to << "<section><h2>";
    if (!title.empty()) {
      to << "<bdi>";
      put_shown(to, title, shown_in::html);
      to << "</bdi> <small>";
    }
    to << "Publication " << p.number << (title.empty() ? "" : "</small>");
    to << "</h2><p>";
    put_bytes(to, p.image_bytes) << ", " << std::uint64_t{p.tensors} << (p.tensors == 1 ? " tensor" : " tensors");
    if (p.beside) to << ", a difference beside another";
    to << " \xc2\xb7 " << std::uint64_t{p.have};
    if (p.expected != 0) to << " of " << std::uint64_t{p.expected};
    to << " have it \xc2\xb7 ";
    put_bytes(to, p.bytes_sent) << " sent \xc2\xb7 ";
    if (p.verdict == verdict::open)
      put_duration(to << (p.published ? "published " : "over, "), ms(p.age)) << (p.published ? " ago" : " old");
    else
      put_duration(to << "<b class=" << class_of(p.verdict) << ">" << to_string(p.verdict) << "</b> after ", ms(p.age));
    if (p.unreadable) to << " \xc2\xb7 <b class=bad>it could not be read any more</b>";
    to << "</p><table><colgroup><col><col class=b><col class=c><col class=c><col class=d></colgroup><thead><tr>"
          "<th scope=col>recipient<th scope=col><th scope=col class=n>sent<th scope=col class=n>rate<th scope=col>state"
          "</thead><tbody>";
  }
  static void recipient(text_writer& to, const shown_recipient& r, std::string_view name,
                        const optional<std::uint64_t>& rate, bool) noexcept {
    const std::uint64_t percent = has_completed(r.state) ? 100 : percent_of(r.bytes, r.image_bytes);
    to << "<tr><th scope=row>";
    if (name.empty()) to << "<span class=dim>unnamed</span>";
    else {
      to << "<bdi>";
      put_shown(to, name, shown_in::html);
      to << "</bdi>";
    }
    to << "<td><progress max=100 value=" << percent << ">" << percent << " %</progress><td class=n>";
    put_bytes(to, r.bytes) << "<td class=n>";
    if (rate) put_bytes(to, *rate) << "/s";
    else to << "\xe2\x80\x93";
    to << "<td class=" << class_of(r.state) << ">" << shown_states[static_cast<std::size_t>(shown_state(r))];
    if (const auto why = reason_of(r); !why.empty()) to << " (" << why << ")";
    if (!r.connected && r.state == recipient_state::acquired) to << ", not connected";
  }
  static void publication_ends(text_writer& to, std::uint32_t more) noexcept {
    if (more != 0) to << "<tr><td colspan=5 class=dim>and " << std::uint64_t{more} << " more";
    to << "</tbody></table></section>";
  }
  static void end(text_writer& to, std::uint32_t more) noexcept {
    if (more != 0) to << "<p>and " << std::uint64_t{more} << " more publications</p>";
    to << "</body></html>\n";
  }

 private:
  static constexpr std::string_view class_of(verdict v) noexcept {
    if (v == verdict::failed) return "bad";
    const bool good = v == verdict::completed || v == verdict::completed_unverified || v == verdict::quorum;
    return good ? "good" : "dim";
  }
  static constexpr std::string_view class_of(recipient_state s) noexcept {
    if (has_completed(s)) return "good";
    return is_final(s) ? "bad" : "dim";
  }
  static std::uint64_t ms(std::chrono::milliseconds t) noexcept {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(t.count(), 0));
  }
  static std::uint64_t percent_of(std::uint64_t part, std::uint64_t whole) noexcept {
    if (whole == 0 || part >= whole) return whole == 0 ? 0 : 100;
    return static_cast<std::uint64_t>(100 * (static_cast<double>(part) / static_cast<double>(whole)));
  }
};

struct json_status {
  static constexpr std::string_view type = "application/json";

  static void head(text_writer& to, const status_summary& s) noexcept {
    to << "{\"version\":\"" << library_version << "\",\"up_seconds\":" << s.up_ms / 1000
       << ",\"references\":" << s.totals.references << ",\"transfers_active\":" << s.totals.active
       << ",\"http_connections\":" << s.http.open << ",\"sent_bytes\":" << s.totals.bytes_sent
       << ",\"bytes_per_second\":";
    put_rate(to, s.rate);
    to << ",\"transfers\":{";
    for (std::size_t i = first_end; i < 10; ++i)
      to << (i == first_end ? "\"" : ",\"") << to_string(static_cast<recipient_state>(i))
         << "\":" << s.totals.transfers.ended[i];
    to << "},\"publications\":[";
  }
  static void publication(text_writer& to, const shown_publication& p, std::string_view title, bool first) noexcept {
    to << (first ? "\n" : ",\n") << "{\"number\":" << p.number << ",\"title\":";
    put_name(to, title);
    to << ",\"published\":" << (p.published ? "true" : "false") << ",\"verdict\":\"" << to_string(p.verdict)
       << "\",\"unreadable\":" << (p.unreadable ? "true" : "false") << ",\"beside\":" << (p.beside ? "true" : "false")
       << ",\"image_bytes\":" << p.image_bytes << ",\"tensors\":" << std::uint64_t{p.tensors}
       << ",\"sent_bytes\":" << p.bytes_sent << ",\"expected\":" << std::uint64_t{p.expected}
       << ",\"completed\":" << std::uint64_t{p.have}
       << ",\"seconds\":" << static_cast<std::uint64_t>(std::max<std::int64_t>(p.age.count(), 0)) / 1000
       << ",\"recipients\":[";
  }
  static void recipient(text_writer& to, const shown_recipient& r, std::string_view name,
                        const optional<std::uint64_t>& rate, bool first) noexcept {
    to << (first ? "\n" : ",\n") << "{\"name\":";
    put_name(to, name);
    to << ",\"state\":\"" << to_string(r.state) << "\",\"reason\":";
    if (const auto why = reason_of(r); !why.empty()) to << "\"" << why << "\"";
    else to << "null";
    to << ",\"sent_bytes\":" << r.bytes << ",\"bytes_per_second\":";
    put_rate(to, rate);
    to << ",\"connected\":" << (r.connected ? "true" : "false") << "}";
  }
  static void publication_ends(text_writer& to, std::uint32_t more) noexcept {
    to << "],\"more_recipients\":" << std::uint64_t{more} << "}";
  }
  static void end(text_writer& to, std::uint32_t more) noexcept {
    to << "],\"more_publications\":" << std::uint64_t{more} << "}\n";
  }

 private:
  static constexpr std::size_t first_end = static_cast<std::size_t>(recipient_state::completed);
  static void put_rate(text_writer& to, const optional<std::uint64_t>& rate) noexcept {
    if (rate) to << *rate;
    else to << "null";
  }
  static void put_name(text_writer& to, std::string_view name) noexcept {
    if (name.empty()) return void(to << "null");
    to << "\"";
    put_shown(to, name, shown_in::json);
    to << "\"";
  }
};

}  // namespace tensorpull::detail
