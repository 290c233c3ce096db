// send FILE...: publishes files of tensors, and directories, until they have been pulled often enough, or until Ctrl-C.
#include "command_line.hpp"
#include "difference.hpp"
#include "directory.hpp"
#include "error_text.hpp"
#include "interruption.hpp"
#include "json.hpp"
#include "link_choice.hpp"
#include "proofs.hpp"
#include "s3_place.hpp"

#include <tensorpull/core/describe.hpp>
#include <tensorpull/integrity/tensor_digests.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace tools;

constexpr const char* help = R"(usage: send FILE... [options]
       send DIRECTORY... [--include PATTERN] [--exclude PATTERN] [--follow-links] [options]
       send FILE --put http[s]://HOST[:PORT]/PATH|s3://BUCKET/KEY [--timeout SECS] [--tls-ca FILE] [--json]

Publishes safetensors, npy and npz files, 256 at most, each under a reference of its own, and prints a line for each on standard
output: the address and the reference, as 'recv' takes them. The reference has 48 digits: 32 by which the file is found, and 16 that
say which bytes it has, so that a recipient takes no others. Serves until Ctrl-C, or until everybody has them. Files are read while
they are sent, so they may be larger than memory, except what savez_compressed has packed, which is unpacked into memory at the start.
They must not change meanwhile. Anyone who can connect and knows the first 32 digits can pull.
All files below a directory are one version under one reference, which 'recv -o DIRECTORY/' makes again.

      --listen LINK       where to listen (127.0.0.1:0)
                            HOST:PORT     TCP; port 0: any that is free; 127.0.0.1:0: this machine only; 0.0.0.0:8002: every network
                            unix:PATH     a Unix socket, for programs of this user; unix:@NAME: one that is no file
                            tls://HOST:PORT  TCP with TLS
                            shm:PATH      shared memory for programs of this user: files are copied into it once, and recipients from it
                            udp://HOST:PORT, serial:DEVICE?speed=115200&flow=rtscts
                            nats://SERVER:4222  a NATS server
                            pipe:COMMAND  standard input and output of a command that pulls, as in 'pipe:ssh host recv --stdio ...'
      --stdio             serve the program that has started this one, over standard input and output; everything is printed on standard
                          error. As in 'recv "pipe:ssh host send model.safetensors --stdio --ref REF" REF -o copy.safetensors'
      --http [HOST:]PORT  answer HTTP on a port beside TCP, TLS or a Unix socket, for curl and caches; HTTPS beside tls://. Without
                          a host: that of --listen, or 127.0.0.1. Each file's URL is printed; the key goes into the Authorization field
      --allow-origin URL  web pages from there may read it in a browser: https://HOST[:PORT], or * for every page
      --metrics           answer GET /metrics there, for Prometheus: anybody who can connect reads it
      --status-file FILE  a page at / there shows what is published and who has it. A browser asks for a password: the first line of
                          FILE, 16 to 128 characters; any user name does. With it /status.json and /metrics are answered, too
      --tls-cert FILE, --tls-key FILE   the certificate of this end, with those up to an authority, and its key (PEM)
      --tls-clients, --tls-ca FILE      only recipients with a certificate of these authorities; --tls-crl FILE: that is not revoked there
      --recipients N      end when N recipients have each file
      --expect NAME       end when the recipient that says so ('recv --name NAME') has each file; may be repeated. With --tls-clients it
                          has to have that name in its certificate
      --ref REF           the reference of the first file, the second ...; may be repeated. Recipients of a sender that was ended go on
                          where they are when it is started again with the same --listen and --ref. Of its 48 digits the first 32
                          are enough; with all of them another file is refused
      --base OLD          the version before of the first file, the second ...; may be repeated. What has changed since is published
                          beside the file, for 'recv --base OLD': coded once, without loss, and held in memory. Worth it below 1 Gbit/s
      --tensor-digests    say the digest of each tensor in the header, so that 'recv --base OLD' and base= in Python fetch those that have
                          changed, whatever OLD is. The files are read once more; it is another version than without this option
      --sign KEY          sign what is published with this key ('openssl genpkey -algorithm ed25519'), and write the signed reference to
                          FILE.signed beside each file: 'recv ADDRESS FILE.signed --key KEYS' takes these bytes alone, whoever sends them,
                          and proves them as they land. The file is read once more; its tree of proofs, a thousandth, is published, too
      --federation NAME   for whom it is signed
      --round N           which round it is of, so that an earlier one is not taken again (0)
      --expires WHEN      until when it counts: seconds from now, or a date, as in 2027-01-31 or 2027-01-31T12:00:00Z (604800, a week)
      --proofs            publish the tree of proofs without signing: another sender has signed this file, and has the same --ref
      --include PATTERN   of a directory, only files whose paths below it fit; may be repeated. * stands for any characters, slashes
                          among them, and ? for one
      --exclude PATTERN   of a directory, no files whose paths fit; may be repeated
      --follow-links      of a directory, send the files to which symbolic links lead; otherwise a link is an error
      --replica-of LINK   help the sender at LINK, which has the same files under the same --ref: a balancer may give recipients to either.
                          That sender counts who has them. HOST:PORT, or unix:PATH if --listen is one
      --swarm             tell recipients that serve what they have ('recv --serve-on PORT') of each other; others are served as ever
      --timeout SECS      a recipient that takes nothing for so long is given up (600)
      --idle SECS         end when nobody has taken anything for so long (never)
      --put URL           serve nobody, but send the one file to an object store or a web server (PUT), in the canonical layout; a signed
                          URL is sent as it is. It is tried again from the start if the connection is lost. The file is read once more
                          beforehand for its digest, which is printed; if the file changes meanwhile, its end is held back.
                          s3://BUCKET/KEY sends it in parts, with the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the region in
                          AWS_REGION and, for another store than Amazon's, its URL in AWS_ENDPOINT_URL. The object appears whole. Started
                          again after a failure or a kill, it sends no part that the store has with the same length and MD5
      --json              what happens as JSON objects, one on a line, on standard output
  -h, --help              this text

