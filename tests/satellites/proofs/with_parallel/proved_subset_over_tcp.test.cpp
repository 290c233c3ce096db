// Some tensors of a model over TCP, proved by the root of the whole: one owner and several.
#include "named_tensors.hpp"

#include "support/clocks.hpp"
#include "support/own_folder.hpp"
#include "transports/network.hpp"

#include <tensorpull/consumers/any_schema/digest.hpp>
#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/satellites/parallel/parallel_pull.hpp>

#include <filesystem>
#include <fstream>

namespace proved_subset_over_tcp_test {

using namespace test;
using namespace test::proved;
using tcp_net = tp::pipeline<tp::tensor_list, tp::fixed_bytes<24_KiB>, tp::tcp>;

model everything(std::uint64_t seed) {
  names_list all;
  for (const tp::tensor_entry& t : whole().schema().entries()) all.push_back(t.name);
  return std::move(blank_subset(whole(), all).fill(seed));
}
const published& the_whole() {
  static const published one(everything(3));
  return one;
}
struct serves {
  tp::result<tcp_net::downloader> owner = tcp_net::downloader::open({.listen = "127.0.0.1:0"});
  std::optional<serving> server;

  explicit serves(const model* with = nullptr) {
    the_whole().publish_at(*owner, 0, with);
    server.emplace(*owner);
  }
  std::string address() const { return local(owner->port()); }
  tp::publication_status counts() {
    server.reset();
    return *owner->status_of(the_whole().ref.model);
  }
};
template <class Consumer>
tp::result<tp::proved_receipt> pull_from(const std::vector<std::string>& addresses, Consumer& to,
                                         tp::pull_options options, tp::proof_options how = {}) {
  const std::vector<std::string_view> texts(addresses.begin(), addresses.end());
  const tp::parallel_addresses<tp::tcp> from(texts);
  options.retry = {.retries = 3, .first_delay = 5ms, .longest_delay = 20ms};
  return tp::pull_proved<tcp_net>(from, the_whole().ref, to, how, options);
}

TEST(ProvedSubsetOverTcp, One_owner_counts_it_as_without_a_digest) {
  const names_list names{"small 17", "other"};
  for (const bool part : {false, true}) {
    serves only;
    model mine = blank_subset(whole(), names);
    tp::land to(mine.destination());
    tp::resume_cursor cursor{{1, 2}, 3, 4, 5, 6};
    const auto done = part ? pull_from({only.address()}, to, {.part = true, .cursor = &cursor})
                           : pull_from({only.address()}, to, {.tensors = names, .cursor = &cursor});
    ASSERT_TRUE(succeeded(done));
    EXPECT_TRUE(has_right_bytes(mine, the_whole().now));
    EXPECT_EQ(done->wrong, 0u);
    EXPECT_EQ(done->last.outcome, tp::outcome::completed);
    EXPECT_EQ(done->last.bytes, mine.schema().data_bytes());
    EXPECT_EQ(done->last.fingerprint, mine.schema().fingerprint);
    EXPECT_TRUE(done->last.confirmed);
    EXPECT_FALSE(done->last.believed);
    EXPECT_FALSE(cursor) << "nothing resumes";
    const auto counts = only.counts();
    EXPECT_EQ(counts.completed, 0u);
    EXPECT_EQ(counts.completed_unverified, 1u);
    EXPECT_LE(counts.bytes_sent, most_bytes(whole(), mine));
  }
}
TEST(ProvedSubsetOverTcp, One_that_lies_is_named_and_the_other_brings_it) {
  const model lie = everything(4);
  serves liar(&lie), honest;
  const names_list names{"long", "small 17"};
  for (const bool first : {true, false}) {
    model mine = blank_subset(whole(), names);
    tp::land to(mine.destination());
    const auto addresses = first ? std::vector{liar.address(), honest.address()}
                                 : std::vector{honest.address(), liar.address()};
    const auto done = pull_from(addresses, to, {.tensors = names});
    ASSERT_TRUE(succeeded(done));
    EXPECT_EQ(done->wrong & (first ? 2u : 1u), 0u);
    EXPECT_TRUE(has_right_bytes(mine, the_whole().now));
  }
}
TEST(ProvedSubsetOverTcp, A_file_of_the_tensors_is_written) {
  serves first, second;
  own_folder folder;
  const std::string path = folder.path() / "some.safetensors";
  const names_list names{"small 17", "other"};
  model mine = blank_subset(whole(), names);
  for (const tp::tensor_entry& t : mine.schema().entries()) {
    const auto right = the_whole().now.bytes_of(t.name);
    const auto to = mine.destination();
    std::copy(right.begin(), right.end(), to.address(static_cast<std::size_t>(&t - mine.schema().tensors)));
  }
  {
    auto file = tp::safetensors_file::create(path, {.fsync = false, .schema = &mine.schema()});
    ASSERT_TRUE(succeeded(file));
    ASSERT_TRUE(succeeded(pull_from({first.address(), second.address()}, *file, {.tensors = names})));
  }
  EXPECT_EQ(file_root(path), blake3_of(mine.image_bytes()));
}
TEST(ProvedSubsetOverTcp, A_file_that_another_process_changes_meanwhile_gets_no_name) {
  serves first, second;
  own_folder folder;
  const std::string path = folder.path() / "some.safetensors", part = folder.path() / ".some.safetensors.part";
  const names_list names{"small 17", "other"};
  const model mine = blank_subset(whole(), names);
  tp::resume_cursor where;
  auto file = tp::safetensors_file::create(path, {.fsync = false, .schema = &mine.schema(), .resume = &where});
  ASSERT_TRUE(succeeded(file));
  bool told = false;
  const auto touch = [&](const tp::progress_event& e) {
    std::error_code none;
    if (told || e.bytes_done < e.bytes_total / 2 || !std::filesystem::exists(part, none)) return;
    told = true;
    std::fstream other(part, std::ios::in | std::ios::out | std::ios::binary);
    const auto before = std::filesystem::last_write_time(part);
    do {
      other.seekp(static_cast<std::streamoff>(mine.schema().image_bytes) - 1);
      other.put('?').flush();
    } while (std::filesystem::last_write_time(part) == before);  // what is not seen in the times is not looked at
  };
  const auto done = pull_from({first.address(), second.address()}, *file,
                              {.tensors = names, .cursor = &where, .progress = touch, .progress_interval = 0ms});
  EXPECT_TRUE(told);
  EXPECT_EQ(code_of(done), errc::io);
  EXPECT_FALSE(std::filesystem::exists(path));
}
TEST(ProvedSubsetOverTcp, Slices_and_consumers_that_cannot_undo_are_refused_by_name) {
  serves only;
  model mine = blank_subset(whole(), {"other"});
  tp::land to(mine.destination());
  const tp::tensor_slice slices[]{{"other", 0, 500'000}};
  EXPECT_EQ(code_of(pull_from({only.address()}, to, {.slices = slices})), errc::not_verifiable);
  tp::digest in_order;
  const names_list names{"other"};
  EXPECT_EQ(code_of(pull_from({only.address()}, in_order, {.tensors = names})), errc::not_verifiable);
  const std::string address = only.address();
  const std::vector<std::string_view> one_by_one{address};
  EXPECT_EQ(code_of(tp::pull_proved<tcp_net>(std::span(one_by_one), the_whole().ref, to, {}, {.tensors = names})),
            errc::not_verifiable);
  EXPECT_TRUE(mine.untouched());
}
TEST(ProvedSubsetOverTcp, Names_and_the_headers_length_are_looked_at) {
  serves only;
  model mine = blank_subset(whole(), {"other"});
  tp::land to(mine.destination());
  const names_list unknown{"nowhere"}, known{"other"};
  const auto done = pull_from({only.address()}, to, {.tensors = unknown});
  ASSERT_EQ(code_of(done), errc::bad_request);
  EXPECT_EQ(done.error().name.view(), "nowhere");
  EXPECT_EQ(code_of(pull_from({only.address()}, to, {.tensors = known}, {.most_header_bytes = 100})), errc::too_large);
  EXPECT_TRUE(mine.untouched());
}

}  // namespace proved_subset_over_tcp_test
