// recv ADDRESS REF -o FILE: pulls what `send` publishes into a safetensors file.
#include "command_line.hpp"
#include "difference.hpp"
#include "directory.hpp"
#include "error_text.hpp"
#include "hub.hpp"
#include "interruption.hpp"
#include "json.hpp"
#include "link_choice.hpp"
#include "proofs.hpp"
#include "transfer_line.hpp"

#include <tensorpull/consumers/any_schema/finished_file.hpp>
#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/core/describe.hpp>
#include <tensorpull/system/atomic_file.hpp>
#include <tensorpull/system/files.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace tools;

constexpr const char* help = R"(usage: recv LINK REF -o FILE [options]
       recv LINK REF -o DIRECTORY/ [--include PATTERN] [--exclude PATTERN] [options]
       recv LINK SIGNED --key KEYS -o FILE [--least-round N] [--federation NAME] [options]
       recv http[s]://HOST[:PORT]/PATH -o FILE [options]
       recv hf://ORG/MODEL[@REVISION] -o DIRECTORY/ [options]

Pulls the model that 'send' publishes under REF at LINK and writes it as a safetensors file. FILE appears when it is complete and
its digest is that of REF; until then the bytes are in .FILE.part beside it. A connection that is lost, or cannot be
made yet, is tried again. After Ctrl-C or a crash the same command with --resume fetches only what is missing.

LINK is
  HOST:PORT, [V6]:PORT   TCP
  unix:PATH, unix:@NAME  a Unix socket of this user
  tls://HOST:PORT        TCP with TLS; the sender has a certificate for HOST of an authority that this system trusts, or of --tls-ca
  shm:PATH               shared memory of a sender on this machine
  udp://HOST:PORT, serial:DEVICE?speed=115200&flow=rtscts, nats://[USER:PASSWORD@]SERVER:4222?inbox=_INBOX_me&credentials=FILE
  pipe:COMMAND           standard input and output of a command, which no shell reads; it is run again if it ends. 'pipe:-': those of this
                         program, which another one has started; it prints everything on standard error then

REF has 48 digits, as 'send' prints them: 32 by which the model is found, and 16 that are its version. Other bytes end as an error, whoever
sends them. The first 32 alone take what whoever answers says; over nats://, where anybody who is let in can answer, only with --believe.

With a slash behind its name, a directory is made of what 'send DIRECTORY' publishes: it appears when it is complete, and until then its
files are in .DIRECTORY.part beside it. The rest of what follows holds for it as for FILE.

SIGNED is a file that 'send --sign' has written. With --key it says which bytes are right, and nobody is believed: it is verified first, and
each group of bytes is proved as it lands, from all senders at once. One that lies is named, and the others go on.

A URL is that of a safetensors file on any web server or object store (a signed URL is sent as it is). It is complete if its digest
agrees: that of --digest, or the one that the server states (Repr-Digest).

hf:// is a model of a hub: Hugging Face's, or that of HF_ENDPOINT. All files are of the one commit to which REVISION (main) leads, and have
the digests that the hub states; --base and the choice of files hold as for any directory. hf://ORG/MODEL/FILE -o FILE takes one
safetensors file. The token is that of --bearer-file or HF_TOKEN, or the one that the hub's own programs keep; no other host gets it.

  -o, --output FILE    where to write it
      --resume         go on with what an earlier recv left in .FILE.part, as far as its bytes are right; from the start if there is none.
                       If FILE is there already: say whether it is what is published
      --restart        fetch all of it anew, in place of what an earlier recv left
      --force          replace FILE if it exists
      --max-bytes SIZE refuse what is longer (what the disk has room for); no room is taken before bytes arrive
      --base OLD       a file of the version before: if the sender publishes what has changed since ('send --base OLD'), only that is
                       fetched; otherwise the tensors that have changed, if it says their digests ('send --tensor-digests'). It may be
                       FILE itself, with --force. Anything else is fetched whole.
                       Of a directory: one that has files already. Those that have not changed are copied from there, and not fetched
      --include PATTERN  of a directory, only files whose paths below it fit; may be repeated. * stands for any characters, slashes among
                       them, and ? for one. Their digests are compared with those that the sender states
      --exclude PATTERN  of a directory, no files whose paths fit; may be repeated
      --also LINK      another sender of the same version, over the same kind of link (TCP, unix: or tls://); up to 7 of them. All
                       send at a time, each as fast as it is, and the transfer goes on as long as one of them does
      --key KEYS       take what a key of this file has signed. Its lines: a federation's name, a space, the line of 'openssl pkey -pubout',
                       and ' revoked' if the key counts no more
      --least-round N  of what is signed, no earlier round than N: keep the last one that you had (0)
      --federation NAME  of what is signed, only what is for this federation (that of the key)
      --serve-on ADDRESS  with --key, from a 'send --swarm': serve what is proved to others that do the same, and take from them, at the
                       addresses that the sender names; also once FILE is complete, as long as others pull. A port, HOST:PORT, or
                       unix:PATH if LINK is one. Everybody who knows the model's reference may pull there; nothing is encrypted
      --serve-for SECS  how long to serve at most once FILE is complete (600; 0: not at all). Ctrl-C ends it, and is no failure then
      --b3sum FILE     write the BLAKE3 of what has arrived to FILE, for 'b3sum -c FILE'
      --connections N  connections at a time, in all, 1 to 8 (one to each sender): where packets are lost on a long way, several carry more
      --chunk SIZE     bytes that are asked for at a time, 1 to 511M; 0: all of it at once (2M)
      --timeout SECS   how long all of it may take (no limit)
      --wait SECS      how long nothing may come: from a sender that is not there yet, is started again, or is silent
      --retries N      without --wait: tries to connect again without progress in between, with growing pauses (8, about a minute); each
                       ends after 60 s in which nothing comes
      --name NAME      who pulls, as in 'send --expect NAME'
      --digest TEXT    of a URL: sha256:HEX or xxh3:HEX that the file has to have, whatever the server states
      --bearer-file FILE  of a URL or a hub: its first line is sent as the authorisation (Bearer), to that host alone
      --unverified     take a model that is published without a digest, too: nobody can say whether its bytes are right
      --believe        over nats://, take what the first answer describes if REF has 32 digits alone
      --no-digest      do not check the digest of the whole: less work for both ends, no proof, and no --resume
      --proxy [USER:PASSWORD@]HOST:PORT  an HTTP proxy on the way, for TCP, TLS and URLs
      --tls-ca FILE    authorities that the sender's certificate may be of (PEM); --tls-crl FILE: and that do not list it as revoked
      --tls-name NAME  what the sender's certificate has to have, if it is not HOST
      --tls-cert FILE, --tls-key FILE    the certificate of this end and its key, if the sender wants one
      --json           the outcome as a JSON object on standard output:
                         {"file", "outcome": "completed" or "completed_unverified", "digest", "confirmed", "believed", "bytes",
                          "total_bytes", "resumed_bytes", "received_bytes", "difference_bytes", "chunks", "resumable", "seconds"},
                          and "wrong_senders" of a file, "files" of a directory, "commit" of a hub's,
                          "root", "federation", "round" and "note" of what is signed,
                          "served_bytes" and "members" (at a time, without this one) with --serve-on, once it no longer serves
                         {"file", "outcome": "failed" or "interrupted", "code", "message", "bytes", ...}, and "refused" of what is signed:
                          "signature", "revoked", "federation", "round" or "expires"
                       "difference_bytes": what of the received bytes was a difference to --base, or tensors that have changed since;
                       the rest of the file was there then.
                       "believed": REF (or --digest) did not say which bytes are right, so the sender was believed about that.
                       "wrong_senders": the links of those whose bytes were not those of the signed root; what they gave was fetched anew.
                       "confirmed" is whether the sender is known to have recorded it; "unconfirmed_because" is a code if it is not. FILE
                       is complete in either case. The "bytes" of a failure are those in .FILE.part to go on with, or else of FILE
  -h, --help           this text

Example:
  send model.safetensors                  # prints ADDRESS REF
  recv 127.0.0.1:40123 5d1f0c...e2 -o copy.safetensors
  recv 127.0.0.1:40124 77aa01...9c -o checkpoint/ --exclude '*.bin'
  recv hf://org/model@v1.0 -o model/ --include '*.safetensors' --include '*.json'
  recv 'pipe:ssh host send model.safetensors --stdio --ref 5d1f0c...e2' 5d1f0c...e2 -o copy.safetensors

Status: 0 FILE is complete, 1 the transfer failed, 2 a wrong option, 3 FILE or standard output cannot be written, 130 Ctrl-C, 143 SIGTERM.
)";