Example:
  send model.safetensors --recipients 1
  send encoder.safetensors head.npz --listen 0.0.0.0:8002
  send checkpoint --exclude '*.bin'       # recv ADDRESS REF -o copy/

Status: 0 it ended as asked (without a number of recipients: by Ctrl-C, or the end of --stdio), 1 a file cannot be published, or not any
more, or standard output cannot be written, or the recipient behind --stdio has gone before it had the files,
2 a wrong option, 3 --idle came first, 130 Ctrl-C and 143 SIGTERM before everybody had the files.
)";

using clock = std::chrono::steady_clock;

constexpr int well = 0, failed = 1, idle = 3;
/// How many files a sender has at most.
constexpr std::size_t most_files = 256;

struct choices {
  std::vector<std::string> files, expected, bases;
  std::string put;  ///< a URL to send the file to
  std::vector<tp::reference> refs;
  link_choice listen, coordinator;  ///< the latter of a replica, the owner that coordinates
  bool replica = false, swarm = false;
  std::uint32_t recipients = 0;
  std::uint64_t timeout_ms = 600'000, idle_ms = 0;
  std::string status_file;  ///< with the password of the page that shows who has what
  bool tensor_digests = false, follow_links = false, proofs = false;
  signing_choice signing;
  path_patterns of_directories;
  bool json = false, serves = false;  ///< serves: an option that only a sender with recipients has
};

/// Of "host:port".
std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

