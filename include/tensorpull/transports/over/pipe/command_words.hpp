// A command as users write it in one line: "ssh host send model.safetensors --stdio". No shell reads it.
#pragma once

#include <tensorpull/core/result.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace tensorpull {

/// The words of a command line, with a terminating zero each. Spaces and tabs part them. Between single quotes every
/// character is itself; between double quotes a backslash makes the next character itself, and so it does outside
/// quotes. Nothing else has a meaning: no variable, no pattern, no redirection. `sh -c '...'` is a shell.
class command_words {
 public:
  static constexpr std::size_t most_bytes = 4096;  ///< of the command
  static constexpr std::size_t most_words = 255;   ///< of the command

  /// Error: bad_address with the command, and `at` the position: there is no word; a quote is not closed; a backslash
  /// is the last character; there is a zero byte; it is longer than most_bytes, or has more words than most_words.
  result<std::span<const char* const>> split(std::string_view line) noexcept {
    const auto refuse = [&](std::size_t at) { return failure(errc::bad_address, at, line); };
    if (line.size() > most_bytes) return refuse(line.size());
    std::size_t used = 0, words = 0;
    char quote = 0;
    bool in_word = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
      char c = line[i];
      if (c == '\0') return refuse(i);
      if (quote == 0 && (c == ' ' || c == '\t')) {
        if (in_word) text_[used++] = '\0';
        in_word = false;
        continue;
      }
      if (!in_word) {
        if (words == most_words) return refuse(i);
        words_[words++] = text_.data() + used;
        in_word = true;
      }
      if (quote == 0 && (c == '\'' || c == '"')) {
        quote = c;
        quoted_from_ = i;
      } else if (quote != 0 && c == quote) {
        quote = 0;
      } else {
        if (c == '\\' && quote != '\'') {
          if (++i == line.size() || line[i] == '\0') return refuse(i - 1);
          c = line[i];
        }
        text_[used++] = c;
      }
    }
    if (quote != 0) return refuse(quoted_from_);
    if (words == 0) return refuse(0);
    if (in_word) text_[used] = '\0';
    return std::span<const char* const>(words_.data(), words);
  }

 private:
  std::array<char, most_bytes + 1> text_;  // a word takes no more than its characters and the space behind it
  std::array<const char*, most_words> words_;
  std::size_t quoted_from_ = 0;
};

}  // namespace tensorpull
