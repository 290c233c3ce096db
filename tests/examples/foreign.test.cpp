// The ends of examples/foreign, which have nothing of the library but its schema, with the library's own and with each
// other. TENSORPULL_FOREIGN_PYTHON: a Python with which those in Python are tried as well.
#ifdef TENSORPULL_FOREIGN_FOLDER  // they were built
#include "support/child_process.hpp"
#include "support/frames.hpp"
#include "support/models.hpp"
#include "support/own_folder.hpp"
#include "transports/network.hpp"

#include <tensorpull/tensors/tensor_list.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace foreign_test {

using namespace test;
using net = tp::pipeline<tp::tensor_list, tp::fixed_bytes<256_KiB>, tp::tcp>;
using checked_net = tp::pipeline<tp::tensor_list, tp::fixed_bytes<256_KiB>, tp::tcp, tp::chunk_and_image_digest>;
using kind = tp::frame_kind;

/// Longer than a chunk of any end.
model layers() {
  model m;
  m.add("layers.0.weight", dtype::f32, {1000, 900}).add("layers.0.bias", dtype::f32, {900}).add("step", dtype::i64, {});
  m.add("scale \"\xc3\xa9\"", dtype::bf16, {7, 3}).add("mask", dtype::boolean, {13}).add("none", dtype::u8, {0, 3});
  return std::move(m.ready());
}

struct language {
  std::vector<std::string> owner, recipient;
};
std::vector<language> languages() {
  const std::string programs = TENSORPULL_FOREIGN_FOLDER, scripts = TENSORPULL_FOREIGN_SCRIPTS;
  std::vector<language> all{{{programs + "/foreign_owner"}, {programs + "/foreign_recipient"}}};
  if (const char* const python = std::getenv("TENSORPULL_FOREIGN_PYTHON"))
    all.push_back({{python, "-B", scripts + "/owner.py"}, {python, "-B", scripts + "/recipient.py"}});
  return all;
}

/// A program, and what it prints.
class program {
 public:
  explicit program(std::vector<std::string> line) : line_(std::move(line)) { ::close(std::exchange(out_.ends[1], -1)); }
  /// Its next line.
  std::string says() {
    std::string text;
    for (char c = 0; read_one(c) && c != '\n';) text += c;
    return text;
  }
  int wait() { return process_.wait(line_[0] + " ends"); }

 private:
  struct pipe {
    pipe() { EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0); }
    ~pipe() {
      for (const int end : ends) ::close(end);
    }
    int ends[2]{-1, -1};
  };
  bool read_one(char& c) const {
    pollfd ready{out_.ends[0], POLLIN, 0};
    return ::poll(&ready, 1, static_cast<int>(std::chrono::milliseconds(ample_time).count())) == 1 &&
           ::read(out_.ends[0], &c, 1) == 1;
  }

  std::vector<std::string> line_;
  pipe out_;
  child_process process_{[this] {
    ::dup2(out_.ends[1], STDOUT_FILENO);
    std::vector<char*> words;
    for (auto& word : line_) words.push_back(word.data());
    words.push_back(nullptr);
    ::execv(words[0], words.data());
    return 127;
  }};
};

std::vector<std::string> joined(std::vector<std::string> line, std::initializer_list<std::string> more) {
  line.insert(line.end(), more);
  return line;
}

byte_vector bytes_of(std::string_view text) {
  const auto all = std::as_bytes(std::span(text.data(), text.size()));
  return {all.begin(), all.end()};
}
byte_vector content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return bytes_of(text);
}

/// A foreign owner of a model, until so many have it.
struct foreign_owner {
  foreign_owner(const language& in, const model& of, std::size_t recipients)
      : program_((write(of), joined(in.owner, {folder_ / "model", std::to_string(recipients)}))) {
    std::istringstream line(program_.says());
    std::string digits;
    line >> port >> digits;
    const auto parsed = tp::parse_reference(digits);
    EXPECT_TRUE(parsed) << line.str();
    if (parsed) ref = *parsed;
    EXPECT_EQ(ref.version, version_of(of));
  }
  int wait() { return program_.wait(); }

  std::uint16_t port = 0;
  tp::reference ref{};

 private:
  void write(const model& of) const {
    const auto image = of.image_bytes();
    std::ofstream(folder_ / "model", std::ios::binary)
        .write(reinterpret_cast<const char*>(image.data()), static_cast<std::streamsize>(image.size()));
  }
  own_folder folder_;
  program program_;
};