choices read_choices(int count, char** arguments) {
  choices c;
  const option_form forms[]{
      {"listen", true},  {"stdio", false},       {"recipients", true},    {"expect", true},
      {"ref", true},     {"replica-of", true},   {"timeout", true},       {"idle", true},
      {"json", false},   {"http", true},         {"metrics", false},      {"allow-origin", true},
      {"put", true},     {"tls-clients", false}, {"base", true},          {"tensor-digests", false},
      {"include", true}, {"exclude", true},      {"follow-links", false}, {"status-file", true},
      {"sign", true},    {"federation", true},   {"round", true},         {"expires", true},
      {"proofs", false}, {"swarm", false},       link_forms[0],           link_forms[1],
      link_forms[2],     link_forms[3]};
  const auto set = [&](std::string_view name, std::string_view value) {
    for (const std::string_view only :
         {"listen",      "stdio",          "recipients", "expect",      "ref",          "idle",
          "tls-clients", "http",           "metrics",    "status-file", "allow-origin", "replica-of",
          "base",        "tensor-digests", "include",    "exclude",     "follow-links", "sign",
          "federation",  "round",          "expires",    "proofs",      "swarm"})
      c.serves = c.serves || name == only;
    if (name == "put") {
      if (!is_url(value) && !is_s3(value))
        throw option_error("--put wants http[s]://HOST[:PORT]/PATH or s3://BUCKET/KEY");
      c.put = value;
    } else if (name == "listen") {
      parse_link(value, "--listen wants HOST:PORT, as in 0.0.0.0:8002, or a link such as unix:/run/model", c.listen);
    } else if (name == "stdio") {
      parse_link("pipe:-", {}, c.listen);
    } else if (name == "http") {
      need("http");
      const bool port_alone = !value.empty() && value.find_first_not_of("0123456789") == value.npos;
      c.listen.door.listen = port_alone ? ":" + std::string(value) : std::string(value);
      if (!tp::parse_address(c.listen.door.listen))
        throw option_error("--http wants a port, or HOST:PORT, not '" + printable(value) + "'");
    } else if (name == "metrics") {
      c.listen.door.metrics = true;
    } else if (name == "status-file") {
      c.status_file = value;
      c.listen.door.status_password = first_line_of("--status-file", value, 16, 128);
    } else if (name == "allow-origin") {
      if (!facade::features.is_origin(value))
        throw option_error("--allow-origin wants https://HOST[:PORT] in lower case and without a path, or *, not '" +
                           printable(value) + "'");
      c.listen.door.origin = value;
    } else if (name == "tls-clients") {
      c.listen.tls.require_client_certificates = true;
    } else if (set_link_option(name, value, c.listen)) {
    } else if (name == "recipients") {
      c.recipients = parse_number<std::uint32_t>("--recipients", value, 1, 1'000'000);
    } else if (name == "expect") {
      if (value.empty()) throw option_error("--expect wants a name: nobody is called ''");
      if (std::find(c.expected.begin(), c.expected.end(), value) == c.expected.end()) c.expected.emplace_back(value);
    } else if (name == "ref") {
      const auto ref = tp::parse_reference(value);
      if (!ref || !ref->id)
        throw option_error("--ref wants 48 or 32 hexadecimal digits, not '" + printable(value) + "'");
      if (std::any_of(c.refs.begin(), c.refs.end(), [&](const tp::reference& r) { return r.id == ref->id; }))
        throw option_error("--ref: two files cannot have the same reference");
      c.refs.push_back(*ref);
    } else if (name == "base") {
      need_differences();
      c.bases.push_back(parse_path("--base", value));
    } else if (name == "include") {
      c.of_directories.include.emplace_back(value);
    } else if (name == "exclude") {
      c.of_directories.exclude.emplace_back(value);
    } else if (name == "follow-links") {
      c.follow_links = true;
    } else if (name == "tensor-digests") {
      c.tensor_digests = true;
    } else if (name == "sign") {
      need_proofs(name);
      c.signing.key = parse_path("--sign", value);
      c.proofs = true;
    } else if (name == "federation") {
      c.signing.federation = parse_federation(value);
    } else if (name == "round") {
      c.signing.round = parse_number<std::uint64_t>("--round", value, 0, ~std::uint64_t{0});
    } else if (name == "expires") {
      c.signing.expires_text = value;
    } else if (name == "proofs") {
      need_proofs(name);
      c.proofs = true;
    } else if (name == "swarm") {
      if (!facade::features.swarm) throw option_error("this build of tensorpull has no swarms");
      c.swarm = true;
    } else if (name == "replica-of") {
      parse_link(value, "--replica-of wants HOST:PORT, as in server:8002, or unix:PATH", c.coordinator);
      c.replica = true;
    } else if (name == "timeout") {
      c.timeout_ms = parse_seconds("--timeout", value);
    } else if (name == "idle") {
      c.idle_ms = parse_seconds("--idle", value);
    } else {
      c.json = true;
    }
  };
  const auto check = [&](const std::vector<std::string>& words) {
    if (words.empty()) throw option_error("which file? 'send model.safetensors' publishes it");
    if (words.size() > most_files) throw option_error("at most " + std::to_string(most_files) + " files at a time");
    if (c.refs.size() > words.size()) throw option_error("there are more references than files");
    if (c.signing.key.empty() &&
        (!c.signing.federation.empty() || c.signing.round != 0 || !c.signing.expires_text.empty()))
      throw option_error("--federation, --round and --expires are about what --sign signs");
    if (!c.signing.key.empty() && c.signing.federation.empty())
      throw option_error("--sign wants --federation NAME: for whom it is signed");
    if constexpr (TENSORPULL_TOOLS_PROOFS) {
      const std::string& when = c.signing.expires_text;
      if (!c.signing.key.empty()) c.signing.expires = parse_expiry("expires", when.empty() ? "604800" : when);
    }
    bool directories = false;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (!is_directory(words[i])) continue;
      need_directories();
      directories = true;
      if (i < c.bases.size())
        throw option_error(
            "--base is for files: 'recv --base' finds by itself which files of a directory have changed");
      if (c.proofs)
        throw option_error("--sign and --proofs are for files, and '" + printable(words[i]) + "' is a directory");
      if (!c.put.empty()) throw option_error("--put sends one file, and '" + printable(words[i]) + "' is a directory");
    }
    if (!directories && (c.of_directories.any() || c.follow_links))
      throw option_error("--include, --exclude and --follow-links are for directories");
    if (c.bases.size() > words.size()) throw option_error("there are more --base than files");
    if (!c.listen.at) parse_link("127.0.0.1:0", {}, c.listen);
    if (!c.put.empty()) {
      if (c.serves)
        throw option_error(
            "--put sends the file away, and nobody is served: the options for recipients have no meaning beside it");
      if (words.size() > 1) throw option_error("--put takes one file: each has a URL of its own");
      if (is_s3(c.put)) parse_s3(c.put, c.listen);
      else parse_url(c.put, "http[s]://HOST[:PORT]/PATH is wanted", c.listen);
    }
    check_link_options(c.listen);
    if (!c.put.empty()) return;
    const facade::place& listen = *c.listen.at;
    if (!c.listen.door.origin.empty() && c.listen.door.listen.empty())
      throw option_error("--allow-origin is about the port of --http");
    if (c.listen.door.metrics && c.listen.door.listen.empty())
      throw option_error("--metrics is answered on the port of --http");
    if (!c.status_file.empty() && c.listen.door.listen.empty())
      throw option_error("--status-file is about the port of --http");
    if (!c.listen.door.listen.empty()) {
      if (!listen.is.several) throw option_error("--http is beside TCP, tls://HOST:PORT or unix:PATH");
      if (c.listen.door.listen.front() == ':')
        c.listen.door.listen = (listen.is.port ? host_of(listen.address) : "127.0.0.1") + c.listen.door.listen;
    }
    if (listen.is.encrypted && c.listen.tls.cert_file.empty())
      throw option_error(
          "tls://HOST:PORT needs a certificate: --tls-cert FILE, and --tls-key FILE if its key is in another file");
    if (!c.listen.tls.require_client_certificates && !(c.listen.tls.ca_file + c.listen.tls.crl_file).empty())
      throw option_error(
          "--tls-ca and --tls-crl are about recipients' certificates, and only --tls-clients asks for them");
    if (c.swarm && !listen.is.several) throw option_error("--swarm is for TCP, tls://HOST:PORT and unix:PATH");
    if (c.swarm && c.replica) throw option_error("--swarm is for the sender that --replica-of names");
    const bool replicates = listen.is.several && !listen.is.encrypted;
    if (c.replica && (!replicates || c.coordinator.at->scheme != listen.scheme))
      throw option_error("--replica-of and --listen are both HOST:PORT, or both unix:PATH");
    if (c.replica && c.refs.size() != words.size())
      throw option_error("--replica-of needs the reference of each file, as the other sender has it: --ref");
    if (c.replica && (c.recipients != 0 || !c.expected.empty()))
      throw option_error("--recipients and --expect are for the sender that --replica-of names");
    if (c.replica && c.proofs) throw option_error("--sign and --proofs are for the sender that --replica-of names");
    if (c.replica && !c.bases.empty()) throw option_error("--base is for the sender that --replica-of names");
    if (c.replica && !c.listen.door.listen.empty())
      throw option_error("--http is for the sender that --replica-of names");
    if (c.recipients != 0 && !c.expected.empty()) throw option_error("--recipients and --expect exclude each other");
  };
  c.files = read_command_line(count, arguments, "send", help, forms, set, check);
  for (std::string& path : c.files)  // its last part is its name
    while (path.size() > 1 && path.back() == '/') path.pop_back();
  return c;
}

