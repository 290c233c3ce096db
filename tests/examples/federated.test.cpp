// The parts of the main example that do not move models: digits, cohorts, training, counting, judging, options, output.
#include "jobs/federated/cohort.hpp"
#include "jobs/federated/digits.hpp"
#include "jobs/federated/heap_count.hpp"
#include "jobs/federated/json_report.hpp"
#include "jobs/federated/options.hpp"
#include "jobs/federated/output_file.hpp"
#include "jobs/federated/plot.hpp"
#include "jobs/federated/process_stats.hpp"
#include "jobs/federated/progress_line.hpp"
#include "jobs/federated/round_report.hpp"
#include "jobs/federated/round_table.hpp"
#include "jobs/federated/training.hpp"
#include "jobs/federated/training_random.hpp"
#include "jobs/federated/verdict.hpp"
#include "support/own_folder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <unistd.h>

namespace federated_test {

using namespace federated;

std::string digit_line(const std::string& first_pixel = "0", const std::string& label = "7") {
  std::string line = first_pixel;
  for (std::size_t i = 1; i < digit_pixels; ++i) (line += ',') += std::to_string(i % 256);
  return line + "," + label;
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

/// A name in a folder that goes away with the test.
struct temporary_file {
  test::own_folder folder;
  std::string path = folder / "file";
};

/// Digits that a perceptron can learn: one bright row of pixels for each label.
std::vector<digit> learnable_digits(std::size_t count) {
  std::vector<digit> digits(count);
  training_random random{3};
  for (std::size_t i = 0; i < count; ++i) {
    digits[i].label = static_cast<std::uint8_t>(i % digit_classes);
    for (std::size_t p = 0; p < digit_pixels; ++p)
      digits[i].pixels[p] = static_cast<std::uint8_t>(random.below(100) + (p / 78 == digits[i].label ? 150 : 0));
  }
  return digits;
}

TEST(RandomSource, Draws_what_splitmix64_draws) {
  training_random random{1234567};
  EXPECT_EQ(random.next(), 6457827717110365317u);
  EXPECT_EQ(random.next(), 3203168211198807973u);
  EXPECT_EQ(random.next(), 9817491932198370423u);
}

TEST(RandomSource, Stays_in_range) {
  training_random random{1};
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    seen.insert(random.below(7));
    const float value = random.symmetric();
    EXPECT_GE(value, -1.0f);
    EXPECT_LT(value, 1.0f);
  }
  EXPECT_EQ(seen, (std::set<std::uint64_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(Digits, A_line_is_784_pixels_and_the_label) {
  const digit parsed = parse_digit(digit_line("255", "9"), "here");
  EXPECT_EQ(parsed.pixels[0], 255);
  EXPECT_EQ(parsed.pixels[783], 783 % 256);
  EXPECT_EQ(parsed.label, 9);
}

TEST(Digits, A_wrong_line_is_named) {
  const auto message = [](const std::string& line) { return message_of([&] { parse_digit(line, "f.csv line 3"); }); };
  EXPECT_EQ(message(digit_line("256")), "f.csv line 3: expected a number from 0 to 255, found '256'");
  EXPECT_EQ(message(digit_line("-1")), "f.csv line 3: expected a number from 0 to 255, found '-1'");
  EXPECT_EQ(message(digit_line("1.5")), "f.csv line 3: expected a number from 0 to 255, found '1.5'");
  EXPECT_EQ(message(digit_line("")), "f.csv line 3: expected a number from 0 to 255, found ''");
  EXPECT_EQ(message(digit_line("0", "10")), "f.csv line 3: expected a number from 0 to 9, found '10'");
  EXPECT_EQ(message("1,2"), "f.csv line 3: expected 785 fields (784 pixels and the label), found 2");
  EXPECT_EQ(message(digit_line() + ",1"), "f.csv line 3: expected 785 fields (784 pixels and the label), found 786");
}

TEST(Digits, A_file_is_checked_to_its_last_line) {
  const temporary_file file;
  const auto write = [&](std::size_t lines, const std::string& last) {
    std::ofstream out{file.path};
    for (std::size_t i = 0; i < lines; ++i) out << digit_line() << (i % 2 ? "\r\n" : "\n");
    out << last;
  };
  write(1001, digit_line("1", "2"));
  const std::vector<digit> digits = load_digits(file.path);
  ASSERT_EQ(digits.size(), 1002u);
  EXPECT_EQ(digits.back().label, 2);
  write(1001, "5,6\n");
  EXPECT_EQ(message_of([&] { load_digits(file.path); }),
            file.path + " line 1002: expected 785 fields (784 pixels and the label), found 2");
  write(999, digit_line());
  EXPECT_NE(message_of([&] { load_digits(file.path); }).find("1000 digits are too few"), std::string::npos);
  EXPECT_EQ(message_of([] { load_digits("/nonexistent/x"); }), "cannot open the digits file /nonexistent/x");
}

TEST(Digits, Are_dealt_whole_and_evenly) {
  const std::vector<digit> digits = learnable_digits(1100);
  const dealt_digits dealt{digits, 7, 5};
  EXPECT_EQ(dealt.held_out().size(), 1000u);
  std::size_t total = 0;
  for (std::size_t client = 0; client < 7; ++client) {
    EXPECT_GE(dealt.of_client(client).size(), 14u);
    EXPECT_LE(dealt.of_client(client).size(), 15u);
    total += dealt.of_client(client).size();
  }
  EXPECT_EQ(total, 100u);
  std::size_t dealt_labels[10] = {};
  for (const digit& one : dealt.held_out()) ++dealt_labels[one.label];
  for (const digit& one : dealt.training()) ++dealt_labels[one.label];
  for (const std::size_t count : dealt_labels) EXPECT_EQ(count, 110u);

  const dealt_digits again{digits, 7, 5};
  const dealt_digits other{digits, 7, 6};
  EXPECT_EQ(dealt.of_client(3)[0].pixels, again.of_client(3)[0].pixels);
  EXPECT_NE(dealt.of_client(3)[0].pixels, other.of_client(3)[0].pixels);
  EXPECT_THROW((dealt_digits{digits, 101, 1}), std::runtime_error);
  EXPECT_THROW((dealt_digits{digits, 0, 1}), std::runtime_error);
}

TEST(Cohort, Draws_distinct_clients_from_seed_and_round_alone) {
  cohort one{50, 9};
  cohort two{50, 9};
  two.draw(1, 30);
  const auto first = one.draw(4, 20);
  const auto second = two.draw(4, 20);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), second.begin(), second.end()));
  EXPECT_EQ(std::set<std::uint32_t>(first.begin(), first.end()).size(), 20u);
  EXPECT_EQ(one.draw(5, 80).size(), 50u);
}

TEST(Cohort, A_participants_file_is_checked) {
  const temporary_file file;
  const auto load = [&](const std::string& text) {
    std::ofstream{file.path} << text;
    return load_participants(file.path);
  };
  EXPECT_EQ(load("3 40\n 5\n"), (std::vector<std::size_t>{3, 40, 5}));
  EXPECT_EQ(message_of([&] { load("3 0"); }), file.path + ": number 2 must be from 1 to 999999, found '0'");
  EXPECT_EQ(message_of([&] { load("3 -4"); }), file.path + ": number 2 must be from 1 to 999999, found '-4'");
  EXPECT_EQ(message_of([&] { load(" \n"); }), file.path + ": holds no number of participants");
}

TEST(Training, Learns_repeatably_and_allocates_nothing) {
  const std::vector<digit> digits = learnable_digits(90);
  const auto scratch = std::make_unique<training_scratch>(digits.size());
  const auto model = std::make_unique<perceptron>();
  const auto again = std::make_unique<perceptron>();
  initialise(*model, 1);
  initialise(*again, 1);
  EXPECT_LT(accuracy(*model, digits), 0.5);
  const heap_figures before = live_heap();
  train(*model, digits, *scratch, {});
  const double reached = accuracy(*model, digits);
  EXPECT_EQ(live_heap().total_allocations, before.total_allocations);
  EXPECT_GT(reached, 0.95);
  train(*again, digits, *scratch, {});
  EXPECT_EQ(model->hidden_weight, again->hidden_weight);
  EXPECT_EQ(model->output_bias, again->output_bias);
}

TEST(Training, Follows_the_gradient_of_the_loss) {
  const std::vector<digit> digits = learnable_digits(3);
  const auto model = std::make_unique<perceptron>();
  initialise(*model, 2);
  const auto loss = [&](const perceptron& at) {
    double sum = 0;
    for (const digit& image : digits) {
      std::array<double, hidden_units> hidden{};
      for (std::size_t j = 0; j < hidden_units; ++j) {
        double unit = static_cast<double>(at.hidden_bias[j]);
        for (std::size_t i = 0; i < digit_pixels; ++i)
          unit += static_cast<double>(at.hidden_weight[j][i]) * image.pixels[i] / 255.0;
        hidden[j] = std::max(0.0, unit);
      }
      double normaliser = 0;
      double wanted = 0;
      for (std::size_t k = 0; k < digit_classes; ++k) {
        double score = static_cast<double>(at.output_bias[k]);
        for (std::size_t j = 0; j < hidden_units; ++j) score += static_cast<double>(at.output_weight[k][j]) * hidden[j];
        normaliser += std::exp(score);
        if (k == image.label) wanted = score;
      }
      sum += std::log(normaliser) - wanted;
    }
    return sum / static_cast<double>(digits.size());
  };

  const auto trained = std::make_unique<perceptron>(*model);
  const auto scratch = std::make_unique<training_scratch>(3u);
  constexpr float rate = 0.01f;
  train(*trained, digits, *scratch, {.epochs = 1, .learning_rate = rate});  // 3 images are one batch: one step

  const auto expect_step = [&](float& weight, float after, const char* name) {
    const float kept = weight;
    constexpr float nudge = 1e-3f;
    weight = kept + nudge;
    const double above = loss(*model);
    weight = kept - nudge;
    const double below = loss(*model);
    weight = kept;
    const double slope = (above - below) / (2.0 * static_cast<double>(nudge));
    EXPECT_NEAR(static_cast<double>(kept - after) / static_cast<double>(rate), slope, 2e-4 + 0.02 * std::abs(slope))
        << name;
  };
  training_random random{8};
  for (int i = 0; i < 20; ++i) {
    const std::size_t j = random.below(hidden_units);
    const std::size_t p = random.below(digit_pixels);
    const std::size_t k = random.below(digit_classes);
    expect_step(model->hidden_weight[j][p], trained->hidden_weight[j][p], "hidden_weight");
    expect_step(model->hidden_bias[j], trained->hidden_bias[j], "hidden_bias");
    expect_step(model->output_weight[k][j], trained->output_weight[k][j], "output_weight");
    expect_step(model->output_bias[k], trained->output_bias[k], "output_bias");
  }
}

TEST(ProcessStats, Tells_of_this_process) {
  const auto before = stats_of_self();
  ASSERT_TRUE(before);
  EXPECT_GT(before->resident_bytes, 500'000u);
  EXPECT_GE(before->peak_resident_bytes, before->resident_bytes);
  EXPECT_GE(before->threads, 1u);
  std::FILE* file = std::fopen("/dev/null", "r");
  ASSERT_NE(file, nullptr);
  const auto open = stats_of_self();
  std::fclose(file);
  ASSERT_TRUE(open);
  EXPECT_EQ(open->descriptors, before->descriptors + 1);
  EXPECT_FALSE(stats_of(999'999'999));
}

TEST(HeapCount, Follows_every_way_to_allocate) {
  if (!heap_is_counted()) GTEST_SKIP() << "not counted under this sanitizer";
  std::array<void*, 5> blocks{};  // figures are taken before anything is expected: GoogleTest allocates, too
  const heap_figures start = live_heap();
  blocks[0] = std::malloc(100);
  blocks[1] = std::calloc(3, 100);
  blocks[2] = std::realloc(nullptr, 10);
  blocks[3] = std::aligned_alloc(64, 128);
  const int made = ::posix_memalign(&blocks[4], 64, 10);
  const heap_figures allocated = live_heap();
  blocks[0] = std::realloc(blocks[0], 100'000);
  const heap_figures resized = live_heap();
  for (void* block : blocks) std::free(block);
  const heap_figures end = live_heap();

  EXPECT_EQ(made, 0);
  EXPECT_EQ(allocated.live_allocations, start.live_allocations + 5);
  EXPECT_GE(allocated.live_bytes, start.live_bytes + 100 + 300 + 10 + 128 + 10);
  EXPECT_EQ(resized.live_allocations, allocated.live_allocations);
  EXPECT_GE(resized.live_bytes, allocated.live_bytes + 99'000);
  EXPECT_EQ(end.live_allocations, start.live_allocations);
  EXPECT_EQ(end.live_bytes, start.live_bytes);
  EXPECT_EQ(end.total_allocations, start.total_allocations + 6);
  EXPECT_EQ(::posix_memalign(blocks.data(), 3, 10), EINVAL);
}

/// A run that passes every check.
run_report flat_run(std::uint32_t rounds) {
  run_report report{{.rounds = rounds, .clients = 500, .seed = 1, .learning_rate = 0.3}};
  for (std::uint32_t i = 1; i <= rounds; ++i) {
    const process_figures held{10u << 20, 12u << 20, 1, 7, 100, 5000};
    report.rounds.push_back({i, 90 + i, 90 + i, 0.9, 1000, 0.5, held, held});
  }
  for (std::uint32_t i = 0; i < 5 && i < rounds; ++i) report.rounds[i].server = {5u << 20, 5u << 20, 3, 9, 1, 2};
  return report;
}

TEST(Verdict, A_flat_run_passes) {
  const verdict judged = judge(flat_run(45));
  EXPECT_TRUE(judged.passed());
  EXPECT_TRUE(judged.notes.empty());
}

TEST(Verdict, Each_figure_that_moves_is_named) {
  const auto violation = [](const std::function<void(round_figures&)>& change, std::size_t round) {
    run_report report = flat_run(45);
    change(report.rounds[round - 1]);
    const verdict judged = judge(report);
    return judged.violations.size() == 1 ? judged.violations[0] : std::to_string(judged.violations.size());
  };
  EXPECT_EQ(violation([](round_figures& round) { round.server.threads = 4; }, 20),
            "server: threads were 1 after round 6 but 4 after round 20 "
            "(1 of the 39 rounds since differ; 1 after the last).");
  EXPECT_EQ(violation([](round_figures& round) { round.clients.descriptors = 6; }, 45).substr(0, 25),
            "clients: open descriptors");
  EXPECT_NE(violation([](round_figures& round) { round.clients.live_allocations++; }, 7).find("live heap allocations"),
            std::string::npos);
  EXPECT_NE(violation([](round_figures& round) { round.server.live_bytes--; }, 7).find("live heap bytes"),
            std::string::npos);
  EXPECT_EQ(violation([](round_figures& round) { round.server.resident_bytes += (256 << 10) + 1; }, 45),
            "server: resident memory grew by 0.25 MiB, from 10.00 MiB after round 6 to 10.25 MiB after round 45; "
            "0.25 MiB are allowed.");
  EXPECT_EQ(violation([](round_figures& round) { round.server.resident_bytes += 256 << 10; }, 45), "0");
  EXPECT_EQ(violation([](round_figures& round) { round.server.resident_bytes += 1 << 20; }, 44), "0");
  EXPECT_EQ(violation([](round_figures& round) { round.accuracy = 0.8499; }, 45),
            "held-out accuracy ended at 0.8499, under the 0.85 that are expected.");
  EXPECT_EQ(violation([](round_figures& round) { round.accuracy = 0.0 / 0.0; }, 45).substr(0, 26),
            "held-out accuracy ended at");
  EXPECT_EQ(violation([](round_figures& round) { round.updates = 5; }, 10),
            "1 of 45 rounds lost updates; in round 10, 5 of 100 arrived.");
}

TEST(Verdict, One_percent_of_a_large_process_is_allowed) {
  run_report report = flat_run(45);
  for (round_figures& round : report.rounds) round.clients.resident_bytes = 1000u << 20;
  report.rounds.back().clients.resident_bytes += 9u << 20;
  EXPECT_TRUE(judge(report).passed());
  report.rounds.back().clients.resident_bytes += 2u << 20;
  EXPECT_FALSE(judge(report).passed());
}

TEST(Verdict, A_short_run_says_what_was_not_judged) {
  run_report report = flat_run(6);
  report.rounds.back().accuracy = 0.1;
  const verdict judged = judge(report);
  EXPECT_TRUE(judged.passed());
  EXPECT_EQ(judged.notes.size(), 2u);
  EXPECT_EQ(judge(flat_run(44)).notes.size(), 1u);
  report.settings.rounds = 45;
  EXPECT_FALSE(judge(report).passed());
  EXPECT_FALSE(judge(run_report{{.rounds = 3}}).passed());
}

TEST(Reports, Json_holds_settings_rounds_and_verdict) {
  run_report report = flat_run(2);
  report.rounds[0].accuracy = 1.0 / 0.0;
  const std::string json = json_report(report, judge(report));
  EXPECT_NE(json.find("\"fixed_participants\": null, \"seed\": 1, \"learning_rate\": 0.3,"), std::string::npos);
  EXPECT_NE(json.find("\"round\": 1, \"participants\": 91, \"updates\": 91, \"accuracy\": null"), std::string::npos);
  EXPECT_NE(json.find("\"passed\": true"), std::string::npos);
  EXPECT_EQ(detail::json_string("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
}

TEST(Reports, A_plot_of_any_length_is_drawn) {
  for (const std::uint32_t rounds : {0u, 1u, 3u, 45u, 500u}) {
    const std::string drawn = plot(flat_run(rounds));
    EXPECT_TRUE(drawn.ends_with("</svg>\n"));
    EXPECT_EQ(drawn.find("nan"), std::string::npos);
    EXPECT_EQ(drawn.find("inf"), std::string::npos);
  }
}

TEST(Reports, A_file_appears_whole_or_not_at_all) {
  const temporary_file file;
  write_port_file(file.path, 4711);
  std::ifstream in{file.path};
  std::string text;
  std::getline(in, text);
  EXPECT_EQ(text, "4711");
  EXPECT_NE(::access((file.path + ".part").c_str(), F_OK), 0);
  EXPECT_EQ(message_of([] { write_file("/nonexistent/x", ""); }),
            "cannot open /nonexistent/x: No such file or directory");
}

TEST(Options, Are_read_and_checked) {
  const auto parse = [](std::vector<const char*> arguments) { return parse_options(arguments); };
  const options defaults = parse({});
  EXPECT_EQ(defaults.rounds, 45u);
  EXPECT_EQ(defaults.clients, 500u);
  EXPECT_EQ(defaults.fixed, 0u);
  const options chosen = parse({"--rounds", "7", "--seed=9", "--learning-rate", "0.1", "--listen", "[::1]:80",
                                "--connect", "server:8002", "--json", "a b.json", "--rounds", "8"});
  EXPECT_EQ(chosen.rounds, 8u);
  EXPECT_EQ(chosen.seed, 9u);
  EXPECT_DOUBLE_EQ(chosen.learning_rate, 0.1);
  EXPECT_EQ(chosen.listen.host, "::1");
  EXPECT_EQ(chosen.connect.port, 8002);
  EXPECT_EQ(chosen.json, "a b.json");

  const auto message = [&](std::vector<const char*> arguments) { return message_of([&] { parse(arguments); }); };
  EXPECT_EQ(message({"--rounds", "0"}), "--rounds wants a whole number from 1 to 100000, not '0'");
  EXPECT_EQ(message({"--rounds"}), "--rounds wants a whole number from 1 to 100000, not ''");
  EXPECT_EQ(message({"--seed", "-1"}), "--seed wants a whole number from 0 to 18446744073709551615, not '-1'");
  EXPECT_EQ(message({"--clients", "4001"}), "--clients wants a whole number from 1 to 4000, not '4001'");
  EXPECT_EQ(message({"--learning-rate", "nan"}), "--learning-rate wants a number above 0 and at most 10, not 'nan'");
  EXPECT_EQ(message({"--fixed", "6", "--clients", "5"}), "--fixed 6 is more than the 5 clients");
  EXPECT_EQ(message({"--connect", "::1"}), "--connect wants HOST:PORT, as in 127.0.0.1:8002, not '::1'");
  EXPECT_EQ(message({"--connect", "a:0"}), "--connect (the port) wants a whole number from 1 to 65535, not '0'");
  EXPECT_EQ(message({"--json", ""}), "--json wants the name of a file");
  EXPECT_EQ(message({"--nonsense"}), "there is no option --nonsense; --help lists them");
  EXPECT_EQ(message({"seven"}), "'seven' is no option; --help lists them");
}

}  // namespace federated_test