/// The longest chunk that can be asked for.
constexpr std::uint64_t longest_chunk = tp::max_payload_bytes;

/// The file, a look at what goes into it, and its bytes for others, also once it has its name.
class observed_file : public tp::safetensors_file {
  using holds_callback = tp::basic_callback<bool, const tp::source_view&>;

 public:
  /// `part`: where the file is until it has its name, `output`.
  observed_file(tp::safetensors_file file, transfer_line& line, bool at_once, std::string part,
                std::string output) noexcept
      : safetensors_file(std::move(file)), line_(&line), at_once_(at_once), part_(std::move(part)),
        output_(std::move(output)) {}
  observed_file(const observed_file&) = delete;
  observed_file& operator=(const observed_file&) = delete;

  tp::result<void> begin(const tp::description& d) noexcept {
    line_->expect(d.image_bytes);
    if (at_once_ && d.image_bytes > longest_chunk) return tp::failure(errc::does_not_fit, d.image_bytes);
    if (const auto ok = safetensors_file::begin(d); !ok) return ok;
    const tp::source_view now = safetensors_file::arrived();
    bytes_ = now.schema->tensors[0];
    schema_ = *now.schema;
    schema_.tensors = &bytes_;
    where_ = *now.where;
    return {};
  }
  tp::prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    line_->begin(offset);
    return safetensors_file::prepare(offset, length, out);
  }
  tp::result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    line_->arrived(bytes.size());
    return safetensors_file::commit(offset, bytes);
  }
  tp::result<void> finish(const tp::receipt& r) noexcept { return finish(r, {}); }
  tp::result<void> finish(const tp::receipt& r, const holds_callback& holds) noexcept {
    auto part = tp::positioned_file::open(part_);
    const auto done = safetensors_file::finish(r, holds);
    if (!done) return done;
    finished_ = true;
    struct stat held{}, named{};
    if (!part || ::fstat(part->descriptor(), &held) != 0 || ::lstat(output_.c_str(), &named) != 0 ||
        held.st_dev != named.st_dev || held.st_ino != named.st_ino)
      return done;
    complete_.emplace(std::move(*part));
    left_ = tp::detail::stamp_of(complete_->descriptor());
    return done;
  }
  /// Reading fails once another process has changed the file.
  tp::source_view arrived() const noexcept { return {&schema_, nullptr, &where_, &reader_}; }

 private:
  static tp::result<void> read(const void* self, std::uintptr_t header, std::uint64_t offset,
                               std::span<std::byte> out) noexcept {
    const auto& file = *static_cast<const observed_file*>(self);
    if (!file.finished_) {
      const tp::source_view now = file.safetensors_file::arrived();
      return now.reader->read(now.reader->context, header, offset, out);
    }
    if (!file.complete_) return tp::failure(errc::io, offset);
    if (const auto ok = file.complete_->read_at(header + offset, out); !ok) return ok;
    if (tp::detail::stamp_of(file.complete_->descriptor()) != file.left_)
      return tp::failure(errc::io, offset, file.complete_->name(), ESTALE);
    return {};
  }

  transfer_line* line_;
  bool at_once_;
  std::string part_, output_;
  tp::tensor_entry bytes_{};  // a view as that of the file below, whose reader changes
  tp::image_schema schema_{};
  std::uintptr_t where_ = 0;
  tp::source_reader reader_{&read, this};
  std::optional<tp::positioned_file> complete_;
  tp::detail::file_stamp left_;  // when it got its name
  bool finished_ = false;
};
static_assert(tp::consumer<observed_file>);

constexpr int complete = 0, failed = 1, unwritable = 3;

struct choices {
  link_choice link;
  std::string output, name, ref_text, base;
  tp::reference ref{};
  std::uint64_t chunk = tp::default_chunk_bytes, timeout_ms = 0, wait_ms = 0, most_bytes = ~std::uint64_t{0};
  std::uint32_t retries = 8;
  bool resume = false, restart = false, force = false, unverified = false, no_digest = false, json = false,
       believe = false;
  bool directory = false;  ///< the output is one; it was written with a slash at its end
  std::optional<facade::hub_model> hub{};
  path_patterns files;
  trust_choice trust;  ///< without a file of keys nothing is signed
  known_model known;  ///< of what is signed, once it is verified
  std::string b3sum;
  std::string serve_text;  ///< where it serves what it has; empty: nowhere
  std::optional<facade::place> serve_on{};
  std::optional<std::uint64_t> serve_ms{};  ///< how long at most, once all of it is there

  bool is_signed() const { return !trust.keys.empty(); }
};

/// [USER:PASSWORD@]HOST:PORT
void set_proxy(std::string_view value, facade::tls_arguments& to) {
  const std::size_t at = value.rfind('@');
  const std::string_view who = value.substr(0, at == value.npos ? 0 : at),
                         where = value.substr(at == value.npos ? 0 : at + 1);
  const std::size_t colon = std::min(who.find(':'), who.size());
  to.proxy = where, to.proxy_user = who.substr(0, colon),
  to.proxy_password = who.substr(std::min(colon + 1, who.size()));
  if (!tp::parse_address(where))
    // it may have a password, so it is not printed
    throw option_error("--proxy wants HOST:PORT, or USER:PASSWORD@HOST:PORT");
}

/// The one word of a pull from a hub, and the options that have a meaning there.
void check_hub(const std::vector<std::string>& words, choices& c) {
  if (words.size() > 1)
    throw option_error("'" + printable(words[1]) + "' is one word too many: a hub's model has no reference");
  if (!c.link.also_text.empty() || c.link.connections != 0)
    throw option_error("--also and --connections are for TCP, unix: and tls://, and not for a hub");
  if (!c.link.http.digest.empty() || c.no_digest || c.unverified || !c.name.empty())
    throw option_error(
        "a hub states the digests, and counts nobody: --digest, --no-digest, --unverified and --name have no meaning for it");
  c.hub = parse_hub(words[0], c.link);
  check_link_options(c.link);
  if (c.output.empty()) throw option_error("where to? -o DIRECTORY/ says it");
  if (c.directory != c.hub->file.empty())
    throw option_error(c.directory ? "hf://ORG/MODEL/FILE is one file: -o FILE takes it, without a slash"
                                   : "a hub's model is a directory: '-o DIRECTORY/' with a slash makes one");
  if (!c.base.empty() && !c.directory)
    throw option_error("--base is for all files of a model, or for what 'send' publishes");
  if (c.resume && c.restart) throw option_error("--resume and --restart exclude each other");
}