/// An address of this machine that other machines can reach, for a sender that listens on all addresses.
std::string an_own_address(bool v6) {
  std::string found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* a = list; a != nullptr && found.empty(); a = a->ifa_next) {
    char text[NI_MAXHOST];
    if (a->ifa_addr == nullptr || a->ifa_addr->sa_family != AF_INET || (a->ifa_flags & IFF_LOOPBACK) != 0 ||
        (a->ifa_flags & IFF_UP) == 0)
      continue;
    if (::getnameinfo(a->ifa_addr, sizeof(sockaddr_in), text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
      found = text;
  }
  ::freeifaddrs(list);
  if (!found.empty()) return found;
  return v6 ? "[::1]" : "127.0.0.1";
}

/// "HOST:PORT" that recipients connect to, of one that is listened on.
std::string reachable(const std::string& address, std::uint16_t port) {
  std::string host = host_of(address);
  if (host.empty() || host == "0.0.0.0" || host == "*" || host == "[::]") host = an_own_address(host == "[::]");
  return host + ":" + std::to_string(port);
}
/// The link that recipients connect to.
std::string reachable(const link_choice& listen, std::uint16_t port) {
  const facade::place& at = *listen.at;
  if (at.is.path && at.address.front() != '@') return at.with(std::filesystem::absolute(at.address).string());
  return at.is.port ? at.with(reachable(at.address, port)) : listen.text;
}

/// A file's name as a part of a URL.
std::string url_name(const std::string& path) {
  std::string name = std::filesystem::path(path).filename().string().substr(0, 64);
  for (char& c : name)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
          c == '_'))
      c = '-';
  return name.find_first_not_of('.') == name.npos ? "file" : name;
}

template <class IdOrReference>
std::string digits_of(const IdOrReference& of) {
  const auto digits = tp::to_digits(of);
  return {digits.data(), digits.size()};
}

/// One sender: its files, and which recipients have them.
class sender {
 public:
  explicit sender(const choices& c) : choices_(c) {
    for (const std::string& name : c.expected) names_[tp::recipient_named(name).value] = name;
  }

  int run() {
    if constexpr (TENSORPULL_TOOLS_PROOFS) {
      if (const std::string& key = choices_.signing.key; !key.empty()) {
        auto opened = open_signer(choices_.signing);
        if (!opened)
          return complain(printable(key) + " is no private key of Ed25519 in PEM: " + reason_text(opened.error()),
                          opened.error().code);
        sign_ = std::move(*opened);
      }
    }
    // every file is read before any is announced, so that a bad file ends the sender before a recipient waits
    for (const std::string& path : choices_.files) {
      auto file = open(path);
      if (!file) return complain(error_text_of(path, file.error()), file.error().code);
      files_.push_back(std::move(*file));
    }
    auto hear = [this](const tp::progress_event& e) { heard_.push_back(e); };  // until the owner is gone
    auto opened = serve();
    if (!opened) {
      const error& why = opened.error();
      std::string reason = reason_text(why);
      if (why.code == errc::unknown_host) reason = "the host is not known here";
      if (why.code == errc::bad_address && why.system == 0)
        reason = choices_.listen.at->is.port ? "the host is none" : std::string(describe(why).view());
      return complain("cannot listen on " + printable(choices_.listen.text) + ": " + reason, why.code);
    }
    facade::any_owner& owner = **opened;
    address_ = reachable(choices_.listen, owner.port());
    if (http_port_ != 0)
      http_ = (choices_.listen.at->is.encrypted ? "https://" : "http://") +
              reachable(choices_.listen.door.listen, http_port_);

    if (owner.name)
      for (const std::string& name : choices_.expected) owner.name(tp::recipient_named(name), {}, name);
    for (std::size_t i = 0; i < files_.size(); ++i) {
      if (files_[i].file_bytes > std::uint64_t{1} << 30 && !choices_.json)
        say("send", "reading " + printable(choices_.files[i]) + " once for its digest (" +
                        bytes_text(files_[i].file_bytes) + ")");
      tp::publish_options options;
      if (i < choices_.refs.size()) options.id = choices_.refs[i].id;
      options.budgets.recipient_idle = std::chrono::milliseconds(choices_.timeout_ms);
      options.budgets.transaction_idle = {};  // this program says itself when it ends
      options.progress = hear;
      if (choices_.tensor_digests) {
        auto with = tp::image_with_tensor_digests::make<tp::xxhash_digest, 16 * 1024>(files_[i].source);
        if (!with) return complain(unread_text(i, with.error()), with.error().code);
        with_digests_.push_back(std::move(*with));
      }
      const auto ref = owner.add_image(published(i), options, {});
      if (!ref) return complain(unread_text(i, ref.error()), ref.error().code);
      if (i < choices_.refs.size() && choices_.refs[i].version != 0 && choices_.refs[i].version != ref->version)
        return complain(printable(choices_.files[i]) + " is not what --ref says: " + digits_of(*ref) +
                            " would be its reference (the first 32 digits alone take any file)",
                        errc::stale_version);
      refs_.push_back(*ref);
      nameless_.push_back(0);
      if (owner.name) owner.name({}, ref->id, std::filesystem::path(choices_.files[i]).filename().string());
      if (i < choices_.bases.size())
        if (const int bad = publish_difference(owner, i); bad != well) return bad;
      if (choices_.proofs)
        if (const int bad = publish_proofs(owner, i); bad != well) return bad;
      if (interrupted_by != 0) return interrupted_status();
    }
    announce();
    if (!flushed("send")) return failed;  // nobody would know the references

    auto moved = clock::now();
    std::uint64_t seen = activity(owner);
    int status = well;
    const bool somebody = owner.run([&] {
      tell(owner);
      look_for_descriptors();
      if (const std::uint64_t now = activity(owner); now != seen) seen = now, moved = clock::now();
      look_for_lost_files(owner);
      if (lost_.size() == files_.size() || (!lost_.empty() && wanted() && all_have_them())) status = failed;
      else if (interrupted_by != 0) status = wanted() ? interrupted_status() : well;
      else if (choices_.idle_ms != 0 && clock::now() - moved > std::chrono::milliseconds(choices_.idle_ms))
        status = idle;
      else return all_have_them();
      return true;
    });
    if (!somebody && wanted()) status = failed;  // the one recipient has gone, and there can be no other
    // serves a little longer: the last answers, and the last messages of recipients, are still on their way
    const auto end = clock::now() + (status == failed ? std::chrono::seconds(10) : std::chrono::seconds(1));
    const auto least = clock::now() + std::chrono::milliseconds(250);
    owner.run([&] {
      return clock::now() > end || (clock::now() > least && (owner.connections() == 0 || interrupted_by != 0));
    });
    tell(owner);
    finish(owner, status);
    return status;
  }

