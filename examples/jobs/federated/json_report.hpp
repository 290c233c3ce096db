// Writes a run as one JSON object: settings, rounds, verdict.
#pragma once

#include "output_file.hpp"
#include "round_report.hpp"
#include "text.hpp"
#include "verdict.hpp"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace federated {

namespace detail {

inline std::string json_string(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20) quoted += formatted("\\u%04x", static_cast<unsigned>(c));
    else quoted += c;
  }
  return quoted + '"';
}

/// JSON has no word for infinity or not-a-number.
inline std::string json_number(double value) { return std::isfinite(value) ? formatted("%.9g", value) : "null"; }

inline std::string json_strings(const std::vector<std::string>& texts) {
  std::string list = "[";
  for (const std::string& text : texts) list += (list.size() > 1 ? ",\n      " : "\n      ") + json_string(text);
  return list + "]";
}

inline std::string json_figures(const process_figures& figures) {
  return formatted(
      "{\"resident_bytes\": %llu, \"peak_resident_bytes\": %llu, \"threads\": %llu, "
      "\"descriptors\": %llu, \"live_allocations\": %llu, \"live_bytes\": %llu}",
      wide(figures.resident_bytes), wide(figures.peak_resident_bytes), wide(figures.threads), wide(figures.descriptors),
      wide(figures.live_allocations), wide(figures.live_bytes));
}

}  // namespace detail

inline std::string json_report(const run_report& report, const verdict& judged) {
  const run_settings& settings = report.settings;
  std::ostringstream out;
  out << "{\n  \"settings\": {\"rounds\": " << settings.rounds << ", \"clients\": " << settings.clients
      << ", \"fixed_participants\": ";
  if (settings.fixed_participants == 0) out << "null";
  else out << settings.fixed_participants;
  out << ", \"seed\": " << settings.seed << ", \"learning_rate\": " << detail::json_number(settings.learning_rate)
      << ", \"local_epochs\": " << settings.local_epochs << ", \"batch_images\": " << settings.batch_images
      << ", \"model_bytes\": " << settings.model_bytes << "},\n  \"rounds\": [";
  const char* separator = "\n";
  for (const round_figures& round : report.rounds) {
    out << separator << "    {\"round\": " << round.round << ", \"participants\": " << round.participants
        << ", \"updates\": " << round.updates << ", \"accuracy\": " << detail::json_number(round.accuracy)
        << ", \"moved_bytes\": " << round.moved_bytes << ", \"seconds\": " << detail::json_number(round.seconds)
        << ",\n     \"server\": " << detail::json_figures(round.server)
        << ",\n     \"clients\": " << detail::json_figures(round.clients) << "}";
    separator = ",\n";
  }
  out << "\n  ],\n  \"verdict\": {\"passed\": " << (judged.passed() ? "true" : "false")
      << ",\n    \"violations\": " << detail::json_strings(judged.violations)
      << ",\n    \"notes\": " << detail::json_strings(judged.notes) << "}\n}\n";
  return out.str();
}

/// Throws std::runtime_error if the file cannot be written.
inline void write_json(const std::string& path, const run_report& report, const verdict& judged) {
  write_file(path, json_report(report, judged));
}

}  // namespace federated