/// The one word of a pull from a URL, and the options that have a meaning there.
void check_url(const std::vector<std::string>& words, choices& c) {
  if (words.size() > 1)
    throw option_error("'" + printable(words[1]) +
                       "' is one word too many: a URL names the file, and has no reference");
  if (!c.link.also_text.empty() || c.link.connections != 0)
    throw option_error("--also and --connections are for TCP, unix: and tls://, and not for a URL");
  if (c.directory) throw option_error("a directory is what 'send' publishes, and a URL leads to one file");
  if (!c.base.empty()) throw option_error("--base is for what 'send' publishes, and a web server has no differences");
  need(*facade::scheme_of(words[0]));
  if (!facade::place::read(words[0]))
    throw option_error(
        "that is no URL: http[s]://HOST[:PORT]/PATH is wanted, without a user before the host and with %20 for a space");
  parse_url(words[0], {}, c.link);
  c.ref.id = c.link.at->id;
  check_link_options(c.link);
  if (c.name.size() > 128)
    throw option_error("--name: over HTTP it has at most 128 characters, and this has " +
                       std::to_string(c.name.size()));
  for (const char letter : c.name)
    if (letter <= 0x20 || letter >= 0x7f) throw option_error("--name: over HTTP it has visible ASCII characters alone");
  c.link.http.recipient = c.name;
  if (c.output.empty()) throw option_error("where to? -o FILE says it");
  const std::string_view digest = c.link.http.digest, kind = digest.substr(0, digest.find(':') + 1);
  if (!digest.empty() &&
      (digest.find_first_not_of("0123456789abcdefABCDEF", kind.size()) != digest.npos ||
       digest.size() - kind.size() != (kind == "sha256:" ? 64U : 16U) || (kind != "sha256:" && kind != "xxh3:")))
    throw option_error("--digest: sha256: and 64 hexadecimal digits are wanted, or xxh3: and 16");
  if (c.no_digest && !c.link.http.digest.empty()) throw option_error("--digest and --no-digest exclude each other");
  if (c.resume && c.restart) throw option_error("--resume and --restart exclude each other");
  if (c.resume && c.no_digest)
    throw option_error("--resume needs the digest: without it nobody knows whether the first part is right");
}

/// A slash at the end of the output makes it a directory.
void check_output(choices& c) {
  c.directory = c.output.size() > 1 && c.output.back() == '/';
  while (c.output.size() > 1 && c.output.back() == '/') c.output.pop_back();
  if (!c.base.empty() && !c.directory) need_differences();
  if (!c.directory && c.files.any())
    throw option_error("--include and --exclude are for directories: '-o DIRECTORY/' with a slash makes one");
  if (!c.directory) return;
  need_directories();
  const std::string name = c.output.substr(c.output.rfind('/') + 1);
  if (name.empty() || name == "." || name == "..")
    throw option_error("'" + printable(c.output) + "' is no name that a directory could be given");
  if (c.no_digest || c.unverified)
    throw option_error("a directory is compared with its digest: --no-digest and --unverified have no meaning for it");
  if (c.chunk == 0) throw option_error("a directory is not fetched in one chunk: --chunk 0 has no meaning for it");
}

/// A signed model is proved as it lands: options that ask for less have no meaning.
void check_trust(const std::vector<std::string>& words, const choices& c) {
  if (!c.b3sum.empty() && !tp::is_utf8(c.output))
    throw option_error("--b3sum: the name of the output is not UTF-8, which b3sum -c wants");
  if (!c.b3sum.empty() && c.b3sum == c.output) throw option_error("--b3sum and -o are one file");
  if (c.serve_ms && c.serve_text.empty()) throw option_error("--serve-for is about --serve-on");
  if (!c.is_signed()) {
    if (!c.serve_text.empty())
      throw option_error("--serve-on serves what is proved, and only --key with a signed reference proves something");
    if (c.trust.least_round != 0 || !c.trust.federation.empty())
      throw option_error("--least-round and --federation are about what is signed, and only --key asks for that");
    return;
  }
  if (!words.empty() && (is_url(words[0]) || facade::is_hub(words[0])))
    throw option_error("--key is for what 'send' publishes: a web server has no proofs beside a file");
  if (c.directory) throw option_error("--key is for files: a directory has no proofs");
  if (!c.base.empty()) throw option_error("--key and --base exclude each other: all that lands is proved");
  if (c.no_digest || c.unverified || c.believe)
    throw option_error("--key believes nobody: it excludes --no-digest, --unverified and --believe");
  if (c.chunk == 0) throw option_error("--chunk 0 has no meaning with --key: bytes are proved as they land");
}

constexpr const char* address_wanted = "HOST:PORT is wanted, as in 127.0.0.1:8002, or a link such as unix:/run/model";
/// Refuses an address that can only be listened on.
void check_sender(const std::string& text, const facade::place& at) {
  if (const auto parsed = tp::parse_address(at.address); at.is.port && (parsed->host[0] == '\0' || parsed->number == 0))
    throw option_error("'" + printable(text) +
                       "' is no address of an owner: HOST:PORT is wanted, as in 127.0.0.1:8002");
}
/// The senders besides the first, and how many connections there are to all of them.
void check_senders(const std::string& first, choices& c) {
  link_choice& link = c.link;
  if (link.also_text.empty() && link.connections == 0) return;
  if (!link.at->is.several)
    throw option_error("--also and --connections are for TCP, unix: and tls://, and not for '" + printable(first) +
                       "'");
  if (c.chunk == 0) throw option_error("--chunk 0 asks for all of it at once: it excludes --also and --connections");
  if (link.also_text.size() > 7) throw option_error("--also can be given 7 times: eight senders are the most");
  for (const std::string& text : link.also_text) {
    const facade::place other = parse_place(text, address_wanted);
    check_sender(text, other);
    if (other.scheme != link.at->scheme)
      throw option_error("--also wants the same kind of link as '" + printable(first) + "', not '" + printable(text) +
                         "'");
    link.also.push_back(other);
  }
}

/// Where a member of a swarm serves.
void check_member(const std::string& sender, choices& c) {
  if (c.serve_text.empty()) return;
  if (!facade::features.member) throw option_error("this build of tensorpull has no swarms");
  if (!c.link.also_text.empty() || c.link.connections != 0)
    throw option_error("--serve-on excludes --also and --connections: the sender names the others");
  if (!c.link.tls.proxy.empty()) throw option_error("--serve-on excludes --proxy: the others are reached without one");
  const bool is_unix = c.link.at->scheme == "unix";
  if (!is_unix && c.link.at->scheme != "tcp")
    throw option_error("--serve-on is for TCP and unix:, and not for '" + printable(sender) + "'");
  const bool port_alone = c.serve_text.find_first_not_of("0123456789") == std::string::npos;
  facade::place at = parse_place((port_alone ? ":" : "") + c.serve_text,
                                 "--serve-on wants a port, HOST:PORT, or unix:PATH if the sender is at one");
  if (at.scheme != c.link.at->scheme)
    throw option_error("--serve-on wants the same kind of link as '" + printable(sender) + "', not '" +
                       printable(c.serve_text) + "'");
  if (is_unix && at.address.front() == '@')
    throw option_error("--serve-on wants unix:PATH, since others are told no name without a file");
  if (is_unix) at.address = std::filesystem::absolute(at.address).string();
  c.serve_on = std::move(at);
}