 private:
  tp::result<tensor_file> open(const std::string& path) const {
    if constexpr (TENSORPULL_TOOLS_DIRECTORIES)
      if (is_directory(path)) return open_directory(path, choices_.of_directories, choices_.follow_links);
    return tensor_file::open(path);
  }
  static std::string error_text_of(const std::string& path, const error& e) {
    return is_directory(path) ? directory_error_text(path, e) : file_error_text(path, e);
  }
  /// Why file i, which could be opened, cannot be published.
  std::string unread_text(std::size_t i, error e) const {
    const std::string& path = choices_.files[i];
    const std::string name = files_[i].changed ? files_[i].changed() : "";
    if (name.empty()) return error_text_of(path, e);
    return printable(path + "/" + name) + " changed while it was read";
  }
  bool is_of_files(std::size_t i) const { return files_[i].format == "directory"; }
  /// Begins to listen.
  tp::result<std::unique_ptr<facade::any_owner>> serve() {
    const auto at = places_of(choices_.listen, {*choices_.listen.at});
    if (!at) return tp::failure(at.error());
    if (choices_.replica) return facade::features.replica(at->front(), *choices_.coordinator.at);
    tp::host_options options;
    if (choices_.listen.tls.require_client_certificates)
      options.authorise = [this](const tp::access_request& r) {
        // the owner does not know whom --expect names: this program counts them
        return !names_.contains(r.recipient.value) || tp::is_certified_as(r.peer, r.recipient);
      };
    auto owner = choices_.swarm ? facade::features.swarm(at->front(), options)
                                : at->front().kind->own(at->front(), options);
    if (!owner || choices_.listen.door.listen.empty()) return owner;
    const auto port = facade::features.door(**owner, at->front(), choices_.listen.door, {});
    if (!port) return tp::failure(port.error());
    http_port_ = *port;
    return owner;
  }
  /// Codes what has changed in file i since its --base, and publishes it where recv looks for it.
  int publish_difference(facade::any_owner& owner, std::size_t i) {
    const std::string &path = choices_.files[i], &old = choices_.bases[i];
    const auto base = tensor_file::open(old);
    if (!base) return complain(file_error_text(old, base.error()), base.error().code);
    const std::uint64_t all = files_[i].schema().image_bytes;
    tp::result<coded_difference> made = tp::failure(errc::unsupported_request);
    if constexpr (TENSORPULL_TOOLS_DIFFERENCES)
      made = code_difference(base->source, files_[i].source, refs_[i], signal_heard{});
    if (interrupted_by != 0) return interrupted_status();
    if (!made && made.error().code == errc::too_large) {
      if (!choices_.json) say("send", "almost all of " + printable(path) + " is new: it is sent whole");
      return well;
    }
    if (!made && made.error().code == errc::schema_mismatch)
      return complain(printable(old) + " has other tensors than " + printable(path) + ", so there is no difference",
                      errc::schema_mismatch);
    if (!made) return complain(file_error_text(old, made.error()), made.error().code);
    differences_.push_back(std::move(*made));
    tp::publish_options options;
    options.id = differences_.back().id;
    options.beside = refs_[i].id;
    options.budgets.recipient_idle = std::chrono::milliseconds(choices_.timeout_ms);
    options.budgets.transaction_idle = {};
    const auto ref = owner.add_image(differences_.back().image, options, {});
    if (!ref) return complain(file_error_text(path, ref.error()), ref.error().code);
    beside_.push_back(*ref);
    const std::uint64_t bytes = differences_.back().bytes;
    if (choices_.json)
      print({{"event", "difference"}, {"file", path}, {"base", old}, {"bytes", bytes}, {"total_bytes", all}});
    else
      say("send",
          "what has changed in " + printable(path) + " since " + printable(old) + " takes " + bytes_text(bytes));
    return well;
  }

  /// Publishes the tree of file i beside it, and writes the signed reference.
  int publish_proofs(facade::any_owner& owner, std::size_t i) {
    const std::string& path = choices_.files[i];
    tp::result<model_tree> made = tp::failure(errc::unsupported_request);
    tp::publish_options options;
    if constexpr (TENSORPULL_TOOLS_PROOFS) {
      made = make_tree(published(i), signal_heard{});
      options.id = tree_id(refs_[i]);
    }
    if (interrupted_by != 0) return interrupted_status();
    if (!made) return complain(unread_text(i, made.error()), made.error().code);
    trees_.push_back(std::move(*made));
    tp::reference tree{};
    if (trees_.back().image) {
      options.beside = refs_[i].id;
      options.budgets.recipient_idle = std::chrono::milliseconds(choices_.timeout_ms);
      options.budgets.transaction_idle = {};
      const auto ref = owner.add_image(*trees_.back().image, options, {});
      if (!ref) return complain(file_error_text(path, ref.error()), ref.error().code);
      beside_.push_back(*ref);
      tree = *ref;
    }
    if (!sign_) return well;
    const auto text = sign_(refs_[i], tree, trees_.back());
    if (!text) return complain(printable(path) + " cannot be signed: " + reason_text(text.error()), text.error().code);
    if constexpr (TENSORPULL_TOOLS_PROOFS) {
      if (const auto ok = write_text(signed_name(i), *text); !ok)
        return complain(printable(signed_name(i)) + " cannot be written: " + reason_text(ok.error()), ok.error().code);
    }
    return well;
  }
  std::string signed_name(std::size_t i) const { return choices_.files[i] + ".signed"; }