/// Foreign recipients, all at once.
struct foreign_recipients {
  foreign_recipients(const language& in, std::size_t count, std::uint16_t port, const tp::reference& ref) {
    const std::string digits(tp::to_digits(ref).data(), 48);
    for (std::size_t i = 0; i < count; ++i)
      all_.emplace_back(joined(in.recipient, {"127.0.0.1", std::to_string(port), digits, path(i)}));
  }
  /// All have the model.
  void expect(const model& expected) {
    const auto image = expected.image_bytes();
    for (std::size_t i = 0; i < all_.size(); ++i) {
      EXPECT_EQ(all_[i].says().find("completed: " + std::to_string(image.size()) + " bytes, digest "), 0u);
      EXPECT_EQ(all_[i].wait(), 0);
      EXPECT_TRUE(content_of(path(i)) == image);
    }
  }
  /// The first one has failed, and has left no file.
  void expect_failure() {
    EXPECT_EQ(all_[0].wait(), 1);
    EXPECT_FALSE(std::filesystem::exists(path(0)));
  }

 private:
  std::string path(std::size_t i) const { return folder_ / std::to_string(i).c_str(); }
  own_folder folder_;
  std::deque<program> all_;
};

/// An owner of the library.
struct own_owner {
  explicit own_owner(const model& of, std::uint32_t recipients = 0)
      : ref(*owner->add_image(of.source(), {.recipients = recipients})) {}
  tp::result<net::downloader> owner = net::downloader::open({.listen = any_port});
  std::uint16_t port = owner->port();
  tp::reference ref;
  serving server{*owner};
};

TEST(Foreign, Recipients_take_what_our_owner_publishes) {
  const model source = layers().fill(1);
  for (const language& in : languages()) {
    own_owner o(source, 2);
    foreign_recipients(in, 2, o.port, o.ref).expect(source);
    o.server.stop();
    EXPECT_EQ(o.owner->settlement_of(o.ref)->verdict, tp::verdict::completed);
    EXPECT_EQ(o.owner->status_of(o.ref)->completed, 2u);
  }
}

TEST(Foreign, Owners_serve_our_recipients_at_once) {
  const model source = layers().fill(2);
  for (const language& in : languages()) {
    foreign_owner o(in, source, 4);
    on_threads(4, [&](std::size_t i) {
      model mine = layers();
      tp::land to(mine.destination());
      const auto done = i % 2 == 0 ? net::pull(local(o.port), o.ref, to) : checked_net::pull(local(o.port), o.ref, to);
      ASSERT_TRUE(succeeded(done));
      EXPECT_EQ(done->outcome, tp::outcome::completed);
      EXPECT_TRUE(done->confirmed);
      EXPECT_TRUE(mine.same_tensors(source));
    });
    EXPECT_EQ(o.wait(), 0);
  }
}

TEST(Foreign, Ends_of_any_two_languages_understand_each_other) {
  const model source = layers().fill(3);
  for (const language& owning : languages())
    for (const language& pulling : languages()) {
      foreign_owner o(owning, source, 2);
      foreign_recipients(pulling, 2, o.port, o.ref).expect(source);
      EXPECT_EQ(o.wait(), 0);
    }
}

TEST(Foreign, A_recipient_of_damaged_bytes_or_of_another_version_keeps_no_file_and_is_no_success) {
  for (const language& in : languages()) {
    model source = layers().fill(4);
    own_owner o(source, 1);
    tp::reference other = o.ref;
    ++other.version;
    foreign_recipients(in, 1, o.port, other).expect_failure();
    source.flip_first_byte();
    foreign_recipients(in, 1, o.port, o.ref).expect_failure();
    ASSERT_TRUE(eventually("the owner hears of it", [&] { return o.owner->settled(o.ref); }));
    EXPECT_EQ(o.owner->status_of(o.ref)->failed, 1u);
  }
}

TEST(Foreign, Owners_give_a_model_of_another_shape_nothing_and_do_not_look_for_names) {
  const model source = layers().fill(5);
  for (const language& in : languages()) {
    foreign_owner o(in, source, 1);
    model mine = std::move(model().add("layers.0.weight", dtype::f32, {900, 1000}).ready());
    tp::land to(mine.destination());
    EXPECT_EQ(code_of(net::pull(local(o.port), o.ref, to)), errc::schema_mismatch);
    const std::array<std::string_view, 1> names{"layers.0.weight"};
    EXPECT_EQ(code_of(net::pull(local(o.port), o.ref, to, {.tensors = names})), errc::unsupported_request);
    EXPECT_TRUE(mine.untouched());
  }
}

/// Asks an owner for anything, frame by frame.
class asker {
 public:
  asker(std::uint16_t port, const tp::reference& ref) : peer_(port), ref_(ref), nonce_(ask(kind::describe).nonce) {}

