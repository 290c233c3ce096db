// Shows how far a download is: on a terminal a bar with rate and time left, otherwise a line from time to time.
#pragma once

#include "jobs/federated/status_line.hpp"
#include "text.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>

namespace tools {

class transfer_line {
  using clock = std::chrono::steady_clock;

 public:
  /// `tool`, `name`: what the lines begin with, printable. `lines`: whether to print lines if there is no terminal.
  transfer_line(const char* tool, std::string name, bool lines) : tool_(tool), name_(std::move(name)), lines_(lines) {}

  /// Sets the number of bytes in all.
  void expect(std::uint64_t total) {
    total_ = total;
    stir();
  }
  /// Something has come that is not counted.
  void stir() {
    moved_ = clock::now();
    silent_ = {};
  }
  /// At most so many bytes were there already. Of several connections one may bring the end first.
  void had(std::uint64_t most) { had_ = most; }
  /// Sets where the download begins: the bytes before were there already. Later calls change nothing.
  void begin(std::uint64_t offset) {
    if (begun_) return;
    begun_ = true;
    first_ = bytes_ = std::min(offset, had_);
    stir();
    rated_ = told_ = moved_;
    if (began_ == clock::time_point{}) began_ = rated_;
  }
  /// What is counted in seconds begins before the first byte.
  void prelude() { began_ = clock::now(); }
  void arrived(std::uint64_t bytes) {
    stir();
    const auto now = moved_;
    bytes_ += bytes, unrated_ += bytes;
    const double passed = std::chrono::duration<double>(now - rated_).count();
    if (passed < 0.2) return;
    // the mean of about the last three seconds
    const double rate = static_cast<double>(unrated_) / passed, weight = 1 - std::exp(-passed / 3);
    rate_ = rate_ == 0 ? rate : rate_ + weight * (rate - rate_);
    rated_ = now, unrated_ = 0;
  }
  /// Draws the line; may be called often.
  void tick() {
    const auto now = clock::now();
    // drivers ask several times a second: a longer time is that of a program that was stopped, and nobody's silence
    silent_ += std::min<clock::duration>(now - asked_, std::chrono::seconds(1));
    asked_ = now;
    if (line_.due()) return draw();
    if (line_.on_terminal() || !lines_ || !begun_ || now - told_ < std::chrono::seconds(30)) return;
    told_ = now;
    say(tool_, figures());
  }
  /// Removes the line. Call it before anything else is printed.
  void clear() { line_.clear(); }

  std::uint64_t total() const { return total_; }
  /// Bytes that were there already, and bytes that have come.
  std::uint64_t first() const { return first_; }
  std::uint64_t received() const { return bytes_ - first_; }
  /// Since this was made, and for how long this program has waited since something came last.
  clock::duration open_for() const { return clock::now() - opened_; }
  clock::duration silent_for() const { return silent_; }
  double seconds() const { return begun_ ? std::chrono::duration<double>(clock::now() - began_).count() : 0; }

 private:
  std::string figures() const {
    const double silent = std::chrono::duration<double>(clock::now() - moved_).count();
    const std::uint64_t there = std::min(bytes_, total_);  // some may have come twice
    const double percent = 100.0 * static_cast<double>(there) / static_cast<double>(total_);
    std::string text = formatted("%3.0f %%  ", percent) + bytes_text(there) + " of " + bytes_text(total_);
    if (silent >= 2 && bytes_ < total_) return text + "  nothing new for " + clock_text(silent);
    if (rate_ > 0) text += "  " + bytes_text(rate_) + "/s";
    if (bytes_ < total_ && rate_ >= 1)
      text += "  " + clock_text(static_cast<double>(total_ - bytes_) / rate_) + " left";
    return text;
  }
  void draw() {
    if (!begun_) return line_.show(name_ + "  waiting for an answer");
    const std::string text = figures();
    // if the line is too long, first the bar becomes shorter, then the name
    const std::size_t columns = static_cast<std::size_t>(line_.columns()), taken = text.size() + 6;
    std::size_t room = columns > taken ? columns - taken : 0;
    const std::string name = name_.size() <= room ? name_ : std::string();
    room -= name.size();
    line_.show(name +
               (room < 6 ? "  " : "  " + federated::bar_text(std::min<std::size_t>(room, 40), bytes_, total_) + " ") +
               text);
  }

  const char* tool_;
  std::string name_;
  bool lines_;
  federated::status_line line_;
  std::uint64_t bytes_ = 0, total_ = 0, first_ = 0, had_ = ~std::uint64_t{0}, unrated_ = 0;
  bool begun_ = false;
  double rate_ = 0;
  clock::time_point began_{}, rated_{}, told_{}, opened_ = clock::now(), moved_ = opened_, asked_ = opened_;
  clock::duration silent_{};
};

}  // namespace tools