  bool wanted() const { return choices_.recipients != 0 || !choices_.expected.empty(); }
  bool all_have_them() const {
    if (!wanted()) return false;
    for (std::size_t i = 0; i < refs_.size(); ++i) {
      const tp::reference& ref = refs_[i];
      if (lost_.contains(i)) continue;
      const auto found = have_.find(digits_of(ref.id));
      if (found == have_.end()) return false;
      if (choices_.expected.empty() && found->second.size() + nameless_.at(i) < choices_.recipients) return false;
      for (const std::string& name : choices_.expected)
        if (!found->second.contains(tp::recipient_named(name).value)) return false;
    }
    return true;
  }
  /// Reports files that were withdrawn because they can no longer be read; the others are served on.
  void look_for_lost_files(facade::any_owner& owner) {
    for (std::size_t i = 0; i < refs_.size(); ++i) {
      if (lost_.contains(i) || !owner.settled(refs_[i])) continue;
      lost_.insert(i);
      if (choices_.replica) {
        if (choices_.json) print({{"event", "owner_lost"}, {"file", choices_.files[i]}, {"ref", digits_of(refs_[i])}});
        else
          say("send", "the sender at " + printable(choices_.coordinator.text) + " has ended or is gone, or " +
                          printable(choices_.files[i]) + " cannot be read any more");
      } else if (choices_.json)
        print({{"event", "withdrawn"}, {"file", choices_.files[i]}, {"ref", digits_of(refs_[i])}});
      else if (files_[i].changed && !files_[i].changed().empty())
        say("send", printable(choices_.files[i] + "/" + files_[i].changed()) + " has changed, so " +
                        printable(choices_.files[i]) + " was withdrawn");
      else say("send", printable(choices_.files[i]) + " can no longer be read, or not all of it, so it was withdrawn");
    }
  }
  /// Says once that there is no descriptor for another connection: whoever comes then waits for one that ends.
  void look_for_descriptors() {
    if (scarce_) return;
    const int one = ::eventfd(0, EFD_CLOEXEC);
    if (one >= 0) return (void)::close(one);
    if (errno != EMFILE && errno != ENFILE) return;
    scarce_ = true;
    rlimit most{};
    ::getrlimit(RLIMIT_NOFILE, &most);
    const auto limit = static_cast<std::uint64_t>(most.rlim_cur);
    if (choices_.json) print({{"event", "scarce"}, {"what", "descriptors"}, {"limit", limit}});
    else
      say("send", "there are as many connections as this process may have descriptors (" + std::to_string(limit) +
                      "): others wait until one ends. A higher 'ulimit -n' lets in more");
  }
  /// A number that changes whenever something happens.
  std::uint64_t activity(facade::any_owner& owner) const {
    std::uint64_t sum = 0;
    for (const tp::reference& ref : refs_)
      if (const auto status = owner.status_of(ref))
        sum += status->bytes_sent + status->acquired + status->lost + status->final();
    for (const tp::reference& ref : beside_)
      if (const auto status = owner.status_of(ref)) sum += status->bytes_sent;
    return sum;
  }

  int complain(const std::string& what, errc code) const {
    if (choices_.json) print({{"event", "failed"}, {"code", code_name(code)}, {"message", what}});
    else say("send", what);
    return failed;
  }
  /// The URL of a file, which has no key in it.
  std::string url_of(std::size_t i) const {
    return http_ + "/v1/" + url_name(choices_.files[i]) + "/" + formatted("%016llx", wide(refs_[i].version));
  }
  static void print(const json_object& line) {
    line.print();
    std::fflush(stdout);
  }