  /// The answer to a request about the reference, as `change` makes it.
  template <class Change>
  tp::frame ask(kind what, Change change) {
    tp::frame m;
    m.kind = what, m.id = ++id_, m.ref = ref_.id;
    change(m);
    const tp::frame answer = told(encode(m));
    EXPECT_EQ(answer.id, m.id);
    return answer;
  }
  tp::frame ask(kind what) {
    return ask(what, [](const tp::frame&) {});
  }
  tp::frame told(const frame& f) {
    EXPECT_TRUE(peer_.say(f.bytes()));
    auto bytes = peer_.hear(8);
    const auto size = tp::detail::measure_frame(bytes, 4_MiB, 1);
    if (!size || !*size) return {};
    const auto rest = peer_.hear(**size - 8);
    bytes.insert(bytes.end(), rest.begin(), rest.end());
    if (!tp::detail::payload_prefix::announces_payload(bytes)) return decoded(frame(bytes)).m;
    return *tp::detail::payload_prefix::read(std::span(bytes).first<tp::detail::payload_prefix::bytes>());
  }
  std::uint64_t nonce() const { return nonce_; }

 private:
  raw_peer peer_;
  tp::reference ref_;
  std::uint32_t id_ = 0;
  std::uint64_t nonce_;
};

/// The kinds and statuses of the answers to everything that is wrong to ask, and to the ends of transfers.
using told = std::vector<std::pair<kind, tp::status>>;
told all_answers(std::uint16_t port, const tp::reference& ref, std::uint64_t size) {
  told all;
  const auto hear = [&](const tp::frame& m) { all.emplace_back(m.kind, m.status); };
  const auto same = [](const tp::frame&) {};
  const auto pull = [&](asker& as, std::uint64_t offset, std::uint32_t length, auto change) {
    hear(as.ask(kind::pull, [&](tp::frame& m) {
      m.offset = offset, m.length = length;
      change(m);
    }));
  };
  const auto confirm = [&](asker& as, std::uint64_t nonce, std::uint64_t digest) {
    hear(as.ask(kind::confirm,
                [&](tp::frame& m) { m.version = ref.version, m.nonce = nonce, m.digest = digest, m.flag = true; }));
  };
  asker one(port, ref), other(port, ref);
  hear(one.told(single_segment(static_cast<kind>(17), {0})));
  hear(one.ask(kind::describe, [](tp::frame& m) { m.ref.low ^= 1; }));
  pull(one, 0, 10, [](tp::frame& m) { m.ref.high ^= 1; });
  pull(one, 0, 10, [](tp::frame& m) { m.version = 1; });
  pull(one, 0, 10, [](tp::frame& m) { m.fingerprint = 1; });
  pull(one, 0, 10, [](tp::frame& m) { m.chunk_digest = tp::digest_kind{200}; });
  pull(one, 0, 0, same);
  pull(one, size + 1, 10, same);
  pull(one, ~std::uint64_t{0}, ~std::uint32_t{0}, same);
  pull(one, ~std::uint64_t{0} - 8, 16, same);
  pull(one, size, 10, same);
  confirm(one, one.nonce(), ref.version);  // before the end
  pull(one, size - 1, ~std::uint32_t{0}, same);
  confirm(one, one.nonce() + 1, ref.version);
  confirm(other, one.nonce(), ref.version);
  confirm(other, other.nonce(), ref.version);
  confirm(one, one.nonce(), ref.version);
  confirm(one, one.nonce(), ref.version);  // again
  pull(other, size - 1, 1, same);
  confirm(other, other.nonce(), ref.version + 1);
  return all;
}

TEST(Foreign, Owners_answer_as_ours_does_whatever_is_asked) {
  const model source = layers().fill(6);
  const std::uint64_t size = source.schema().image_bytes;
  own_owner ours(source);
  const told expected = all_answers(ours.port, ours.ref, size);
  EXPECT_EQ(expected.front(), std::pair(kind::refused, tp::status::unsupported));
  EXPECT_EQ(expected.back(), std::pair(kind::confirmed, tp::status::digest_mismatch));
  for (const language& in : languages()) {
    foreign_owner o(in, source, 3);
    EXPECT_EQ(all_answers(o.port, o.ref, size), expected);
    for (const auto& no_frame :
         {byte_vector(64), byte_vector(64, std::byte{0xff}), bytes_of("GET / HTTP/1.1\r\n\r\n")}) {
      raw_peer stranger(o.port);
      EXPECT_TRUE(stranger.say(no_frame));
      EXPECT_TRUE(stranger.hear_end());
    }
    foreign_recipients(in, 2, o.port, o.ref).expect(source);
    EXPECT_EQ(o.wait(), 0) << "one had confirmed before";
  }
}

}  // namespace foreign_test
#endif
