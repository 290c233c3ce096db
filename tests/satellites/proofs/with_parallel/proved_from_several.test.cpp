// Pulls over TCP from several owners at once, of which some lie about the tree, the header or the bytes, are silent or
// gone.
#include "../proved_model.hpp"

#include "support/clocks.hpp"
#include "support/own_folder.hpp"
#include "transports/network.hpp"

#include <tensorpull/consumers/any_schema/digest.hpp>
#include <tensorpull/consumers/any_schema/new_model.hpp>
#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/satellites/parallel/parallel_pull.hpp>

#include <filesystem>
#include <fstream>

namespace proved_from_several_test {

using namespace test;
using namespace test::proved;
using tcp_net = tp::pipeline<tp::tensor_list, tp::fixed_bytes<24_KiB>, tp::tcp>;

/// An owner under the_model()'s references, of these bytes and this tree.
struct serves {
  tp::result<tcp_net::downloader> owner = tcp_net::downloader::open({.listen = "127.0.0.1:0"});
  std::optional<serving> server;

  explicit serves(const model* with = nullptr, const tp::dynamic_image* and_tree = nullptr) {
    the_model().publish_at(*owner, 0, with, and_tree);
    server.emplace(*owner);
  }
  std::string address() const { return local(owner->port()); }
  tp::publication_status counts() {
    server.reset();
    return *owner->status_of(the_model().ref.model);
  }
};
/// Stands in front of an owner, and of each connection carries so many bytes of answers, and then nothing.
class silent_behind {
 public:
  silent_behind(std::uint16_t owner, std::size_t most)
      : each_([owner, most](raw_peer& client, std::size_t, const std::stop_token& stop) {
          raw_peer to(owner);
          std::vector<std::byte> piece(16384);
          const std::array<std::span<std::byte>, 1> in{piece};
          for (std::size_t left = most; !stop.stop_requested();) {
            const auto asked = client.stream().read_some(in);
            if (tp::is_end(asked.status) || (asked.bytes > 0 && !to.say(std::span(piece).first(asked.bytes)))) return;
            const std::array<std::span<std::byte>, 1> out{std::span(piece).first(std::min(piece.size(), left))};
            if (left == 0) {
              client.stream().wait(true, false, 5ms);
              continue;
            }
            const auto answered = to.stream().read_some(out);
            if (tp::is_end(answered.status) || !client.say(std::span(piece).first(answered.bytes))) return;
            left -= answered.bytes;
            if (asked.bytes + answered.bytes == 0) client.stream().wait(true, false, 1ms);
          }
        }) {}
  std::string address() const { return each_.address(); }