choices read_choices(int count, char** arguments) {
  choices c;
  const option_form forms[]{
      {"output", true, 'o'}, {"resume", false},    {"restart", false},    {"force", false},    {"max-bytes", true},
      {"chunk", true},       {"timeout", true},    {"retries", true},     {"wait", true},      {"name", true},
      {"unverified", false}, {"no-digest", false}, {"json", false},       {"believe", false},  {"tls-name", true},
      {"proxy", true},       {"digest", true},     {"bearer-file", true}, {"also", true},      {"connections", true},
      {"base", true},        {"include", true},    {"exclude", true},     {"key", true},       {"least-round", true},
      {"federation", true},  {"b3sum", true},      {"serve-on", true},    {"serve-for", true}, link_forms[0],
      link_forms[1],         link_forms[2],        link_forms[3]};
  const auto set = [&](std::string_view name, std::string_view value) {
    if (name == "output") c.output = parse_path("--output", value);
    else if (name == "resume") c.resume = true;
    else if (name == "restart") c.restart = true;
    else if (name == "force") c.force = true;
    else if (name == "max-bytes") c.most_bytes = parse_size("--max-bytes", value, 1, ~std::uint64_t{0});
    else if (name == "chunk") c.chunk = parse_size("--chunk", value, 0, longest_chunk);
    else if (name == "timeout") c.timeout_ms = parse_seconds("--timeout", value);
    else if (name == "wait") c.wait_ms = parse_seconds("--wait", value);
    else if (name == "retries") c.retries = parse_number<std::uint32_t>("--retries", value, 0, 1'000'000);
    else if (name == "name") c.name = value;
    else if (name == "unverified") c.unverified = true;
    else if (name == "no-digest") c.no_digest = true;
    else if (name == "believe") c.believe = true;
    else if (name == "tls-name") c.link.tls.check_hostname = value;
    else if (name == "digest") c.link.http.digest = value;
    else if (name == "bearer-file") c.link.http.bearer = first_line_of("--bearer-file", value);
    else if (name == "base") c.base = parse_path("--base", value);
    else if (name == "include") c.files.include.emplace_back(value);
    else if (name == "exclude") c.files.exclude.emplace_back(value);
    else if (name == "also") c.link.also_text.emplace_back(value);
    else if (name == "connections") c.link.connections = parse_number<std::uint32_t>("--connections", value, 1, 8);
    else if (name == "proxy") set_proxy(value, c.link.tls);
    else if (name == "key") need_proofs(name), c.trust.keys = parse_path("--key", value);
    else if (name == "least-round")
      c.trust.least_round = parse_number<std::uint64_t>("--least-round", value, 0, ~std::uint64_t{0});
    else if (name == "federation") c.trust.federation = parse_federation(value);
    else if (name == "b3sum") need_proofs(name), c.b3sum = parse_path("--b3sum", value);
    else if (name == "serve-on") c.serve_text = parse_path("--serve-on", value);
    else if (name == "serve-for") c.serve_ms = value == "0" ? 0 : parse_seconds("--serve-for", value);
    else if (set_link_option(name, value, c.link)) return;
    else c.json = true;
  };
  const auto check = [&](const std::vector<std::string>& words) {
    check_output(c);
    check_trust(words, c);
    if (!words.empty() && is_url(words[0])) return check_url(words, c);
    if (!words.empty() && facade::is_hub(words[0])) return check_hub(words, c);
    if (!c.link.http.digest.empty() || !c.link.http.bearer.empty())
      throw option_error("--digest and --bearer-file are for a URL, http:// or https://");
    if (words.size() < 2) throw option_error("an address and a reference are wanted, as send prints them");
    if (words.size() > 2)
      throw option_error("'" + printable(words[2]) +
                         "' is one word too many: after the address and the reference comes -o FILE");
    parse_link(words[0], address_wanted, c.link);
    check_sender(words[0], *c.link.at);
    check_link_options(c.link);
    check_senders(words[0], c);
    check_member(words[0], c);
    c.ref_text = words[1];
    if (c.is_signed()) {
      c.trust.reference = parse_path("SIGNED", c.ref_text);
    } else {
      const auto ref = tp::parse_reference(c.ref_text);
      if (!ref || !ref->id)
        throw option_error(
            "'" + printable(c.ref_text) +
            "' is no reference: 48 hexadecimal digits are wanted, as send prints them, or the first 32; " +
            "a file that send has signed wants --key");
      c.ref = *ref;
    }
    if (c.output.empty()) throw option_error("where to? -o FILE says it");
    if (c.no_digest && !c.base.empty())
      throw option_error("--base needs the digest: without it nobody knows whether what came of it is right");
    if (c.no_digest && c.link.at->is.loses)
      throw option_error("--no-digest is for links that lose nothing, and '" + printable(c.link.text) + "' may");
    if (c.resume && c.restart) throw option_error("--resume and --restart exclude each other");
    if (c.resume && c.no_digest)
      throw option_error("--resume needs the digest: without it nobody knows whether the first part is right");
  };
  read_command_line(count, arguments, "recv", help, forms, set, check);
  return c;
}

/// The path of the partial file, as safetensors_file names it.
std::string part_of(const std::string& output) {
  const std::size_t slash = output.find_last_of('/') + 1;
  const std::string_view name = std::string_view(output).substr(slash);
  return output.substr(0, slash) + "." + std::string(tp::detail::end_of_name(name, tp::detail::part_stem_bytes)) +
         ".part";
}
/// In whose part a difference is kept until it is applied.
std::string difference_of(const std::string& output) { return output + ".difference"; }
bool is_there(const std::string& path) {
  struct stat about{};
  return ::lstat(path.c_str(), &about) == 0;
}
/// Bytes of the regular file of that name; 0 if there is none.
std::uint64_t length_of(const std::string& path) {
  struct stat about{};
  return ::lstat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode) ? static_cast<std::uint64_t>(about.st_size) : 0;
}

/// Whether what has that name is not a partial file of ours: a link, a folder, another user's file.
bool is_foreign(const std::string& part) {
  struct stat about{};
  return ::lstat(part.c_str(), &about) == 0 &&
         (!S_ISREG(about.st_mode) || about.st_nlink > 1 || about.st_uid != ::geteuid());
}

/// The command that resumes, quoted for a shell.
std::string again(const choices& c, const char* how) {
  if (c.link.at->is.web)
    return "the same command with" + std::string(how);  // its query and its files of keys are not repeated
  std::string text = called_as + "recv " + shell_word(c.link.text) + " " + shell_word(c.ref_text) + " -o " +
                     shell_word(c.directory ? c.output + '/' : c.output);
  if (c.is_signed()) text += " --key " + shell_word(c.trust.keys);
  if (c.trust.least_round != 0) text += " --least-round " + std::to_string(c.trust.least_round);
  if (!c.trust.federation.empty()) text += " --federation " + shell_word(c.trust.federation);
  if (!c.b3sum.empty()) text += " --b3sum " + shell_word(c.b3sum);
  if (c.serve_on) text += " --serve-on " + shell_word(c.serve_text);
  if (c.serve_ms) text += formatted(" --serve-for %g", static_cast<double>(*c.serve_ms) / 1000);
  for (const std::string& pattern : c.files.include) text += " --include " + shell_word(pattern);
  for (const std::string& pattern : c.files.exclude) text += " --exclude " + shell_word(pattern);
  if (c.force) text += " --force";
  if (c.unverified) text += " --unverified";
  if (c.believe) text += " --believe";
  if (c.most_bytes != ~std::uint64_t{0}) text += " --max-bytes " + std::to_string(c.most_bytes);
  if (!c.base.empty()) text += " --base " + shell_word(c.base);
  for (const std::string& other : c.link.also_text) text += " --also " + shell_word(other);
  if (c.link.connections != 0) text += " --connections " + std::to_string(c.link.connections);
  if (c.chunk != tp::default_chunk_bytes) text += " --chunk " + std::to_string(c.chunk);
  if (c.timeout_ms != 0) text += formatted(" --timeout %g", static_cast<double>(c.timeout_ms) / 1000);
  if (c.wait_ms != 0) text += formatted(" --wait %g", static_cast<double>(c.wait_ms) / 1000);
  if (c.retries != 8) text += " --retries " + std::to_string(c.retries);
  if (!c.name.empty()) text += " --name " + shell_word(c.name);
  return text + link_options(c.link) + how;
}

bool is_about_output(const error& e) {
  return e.code == errc::disk_full || ((e.code == errc::io || e.code == errc::invalid_argument) && !e.name.empty());
}

