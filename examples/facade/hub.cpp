// The files of a hub's model, by its public API: a list that names a commit, and files of that commit.
#include "hub.hpp"

#include "directories.hpp"
#include "http.hpp"

#include <tensorpull/satellites/directories/receive_files.hpp>
#include <tensorpull/satellites/http/recipient/http_fetch.hpp>

#include <openssl/evp.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <utility>

namespace tensorpull::facade {
namespace {

/// Above so many files a hub's own programs do not believe such a list either.
constexpr std::size_t most_files = 50'000;
constexpr std::size_t most_list_bytes = std::size_t{64} << 20;
constexpr std::string_view the_list = "the list of files";

bool is_hex(std::string_view text, std::size_t digits) noexcept {
  return text.size() == digits && text.find_first_not_of("0123456789abcdefABCDEF") == text.npos;
}
bool is_commit(std::string_view text) noexcept { return is_hex(text, 40) || is_hex(text, 64); }
std::string in_small_letters(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

/// A file as the hub states it. Its digest is the SHA-256, or, if Git has it itself, its blob's ID.
struct hub_entry {
  std::string path{}, sha256{}, blob{};
  std::optional<std::uint64_t> bytes{};
  bool lfs = false;  ///< the blob is not the file, but says where it is

  bool known() const noexcept { return bytes && (!sha256.empty() || (!lfs && !blob.empty())); }
};
struct hub_list {
  std::string commit{};
  std::vector<hub_entry> files{};
};

/// Reads the answer about a model: "sha", and of each of "siblings" the name, the size and the digests. Everything else
/// is passed over.
class list_reader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit list_reader(hub_list& to) noexcept : to_(to) {}
  error why{errc::bad_file, 0, 0, the_list};

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return !is_size(); }
  bool number_float(number_float_t, const string_t&) override { return !is_size(); }
  bool binary(binary_t&) override { return false; }
  bool number_unsigned(number_unsigned_t n) override {
    if (!is_size()) return true;
    hub_entry& e = to_.files.back();
    if (depth_ == 4 || !e.lfs) e.bytes = n;
    return true;
  }
  bool string(string_t& text) override {
    if (depth_ == 1 && keys_[1] == "sha") return once(to_.commit, text, is_commit(text));
    if (!in_entry()) return true;
    hub_entry& e = to_.files.back();
    const std::string_view key = keys_[depth_];
    if (depth_ == 3 && key == "rfilename") return once(e.path, text, true);
    if (depth_ == 3 && key == "blobId" && is_hex(text, 40)) return once(e.blob, text, true);
    if (depth_ == 4 && (key == "sha256" || key == "oid") && is_hex(text, 64)) return once(e.sha256, text, true);
    return true;
  }
  bool start_object(std::size_t) override {
    if (depth_ == 2 && in_list()) {
      if (to_.files.size() == most_files) {
        why = {errc::too_large, 0, most_files, the_list};
        return false;
      }
      to_.files.emplace_back();
    }
    if (depth_ == 3 && in_list() && keys_[3] == "lfs") to_.files.back().lfs = true;
    return open(false);
  }
  bool key(string_t& name) override {
    if (depth_ < keys_.size()) keys_[depth_] = name.size() <= 16 ? name : std::string();
    return true;
  }
  bool end_object() override {
    const bool ends = depth_ == 3 && in_list();
    --depth_;
    return !ends || !to_.files.back().path.empty();
  }
  bool start_array(std::size_t) override {
    if (depth_ == 1 && keys_[1] == "siblings" && std::exchange(listed_, true)) return false;
    return open(true);
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool open(bool array) {
    ++depth_;
    if (depth_ < keys_.size()) keys_[depth_].clear(), arrays_[depth_] = array;
    return depth_ < 100;
  }
  bool in_list() const { return !arrays_[1] && keys_[1] == "siblings" && depth_ >= 2 && arrays_[2]; }
  /// Whether the value belongs to a file, or to its "lfs".
  bool in_entry() const {
    return in_list() && depth_ >= 3 && !arrays_[3] &&
           (depth_ == 3 || (depth_ == 4 && !arrays_[4] && keys_[3] == "lfs"));
  }
  bool is_size() const { return in_entry() && keys_[depth_] == "size"; }
  static bool once(std::string& to, std::string& from, bool valid) {
    if (!to.empty() || !valid) return false;
    to = std::move(from);
    return true;
  }

  hub_list& to_;
  std::size_t depth_ = 0;
  std::array<std::string, 5> keys_{};
  std::array<bool, 5> arrays_{};
  bool listed_ = false;
};

/// A digest that is computed as bytes come.
class file_digest {
 public:
  explicit file_digest(const hub_entry& e) : wanted_(in_small_letters(e.sha256.empty() ? e.blob : e.sha256)) {
    const bool sha256 = !e.sha256.empty();
    ready_ = context_ != nullptr && EVP_DigestInit_ex(context_.get(), sha256 ? EVP_sha256() : EVP_sha1(), nullptr) == 1;
    if (const std::string head = "blob " + std::to_string(*e.bytes) + '\0'; !sha256)
      update(std::as_bytes(std::span(head)));
  }
  void update(std::span<const std::byte> bytes) noexcept {
    ready_ = ready_ && EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1;
  }
  bool agrees() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned size = 0;
    if (!ready_ || EVP_DigestFinal_ex(context_.get(), digest.data(), &size) != 1) return false;
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (const unsigned char c : std::span(digest).first(size)) (text += digits[c >> 4]) += digits[c & 15];
    return text == wanted_;
  }