 private:
  each_connection each_;
};
constexpr tp::retry_policy quick{.retries = 3, .first_delay = 5ms, .longest_delay = 20ms};

template <class Consumer>
tp::result<tp::proved_receipt> pull_from(const std::vector<std::string>& addresses, Consumer& to,
                                         std::uint64_t* wrong = nullptr, tp::pull_options options = {}) {
  const std::vector<std::string_view> texts(addresses.begin(), addresses.end());
  const tp::parallel_addresses<tp::tcp> from(texts);
  options.retry = quick;
  tp::proof_options how = fine;
  how.wrong = wrong;
  return tp::pull_proved<tcp_net>(from, the_model().ref, to, how, options);
}

TEST(ProvedFromSeveral, Each_gives_a_part_and_one_hears_of_the_end) {
  serves first, second;
  model into = bytes_model(bytes, 9);
  tp::land to(into.destination());
  const auto done = pull_from({first.address(), second.address()}, to);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(done->wrong, 0u);
  EXPECT_EQ(done->last.outcome, tp::outcome::completed);
  EXPECT_TRUE(done->last.confirmed);
  EXPECT_FALSE(done->last.believed);
  EXPECT_EQ(into.image_bytes(), the_model().now.image_bytes());
  const auto a = first.counts(), b = second.counts();
  EXPECT_EQ(a.completed + b.completed, 1u);
  EXPECT_EQ(a.failed + b.failed, 0u);
}
TEST(ProvedFromSeveral, Those_that_lie_about_the_tree_or_the_bytes_are_named) {
  const model lie = changed_at(4 * group);
  const published other(bytes_model(bytes, 2));
  serves wrong_tree(nullptr, &other.tree.image()), wrong_bytes(&lie), honest;
  model into = bytes_model(bytes, 9);
  tp::land to(into.destination());
  std::uint64_t wrong = 0;
  const auto done = pull_from({wrong_tree.address(), wrong_bytes.address(), honest.address()}, to, &wrong);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(done->wrong & 4u, 0u);
  EXPECT_EQ(done->wrong & 1u, 1u);
  EXPECT_EQ(done->wrong, wrong);
  EXPECT_EQ(into.image_bytes(), the_model().now.image_bytes());
}
TEST(ProvedFromSeveral, If_all_lie_they_are_all_named) {
  const model first_lie = changed_at(700), second_lie = changed_at(700);
  serves first(&first_lie), second(&second_lie);
  model into = bytes_model(bytes, 9);
  tp::land to(into.destination());
  std::uint64_t wrong = 0;
  EXPECT_EQ(code_of(pull_from({first.address(), second.address()}, to, &wrong)), errc::digest_mismatch);
  EXPECT_EQ(wrong, 3u);
}
void expect_pulled(const std::vector<std::string>& addresses) {
  model into = bytes_model(bytes, 9);
  tp::land to(into.destination());
  const auto done = pull_from(addresses, to);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(done->wrong, 0u);
  EXPECT_EQ(into.image_bytes(), the_model().now.image_bytes());
}

TEST(ProvedFromSeveral, A_silent_one_and_one_that_is_gone_do_not_matter) {
  std::string gone;
  {
    gone = serves().address();
  }
  serves honest;
  silent_behind quiet(honest.owner->port(), 0);
  for (const auto& addresses :
       {std::vector{quiet.address(), gone, honest.address()}, std::vector{honest.address(), gone, quiet.address()}}) {
    expect_pulled(addresses);
  }
}
TEST(ProvedFromSeveral, One_that_falls_silent_costs_its_part) {
  serves honest;
  for (const std::size_t most : {std::size_t{1000}, std::size_t{40'000}, std::size_t{150'000}}) {
    silent_behind quiet(honest.owner->port(), most);
    for (const auto& addresses :
         {std::vector{quiet.address(), honest.address()}, std::vector{honest.address(), quiet.address()}}) {
      expect_pulled(addresses);
    }
  }
}
TEST(ProvedFromSeveral, A_file_goes_on_behind_what_is_proved) {
  own_folder folder;
  const std::string path = folder.path() / "m.safetensors";
  const model lie = changed_at(4 * group);
  serves liar(&lie), honest;
  tp::resume_cursor where;
  {
    auto file = tp::safetensors_file::create(path, {.fsync = false, .resume = &where});
    ASSERT_TRUE(succeeded(file));
    EXPECT_EQ(code_of(pull_from({liar.address()}, *file, nullptr, {.cursor = &where})), errc::digest_mismatch);
    EXPECT_EQ(where.offset, 4 * group);
  }
  auto file = tp::safetensors_file::create(path, {.fsync = false, .resume = &where});
  ASSERT_TRUE(succeeded(file));
  const auto done = pull_from({liar.address(), honest.address()}, *file, nullptr, {.cursor = &where});
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(file_root(path), the_model().ref.root);
  EXPECT_LE(honest.counts().bytes_sent, the_model().ref.image_bytes - 4 * group + 24_KiB);
}
TEST(ProvedFromSeveral, A_file_that_another_process_changes_after_it_was_proved_gets_no_name) {
  serves first, second;
  for (const bool changed : {true, false}) {
    own_folder folder;
    const std::string path = folder.path() / "m.safetensors", part = folder.path() / ".m.safetensors.part";
    tp::resume_cursor where;
    auto file = tp::safetensors_file::create(path, {.fsync = false, .resume = &where});
    ASSERT_TRUE(succeeded(file));
    bool told = false;
    const auto touch = [&](const tp::progress_event& e) {
      if (told || e.bytes_done < 4 * group) return;
      told = true;  // the header's group is proved
      std::fstream other(part, std::ios::in | std::ios::out | std::ios::binary);
      other.seekg(5000);
      const int was = other.get();
      const auto before = std::filesystem::last_write_time(part);
      do {
        other.seekp(5000);
        other.put(static_cast<char>(changed ? was ^ 1 : was)).flush();
      } while (std::filesystem::last_write_time(part) == before);  // what is not seen in the times is not looked at
    };
    const auto done = pull_from({first.address(), second.address()}, *file, nullptr,
                                {.cursor = &where, .progress = touch, .progress_interval = 0ms});
    EXPECT_TRUE(told);
    if (changed) {
      EXPECT_EQ(code_of(done), errc::io);
      EXPECT_FALSE(std::filesystem::exists(path));
    } else {
      ASSERT_TRUE(succeeded(done));
      EXPECT_EQ(file_root(path), the_model().ref.root);
    }
  }
}
TEST(ProvedFromSeveral, A_consumer_that_takes_bytes_in_order_is_served_by_one_after_the_other) {
  const model lie = changed_at(4 * group);
  serves liar(&lie), honest;
  tp::digest to;
  const auto done = pull_from({liar.address(), honest.address()}, to);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(done->wrong, 1u);
  EXPECT_EQ(done->source, 1u);
  EXPECT_EQ(to.value(), the_model().ref.model.version);
}

}  // namespace proved_from_several_test
