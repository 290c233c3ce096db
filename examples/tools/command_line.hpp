// The command lines of the tools: getopt_long reads the options, option_values.hpp their values; each tool says what
// they mean.
#pragma once

#include "jobs/federated/option_values.hpp"
#include "text.hpp"

#include <fcntl.h>
#include <getopt.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tools {

using federated::option_error;
using federated::parse_number;
using federated::parse_path;

/// `--name` and, if there is a `letter`, `-l`.
struct option_form {
  const char* name;
  bool has_value;
  char letter = 0;
};

/// The first line of a small file that has a secret, so that the list of processes does not show it.
inline std::string first_line_of(const char* option, std::string_view file, std::size_t least = 1,
                                 std::size_t most = 4096) {
  const std::string path = parse_path(option, file);
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line) || line.size() < least || line.size() > most)
    throw option_error(std::string(option) + ": " + printable(path) + " has no line of " + std::to_string(least) +
                       " to " + std::to_string(most) + " characters");
  return line;
}

/// A file that is opened would get the number of a standard stream that is closed, and what is printed would land in
/// it. So each of them is open, and what uses it gets an error.
inline void hold_standard_streams() {
  for (int stream = 0; stream < 3; ++stream)
    if (::fcntl(stream, F_GETFD) < 0) (void)::open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY);
}

/// Says what the runtime ends the program for without a word, if there is not even memory for an exception, or nobody
/// catches that there is none. What was written so far stays, as after a signal.
inline void say_without_memory() {
  std::set_terminate([] {
    const std::exception_ptr why = std::current_exception();
    try {
      if (why != nullptr) std::rethrow_exception(why);
    } catch (const std::bad_alloc&) {
    } catch (...) {
      std::abort();
    }
    constexpr std::string_view text = "there is not enough memory\n";
    if (::write(2, text.data(), text.size()) < 0) std::abort();
    ::_exit(1);
  });
}

/// Prints the help, with the tools in it as they are called here.
inline int print_help(std::string_view help) {
  std::string out;
  while (!help.empty()) {
    const std::string_view line = help.substr(0, help.find('\n') + 1);
    std::size_t begin = line.find_first_not_of(' ');
    if (line.starts_with("usage: ")) begin = 7;
    const std::string_view words = line.substr(std::min(begin, line.size()));
    const bool is_call = begin != 0 &&
                         (words.starts_with("send ") || words.starts_with("recv ") || words.starts_with("inspect "));
    out.append(line.substr(0, line.size() - words.size())).append(is_call ? called_as : "").append(words);
    help.remove_prefix(line.size());
  }
  return std::fputs(out.c_str(), stdout) < 0 || std::fflush(stdout) != 0 ? 1 : 0;
}

/// getopt_long takes a part of a name for the whole, and what is one today is two when there is another option. `name`:
/// of the long option that it has just read.
inline void refuse_abbreviation(char** arguments, std::string_view name) {
  const bool value_apart = optarg != nullptr && optarg == arguments[optind - 1];
  const std::string_view word(arguments[optind - (value_apart ? 2 : 1)]), written = word.substr(0, word.find('='));
  if (written.substr(std::min<std::size_t>(2, written.size())) != name)
    throw option_error("'" + printable(written) + "' is no option; --" + std::string(name) + " is");
}

/// Calls `set` with each option's name and value, in order, and returns the words that are not options. For --help,
/// prints the help and exits with 0. For an error, prints it and exits with 2. `set` and `check(words)`, which is
/// called at the end, may throw option_error.
template <class Set, class Check>
std::vector<std::string> read_command_line(int count, char** arguments, const char* tool, const char* help,
                                           std::span<const option_form> forms, Set set, Check check) {
  hold_standard_streams();
  say_without_memory();
  if (std::string_view(arguments[0]).starts_with("tensorpull ")) called_as = "tensorpull ";
  std::vector<option> rows{{"help", no_argument, nullptr, 0}};
  std::string letters = "h";
  for (const option_form& form : forms) {
    rows.push_back({form.name, form.has_value ? required_argument : no_argument, nullptr, 0});
    if (form.letter != 0) (letters += form.letter) += form.has_value ? ":" : "";
  }
  rows.push_back({nullptr, 0, nullptr, 0});
  try {
    for (int row = 0, letter; (letter = ::getopt_long(count, arguments, letters.c_str(), rows.data(), &row)) != -1;) {
      if (letter == '?') throw option_error("");  // getopt_long has printed the reason
      if (letter == 0) refuse_abbreviation(arguments, rows[static_cast<std::size_t>(row)].name);
      for (std::size_t i = 0; letter != 0 && letter != 'h' && i < forms.size(); ++i)
        if (forms[i].letter == letter) row = static_cast<int>(i) + 1;
      if (letter == 'h' || row == 0) std::exit(print_help(help));
      set(std::string_view(rows[static_cast<std::size_t>(row)].name),
          std::string_view(optarg == nullptr ? "" : optarg));
      row = 0;
    }
    std::vector<std::string> words(arguments + optind, arguments + count);
    check(words);
    return words;
  } catch (const option_error& wrong) {
    if (*wrong.what() != '\0') say(tool, wrong.what());
    std::fprintf(stderr, "'%s%s --help' lists the options and has an example.\n", called_as.c_str(), tool);
    std::exit(2);
  }
}

/// Seconds, which may have a fraction, as milliseconds; at most a year.
inline std::uint64_t parse_seconds(std::string_view name, std::string_view text) {
  double seconds = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (code != std::errc{} || end != text.data() + text.size() || !(seconds >= 0.001 && seconds <= 31'536'000))
    throw option_error(std::string(name) + " wants a number of seconds above 0, as in 30 or 0.5, not '" +
                       std::string(text) + "'");
  return static_cast<std::uint64_t>(seconds * 1000);
}

/// Bytes, or a number with K, M or G (powers of 1024; KiB, MiB, GiB are the same).
inline std::uint64_t parse_size(std::string_view name, std::string_view text, std::uint64_t least, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const int shift = [&] {
    if (unit.empty()) return 0;
    if (unit == "K" || unit == "KiB") return 10;
    if (unit == "M" || unit == "MiB") return 20;
    return unit == "G" || unit == "GiB" ? 30 : -1;
  }();
  if (code != std::errc{} || shift < 0 || value < least || value > most >> shift)
    throw option_error(std::string(name) + " wants a size from " + std::to_string(least) + " to " +
                       std::to_string(most >> 20) + "M, as in 65536, 64K or 2M, not '" + std::string(text) + "'");
  return value << shift;
}

}  // namespace tools