 private:
  struct release {
    void operator()(EVP_MD_CTX* c) const noexcept { EVP_MD_CTX_free(c); }
  };
  std::string wanted_;
  std::unique_ptr<EVP_MD_CTX, release> context_{EVP_MD_CTX_new()};
  bool ready_ = false;
};

/// Percent-encodes all that could mean something in a URL.
std::string encoded(std::string_view text, std::string_view besides) {
  constexpr std::string_view plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~",
                             digits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto octet = static_cast<unsigned char>(c);
    if (plain.find(c) != plain.npos || besides.find(c) != besides.npos) out += c;
    else ((out += '%') += digits[octet >> 4]) += digits[octet & 15];
  }
  return out;
}

/// A hub, and the commit of a model there.
class hub {
 public:
  hub(const hub_call& call, const hub_model& model)
      : from_(web_place(call.at), {.timeout = call.timeout, .stop = call.stop, .retry = call.retry}), model_(model) {
    const std::string_view url = call.at.address;
    const std::size_t path = url.find('/', url.find("://") + 3);
    if (path != url.npos) prefix_ = url.substr(path);
    while (prefix_.ends_with('/')) prefix_.pop_back();
    base_ = url.substr(0, std::min(path, url.size()));
  }

  /// Asks for the list, and so for the commit to which the revision leads now.
  result<void> open() {
    const auto text = from_.text(
        prefix_ + "/api/models/" + model_.repository + "/revision/" + encoded(model_.revision, "") + "?blobs=true",
        most_list_bytes, {});
    if (!text && text.error().code == errc::too_large) return failure(errc::too_large, most_list_bytes, the_list);
    if (!text) return failure(text.error());
    list_reader reader(list_);
    if (!nlohmann::json::sax_parse(*text, &reader)) return failure(reader.why);
    if (list_.commit.empty()) return failure(errc::bad_file, 0, the_list);
    list_.commit = in_small_letters(list_.commit);
    if (is_commit(model_.revision) && in_small_letters(model_.revision) != list_.commit)
      return failure(errc::stale_version, 0, std::string_view("another commit"));
    return {};
  }
  const std::string& commit() const noexcept { return list_.commit; }
  std::vector<hub_entry>& files() noexcept { return list_.files; }
  std::string target(const hub_entry& e) const {
    return prefix_ + "/" + model_.repository + "/resolve/" + list_.commit + "/" + encoded(e.path, "/");
  }
  std::string url(const hub_entry& e) const { return base_ + target(e); }

