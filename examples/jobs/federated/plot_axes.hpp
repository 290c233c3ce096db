// The parts of a plot: a panel that maps values to places, its axes and ticks, lines, bars, legend entries.
#pragma once

#include "text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

namespace federated::svg {

/// A vertical scale whose ends and steps are round numbers.
struct scale {
  double least;
  double most;
  double step;

  /// Covers [least, most] with about `steps` steps of 1, 2 or 5 times a power of ten, none smaller than `finest`.
  static scale covering(double least, double most, int steps, double finest = 0) {
    const double span = std::max(most - least, 1e-9);
    const double power = std::pow(10.0, std::floor(std::log10(span / steps)));
    const double rest = span / steps / power;
    double round = 10;
    for (const double candidate : {5, 2, 1})
      if (rest <= candidate) round = candidate;
    const double step = std::max(finest, power * round);
    const double bottom = std::floor(least / step + 1e-9) * step;
    return {bottom, std::max(std::ceil(most / step - 1e-9) * step, bottom + step), step};
  }

  int ticks() const { return static_cast<int>(std::lround((most - least) / step)) + 1; }
  double tick(int i) const { return least + step * i; }
};

/// One plotting area in pixels; x counts rounds, from half a round before the first to half a round after the last.
struct panel {
  double left;
  double top;
  double width;
  double height;
  std::uint32_t rounds;
  scale vertical;

  double x(double round) const { return left + (round - 0.5) / rounds * width; }
  double y(double value) const {
    return top + height - (value - vertical.least) / (vertical.most - vertical.least) * height;
  }
  double bottom() const { return top + height; }
  double right() const { return left + width; }
};

inline std::string text(double x, double y, const char* anchor, const std::string& words, const char* attributes = "") {
  return formatted("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" %s>", x, y, anchor, attributes) + words +
         "</text>\n";
}

inline std::string line(double x1, double y1, double x2, double y2, const char* colour, double width = 1,
                        const char* dashes = "none") {
  return formatted(
      "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"%.1f\" "
      "stroke-dasharray=\"%s\"/>\n",
      x1, y1, x2, y2, colour, width, dashes);
}

inline std::string rectangle(double x, double y, double width, double height, const char* colour) {
  return formatted("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y, width, height,
                   colour);
}

/// The name of a vertical axis, reading upwards.
inline std::string upright(double x, double y, const std::string& words) {
  return formatted("<text transform=\"translate(%.1f %.1f) rotate(-90)\" text-anchor=\"middle\">", x, y) + words +
         "</text>\n";
}

/// Draws the frame, grid lines with the values of the left axis, the rounds below, and the axis's name.
inline std::string axes(const panel& on, const char* number_format, const std::string& name) {
  std::string drawn;
  for (int i = 0; i < on.vertical.ticks(); ++i) {
    const double value = on.vertical.tick(i);
    drawn += line(on.left, on.y(value), on.right(), on.y(value), "#E4E4E4");
    drawn += text(on.left - 8, on.y(value) + 4, "end", formatted(number_format, value));
  }
  const scale rounds = scale::covering(0, on.rounds, 10, 1);
  for (int i = rounds.step > 1 ? 0 : 1; i < rounds.ticks(); ++i) {  // the tick at 0 stands for round 1
    const double round = std::max(1.0, rounds.tick(i));
    if (round > on.rounds) break;
    drawn += line(on.x(round), on.bottom(), on.x(round), on.bottom() + 5, "#444444");
    drawn += text(on.x(round), on.bottom() + 19, "middle", formatted("%.0f", round));
  }
  drawn += line(on.left, on.top, on.left, on.bottom(), "#444444");
  drawn += line(on.left, on.bottom(), on.right(), on.bottom(), "#444444");
  return drawn + upright(on.left - 56, on.top + on.height / 2, name);
}

/// Draws the values of a second axis on the right; `on` has its scale.
inline std::string right_axis(const panel& on, const std::string& name) {
  std::string drawn = line(on.right(), on.top, on.right(), on.bottom(), "#444444");
  for (int i = 0; i < on.vertical.ticks(); ++i) {
    const double value = on.vertical.tick(i);
    drawn += line(on.right(), on.y(value), on.right() + 5, on.y(value), "#444444");
    drawn += text(on.right() + 9, on.y(value) + 4, "start", formatted("%.0f", value));
  }
  return drawn + upright(on.right() + 56, on.top + on.height / 2, name);
}

}  // namespace federated::svg