std::string output_error(const choices& c, const error& e, std::uint64_t needed) {
  const std::string name = printable(c.output);
  if (e.code == errc::invalid_argument) return name + " is not the name of a file";
  if ((e.system == EACCES || e.system == ELOOP || e.system == EISDIR) && is_foreign(part_of(c.output)) &&
      !is_there(c.output))
    return printable(part_of(c.output)) + " is in the way: it is not a file that your recv has made";
  switch (e.system) {
    case EEXIST:
      return name + " exists already: " +
             (c.resume || c.link.at->is.web ? "" : "--resume says whether it is what is published, ") +
             "--force replaces it";
    case ESTALE:
      return "another process has deleted, replaced, cut or overwritten " + printable(part_of(c.output)) +
             ", so nothing was kept";
    case EISDIR: return name + " is a directory: name a file in it";
    case ELOOP: return name + " is a symbolic link, which is neither followed nor replaced";
    case EINVAL: return name + " is no regular file";
    case EBUSY: return name + " is mounted on its own, so it cannot be replaced: mount its folder";
    case EAGAIN: return "another recv is writing " + printable(part_of(c.output));
    case ENOENT: return "the folder of " + name + " does not exist";
    case ENOTDIR: return "the folder of " + name + " is none";
    case EFBIG:
      return name + " would become larger than files may be here (" + bytes_text(needed) + "): File too large";
    default: break;
  }
  if (e.code == errc::disk_full)
    return "the disk is full: " + name + " needs " + bytes_text(needed) + " (" + reason_text(e) + ")";
  return name + " cannot be written: " + reason_text(e);
}

/// The longest time in which one request may bring nothing.
constexpr std::uint64_t request_ms = 60'000;
/// Whether the time of --timeout was over.
bool all_took_too_long = false;

/// What follows the sender's address.
std::string late_text(const choices& c) {
  const auto text = [](std::uint64_t ms) { return seconds_text(static_cast<double>(ms) / 1000); };
  if (all_took_too_long) return " has not sent all of it within " + text(c.timeout_ms);
  return " has not answered for " + text(c.wait_ms != 0 ? c.wait_ms : request_ms);
}

/// What a web server did.
std::string http_error(const choices& c, const error& e, std::uint64_t total) {
  const std::string at = printable(c.link.text), why = e.name.empty() ? "" : " (" + printable(e.name.view()) + ")";
  if (const auto text = c.hub ? hub_error_text(at, e) : ""; !text.empty()) return text;
  if (has_failed(e)) return "the server of " + at + " has failed" + why;
  if (leads_on(e)) return at + " leads from one redirect to the next" + why;
  if (const auto text = protocol_text(e, c.link.at->scheme, total != 0); !text.empty()) return at + " " + text;
  switch (e.code) {
    case errc::unknown_host: return "the host of " + at + " is not known here, or not yet" + why;
    case errc::connection_failed: return "nobody can be reached at " + at + why + ": " + reason_text(e);
    case errc::not_authenticated: return at + " and this end do not accept each other's certificates" + why;
    case errc::timed_out: return at + late_text(c);
    case errc::not_verifiable:
      return at +
             " states no digest, so nobody could say whether the bytes are right: --digest says which one they have, --unverified takes them nevertheless";
    case errc::digest_mismatch:
      return "what came from " + at + " has another digest than " +
             (c.hub || c.link.http.digest.empty() ? "the server states" : "--digest says") + "; nothing of it was kept";
    case errc::stale_version: return at + " has another file now" + why;
    case errc::unknown_reference:
    case errc::withdrawn: return "there is nothing at " + at + why;
    case errc::not_permitted: return at + " does not let us have it" + why;
    case errc::invalid_argument: return "--digest, --proxy or the authorisation is not valid" + why;
    case errc::bad_file: return "what is at " + at + " is no safetensors file" + why;
    case errc::too_large:
      if (total != 0) return "the model has " + bytes_text(total) + ", which is more than --max-bytes allows";
      return "what is at " + at + " is no safetensors file, or has more in front of it than is taken" + why;
    case errc::bad_frame:
    case errc::unexpected_frame: return at + " answers what is not valid in HTTP" + why;
    default: return "the transfer from " + at + " failed: " + reason_text(e) + why;
  }
}

std::string transfer_error(const choices& c, const error& e, std::uint64_t total) {
  const std::size_t others = c.link.also.size();
  const std::string at = printable(c.link.text),
                    everywhere = at + (others == 0 ? "" : " and " + count_text(others, "other sender"));
  if (c.link.at->is.web) return http_error(c, e, total);
  if (const auto text = others == 0 ? protocol_text(e, c.link.at->scheme, total != 0) : ""; !text.empty())
    return at + " " + text;
  switch (e.code) {
    case errc::unknown_host: return "the host of " + at + " is not known here, or not yet";
    case errc::connection_failed: return "nobody can be reached at " + everywhere + ": " + reason_text(e);
    case errc::bad_address:
      if (c.link.at->scheme == "pipe") return at + " cannot be run: " + std::string(describe(e).view());
      return c.link.at->is.port ? "the host of " + at + " is none" : std::string(describe(e).view());
    case errc::not_authenticated:
      return at + " and this end do not accept each other's certificates" +
             (e.name.empty() ? "" : ": " + printable(e.name.view()));
    case errc::timed_out: return at + late_text(c);
    case errc::not_verifiable:
      return at + " has no digest of " + c.ref_text +
             ", so nobody could say whether the bytes are right: --unverified takes them nevertheless";
    case errc::version_required:
      return "anybody whom " + at + " lets in can answer first, and " + c.ref_text +
             " does not say which bytes are right: give all 48 digits that send prints, or take what comes with --believe";
    case errc::does_not_fit: return "the model is too long for one chunk: without --chunk 0 it comes in several";
    case errc::connection_lost: {
      const std::string status = e.system < 0 ? "; the command ended with status " + std::to_string(-e.system) : "";
      return "the connection to " + everywhere + " was lost, and could not be made again (tried " +
             count_text(c.retries, "time") + ")" + status;
    }
    case errc::unknown_reference:
      return at + " has nothing under " + c.ref_text + " (mistyped, or published anew under another reference)";
    case errc::withdrawn: return at + " has withdrawn " + c.ref_text;
    case errc::unreadable: return at + " cannot read " + c.ref_text + " any more: its file changed or is gone";
    case errc::stale_version: return at + " now has another version under " + c.ref_text;
    case errc::digest_mismatch:
      if (c.is_signed())
        return others == 0 ? at + " has other bytes than those that " + printable(c.ref_text) + " is about"
                           : "none of " + everywhere + " has the bytes that " + printable(c.ref_text) + " is about";
      return "what came from " + everywhere + " is not what was published (its digest differs); nothing of it was kept";
    case errc::too_large:
      if (!e.name.empty()) return "the model has " + bytes_text(total) + ", which is more than --max-bytes allows";
      [[fallthrough]];
    case errc::bad_frame:
    case errc::unexpected_frame: return at + " does not speak tensorpull's protocol: " + std::string(to_string(e.code));
    default: return "the transfer from " + at + " failed: " + reason_text(e);
  }
}

struct outcome {
  tp::result<tp::receipt> how = tp::failure(errc::cancelled);
  std::uint64_t kept = 0;  ///< bytes from which a resumed pull can continue
  std::string part{};  ///< the partial file, if there is one to speak of
  bool left_part = false;  ///< an earlier recv left a partial file, and nobody said what to do with that
  bool foreign_part = false;  ///< the partial file is of another version, and was not changed
  bool was_there = false;  ///< FILE was there already, and was compared with what is published
  std::uint8_t wrong = 0;  ///< which senders gave wrong bytes
  bool not_asked = false;  ///< the reference says already that what is here is of another version
  bool bad_base = false;  ///< the file of --base cannot be read
  std::uint64_t difference = 0;  ///< bytes of a difference that came
  double seconds = 0;
  std::unique_ptr<observed_file> file{};  ///< of a member, which serves it
};

/// Draws the line, and asks whether a signal came, or whether the time is over.
struct watch {
  transfer_line* line;
  const choices* c;