  void announce() const {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      const tp::image_schema& schema = *published(i).schema;
      const std::string ref = digits_of(refs_[i]);
      if (choices_.json) {
        json_object line{{"event", "published"},
                         {"file", choices_.files[i]},
                         {"address", address_},
                         {"ref", ref},
                         {"bytes", schema.image_bytes},
                         {"tensors", schema.tensor_count},
                         {"digest", formatted("%016llx", wide(refs_[i].version))}};
        if (!http_.empty()) line.add("url", url_of(i));
        if constexpr (TENSORPULL_TOOLS_PROOFS) {
          if (choices_.proofs) line.add("root", hex_text(trees_[i].root));
          if (sign_) line.add("signed", signed_name(i)), line.add("expires", choices_.signing.expires);
        }
        print(line);
        continue;
      }
      say("send", printable(choices_.files[i]) + " (" +
                      count_text(schema.tensor_count, is_of_files(i) ? "file" : "tensor") + ", " +
                      bytes_text(schema.image_bytes) + "); recv takes it with this line and -o " +
                      (is_of_files(i) ? "DIRECTORY/:" : "FILE:"));
      std::printf("%s %s\n", address_.c_str(), ref.c_str());
      std::fflush(stdout);
      if constexpr (TENSORPULL_TOOLS_PROOFS) {
        if (sign_)
          say("send", printable(signed_name(i)) + " is its signed reference, valid until " +
                          date_text(choices_.signing.expires) + ": recv " + address_ + " " +
                          shell_word(signed_name(i)) + " --key KEYS -o FILE");
      }
      if (http_.empty()) continue;
      say("send", "or: curl -H 'Authorization: Bearer " + digits_of(refs_[i].id) + "' -o FILE " + url_of(i) +
                      (is_of_files(i) ? "/files/PATH, for each PATH of " + url_of(i) + "/files" : ""));
      if (wanted())
        say("send", "with -H 'Tensorpull-Recipient: NAME' it counts, once it has confirmed: " + confirming_line(i));
    }
    if (!choices_.json)
      say("send", choices_.replica ? "serving for the sender at " + printable(choices_.coordinator.text) +
                                         ", which says who has what; Ctrl-C ends it"
                                   : "serving, Ctrl-C ends it");
  }

  std::string who(tp::recipient_id id) const {
    const auto found = names_.find(id.value);
    if (id.value == 0) return "a recipient without a name";
    return found != names_.end() ? printable(found->second) : formatted("recipient %016llx", wide(id.value));
  }
  std::size_t file_of(const tp::ref_id& id) const {
    return static_cast<std::size_t>(
        std::find_if(refs_.begin(), refs_.end(), [&](const tp::reference& r) { return r.id == id; }) - refs_.begin());
  }

  /// Prints what recipients have done since the last call.
  void tell(facade::any_owner& owner) {
    if (choices_.replica)
      return heard_.clear();  // it sees a part of what a recipient does; the sender that counts says the rest
    for (const tp::progress_event& e : std::exchange(heard_, {})) {
      const std::size_t i = file_of(e.ref);
      if (i == files_.size() || e.phase == tp::progress_phase::active) continue;
      const std::pair key{i, e.recipient.value};
      if (e.phase == tp::progress_phase::started) began_[key] = clock::now();
      const auto record = owner.recipient_of(refs_[i], e.recipient);
      const bool unverified = e.phase == tp::progress_phase::completed && record &&
                              record->state == tp::recipient_state::completed_unverified;
      if (e.phase == tp::progress_phase::completed) {
        auto& have = have_[digits_of(e.ref)];
        if (e.recipient.value != 0) have.insert(e.recipient.value);
        else ++nameless_.at(i);
        ++completed_;
      }
      const auto began = began_.find(key);
      const double seconds = began == began_.end()
                                 ? 0
                                 : std::chrono::duration<double>(clock::now() - began->second).count();
      if (e.phase != tp::progress_phase::started) began_.erase(key);
      const std::uint64_t sent = record ? record->bytes : e.bytes_done;
      if (choices_.json) {
        json_object line{{"event", unverified ? to_string(record->state) : to_string(e.phase)},
                         {"file", choices_.files[i]},
                         {"ref", digits_of(refs_[i])},
                         {"recipient", formatted("%016llx", wide(e.recipient.value))}};
        if (const auto found = names_.find(e.recipient.value); found != names_.end()) line.add("name", found->second);
        if (e.phase != tp::progress_phase::started) line.add("sent_bytes", sent);
        if (e.code != errc{}) line.add("code", code_name(e.code));
        print(line);
        continue;
      }
      const std::string name = who(e.recipient), file = printable(choices_.files[i]),
                        of = " of " + bytes_text(published(i).schema->image_bytes) + " sent)";
      switch (e.phase) {
        case tp::progress_phase::started: say("send", name + " pulls " + file); break;
        case tp::progress_phase::completed:
          say("send", name + " has " + file + (unverified ? ", unchecked (" : " (") + bytes_text(sent) + " sent" +
                          (seconds < 0.5 ? ")" : " in " + seconds_text(seconds) + ")"));
          break;
        case tp::progress_phase::aborted: say("send", name + " gave up " + file + " (" + bytes_text(sent) + of); break;
        default: {
          const char* what = " got other bytes than those of ";
          if (e.code != errc::digest_mismatch) {
            what = " has not confirmed that it has ";
            if (sent < published(i).schema->image_bytes)
              what = e.code == errc::timed_out ? " has vanished, without all of " : " could not get all of ";
          }
          say("send", name + what + file + " (" + bytes_text(sent) + of);
        }
      }
    }
  }
  /// How many recipients were sent a whole file and have not said that they have it, and the first such file.
  struct silent_recipients {
    std::size_t count = 0, file = 0;
  };
  silent_recipients unconfirmed(facade::any_owner& owner) const {
    silent_recipients found;
    for (std::size_t i = refs_.size(); i-- > 0;) {
      const auto status = owner.status_of(refs_[i]);
      std::vector<tp::recipient_record> all(status ? status->acquired + status->unlisted : 0);
      all.resize(owner.recipients_of(refs_[i], all));
      const auto n = std::count_if(all.begin(), all.end(), [](const tp::recipient_record& r) {
        return r.state == tp::recipient_state::provisional;
      });
      if (n > 0) found = {found.count + static_cast<std::size_t>(n), i};
    }
    return found;
  }
  /// What a client that is no recv says once it has a file.
  std::string confirming_line(std::size_t i) const {
    return "curl -H 'Authorization: Bearer " + digits_of(refs_[i].id) +
           "' -H 'Tensorpull-Recipient: NAME' -d digest=" + formatted("%016llx", wide(refs_[i].version)) + " " +
           url_of(i) + "/confirm";
  }

  void finish(facade::any_owner& owner, int status) {
    std::uint64_t sent = 0;
    std::string refs;
    for (std::size_t i = 0; i < refs_.size(); ++i) {
      if (const auto counts = owner.status_of(refs_[i])) sent += counts->bytes_sent;
      refs += " --ref " + digits_of(refs_[i]);
    }
    for (const tp::reference& ref : beside_)
      if (const auto counts = owner.status_of(ref)) sent += counts->bytes_sent;
    for (const std::string& base : choices_.bases) refs += " --base " + shell_word(base);
    if (choices_.tensor_digests) refs += " --tensor-digests";
    if (const signing_choice& s = choices_.signing; sign_)
      refs += " --sign " + shell_word(s.key) + " --federation " + shell_word(s.federation) + " --round " +
              std::to_string(s.round) + (s.expires_text.empty() ? "" : " --expires " + shell_word(s.expires_text));
    else if (choices_.proofs) refs += " --proofs";
    for (const std::string& pattern : choices_.of_directories.include) refs += " --include " + shell_word(pattern);
    for (const std::string& pattern : choices_.of_directories.exclude) refs += " --exclude " + shell_word(pattern);
    if (choices_.follow_links) refs += " --follow-links";
    if (choices_.swarm) refs += " --swarm";
    const char* how = "interrupted";
    if (status == well) how = "done";
    if (status == idle) how = "idle";
    if (status == failed) how = lost_.empty() ? "left" : "withdrawn";
    const silent_recipients silent = unconfirmed(owner);
    if (choices_.json)
      return print({{"event", "ended"},
                    {"outcome", how},
                    {"completed", completed_},
                    {"unconfirmed", silent.count},
                    {"sent_bytes", sent}});
    if (status == idle)
      say("send", "nobody has taken anything for " + seconds_text(static_cast<double>(choices_.idle_ms) / 1000));
    if (choices_.replica) return say("send", bytes_text(sent) + " sent");
    std::string pulls = count_text(completed_, "pull") + " completed; ";
    if (completed_ == 0) pulls = silent.count == 0 ? "nobody has pulled a file to its end; " : "";
    if (silent.count != 0)
      pulls += count_text(silent.count, "recipient") + (silent.count == 1 ? " was" : " were") +
               " sent the whole file and " + (silent.count == 1 ? "has" : "have") + " not confirmed; ";
    say("send", pulls + bytes_text(sent) + " sent");
    if (silent.count != 0 && !http_.empty())
      say("send",
          "over HTTP a recipient confirms under the NAME with which it has fetched, once the file's digest was compared\n  " +
              confirming_line(silent.file));
    if (status == failed && lost_.empty()) say("send", "the recipient has gone without all that was expected");
    std::uint64_t under_way = 0;
    for (const tp::reference& ref : refs_)
      if (const auto counts = owner.status_of(ref))
        under_way += counts->acquired - std::min(counts->acquired, counts->final());
    const bool more_to_come = (!began_.empty() && under_way > silent.count) || (wanted() && status != well);
    if (!more_to_come || status == failed) return;
    std::string command = called_as + "send";
    for (const std::string& path : choices_.files) command += " " + shell_word(path);
    const link_choice& listen = choices_.listen;
    const facade::place& at = *listen.at;
    const auto with_port = [](const std::string& address, std::uint16_t port) {
      return host_of(address) + ":" + std::to_string(port);
    };
    command += " --listen " + shell_word(at.is.port ? at.with(with_port(at.address, owner.port())) : listen.text) +
               link_options(listen);
    if (http_port_ != 0)
      command += " --http " + shell_word(with_port(listen.door.listen, http_port_)) +
                 (listen.door.metrics ? " --metrics" : "") +
                 (choices_.status_file.empty() ? "" : " --status-file " + shell_word(choices_.status_file)) +
                 (listen.door.origin.empty() ? "" : " --allow-origin " + shell_word(listen.door.origin));
    command += refs;
    say("send", "recipients go on where they are when it is started again with\n  " + command);
  }

  const choices& choices_;
  /// What is published of a file.
  tp::source_view published(std::size_t i) const {
    return with_digests_.empty() ? files_[i].source : with_digests_[i].source();
  }

  std::vector<tensor_file> files_;
  std::vector<tp::image_with_tensor_digests> with_digests_;  ///< of each file, if that is wanted
  std::vector<tp::reference> refs_;
  std::vector<coded_difference> differences_;
  signer sign_;
  std::vector<model_tree> trees_;
  std::vector<tp::reference> beside_;  ///< of the differences
  std::string address_, http_;
  std::uint16_t http_port_ = 0;
  std::vector<tp::progress_event> heard_;
  std::map<std::uint64_t, std::string> names_;
  std::map<std::pair<std::size_t, std::uint64_t>, clock::time_point> began_;
  std::map<std::string, std::set<std::uint64_t>> have_;
  /// of each file: over HTTP a client without a name stands for its connection, and each has the number 0
  std::vector<std::size_t> nameless_;
  std::uint64_t completed_ = 0;
  std::set<std::size_t> lost_;
  bool scarce_ = false;
};

