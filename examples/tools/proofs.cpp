#include "proofs.hpp"

#include "error_text.hpp"

#include "facade/proofs.hpp"

#include <tensorpull/consumers/any_schema/finished_file.hpp>
#include <tensorpull/core/digits.hpp>
#include <tensorpull/image/utf8.hpp>
#include <tensorpull/satellites/proofs/signed_reference.hpp>
#include <tensorpull/system/atomic_file.hpp>
#include <tensorpull/system/files.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

namespace tools {
namespace {

std::uint64_t unix_now() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count());
}

/// "2027-01-31" or "2027-01-31T12:00:00Z". Nothing: the text is something else.
std::optional<std::uint64_t> date_of(std::string_view text) {
  constexpr std::string_view form = "dddd-dd-ddTdd:dd:ddZ";
  if (text.size() != 10 && text.size() != form.size()) return {};
  for (std::size_t i = 0; i < text.size(); ++i)
    if (form[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != form[i]) return {};
  const auto number = [&](std::size_t at, std::size_t n) {
    unsigned value = 0;
    if (at < text.size()) std::from_chars(text.data() + at, text.data() + at + n, value);
    return value;
  };
  const std::chrono::year_month_day day{std::chrono::year(static_cast<int>(number(0, 4))),
                                        std::chrono::month(number(5, 2)), std::chrono::day(number(8, 2))};
  if (!day.ok() || day.year() < std::chrono::year(1970) || number(11, 2) > 23 || number(14, 2) > 59 ||
      number(17, 2) > 59)
    return {};
  return static_cast<std::uint64_t>(std::chrono::sys_days(day).time_since_epoch().count()) * 86'400 +
         number(11, 2) * 3600 + number(14, 2) * 60 + number(17, 2);
}

/// All of a file that has no more than `most` bytes. Errors: as positioned_file; too_large.
tp::result<std::string> text_of(const std::string& path, std::uint64_t most) {
  const auto file = tp::positioned_file::open(path);
  if (!file) return tp::failure(file.error());
  if (file->size() > most) return tp::failure(errc::too_large, file->size());
  std::string text(static_cast<std::size_t>(file->size()), '\0');
  if (const auto ok = file->read_at(0, std::as_writable_bytes(std::span(text))); !ok) return tp::failure(ok.error());
  return text;
}
constexpr std::uint64_t longest_keys = 2 << 20;

refusal unusable(const std::string& path, const error& e, const std::string& why) {
  return {e.code, {}, printable(path) + (is_unreadable(e) ? " cannot be read: " + unreadable_text(e) : why)};
}

}  // namespace

std::uint64_t parse_expiry(std::string_view option, std::string_view text) {
  std::uint64_t seconds = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const std::uint64_t now = unix_now();
  const bool is_number = code == std::errc{} && end == text.data() + text.size();
  const auto when = is_number && seconds > 0 && seconds <= 3'155'760'000 ? now + seconds : date_of(text);
  if (!when || *when <= now)
    throw option_error("--" + std::string(option) +
                       " wants seconds from now, or a date to come, as in 604800, 2027-01-31 or 2027-01-31T12:00:00Z, "
                       "not '" +
                       printable(text) + "'");
  return *when;
}
std::string date_text(std::uint64_t unix_time) {
  const std::uint64_t most = 253'402'300'799;  // of the year 9999
  const auto days = std::min(unix_time, most) / 86'400, rest = std::min(unix_time, most) % 86'400;
  const std::chrono::year_month_day day{std::chrono::sys_days(std::chrono::days(static_cast<int>(days)))};
  return formatted("%04d-%02u-%02u %02u:%02u UTC", static_cast<int>(day.year()), static_cast<unsigned>(day.month()),
                   static_cast<unsigned>(day.day()), static_cast<unsigned>(rest / 3600),
                   static_cast<unsigned>(rest / 60 % 60));
}

tp::result<model_tree> make_tree(const tp::source_view& image, const tp::stop_token& stop) {
  auto made = tp::proof_tree::make(image, stop);
  if (!made) return tp::failure(made.error());
  const auto kept = std::make_shared<const tp::proof_tree>(std::move(*made));
  model_tree tree{.root = kept->root(), .image_bytes = kept->image_bytes(), .keep = kept};
  if (!kept->is_root_alone()) tree.image = kept->image().source();
  return tree;
}
tp::ref_id tree_id(const tp::reference& model) { return tp::proof_tree_id(model); }

tp::result<signer> open_signer(const signing_choice& choice) {
  auto key = tp::signing_key::read({.file = choice.key});
  if (!key) return tp::failure(key.error());
  const auto kept = std::make_shared<const tp::signing_key>(std::move(*key));
  return signer([kept, choice](const tp::reference& model, const tp::reference& tree, const model_tree& of) {
    return tp::sign_reference(
        {{model, tree, of.root, of.image_bytes}, choice.federation, choice.round, choice.expires, {}}, *kept);
  });
}