  bool stop_requested() const noexcept {
    line->tick();
    all_took_too_long = c->timeout_ms != 0 && line->open_for() >= std::chrono::milliseconds(c->timeout_ms);
    return interrupted_by != 0 || is_late();
  }
  bool is_late() const noexcept {
    return all_took_too_long || (c->wait_ms != 0 && line->silent_for() >= std::chrono::milliseconds(c->wait_ms));
  }
};
tp::pull_options options_of(const choices& c, transfer_line& line, tp::resume_cursor* cursor) {
  const tp::recipient_id who = c.name.empty() ? tp::recipient_id{} : tp::recipient_named(c.name);
  tp::retry_policy retry{.retries = c.retries};
  if (c.wait_ms != 0) retry = {.retries = ~std::uint32_t{0}, .longest_delay = std::chrono::seconds(2)};
  return {.per_request_timeout = std::chrono::milliseconds(request_ms),
          .unverified = c.unverified,
          .believe = c.believe,
          .stop = watch{&line, &c},
          .retry = retry,
          .recipient = who,
          .cursor = cursor};
}

/// Asks whether FILE, which is there, is what is published. The error is stale_version if it is not; `not_asked`: since
/// the reference says already that it is another.
tp::result<tp::receipt> check(const choices& c, transfer_line& line, bool& not_asked) {
  auto opened = tp::positioned_file::open(c.output);
  if (!opened) return tp::failure(opened.error());
  tp::finished_file file(std::move(*opened));
  auto where = tp::finished_file::look(file, c.ref.id);
  if (!where) return tp::failure(where.error());
  not_asked = c.ref.version != 0 && where->version != c.ref.version;
  if constexpr (TENSORPULL_TOOLS_PROOFS) {
    if (c.is_signed() && !not_asked) {
      const auto root = blake3_of_file(c.output, signal_heard{});
      if (!root) return tp::failure(root.error());
      not_asked = *root != c.known.root;
    }
  }
  if (not_asked) return tp::failure(errc::stale_version);
  const tp::pull_options options = options_of(c, line, &*where);
  const auto how = pull_call{.link = c.link, .ref = c.ref, .options = options}.into(file);
  line.clear();
  return how;
}

outcome pull(const choices& c, transfer_line& line, facade::any_member* member) {
  outcome done;
  std::optional<tensor_file> base;
  if (!c.base.empty()) {
    auto opened = tensor_file::open(c.base);
    if (!opened) {
      done.how = tp::failure(opened.error());
      done.bad_base = true;
      return done;
    }
    base.emplace(std::move(*opened));
  }
  if (c.resume && !c.link.at->is.web && length_of(c.output) != 0 && !(c.force && is_there(part_of(c.output)))) {
    done.how = check(c, line, done.not_asked);
    done.was_there = done.how || done.how.error().code != errc::stale_version || !c.force;
    if (done.was_there) return done;
    done.not_asked = false;
  }
  tp::resume_cursor where;
  const std::string part = part_of(c.output);
  const std::string beside = c.base.empty() ? std::string() : part_of(difference_of(c.output));
  const auto parts_length = [&] { return length_of(part) + (beside.empty() ? 0 : length_of(beside)); };
  const bool found_part = !c.resume && !c.restart && !c.no_digest && parts_length() != 0;
  done.part = part;
  {
    auto made = tp::safetensors_file::create(
        c.output, {.overwrite = c.force, .max_bytes = c.most_bytes, .resume = c.no_digest ? nullptr : &where});
    if (!made) {
      done.how = tp::failure(made.error());
      return done;
    }
    done.left_part = found_part && parts_length() != 0;  // no recv that was running has just ended
    if (done.left_part) {
      done.how = tp::failure(errc::io);
      done.kept = where.offset;
      if (length_of(part) == 0) done.part = beside;
      else if (!where) where.offset = 1;  // a part without a place stays, too
      return done;
    }
    if (!made->exclusive() && !c.json)
      say("recv", "there are no locks on files here: do not let two recv write " + printable(c.output) + " at a time");
    auto held = std::make_unique<observed_file>(std::move(*made), line, c.chunk == 0, part, c.output);
    observed_file& file = *held;
    if (c.restart) where = {};
    // another URL may name another file, unless --digest says which one it is: a URL may have been signed anew
    const bool of_another_url = c.link.at->is.web && where && where.ref != c.ref.id && c.link.http.digest.empty();
    done.not_asked = where && c.ref.version != 0 && where.version != c.ref.version;
    if (of_another_url || done.not_asked) {
      done.how = tp::failure(errc::stale_version);
      done.foreign_part = true;
      return done;
    }
    if (!where && base) {
      line.prelude();
      tp::pull_options options = options_of(c, line, nullptr);
      const auto something = [&](const tp::progress_event&) { line.stir(); };
      options.progress = something;
      options.progress_interval = std::chrono::milliseconds(100);
      brought came;
      if constexpr (TENSORPULL_TOOLS_DIFFERENCES)
        came = bring_difference({c.link, c.ref, options, c.chunk, c.most_bytes, difference_of(c.output), c.restart},
                                *base, file, where);
      done.difference = came.bytes;
      const bool late = watch{&line, &c}.is_late();
      line.stir();
      if (interrupted_by != 0 || late || came.lost) {
        where = {};
        done.how = came.lost ? tp::failure(*came.lost)
                             : tp::failure(late && interrupted_by == 0 ? errc::timed_out : errc::cancelled);
        done.kept = came.kept;
        done.part = beside;
        return done;
      }
    }
    // a sender that was restarted may have another reference, but the version must be the same
    where.ref = where ? c.ref.id : tp::ref_id{};
    const tp::resume_cursor found = where;
    if (where && !c.json && done.difference == 0)
      say("recv", "going on with " + bytes_text(where.offset) + " of " + printable(part) + ", once they are checked");

    if (!c.is_signed()) line.had(found.offset);  // what is proved may lie anywhere
    const tp::pull_options options = options_of(c, line, c.no_digest ? nullptr : &where);
    if constexpr (TENSORPULL_TOOLS_PROOFS) {
      facade::consumer_for as(file);
      if (c.is_signed()) done.how = bring_proved({c.link, c.known, options, c.chunk, &done.wrong, member}, as);
    }
    if (!c.is_signed())
      done.how = pull_call{.link = c.link, .ref = c.ref, .options = options, .chunk = c.chunk, .digest = !c.no_digest}
                     .into(file);
    line.clear();
    if (done.how && member != nullptr) done.file = std::move(held);
    done.foreign_part = !done.how && done.how.error().code == errc::stale_version && found;
    if (done.foreign_part) where = found;  // not ours to delete
  }
  if (!done.how && !done.foreign_part && done.how.error().system != ESTALE && is_there(part)) done.kept = where.offset;
  return done;
}

/// Whether what was printed has been written; says so if not.
bool printed(const choices& c, const outcome& done) {
  if (flushed("recv")) return true;
  if (done.how) say("recv", printable(c.output) + " is complete");
  return false;
}

/// Writes the manifest of --b3sum, once the output is complete. Empty: it is written; otherwise why not.
std::string write_manifest(const choices& c) {
  if (c.b3sum.empty()) return {};
  tp::result<void> written = tp::failure(errc::unsupported_request);
  if constexpr (TENSORPULL_TOOLS_PROOFS) {
    const signal_heard stop;
    const auto text = [&]() -> tp::result<std::string> {
      if (c.directory) return b3sum_of_directory(c.output, stop);
      const auto digest = c.is_signed() ? tp::result<std::array<std::byte, 32>>(c.known.root)
                                        : blake3_of_file(c.output, stop);
      if (!digest) return tp::failure(digest.error());
      return b3sum_line(c.output, *digest);
    }();
    written = text ? write_text(c.b3sum, *text) : tp::failure(text.error());
  }
  if (written) return {};
  return printable(c.output) + " is complete, but " + printable(c.b3sum) +
         " cannot be written: " + reason_text(written.error());
}