/// Sends the file to a store.
int put(const choices& c) {
  const auto complain = [&](const std::string& what, errc code) {
    if (c.json) json_object{{"event", "failed"}, {"code", code_name(code)}, {"message", what}}.print();
    else say("send", what);
    (void)flushed("send");
    return code == errc::cancelled && interrupted_by != 0 ? interrupted_status() : failed;
  };
  const auto file = tensor_file::open(c.files[0]);
  if (!file) return complain(file_error_text(c.files[0], file.error()), file.error().code);
  const auto began = clock::now();
  const auto to = places_of(c.listen, {*c.listen.at});
  const auto how = to ? to->front().kind->put(to->front(), file->source, std::chrono::milliseconds(c.timeout_ms),
                                              signal_heard{})
                      : tp::failure(to.error());
  const std::string at = printable(c.listen.text);
  if (!how) {
    const error& e = how.error();
    const std::string why = e.name.empty() ? "" : " (" + printable(e.name.view()) + ")";
    const bool goes_on = is_s3(c.put) && (e.code == errc::cancelled || tp::is_passing(e.code));
    const std::string again = goes_on ? "; started again, it sends what the store lacks" : "";
    if (e.code == errc::cancelled) return complain("interrupted" + again, e.code);
    if (e.code == errc::digest_mismatch || e.code == errc::unreadable)
      return complain(printable(c.files[0]) +
                          (e.code == errc::unreadable ? " can no longer be read, or not all of it"
                                                      : " has changed while it was sent") +
                          ", so " + at + " was not sent the last bytes, and has no whole file",
                      e.code);
    if (has_failed(e)) return complain("the server of " + at + " has failed" + why + again, e.code);
    if (leads_on(e)) return complain(at + " leads from one redirect to the next" + why, e.code);
    return complain((e.code == errc::not_permitted ? at + " does not let us put it there"
                                                   : at + " has not taken it: " + reason_text(e)) +
                        why + again,
                    e.code);
  }
  const std::uint64_t bytes = file->schema().image_bytes;
  const std::string digest = formatted("%016llx", wide(how->digest));
  const std::string before = how->sent == bytes ? "" : " (" + bytes_text(bytes - how->sent) + " were there)";
  if (c.json)
    json_object{{"event", "put"}, {"file", c.files[0]}, {"bytes", bytes}, {"sent_bytes", how->sent}, {"digest", digest}}
        .print();
  else
    std::printf("%s: %s put at %s in %s%s; recv takes it with --digest xxh3:%s\n", printable(c.files[0]).c_str(),
                bytes_text(bytes).c_str(), at.c_str(),
                seconds_text(std::chrono::duration<double>(clock::now() - began).count()).c_str(), before.c_str(),
                digest.c_str());
  return flushed("send") ? well : failed;
}

}  // namespace

int main(int count, char** arguments) {
  const choices c = read_choices(count, arguments);
  hear_signals();
  try {
    return c.put.empty() ? sender(c).run() : put(c);
  } catch (const std::bad_alloc&) {
    say("send", "there is not enough memory");
    return failed;
  }
}
