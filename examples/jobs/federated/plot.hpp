// Draws a run as an SVG file of three panels over the rounds: resident memory with the participants as bars, threads,
// and accuracy on held-out images. The colours are those of Okabe and Ito (2008), which colour-blind readers can tell
// apart; the lines also differ in their dashes.
#pragma once

#include "output_file.hpp"
#include "plot_axes.hpp"
#include "round_report.hpp"
#include "text.hpp"
#include "verdict.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

namespace federated {

namespace svg {

struct style {
  const char* name;
  const char* colour;
  const char* dashes;
  double width;
};

// The dashed line is drawn over the wider solid one, so that both show where they are equal.
inline constexpr style server_style{"server", "#0072B2", "none", 3.5};
inline constexpr style clients_style{"clients", "#D55E00", "6 4", 2};
inline constexpr style accuracy_style{"accuracy", "#009E73", "none", 2.5};
inline constexpr const char* bar_colour = "#CCD3DA";

template <typename Value>
double largest(const run_report& report, Value value) {
  double most = 0;
  for (const round_figures& round : report.rounds) most = std::max(most, static_cast<double>(value(round)));
  return most;
}

template <typename Value>
std::string curve(const panel& on, const run_report& report, const style& drawn, Value value) {
  if (report.rounds.size() == 1) {
    const round_figures& only = report.rounds.front();
    return formatted("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"/>\n", on.x(only.round),
                     on.y(static_cast<double>(value(only))), 1.5 * drawn.width, drawn.colour);
  }
  std::string points;
  for (const round_figures& round : report.rounds)
    points += formatted("%.1f,%.1f ", on.x(round.round), on.y(static_cast<double>(value(round))));
  return formatted(
             "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" stroke-dasharray=\"%s\" "
             "stroke-linejoin=\"round\" points=\"",
             drawn.colour, drawn.width, drawn.dashes) +
         points + "\"/>\n";
}

inline std::string bars(const panel& on, const run_report& report) {
  std::string drawn;
  const double width = std::min(0.7 * on.width / on.rounds, 40.0);
  for (const round_figures& round : report.rounds)
    drawn += rectangle(on.x(round.round) - width / 2, on.y(round.participants), width,
                       on.bottom() - on.y(round.participants), bar_colour);
  return drawn;
}

inline std::string heading(const panel& on, const std::string& words) {
  return text(on.left, on.top - 14, "start", words, "font-weight=\"bold\"");
}

inline std::string legend_entry(double x, double y, const style& drawn) {
  return line(x, y - 4, x + 34, y - 4, drawn.colour, drawn.width, drawn.dashes) + text(x + 41, y, "start", drawn.name);
}

/// The two processes, right-aligned above a panel.
inline std::string process_legend(const panel& on) {
  return legend_entry(on.right() - 200, on.top - 14, server_style) +
         legend_entry(on.right() - 95, on.top - 14, clients_style);
}

inline std::string memory_panel(const run_report& report, panel on) {
  const auto server = [](const round_figures& round) { return mebibytes(round.server.resident_bytes); };
  const auto clients = [](const round_figures& round) { return mebibytes(round.clients.resident_bytes); };
  const auto participants = [](const round_figures& round) { return round.participants; };
  on.vertical = scale::covering(0, 1.05 * std::max(largest(report, server), largest(report, clients)), 5);
  panel counted = on;
  counted.vertical = scale::covering(0, largest(report, participants), 5, 1);
  return bars(counted, report) + axes(on, "%g", "MiB") + right_axis(counted, "participants") +
         heading(on, "Resident memory after each round") + process_legend(on) +
         rectangle(on.right() - 340, on.top - 24, 14, 12, bar_colour) +
         text(on.right() - 319, on.top - 14, "start", "participants") + curve(on, report, server_style, server) +
         curve(on, report, clients_style, clients);
}

inline std::string threads_panel(const run_report& report, panel on) {
  const auto server = [](const round_figures& round) { return round.server.threads; };
  const auto clients = [](const round_figures& round) { return round.clients.threads; };
  on.vertical = scale::covering(0, 1.0 + std::max(largest(report, server), largest(report, clients)), 4, 1);
  return axes(on, "%.0f", "threads") + heading(on, "Threads after each round") + process_legend(on) +
         curve(on, report, server_style, server) + curve(on, report, clients_style, clients);
}

inline std::string accuracy_panel(const run_report& report, panel on) {
  on.vertical = {0, 1, 0.2};
  std::string drawn = axes(on, "%.1f", "accuracy") + heading(on, "Accuracy on the held-out digits");
  if (report.rounds.size() >= rounds_to_judge_accuracy)
    drawn += line(on.left, on.y(least_accuracy), on.right(), on.y(least_accuracy), "#444444", 1, "3 3") +
             text(on.right() + 9, on.y(least_accuracy) + 4, "start", formatted("%.2f", least_accuracy));
  return drawn + curve(on, report, accuracy_style, [](const round_figures& round) { return round.accuracy; }) +
         text(on.left + on.width / 2, on.bottom() + 42, "middle", "round");
}

}  // namespace svg

inline std::string plot(const run_report& report) {
  const run_settings& settings = report.settings;
  const std::uint32_t rounds = report.rounds.empty() ? 1 : report.rounds.back().round;
  const auto panel_at = [rounds](double top, double height) {
    return svg::panel{90, top, 720, height, rounds, {0, 1, 1}};
  };
  return std::string{
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"900\" height=\"770\" viewBox=\"0 0 900 770\" "
             "font-family=\"DejaVu Sans, Verdana, Helvetica, Arial, sans-serif\" font-size=\"13\" "
             "fill=\"#222222\">\n"} +
         svg::rectangle(0, 0, 900, 770, "#FFFFFF") +
         svg::text(90, 36, "start", "Federated averaging over tensorpull", "font-size=\"20\" font-weight=\"bold\"") +
         svg::text(90, 58, "start",
                   formatted("%zu round%s, %u clients in all, a model of %.2f MiB pulled by and from each participant, "
                             "seed %llu",
                             report.rounds.size(), report.rounds.size() == 1 ? "" : "s", settings.clients,
                             mebibytes(settings.model_bytes), wide(settings.seed))) +
         svg::memory_panel(report, panel_at(110, 230)) + svg::threads_panel(report, panel_at(412, 90)) +
         svg::accuracy_panel(report, panel_at(574, 140)) + "</svg>\n";
}

/// Throws std::runtime_error if the file cannot be written.
inline void write_plot(const std::string& path, const run_report& report) { write_file(path, plot(report)); }

}  // namespace federated