/// The end of a recv that did not begin.
int refuse(const choices& c, const refusal& why) {
  if (c.json) {
    json_object out{{"file", c.output}, {"outcome", "failed"}, {"code", code_name(why.code)}, {"message", why.message}};
    if (!why.name.empty()) out.add("refused", why.name);
    out.print();
    return flushed("recv") ? failed : unwritable;
  }
  say("recv", why.message);
  return failed;
}

int report(const choices& c, const outcome& done, const transfer_line& line, facade::any_member* member) {
  const bool interrupted = !done.how && done.how.error().code == errc::cancelled && interrupted_by != 0;
  // if FILE has the version of the reference, it is the owner that has another
  const bool other_file = !done.how && done.was_there && done.how.error().code == errc::stale_version &&
                          (done.not_asked || c.ref.version == 0);
  const bool local = !done.how && !done.bad_base && (other_file || done.left_part || is_about_output(done.how.error()));
  int status = local ? unwritable : failed;
  if (interrupted) status = interrupted_status();
  if (done.how) status = complete;
  std::string message;
  if (interrupted) message = "interrupted";
  else if (done.bad_base) message = file_error_text(c.base, done.how.error());
  else if (done.left_part)
    message = "an earlier recv left a part of it; --resume goes on with that, --restart begins anew (" +
              printable(done.part) + ")";
  else if (other_file)
    message = printable(c.output) + " exists already, and is not " +
              (done.not_asked ? "of the version in " + c.ref_text : "what is published") + ": --force replaces it";
  else if (done.not_asked) message = "what an earlier recv left is of another version than " + c.ref_text;
  else if (!done.how)
    message = local ? output_error(c, done.how.error(), line.total())
                    : transfer_error(c, done.how.error(), std::max(line.total(), done.difference));

  std::vector<std::string> wrong;
  for (std::size_t i = 0; i <= c.link.also_text.size(); ++i)
    if ((done.wrong >> i & 1) != 0) wrong.push_back(i == 0 ? c.link.text : c.link.also_text[i - 1]);
  if (member != nullptr)
    for (const std::string& other : member->wrong()) wrong.push_back(c.link.at->with(other));
  if (c.json) {
    std::string_view how = interrupted ? "interrupted" : "failed";
    if (done.how) how = to_string(done.how->outcome);
    json_object out{{"file", c.output}, {"outcome", how}};
    if (done.how) {
      out.add("digest", done.how->digest == 0 ? json_value(nullptr) : formatted("%016llx", wide(done.how->digest)));
      out.add("confirmed", done.how->confirmed);
      out.add("believed", done.how->believed);
    } else {
      out.add("code", code_name(done.how.error().code));
      out.add("message", message);
    }
    if (done.how && !done.how->confirmed) out.add("unconfirmed_because", code_name(done.how->unconfirmed_because));
    const std::uint64_t there = done.kept != 0 ? done.kept : length_of(c.output);
    out.add("bytes", done.how ? done.how->bytes : there);
    out.add("total_bytes", done.how ? done.how->bytes : line.total());
    out.add("resumed_bytes", done.how && done.was_there ? done.how->bytes : line.first());
    out.add("received_bytes", line.received() + done.difference);
    out.add("difference_bytes", done.difference);
    if (done.how) out.add("chunks", done.how->chunks);
    out.add("resumable", done.kept != 0);
    out.add("seconds", done.seconds);
    out.add("wrong_senders", std::span<const std::string>(wrong));
    if (member != nullptr) {
      out.add("served_bytes", member->bytes_sent());
      out.add("members", member->most_members());
    }
    if (c.is_signed() && done.how) {
      if constexpr (TENSORPULL_TOOLS_PROOFS) out.add("root", hex_text(c.known.root));
      out.add("federation", c.known.federation);
      out.add("round", c.known.round);
      out.add("note", c.known.note);
    }
    out.print();
    return printed(c, done) ? status : unwritable;
  }
  for (const std::string& sender : wrong) say("recv", printable(sender) + " gave other bytes than what was published");
  const double seconds = done.seconds;
  if (done.how) {
    std::printf("%s: %s ", printable(c.output).c_str(), bytes_text(done.how->bytes).c_str());
    if (done.was_there) std::printf("were there, complete");
    else std::printf("in %s", seconds_text(seconds).c_str());
    if (line.first() != 0) std::printf(", of which %s were there", bytes_text(line.first()).c_str());
    if (done.difference != 0) std::printf(" (with a difference of %s)", bytes_text(done.difference).c_str());
    if (seconds >= 0.5) std::printf(", %s/s", bytes_text(static_cast<double>(line.received()) / seconds).c_str());
    const char* const believed = c.link.at->is.web ? " (believed: no --digest was given)"
                                                   : " (believed: the reference has no version)";
    if (c.is_signed())
      std::printf("; proved, as signed for %s in round %llu\n", c.known.federation.c_str(), wide(c.known.round));
    else if (done.how->outcome == tp::outcome::completed)
      std::printf("; digest %016llx agrees%s\n", wide(done.how->digest), done.how->believed ? believed : "");
    else std::printf("; not checked\n");
    // a web server records nothing
    if (!done.how->confirmed && !(c.link.at->is.web && done.how->unconfirmed_because == errc::unsupported_request))
      say("recv", "the file is complete, but " + printable(c.link.text) +
                      " is not known to have recorded that: " + std::string(to_string(done.how->unconfirmed_because)));
    return printed(c, done) ? status : unwritable;
  }
  say("recv", message);
  const std::string part = printable(done.part);
  if (done.foreign_part && c.ref.version != 0 && !done.not_asked) {
    say("recv", part + " stays: it is of the version in " + c.ref_text + ", and the sender has another one now");
  } else if (done.foreign_part) {
    say("recv", part + " is of another version than what is " + (done.not_asked ? "wanted" : "there now") +
                    (c.link.at->is.web ? ", or of another URL" : "") + ". To fetch that from the start:\n  " +
                    again(c, " --restart"));
  } else if (done.kept != 0) {
    const std::string of = line.total() != 0 && done.part == part_of(c.output) ? " of " + bytes_text(line.total()) : "";
    say("recv", bytes_text(done.kept) + of + " are in " + part + ". To go on:\n  " +
                    again(c, is_there(c.output) && !c.force ? " --force --resume" : " --resume"));
  } else if (interrupted && !done.was_there) {
    say("recv", c.no_digest && line.received() != 0
                    ? "nothing was kept, since without a digest nothing can be gone on with"
                    : "nothing was kept");
  }
  return status;
}

/// Whether something is there that no recv of this user makes.
bool is_of_others(const std::string& part) {
  struct stat about{};
  return ::lstat(part.c_str(), &about) == 0 &&
         (!S_ISDIR(about.st_mode) || about.st_uid != ::geteuid() || (about.st_mode & 0022) != 0);
}
/// Why a directory has not arrived.
std::string directory_error(const choices& c, const error& e, std::uint64_t total, bool& local) {
  const std::string output = printable(c.output), name = printable(e.name.view()), sender = printable(c.link.text);
  const auto is_about = [&](std::string_view path) {
    return e.name.view() == tp::error_name(path).view() ||
           e.name.view() == tp::error_name(path.substr(path.rfind('/') + 1)).view();
  };
  const bool itself = e.name.empty() || is_about(c.output);
  const std::string which = itself ? output : output + "/" + name;
  local = e.code == errc::disk_full || e.code == errc::io;
  switch (e.code) {
    case errc::disk_full: return "the disk is full: " + which + " cannot be written (" + reason_text(e) + ")";
    case errc::io:
      if (e.system == EEXIST) return output + " exists already: --force replaces it";
      if (e.system == EAGAIN) return "another recv is writing " + printable(part_of(c.output));
      if (itself && e.system == EACCES && is_of_others(part_of(c.output)))
        return printable(part_of(c.output)) + " is in the way: your recv has not made it";
      if (itself && e.system == ELOOP) return output + " is a symbolic link, which is neither followed nor replaced";
      if (itself && e.system == ENOTDIR) return output + " is there, and is no directory";
      if (e.system == 0) return which + " was changed by another process";
      return (!c.base.empty() && is_about(c.base) ? printable(c.base) : which) + " cannot be used: " + reason_text(e);
    case errc::invalid_argument:
      if (itself) return c.files.any() ? "no file is chosen" : "there is no file";
      return sender + " has a file '" + name + "', whose name leads elsewhere or could not be a file's";
    case errc::duplicate_name:
      return sender + " has a file '" + name + "' beside one whose name is the same for some file systems";
    case errc::schema_mismatch:
      if (e.name.view() != "tensorpull.files") break;
      return sender + " has a model there, and no directory: -o FILE takes it, without a slash";
    case errc::digest_mismatch:
      if (itself) break;
      return "what came as " + name + " is not what was published (its digest differs)";
    case errc::too_large:
      if (!itself || e.name.empty()) break;
      return output + " would have " + bytes_text(e.at) + ", which is more than --max-bytes allows";
    default: break;
  }
  return transfer_error(c, e, total);
}

