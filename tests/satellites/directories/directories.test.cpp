// A directory arrives as it was published, or not at all; names that lead elsewhere are refused at both ends.
#include <tensorpull/satellites/directories/receive_directory.hpp>

#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>

#include "trees.hpp"

#include "support/own_folder.hpp"
#include "support/results.hpp"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace directories_test {

using namespace test;
namespace fs = std::filesystem;
using tp::operator""_KiB;
using net = tp::pipeline<tp::tensor_list, tp::fixed_bytes<4_KiB>, tp::loopback>;

tree checkpoint() {
  return {{"config.json", "{\"layers\": 2}"},
          {"empty", ""},
          {"model-00001-of-00002.safetensors", noise(40'000, 1)},
          {"model-00002-of-00002.safetensors", noise(23'456, 2)},
          {"tokenizer/merges.txt", noise(700, 3)},
          {"tokenizer/more/vocab.json", noise(5'000, 4)}};
}
void write(const fs::path& at, const tree& files) {
  for (const auto& [name, text] : files) {
    fs::create_directories((at / name).parent_path());
    std::ofstream(at / name, std::ios::binary) << text;
  }
}

class Directories : public testing::Test {
  test::own_folder folder_;
  std::stop_source stop_;
  std::list<tree> trees_;
  std::vector<std::unique_ptr<tp::dynamic_image>> lies_;
  std::vector<std::unique_ptr<tp::image_with_tensor_digests>> with_;

 protected:
  fs::path there = folder_.path() / "there", here = folder_.path() / "here", part = folder_.path() / ".here.part";
  std::vector<std::unique_ptr<tp::directory_image>> images;
  std::unique_ptr<net::downloader> owner = std::make_unique<net::downloader>();  // borrows images
  std::uint64_t came = 0;  // bytes of the last call
  std::uint64_t most = ~std::uint64_t{0};  // stops behind so many
  bool synchronise = false;

  tp::result<tp::reference> publish(const tree& files, const tp::publish_options& options = {}) {
    fs::remove_all(there);
    write(there, files);
    return publish(there, {}, options);
  }
  tp::result<tp::reference> publish(const fs::path& path, const tp::directory_image_options& how = {},
                                    const tp::publish_options& options = {}) {
    auto image = tp::directory_image::open(path.string(), how);
    if (!image) return tp::failure(image.error());
    images.push_back(std::make_unique<tp::directory_image>(std::move(*image)));
    return owner->add_image(images.back()->source(), options);
  }
  /// Tensors of bytes that claim to be files.
  tp::reference publish_as(const tree& given, std::string_view digests = {}) {
    const tree& files = trees_.emplace_back(given);
    std::vector<tp::tensor_view> views;
    std::vector<std::uint64_t> sizes;
    sizes.reserve(files.size());
    for (const auto& [name, text] : files) {
      sizes.push_back(text.size());
      views.push_back(
          {.name = name, .shape = {&sizes.back(), 1}, .data = reinterpret_cast<const std::byte*>(text.data())});
    }
    const tp::metadata_entry pairs[]{{tp::directory_key, "1"}, {tp::tensor_digests_key, digests}};
    lies_.push_back(std::make_unique<tp::dynamic_image>(*tp::dynamic_image::make(
        std::span<const tp::tensor_view>(views), std::span(pairs).first(digests.empty() ? 1 : 2))));
    if (!digests.empty()) return *owner->add_image(lies_.back()->source());
    with_.push_back(std::make_unique<tp::image_with_tensor_digests>(
        *tp::image_with_tensor_digests::make<tp::xxhash_digest>(lies_.back()->source())));
    return *owner->add_image(with_.back()->source());
  }
  tp::result<tp::directory_receipt> receive(const tp::reference& ref, tp::directory_options options = {}) {
    came = 0;
    const auto landed = [&](const tp::landed_range& r) {
      came += r.bytes;
      if (came >= most) stop_.request_stop();
    };
    options.landed = landed;
    options.fsync = synchronise;
    const auto pull = [&](auto& to, const tp::reference& of, const tp::pull_options& how, tp::directory_phase) {
      return net::pull(*owner, of, to, how);
    };
    return tp::receive_directory(pull, ref, here.string(), options,
                                 {.stop = stop_.get_token(), .retry = {.retries = 0}});
  }
  void go_on() {
    stop_ = {};
    most = ~std::uint64_t{0};
  }
  void nothing_but_the_directory_is_left() const {
    EXPECT_FALSE(fs::exists(part));
    fs::remove_all(here);
  }
  void nothing_is_left() const {
    EXPECT_FALSE(fs::exists(here));
    EXPECT_FALSE(fs::exists(part));
  }
};

TEST_F(Directories, A_checkpoint_arrives_as_it_is_and_its_owner_hears_of_one_recipient) {
  const auto ref = publish(checkpoint(), {.recipients = 1});
  ASSERT_TRUE(succeeded(ref));
  synchronise = true;
  const auto done = receive(*ref);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(done->last.outcome, tp::outcome::completed);
  EXPECT_TRUE(done->last.confirmed);
  EXPECT_FALSE(done->last.believed);
  EXPECT_EQ(done->files, checkpoint().size());
  EXPECT_EQ(read(here), checkpoint());
  EXPECT_FALSE(fs::exists(part));
  ASSERT_TRUE(owner->settlement_of(*ref));
  EXPECT_EQ(owner->settlement_of(*ref)->counts.acquired, 1u);
  EXPECT_EQ(owner->settlement_of(*ref)->counts.completed, 1u);
}

TEST_F(Directories, A_program_can_be_executed_and_other_files_cannot) {
  write(there, {{"run.sh", "#!/bin/sh\n"}, {"text", "x"}});
  fs::permissions(there / "run.sh", fs::perms::owner_exec, fs::perm_options::add);
  ASSERT_TRUE(succeeded(receive(*publish(there))));
  EXPECT_EQ(::access((here / "run.sh").c_str(), X_OK), 0);
  EXPECT_EQ(fs::status(here / "text").permissions() & fs::perms::owner_exec, fs::perms::none);
}

TEST_F(Directories, It_goes_on_at_the_byte_where_it_was) {
  const auto ref = publish(checkpoint());
  most = 30'000;
  EXPECT_EQ(code_of(receive(*ref)), errc::cancelled);
  EXPECT_FALSE(fs::exists(here));
  EXPECT_TRUE(fs::exists(part));
  const std::uint64_t first = came;
  go_on();
  const auto done = receive(*ref);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(read(here), checkpoint());
  EXPECT_GT(done->kept, 20'000u);
  EXPECT_LT(first + came, 75'000u + 5'000u) << "no more than a chunk is fetched twice";
  EXPECT_FALSE(fs::exists(part));
}

TEST_F(Directories, After_a_crash_without_a_cursor_complete_files_are_kept) {
  const auto ref = publish(checkpoint());
  most = 50'000;
  EXPECT_EQ(code_of(receive(*ref)), errc::cancelled);
  std::ofstream(part / "cursor", std::ios::binary) << "nonsense";
  go_on();
  const auto done = receive(*ref);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(read(here), checkpoint());
  EXPECT_GE(done->kept, 40'000u);
  EXPECT_LT(came, 50'000u);
}

TEST_F(Directories, A_part_of_another_version_gives_what_is_the_same_and_leaves_no_file_of_its_own) {
  tree old = checkpoint();
  old["gone/soon.txt"] = "of the first version alone";
  old["a.first"] = noise(9'000, 9);
  const auto first = publish(old);
  most = 60'000;
  EXPECT_EQ(code_of(receive(*first)), errc::cancelled);
  go_on();
  const auto second = publish(checkpoint());
  const auto done = receive(*second);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(read(here), checkpoint());
  EXPECT_FALSE(fs::exists(here / "gone"));
  EXPECT_GE(done->kept, 40'000u);
}

TEST_F(Directories, Only_files_that_changed_are_fetched_beside_a_base) {
  tree old = checkpoint();
  ASSERT_TRUE(succeeded(receive(*publish(old))));
  tree now = old;
  now["model-00002-of-00002.safetensors"][77] ^= 1;
  now["config.json"] = "{\"layers\": 3, \"more\": true}";
  now.erase("tokenizer/merges.txt");
  now["added.txt"] = "new";
  const auto ref = publish(now, {.recipients = 1});
  EXPECT_EQ(receive(*ref, {.base = here.string()}).error().system, EEXIST);
  EXPECT_EQ(read(here), old);
  EXPECT_FALSE(fs::exists(part));
  const std::string base = here.string();
  const auto done = receive(*ref, {.base = base, .overwrite = true});
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(read(here), now);
  EXPECT_EQ(done->last.outcome, tp::outcome::completed);
  EXPECT_EQ(done->kept, 45'000u);
  EXPECT_LT(came, 24'000u);
  EXPECT_FALSE(fs::exists(part));
  EXPECT_EQ(owner->settlement_of(*ref)->counts.acquired, 1u) << "one recipient, of both pulls";
}

TEST_F(Directories, Digests_that_lie_about_a_base_cost_a_pull_of_all) {
  write(here, {{"a", "1234"}, {"b", "5678"}});
  const auto honest = tp::directory_image::open(here.string());
  ASSERT_TRUE(honest);
  // the owner states the digests of the base, and has other bytes
  const auto ref = publish_as({{"a", "1234"}, {"b", "9999"}}, tp::tensor_digests_of(honest->schema()));
  const std::string base = here.string();
  ASSERT_TRUE(succeeded(receive(ref, {.base = base, .overwrite = true})));
  EXPECT_EQ(read(here), (tree{{"a", "1234"}, {"b", "9999"}}));
}

TEST_F(Directories, A_choice_and_what_a_base_lacks_go_on_at_the_byte_where_they_were) {
  const std::string base = here.string() + "-old";
  write(base, {{"model-00002-of-00002.safetensors", checkpoint().at("model-00002-of-00002.safetensors")}});
  const std::string_view include[]{"model-*"};
  for (const bool some : {true, false}) {
    tp::directory_options options;
    if (some) options.files.include = include;
    else options.base = base;
    most = 30'000;  // in the middle of the first of them
    EXPECT_EQ(code_of(receive(*publish(checkpoint()), options)), errc::cancelled);
    const std::uint64_t first = came;
    go_on();
    const auto ref = publish(checkpoint(), {.recipients = 1});
    const auto done = receive(*ref, options);
    ASSERT_TRUE(succeeded(done));
    tree expected = checkpoint();
    if (some) std::erase_if(expected, [](const auto& f) { return !f.first.starts_with("model-"); });
    EXPECT_EQ(read(here), expected);
    EXPECT_GE(done->kept, 30'000u - 4'096) << some;
    EXPECT_LE(first + came, (some ? 63'456u : 46'000u) + 2 * 4'096) << "no more than a chunk is fetched twice";
    ASSERT_TRUE(owner->settlement_of(*ref));
    EXPECT_EQ(owner->settlement_of(*ref)->counts.acquired, 1u) << "one recipient, of all pulls";
    nothing_but_the_directory_is_left();
  }
}

TEST_F(Directories, A_beginning_with_other_bytes_is_fetched_again) {
  const std::string_view include[]{"model-*"};
  const auto ref = publish(checkpoint());
  most = 30'000;
  EXPECT_EQ(code_of(receive(*ref, {.files = {include}})), errc::cancelled);
  const fs::path begun = part / "files" / "model-00001-of-00002.safetensors";
  ASSERT_GT(fs::file_size(begun), 20'000u);
  std::fstream(begun, std::ios::binary | std::ios::in | std::ios::out).seekp(100) << "other";
  go_on();
  const auto done = receive(*ref, {.files = {include}});
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(read(here).at("model-00001-of-00002.safetensors"), checkpoint().at("model-00001-of-00002.safetensors"));
  EXPECT_GT(came, 63'456u);
  EXPECT_EQ(done->kept, 0u);
}

TEST_F(Directories, A_beginning_of_another_version_is_not_gone_on_with) {
  const std::string_view include[]{"model-*"};
  tree now = checkpoint();
  for (auto& [name, bytes] : now)
    for (char& c : bytes) c = static_cast<char>(c ^ 1);
  // the beginning of the other version is the shorter one, and the longer one
  for (const auto& [of_old, of_new] : {std::pair{20'000u, 24'000u}, std::pair{30'000u, 12'000u}}) {
    most = of_old;
    EXPECT_EQ(code_of(receive(*publish(checkpoint()), {.files = {include}})), errc::cancelled);
    go_on();
    const auto ref = publish(now);
    most = of_new;
    EXPECT_EQ(code_of(receive(*ref, {.files = {include}})), errc::cancelled);
    const std::uint64_t first = came;
    go_on();
    const auto done = receive(*ref, {.files = {include}});
    ASSERT_TRUE(succeeded(done));
    EXPECT_EQ(read(here).at("model-00001-of-00002.safetensors"), now.at("model-00001-of-00002.safetensors"));
    EXPECT_LE(first + came, 63'456u + 2 * 4'096);
    nothing_but_the_directory_is_left();
  }
}

TEST_F(Directories, An_index_of_shards_is_a_file_like_any_other) {
  // it names a shard twice, one outside and one that is not there: nobody opens what it names
  const tree files{{"model.safetensors.index.json",
                    R"({"weight_map": {"a": "model-1.safetensors", "b": "../outside.safetensors", "a": "none"}})"},
                   {"model-1.safetensors", noise(100, 1)}};
  write(here.parent_path(), {{"outside.safetensors", "mine"}});
  ASSERT_TRUE(succeeded(receive(*publish(files))));
  EXPECT_EQ(read(here), files);
  EXPECT_EQ(read(here.parent_path()).at("outside.safetensors"), "mine");
}

TEST_F(Directories, Names_that_differ_in_their_normal_form_are_what_the_file_system_makes_of_them) {
  const tree files{{"caf\u00e9", "1"}, {"cafe\u0301", "2"}, {"\u00c4", "3"}, {"\u00e4", "4"}};
  write(here.parent_path() / "tried", files);
  const bool keeps_all = read(here.parent_path() / "tried").size() == files.size();
  const auto done = receive(publish_as(files));
  EXPECT_EQ(code_of(done), keeps_all ? errc{} : errc::duplicate_name);
  EXPECT_EQ(read(here), keeps_all ? files : tree());
}

TEST_F(Directories, A_base_that_has_everything_costs_one_byte) {
  ASSERT_TRUE(succeeded(receive(*publish(checkpoint()))));
  const std::string base = here.string() + "-old";
  fs::rename(here, base);
  const auto ref = publish(checkpoint(), {.recipients = 1});
  ASSERT_TRUE(succeeded(receive(*ref, {.base = base})));
  EXPECT_EQ(read(here), checkpoint());
  EXPECT_LE(came, 1u);
  EXPECT_EQ(owner->settlement_of(*ref)->counts.completed, 1u);
}

TEST_F(Directories, Some_files_are_chosen_by_patterns) {
  const auto ref = publish(checkpoint());
  const std::string_view include[]{"*.json", "*.txt"}, exclude[]{"tokenizer/more/*"};
  const auto done = receive(*ref, {.files = {include, exclude}});
  ASSERT_TRUE(succeeded(done));
  const tree all = checkpoint();
  EXPECT_EQ(read(here),
            (tree{{"config.json", all.at("config.json")}, {"tokenizer/merges.txt", all.at("tokenizer/merges.txt")}}));
  EXPECT_LT(came, 1'000u);
  EXPECT_TRUE(done->last.believed);
  fs::remove_all(here);
  const std::string_view none[]{"nothing*"};
  EXPECT_EQ(code_of(receive(*ref, {.files = {none}})), errc::invalid_argument);
  nothing_is_left();
}

TEST_F(Directories, A_choice_whose_digests_are_not_those_that_were_stated_is_refused) {
  const auto ref = publish_as({{"a", "1234"}, {"b", "5678"}}, "0000000000000000ffffffffffffffff");
  const std::string_view include[]{"a"};
  const auto done = receive(ref, {.files = {include}});
  EXPECT_EQ(code_of(done), errc::digest_mismatch);
  EXPECT_FALSE(fs::exists(here));
}

TEST_F(Directories, What_is_published_may_leave_files_out) {
  write(there, checkpoint());
  const std::string_view exclude[]{"*.safetensors"};
  const auto image = tp::directory_image::open(there.string(), {.files = {.exclude = exclude}});
  ASSERT_TRUE(succeeded(image));
  EXPECT_EQ(image->files(), 4u);
  const std::string_view all[]{"*"};
  EXPECT_EQ(code_of(tp::directory_image::open(there.string(), {.files = {.exclude = all}})), errc::invalid_argument);
}

TEST_F(Directories, Names_that_lead_elsewhere_are_refused_by_a_recipient) {
  for (const std::string name : {"../up", "a/../../up", "/etc/passwd", "a//b", "a/", "/", ".", "..", "a/.", "a\\b",
                                 "C:x", "line\nfeed", "a/./b"}) {
    const auto done = receive(publish_as({{"fine", "x"}, {name, "evil"}}));
    ASSERT_EQ(code_of(done), errc::invalid_argument) << name;
    EXPECT_EQ(done.error().name.view(), name);
    nothing_is_left();
  }
  EXPECT_EQ(fs::exists(here.parent_path() / "up"), false);
}

TEST_F(Directories, Names_that_are_one_on_some_system_are_refused_by_both) {
  for (const tree& files :
       {tree{{"Readme", "1"}, {"readme", "2"}}, tree{{"a", "1"}, {"a/b", "2"}}, tree{{"X/y", "1"}, {"x", "2"}}}) {
    const auto done = receive(publish_as(files));
    EXPECT_EQ(code_of(done), errc::duplicate_name);
    EXPECT_FALSE(done.error().name.empty());
    nothing_is_left();
  }
  EXPECT_EQ(code_of(publish({{"Readme", "1"}, {"readme", "2"}})), errc::duplicate_name);
}

TEST_F(Directories, A_name_that_no_other_system_could_have_is_refused_by_an_owner) {
  for (const std::string name : {"a\\b", "bad\xff", "line\nfeed", "__metadata__"}) {
    const auto refused = publish({{name, "x"}});
    ASSERT_EQ(code_of(refused), errc::invalid_argument) << name;
    EXPECT_EQ(refused.error().name.view(), name);
  }
}

TEST_F(Directories, A_link_is_refused_by_name_unless_it_is_to_be_followed) {
  write(there, {{"blobs/1", "one"}});
  const fs::path snapshot = there / "snapshot";
  fs::create_directory(snapshot);
  for (const char* to : {"nowhere", "../blobs/1"}) {
    fs::remove(snapshot / "config.json");
    fs::create_symlink(to, snapshot / "config.json");
    const auto refused = tp::directory_image::open(snapshot.string());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().system, ELOOP) << to;
    EXPECT_EQ(refused.error().name.view(), "config.json");
  }
  const auto ref = publish(snapshot, {.follow_links = true});
  ASSERT_TRUE(succeeded(ref));
  ASSERT_TRUE(succeeded(receive(*ref)));
  EXPECT_EQ(read(here), (tree{{"config.json", "one"}}));
  EXPECT_FALSE(fs::is_symlink(here / "config.json"));
  fs::create_directory_symlink("../blobs", snapshot / "folder");
  const auto folder = tp::directory_image::open(snapshot.string(), {.follow_links = true});
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().name.view(), "folder");
}

TEST_F(Directories, A_pipe_is_refused_without_waiting) {
  write(there, {{"fine", "x"}});
  ASSERT_EQ(::mkfifo((there / "pipe").c_str(), 0600), 0);
  const auto refused = tp::directory_image::open(there.string());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().name.view(), "pipe");
}

TEST_F(Directories, A_file_that_changes_while_it_is_published_is_named_and_nothing_is_left) {
  write(there, checkpoint());
  const auto ref = publish(there);
  ASSERT_TRUE(succeeded(ref));
  EXPECT_EQ(images.back()->changed(), "");
  std::ofstream(there / "model-00001-of-00002.safetensors", std::ios::binary | std::ios::in) << "other bytes";
  EXPECT_FALSE(receive(*ref));
  EXPECT_EQ(images.back()->changed(), "model-00001-of-00002.safetensors");
  EXPECT_FALSE(fs::exists(here));
}

TEST_F(Directories, A_file_that_may_not_be_read_is_refused_with_the_systems_reason) {
  write(there, {{"secret", "x"}});
  fs::permissions(there / "secret", fs::perms::none);
  fs::permissions(there.parent_path(), fs::perms(0755));
  const auto user = ::geteuid();
  ASSERT_EQ(::seteuid(user == 0 ? 65'534 : user), 0);  // root reads everything
  const auto refused = tp::directory_image::open(there.string());
  ASSERT_EQ(::seteuid(user), 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().system, EACCES);
  EXPECT_EQ(refused.error().name.view(), "secret");
}

TEST_F(Directories, Files_can_be_read_when_others_have_all_descriptors) {
  tree many;
  for (int i = 0; i < 40; ++i) many["f" + std::to_string(i)] = noise(100, static_cast<unsigned>(i));
  write(there, many);
  const auto image = tp::directory_image::open(there.string());
  ASSERT_TRUE(succeeded(image));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{100, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<int> taken;
  for (int fd = 0; (fd = ::dup(0)) >= 0;) taken.push_back(fd);
  std::size_t good = 0;
  for (std::size_t i = 0; i < many.size(); ++i)
    good += tp::tensor_digest_of<tp::xxhash_digest>(image->source(), i) ? 1u : 0u;
  for (const int fd : taken) ::close(fd);
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(good, many.size());
  EXPECT_EQ(image->changed(), "");
}

TEST_F(Directories, What_has_the_name_already_is_replaced_only_if_that_is_asked_for_and_only_a_directory) {
  const auto ref = publish(checkpoint());
  write(here, {{"mine", "precious"}});
  EXPECT_EQ(receive(*ref).error().system, EEXIST);
  EXPECT_EQ(read(here), (tree{{"mine", "precious"}}));
  ASSERT_TRUE(succeeded(receive(*ref, {.overwrite = true})));
  EXPECT_EQ(read(here), checkpoint());
  EXPECT_FALSE(fs::exists(part));
  fs::remove_all(here);
  std::ofstream(here) << "a file";
  EXPECT_EQ(receive(*ref, {.overwrite = true}).error().system, ENOTDIR);
  fs::remove(here);
  fs::create_directory_symlink(there, here);
  EXPECT_EQ(receive(*ref, {.overwrite = true}).error().system, ELOOP);
  EXPECT_EQ(read(there), checkpoint());
  EXPECT_FALSE(fs::exists(part));
}

TEST_F(Directories, A_link_in_the_way_of_the_part_or_within_it_is_not_followed) {
  const auto ref = publish(checkpoint());
  const fs::path other = there.parent_path() / "other";
  write(other, {{"victim", "untouched"}});
  fs::create_directory_symlink(other, part);
  EXPECT_EQ(receive(*ref).error().system, EACCES);
  fs::remove(part);
  most = 20'000;
  EXPECT_FALSE(receive(*ref));
  fs::remove_all(part / "files" / "tokenizer");
  fs::create_directory_symlink(other, part / "files" / "tokenizer");
  fs::remove(part / "files" / "config.json");
  fs::create_symlink(other / "victim", part / "files" / "config.json");
  go_on();
  ASSERT_TRUE(succeeded(receive(*ref)));
  EXPECT_EQ(read(here), checkpoint());
  EXPECT_EQ(read(other), (tree{{"victim", "untouched"}}));
}

TEST_F(Directories, Two_processes_do_not_share_a_part) {
  const auto ref = publish(checkpoint());
  most = 20'000;
  EXPECT_FALSE(receive(*ref));
  go_on();
  const int held = ::open((part / "cursor").c_str(), O_RDWR);
  ASSERT_EQ(::flock(held, LOCK_EX | LOCK_NB), 0);
  const tree arrived = read(part);
  EXPECT_EQ(receive(*ref).error().system, EAGAIN);
  EXPECT_EQ(read(part), arrived) << "the process that has the part still has all of it";
  ::close(held);
  const auto done = receive(*ref);
  ASSERT_TRUE(succeeded(done));
  EXPECT_GE(done->kept, 16'000u);
}

TEST_F(Directories, A_part_that_has_less_than_its_cursor_states_is_completed) {
  const auto ref = publish(checkpoint());
  most = 60'000;
  EXPECT_FALSE(receive(*ref));
  // as after a crash of the machine: the cursor is on the disk, and not all of the bytes
  fs::resize_file(part / "files" / "model-00001-of-00002.safetensors", 30'000);
  go_on();
  ASSERT_TRUE(succeeded(receive(*ref)));
  EXPECT_EQ(read(here), checkpoint());
}

TEST_F(Directories, A_process_that_died_once_it_had_replaced_a_directory_leaves_a_part_that_is_completed) {
  const auto ref = publish(checkpoint());
  most = 60'000;
  EXPECT_FALSE(receive(*ref));
  go_on();
  // the part has what was replaced: of other lengths, not writable, with more than one name
  fs::remove_all(part / "files");
  tree old = checkpoint();
  old["config.json"] = "{}";
  old["model-00001-of-00002.safetensors"] += "more";
  write(part / "files", old);
  fs::create_hard_link(part / "files" / "tokenizer" / "merges.txt", there.parent_path() / "other");
  fs::permissions(part / "files" / "config.json", fs::perms::owner_read);
  ASSERT_TRUE(succeeded(receive(*ref)));
  EXPECT_EQ(read(here), checkpoint());
  EXPECT_EQ(fs::hard_link_count(here / "tokenizer" / "merges.txt"), 1u);
}

TEST_F(Directories, A_directory_that_replaces_another_is_as_private_as_that) {
  const auto ref = publish(checkpoint());
  write(here, {{"mine", "precious"}});
  fs::permissions(here, fs::perms::owner_all);
  ASSERT_TRUE(succeeded(receive(*ref, {.overwrite = true})));
  EXPECT_EQ(fs::status(here).permissions(), fs::perms::owner_all);
}

TEST_F(Directories, Files_without_bytes_arrive) {
  const auto ref = publish({{"a/empty", ""}, {"b", ""}});
  ASSERT_TRUE(succeeded(ref));
  ASSERT_TRUE(succeeded(receive(*ref)));
  EXPECT_EQ(read(here), (tree{{"a/empty", ""}, {"b", ""}}));
  fs::remove_all(here);
  const std::string_view include[]{"b"};
  ASSERT_TRUE(succeeded(receive(*ref, {.files = {include}})));
  EXPECT_EQ(read(here), (tree{{"b", ""}}));
}

TEST_F(Directories, More_than_is_allowed_is_refused_before_anything_is_made) {
  const auto ref = publish(checkpoint());
  EXPECT_EQ(code_of(receive(*ref, {.max_bytes = 60'000})), errc::too_large);
  nothing_is_left();
  EXPECT_EQ(code_of(receive(*ref, {.max_files = 5})), errc::too_large);
  nothing_is_left();
}

TEST_F(Directories, A_model_is_no_directory) {
  const std::uint64_t three = 3;
  const tp::tensor_view one{.name = "w", .shape = {&three, 1}, .data = reinterpret_cast<const std::byte*>("abc")};
  const auto image = tp::dynamic_image::make(std::span(&one, 1));
  const auto ref = owner->add_image(image->source());
  EXPECT_EQ(code_of(receive(*ref)), errc::schema_mismatch);
  owner.reset();
  nothing_is_left();
}

TEST_F(Directories, Ten_thousand_files_arrive) {
  tree many;
#if defined(TENSORPULL_TEST_SANITIZED)  // each file takes ten times as long
  const int count = 1'000;
#else
  const int count = 10'000;
#endif
  for (int i = 0; i < count; ++i) many["d" + std::to_string(i % 100) + "/f" + std::to_string(i)] = std::to_string(i);
  const auto ref = publish(many);
  ASSERT_TRUE(succeeded(ref));
  ASSERT_TRUE(succeeded(receive(*ref)));
  EXPECT_EQ(read(here), many);
}

}  // namespace directories_test