std::optional<refusal> verify(const trust_choice& choice, known_model& to) {
  const std::string file = printable(choice.reference), keys = printable(choice.keys);
  const auto text = text_of(choice.reference, tp::detail::longest_signed_reference);
  if (!text) return unusable(choice.reference, text.error(), " is no signed reference: it is too long");
  const auto lines = text_of(choice.keys, longest_keys);
  if (!lines) return unusable(choice.keys, lines.error(), " is too long for a file of keys");
  const auto trusted = tp::trusted_keys::parse(*lines);
  if (!trusted)
    return unusable(choice.keys, trusted.error(),
                    " is no file of keys: line " + std::to_string(trusted.error().at) +
                        " is not a federation's name, a space and a public key of Ed25519 in base64");
  auto claims = tp::verify_reference(*text, *trusted, {choice.federation, choice.least_round, unix_now()});
  if (claims) {
    to = {claims->of.model, claims->of.tree,    claims->of.root, claims->of.image_bytes,
          claims->round,    claims->federation, claims->note};
    return {};
  }
  const error& e = claims.error();
  const std::string name(e.name.view());
  if (name == "signature") return refusal{e.code, name, "no key of " + keys + " has signed " + file};
  if (name == "revoked") return refusal{e.code, name, "the key that has signed " + file + " is revoked in " + keys};
  if (name == "federation")
    return refusal{e.code, name, file + " is for another federation than " + printable(choice.federation)};
  if (name == "round")
    return refusal{
        e.code, name,
        file + " is of round " + std::to_string(e.at) + ", and --least-round is " + std::to_string(choice.least_round)};
  if (name == "expires") return refusal{e.code, name, file + " has expired at " + date_text(e.at)};
  return unusable(choice.reference, e, " is no signed reference (byte " + std::to_string(e.at) + ")");
}

tp::result<tp::receipt> bring_proved(const wanted_proof& wanted, facade::any_consumer& to) {
  std::vector<facade::place> all{*wanted.link.at};
  all.insert(all.end(), wanted.link.also.begin(), wanted.link.also.end());
  auto places = places_of(wanted.link, std::move(all));
  if (!places) return tp::failure(places.error());
  facade::any_pull over_all{
      .from = *places, .chunk_bytes = wanted.chunk, .digest = false, .connections = wanted.link.connections};
  const facade::pull_from pull_all = [&](const tp::reference& ref, facade::any_consumer& into,
                                         const tp::pull_options& options) {
    if (wanted.member == nullptr) return over_all(ref, into, options);
    const auto done = wanted.member->pull(ref, into, options, wanted.chunk);
    over_all.wrong = wanted.member->is_owner_wrong();
    return done;
  };
  const facade::pull_at_once at_once{pull_all, over_all.wrong};
  const bool several = wanted.member != nullptr || wanted.link.connections > 1 ||
                       (places->size() > 1 && facade::features.several);
  tp::proof_options how;
  if (wanted.member != nullptr) how.most_bytes = facade::any_member::proof_bytes;
  std::vector<facade::pull_from> from;
  for (facade::place& at : *places)
    from.push_back([pull = facade::any_pull{.from = {std::move(at)}, .chunk_bytes = wanted.chunk}](
                       const tp::reference& ref, facade::any_consumer& into, const tp::pull_options& options) mutable {
      return pull(ref, into, options);
    });
  std::uint64_t wrong = 0;
  how.wrong = &wrong;
  const auto done = facade::pull_proved_from(from,
                                             {wanted.of.model, wanted.of.tree, wanted.of.root, wanted.of.image_bytes},
                                             to, how, wanted.options, several ? &at_once : nullptr);
  if (wanted.wrong != nullptr) *wanted.wrong = static_cast<std::uint8_t>(wrong);
  if (!done) return tp::failure(done.error());
  return done->last;
}

tp::result<std::array<std::byte, 32>> blake3_of_file(const std::string& path, const tp::stop_token& stop) {
  auto file = tp::positioned_file::open(path);
  if (!file) return tp::failure(file.error());
  const tp::finished_file whole(std::move(*file));
  const auto tree = tp::proof_tree::make(whole.read_back(), stop);
  if (!tree) return tp::failure(tree.error());
  return tree->root();
}
std::string b3sum_line(std::string_view path, const std::array<std::byte, 32>& digest) {
  std::string name;
  for (const char c : path) {
    if (c == '\\') name += "\\\\";
    else if (c == '\n') name += "\\n";
    else name += c;
  }
  return (name == path ? "" : "\\") + hex_text(digest) + "  " + name + "\n";
}
tp::result<std::string> b3sum_of_directory(const std::string& path, const tp::stop_token& stop) {
  std::error_code failed;
  std::vector<std::string> files;
  for (std::filesystem::recursive_directory_iterator at(path, failed), end; !failed && at != end; at.increment(failed))
    if (at->is_regular_file(failed)) files.push_back(at->path().string());
  if (failed) return tp::failure(errc::io, 0, std::string_view(path), failed.value());
  std::sort(files.begin(), files.end());
  std::string text;
  for (const std::string& file : files) {
    const auto digest = blake3_of_file(file, stop);
    if (!digest) return tp::failure(digest.error());
    text += b3sum_line(file, *digest);
  }
  return text;
}

tp::result<void> write_text(const std::string& path, std::string_view text) {
  auto file = tp::detail::atomic_file::create(path, true);
  if (!file) return tp::failure(file.error());
  if (const auto ok = file->write(0, std::as_bytes(std::span(text))); !ok) return ok;
  if (const auto ok = file->complete(text.size(), text.size(), true); !ok) return ok;
  return file->publish(text.size(), true);
}

}  // namespace tools