  /// Asks for what the list lacks about a file. not_verifiable, with its path: the hub states no size or no digest.
  result<void> look(hub_entry& e) {
    if (e.known()) return {};
    const auto asked = from_.head(target(e), [&](const http_statement& s) -> result<void> {
      if (const auto ok = check(e, s); !ok) return ok;
      if (!e.bytes && s.bytes) e.bytes = s.bytes;
      if (e.sha256.empty() && is_hex(s.etag, 64)) e.sha256 = s.etag;
      if (e.blob.empty() && is_hex(s.etag, 40)) e.blob = s.etag;
      return {};
    });
    if (!asked) return failure(asked.error());
    if (!e.known()) return failure(errc::not_verifiable, 0, std::string_view(e.path));
    return {};
  }

  // What receive_files asks.
  file_digest digest(std::size_t i) const { return file_digest(list_.files[i]); }
  result<void> fetch(std::size_t i, std::uint64_t from, const file_sink& take) {
    const hub_entry& e = list_.files[i];
    return from_.get(target(e), from, *e.bytes, [&](const http_statement& s) { return check(e, s); }, take);
  }

 private:
  /// Whether the hub's own statements about a file are those of its list. A mirror may have entity tags of its own.
  result<void> check(const hub_entry& e, const http_statement& s) const {
    if (!s.commit.empty() && in_small_letters(s.commit) != list_.commit)
      return failure(errc::stale_version, 0, std::string_view("another commit"));
    const bool other_digest = (is_hex(s.etag, 64) && !e.sha256.empty() && !same(s.etag, e.sha256)) ||
                              (is_hex(s.etag, 40) && !e.lfs && !e.blob.empty() && !same(s.etag, e.blob));
    const bool other_length = e.bytes && s.bytes && *e.bytes != *s.bytes;
    if (other_digest || other_length) return failure(errc::stale_version, 0, std::string_view("another file"));
    return {};
  }
  static bool same(std::string_view a, std::string_view b) { return in_small_letters(a) == in_small_letters(b); }

  http_fetcher from_;
  const hub_model& model_;
  std::string prefix_, base_;
  hub_list list_{};
};

}  // namespace

result<hub_brought> bring_model(const hub_model& model, const hub_call& call, const hub_wanted& w) {
  try {
    hub from(call, model);
    if (const auto ok = from.open(); !ok) return failure(ok.error());
    const chosen_files chosen(w.include, w.exclude);
    std::vector<listed_file> list;
    for (hub_entry& e : from.files()) {
      if (chosen.choice()(e.path))
        if (const auto ok = from.look(e); !ok) return failure(ok.error());
      list.push_back({e.path, e.bytes.value_or(0)});
    }
    const auto landed = [&](const landed_range& r) {
      if (w.landed) w.landed(r.offset, r.bytes, r.total);
    };
    const auto done = receive_files(from, list, w.path,
                                    {.files = chosen.choice(),
                                     .base = w.base,
                                     .overwrite = w.overwrite,
                                     .anew = w.anew,
                                     .max_bytes = w.max_bytes,
                                     .max_files = most_files,
                                     .landed = landed},
                                    call.stop);
    if (!done) return failure(done.error());
    return hub_brought{from.commit(), done->files, done->bytes, done->kept};
  } catch (const std::bad_alloc&) {
    return failure(errc::out_of_memory);
  }
}
result<hub_file> find_model_file(const hub_model& model, const hub_call& call) {
  try {
    hub from(call, model);
    if (const auto ok = from.open(); !ok) return failure(ok.error());
    for (hub_entry& e : from.files()) {
      if (e.path != model.file) continue;
      if (const auto ok = from.look(e); !ok) return failure(ok.error());
      if (e.sha256.empty()) return failure(errc::not_verifiable, 0, std::string_view(e.path));
      return hub_file{from.url(e), "sha256:" + e.sha256};
    }
    return failure(errc::unknown_reference, 0, std::string_view(model.file));
  } catch (const std::bad_alloc&) {
    return failure(errc::out_of_memory);
  }
}

}  // namespace tensorpull::facade