int receive_directory(const choices& c, transfer_line& line) {
  const std::string part = part_of(c.output);
  const bool left = is_there(part) && !c.resume && !c.restart;
  std::uint64_t received = 0;
  tp::result<brought_directory> done = tp::failure(errc::io);
  if (!left) {
    tp::pull_options options = options_of(c, line, nullptr);
    const auto landed = [&](std::uint64_t offset, std::uint64_t bytes, std::uint64_t total) {
      if (received == 0) line.expect(total), line.begin(offset);
      line.arrived(bytes);
      received += bytes;
    };
    line.prelude();
    const wanted_directory wanted{c.link, c.ref,   options, c.chunk,   c.most_bytes, c.output,
                                  c.base, c.files, c.force, c.restart, landed};
    if (c.hub) done = bring_model(*c.hub, wanted);
    else if constexpr (TENSORPULL_TOOLS_DIRECTORIES) done = bring_directory(wanted);
    line.clear();
  }
  const bool interrupted = !done && done.error().code == errc::cancelled && interrupted_by != 0;
  int status = complete;
  std::string message;
  if (!done) {
    error why = done.error();
    if (why.code == errc::cancelled && !interrupted && watch{&line, &c}.is_late()) why.code = errc::timed_out;
    bool local = left;
    if (left)
      message = "an earlier recv left a part of it; --resume goes on with that, --restart begins anew (" +
                printable(part) + ")";
    else message = interrupted ? "interrupted" : directory_error(c, why, line.total(), local);
    status = local ? unwritable : failed;
    if (interrupted) status = interrupted_status();
    done = tp::failure(why);
  }
  if (c.json) {
    std::string_view how = interrupted ? "interrupted" : "failed";
    if (done) how = to_string(done->last.outcome);
    json_object out{{"file", c.output + '/'}, {"outcome", how}};
    if (done && c.hub) out.add("commit", done->commit);
    if (done) {
      if (!c.hub) out.add("digest", formatted("%016llx", wide(done->last.version)));
      out.add("confirmed", done->last.confirmed);
      out.add("believed", done->last.believed);
      if (!done->last.confirmed && !c.hub) out.add("unconfirmed_because", code_name(done->last.unconfirmed_because));
      out.add("files", done->files);
      out.add("bytes", done->bytes);
      out.add("total_bytes", done->bytes);
      out.add("resumed_bytes", done->kept);
    } else {
      out.add("code", code_name(done.error().code));
      out.add("message", message);
    }
    out.add("received_bytes", received);
    out.add("resumable", !done && is_there(part));
    out.add("seconds", line.seconds());
    out.print();
    return flushed("recv") ? status : unwritable;
  }
  if (!done) {
    say("recv", message);
    if (!left && is_there(part))
      say("recv", "what has arrived is in " + printable(part) + ". To go on:\n  " + again(c, " --resume"));
    else if (interrupted) say("recv", "nothing was kept");
    return status;
  }
  std::printf("%s/: %s, %s in %s", printable(c.output).c_str(), count_text(done->files, "file").c_str(),
              bytes_text(done->bytes).c_str(), seconds_text(line.seconds()).c_str());
  if (done->kept != 0) std::printf(", of which %s were there", bytes_text(done->kept).c_str());
  if (c.hub) std::printf("; each has the digest that the hub states for commit %s\n", printable(done->commit).c_str());
  else if (c.files.any()) std::printf("; each has the digest that the sender states\n");
  else
    std::printf("; digest %016llx agrees%s\n", wide(done->last.version),
                done->last.believed ? " (believed: the reference has no version)" : "");
  if (!done->last.confirmed && !c.hub)
    say("recv", "the directory is complete, but " + printable(c.link.text) +
                    " is not known to have recorded that: " + std::string(to_string(done->last.unconfirmed_because)));
  if (flushed("recv")) return status;
  say("recv", printable(c.output) + "/ is complete");
  return unwritable;
}

/// Serves what is complete, as long as others pull.
void serve_others(const choices& c, facade::any_member& member) {
  const std::uint64_t ms = c.serve_ms.value_or(600'000);
  if (!c.json && ms != 0 && member.most_members() > 0)
    say("recv", "serving others as long as they pull, for " + seconds_text(static_cast<double>(ms) / 1000) +
                    " at most; Ctrl-C ends it");
  if (ms != 0) (void)member.serve(std::chrono::milliseconds(ms), signal_heard{});
  if (!c.json && member.most_members() > 0) say("recv", "gave " + bytes_text(member.bytes_sent()) + " to others");
}

}  // namespace

int main(int count, char** arguments) {
  choices c = read_choices(count, arguments);
  hear_signals();
  if constexpr (TENSORPULL_TOOLS_PROOFS) {
    if (c.is_signed()) {
      if (const auto why = verify(c.trust, c.known)) return refuse(c, *why);
      c.ref = {c.known.model.id, c.known.model.version, 0};  // a cursor of a file knows no schema
    }
  }
  std::unique_ptr<facade::any_member> member;
  if (c.serve_on) {
    auto opened = facade::features.member(*c.link.at, *c.serve_on);
    if (!opened) {
      const bool untold = opened.error() == errc::bad_address;
      return refuse(c,
                    {opened.error().code,
                     {},
                     "nothing can be served on " + printable(c.serve_on->address) + ": " +
                         (untold ? "others are told no address of more than 54 bytes" : reason_text(opened.error()))});
    }
    member = std::move(*opened);
  }
  transfer_line line("recv", printable(c.output.substr(c.output.find_last_of('/') + 1)), !c.json);
  std::optional<std::string> manifest;  // why there is none; empty: it is written
  const int status = [&] {
    if (c.directory) return receive_directory(c, line);
    const auto found = c.hub ? find_in_hub(*c.hub, options_of(c, line, nullptr), c.link) : tp::result<void>();
    if (c.hub && found) c.ref.id = c.link.at->id;
    outcome done;
    if (found) done = pull(c, line, member.get());
    else done.how = tp::failure(found.error());
    if (!done.how && done.how.error().code == errc::cancelled && interrupted_by == 0 && watch{&line, &c}.is_late()) {
      error late = done.how.error();
      late.code = errc::timed_out;
      done.how = tp::failure(late);
    }
    done.seconds = line.seconds();
    if (!done.file) return report(c, done, line, member.get());
    // people and --b3sum do not wait for others; an object has what was served
    manifest = write_manifest(c);
    int said = c.json ? complete : report(c, done, line, member.get());
    serve_others(c, *member);
    if (c.json) said = report(c, done, line, member.get());
    return said;
  }();
  if (status != complete) return status;
  if (!manifest) manifest = write_manifest(c);
  if (manifest->empty()) return status;
  say("recv", *manifest);
  return interrupted_by != 0 ? interrupted_status() : unwritable;
}
