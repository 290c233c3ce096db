// Writes the seeds into the corpora of the tree. Valid ones come from the library's own encoder and from transfers that
// are recorded; the hostile ones are made by hand, after group F of the catalogue of faults.
#include "seeds.hpp"

#include "support/messages.hpp"

#include <tensorpull/framing/detail/piece_prefix.hpp>

#include <tensorpull/links/serial/cobs.hpp>


namespace {

using namespace test;
using namespace test::fuzz;
using kind = tp::frame_kind;

std::vector<std::pair<std::string, frame>> hostile_frames() {
  constexpr std::uint64_t page = struct_pointer(0, 5, 1), locate = struct_pointer(0, 3, 1),
                          application = struct_pointer(0, 1, 2);
  constexpr std::uint32_t most = (1u << 29) - 1;
  const auto lone = [](std::uint64_t root) {
    return frame(words{segment_table(9), root, 1ull << 32, 0, 0, 0, 0, 0, 0, 0});
  };
  words empty_segments(257, 0), alias{locate, 0, 0, 0, list_pointer(0, of_pointer, 64)};
  empty_segments[0] = std::uint64_t{1} << 32 | 511;
  empty_segments.push_back(0);
  words aliased{
      0, struct_pointer(0, 7, 1), std::uint64_t{static_cast<std::uint16_t>(kind::locate)} << 32, 0, 0, 0, 0, 0, 0};
  aliased.insert(aliased.end(), alias.begin(), alias.end());
  for (int i = 0; i < 64; ++i) aliased.push_back(list_pointer(63 - i, of_byte, 256));
  aliased.resize(aliased.size() + 32, 0x6161616161616161);
  aliased.back() = 0x0061616161616161;
  aliased[0] = segment_table(static_cast<std::uint32_t>(aliased.size() - 1));
  return {
      {"f01-512-segments", frame(empty_segments)},
      {"f02-eight-mi-words", frame(words{segment_table(8u << 20), 0})},
      {"f03-eight-segments-of-all",
       frame(words{~std::uint64_t{0} << 32 | 7, ~std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{0}, 0xffffffff})},
      {"f04-three-of-four-mi-words",
       frame(words{std::uint64_t{4u << 20} << 32 | 2, std::uint64_t{4u << 20} << 32 | (4u << 20)})},
      {"f05-no-word", frame(words{0})},
      {"f08-far-to-nowhere", single_segment(kind::schema_page, {far_pointer(1, 0, false), 0, 0, 0, 0, 0, 0})},
      {"f08-far-to-itself", single_segment(kind::schema_page, {far_pointer(0, 9, false), 0, 0, 0, 0, 0, 0})},
      {"f08-double-far-bad-pad", single_segment(kind::schema_page, {far_pointer(0, 9, true), 0, 0, 0, 0, 0, 0})},
      {"f09-negative-offset", single_segment(kind::schema_page, {struct_pointer(-100, 5, 1), 0, 0, 0, 0, 0, 0})},
      {"f09-past-the-end", single_segment(kind::schema_page, {struct_pointer(0, 0xffff, 0xffff), 0, 0, 0, 0, 0, 0})},
      {"f09-root-too-long", lone(struct_pointer(0, 8, 1))},
      {"f10-page-is-the-root", single_segment(kind::schema_page, {struct_pointer(-9, 7, 1)})},
      {"f10-list-in-itself", single_segment(kind::locate, {locate, 0, 0, 0, list_pointer(-1, of_pointer, 1)})},
      {"f11-voids", single_segment(kind::locate, {locate, 0, 0, 0, list_pointer(0, of_void, most)})},
      {"f11-structs-without-size",
       single_segment(kind::schema_page, {page, 0, 0, 0, 0, 0, list_pointer(0, of_composite, 0),
                                          struct_pointer(static_cast<std::int32_t>(most), 0, 0)})},
      {"f12-alias-bomb", frame(aliased)},
      {"f13-text-without-end", single_segment(kind::locate, {locate, 1, 2, 3, list_pointer(0, of_pointer, 1),
                                                             list_pointer(0, of_byte, 2), 0x6161})},
      {"f13-text-of-size-zero",
       single_segment(kind::locate, {locate, 1, 2, 3, list_pointer(0, of_pointer, 1), list_pointer(0, of_byte, 0)})},
      {"f14-structs-for-pointers", single_segment(kind::locate, {locate, 1, 2, 3, list_pointer(0, of_composite, 2),
                                                                 struct_pointer(2, 1, 0), 7, 8})},
      {"f15-capability", lone(3)},
      {"f15-reserved-kind", single_segment(kind::schema_page, {std::uint64_t{7}})},
      {"f17-unknown-tag", single_segment(static_cast<kind>(200), {0})},
      {"f17-unknown-status", single_segment(kind::refused, {~std::uint64_t{0}, ~std::uint64_t{0}})},
      {"f17-longer-root", frame(words{segment_table(15), struct_pointer(0, 12, 2), 1ull << 32 | 9, 1, 2, 0, 0, 0, 0, 0,
                                      0, 0, 0, 0, 0, 0})},
      {"application-of-two-lists",
       single_segment(kind::application, {application, 5, list_pointer(1, of_composite, 4), list_pointer(0, of_byte, 0),
                                          struct_pointer(1, 4, 0), 1, 2, 3, 4})},
  };
}

void make_frames() {
  for (const tp::frame& m : every_message())
    write("frames", "valid-" + std::to_string(static_cast<int>(m.kind)), encode(m).bytes());
  for (const std::size_t n : {0u, 1u, 13u, 64u})
    write("frames", "valid-chunk-" + std::to_string(n),
          chunk_frame(every_message()[2], bytes(n, std::byte{7})).bytes());
  write("frames", "valid-two-segments",
        frame(words{std::uint64_t{9} << 32 | 1,
                    9,
                    struct_pointer(0, 7, 1),
                    std::uint64_t{12} << 32 | 5,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    far_pointer(1, 0, false),
                    struct_pointer(0, 3, 1),
                    1,
                    2,
                    3,
                    list_pointer(0, of_pointer, 2),
                    list_pointer(1, of_byte, 2),
                    list_pointer(1, of_byte, 3),
                    'a',
                    'b'})
            .bytes());
  for (const auto& [name, f] : hostile_frames()) write("frames", name, f.bytes());
}

/// A message in pieces: doubled, early, of another length, of another sender.
bytes pieces() {
  bytes all = head(0, {2, 0, 1, 2});
  const frame message = encode([] {
    tp::frame m;
    m.kind = kind::application;
    m.application = 7;
    return m;
  }());
  const auto add = [&](tp::detail::piece p, std::size_t from) {
    std::array<std::byte, tp::detail::piece_prefix::bytes> h;
    tp::detail::piece_prefix::write(p, h);
    all.insert(all.end(), h.begin(), h.end());
    const auto part = message.bytes().subspan(from, p.length);
    all.insert(all.end(), part.begin(), part.end());
    all.insert(all.end(), (8 - p.length % 8) % 8, std::byte{0});
  };
  const auto size = static_cast<std::uint32_t>(message.bytes().size());
  constexpr auto piece = kind::piece;
  add({piece, 5, 0, 0, size, size}, 0);
  add({piece, 5, 0, 0, size, size}, 0);
  add({piece, 5, 1, 0, size, 16}, 0);
  add({piece, 5, 1, 32, size, 16}, 32);
  add({piece, 5, 1, 16, size, size - 16}, 16);
  add({piece, 5, 2, 0, ~0u, 16}, 0);
  add({piece, 6, 9, 0, size, size}, 0);
  add({piece, 5, 2, 0, size, size}, 0);
  add({kind::taken, 1, 0, 8, 0, 0}, 0);
  return all;
}

void make_streams() {
  for (const unsigned scenario : {0u, 1u, 2u, 3u, 4u, 5u, 8u, 16u, 32u + 1u, 64u}) {
    const recording r = record(pull_plan(static_cast<std::uint8_t>(scenario)));
    const bool completes = (scenario & 16) == 0;
    const std::string name = (completes ? "valid-" : "gives-up-") + std::to_string(scenario);
    write("replies", name, joined({head(scenario), r.to_recipient}));
    write("replies", "unasked-" + std::to_string(scenario), joined({head(128 | scenario, {0, 200}), r.to_recipient}));
    write("replies", name + "-in-pieces", joined({head(scenario, {1, 7, 80, 13}, {3, 200, 50}), r.to_recipient}));
    write("requests", "valid-" + std::to_string(scenario), joined({head(0), r.to_owner}));
    write("datagrams", "requests-" + std::to_string(scenario), joined({head(2), r.to_owner}));
    write("datagrams", "answers-" + std::to_string(scenario), joined({head(2, {1, 2, 0, 1}), r.to_recipient}));
    write("requests", "withdrawn-" + std::to_string(scenario),
          joined({head(3, {9, 64, 1, 30}, {5, 100, 41}), r.to_owner}));
  }
  tp::frame m;
  m.ref = second_ref;
  bytes pulls = head(3, {40, 96, 8, 1}, {31, 90, 7});
  const auto add = [&](bytes& to, const tp::frame& what) {
    const frame f = encode(what);
    to.insert(to.end(), f.bytes().begin(), f.bytes().end());
  };
  for (std::uint32_t i = 0; i < 20; ++i) {
    m.kind = i % 5 == 4 ? kind::schema : kind::pull;
    if (i % 5 == 0) m.kind = kind::describe;
    m.id = i, m.offset = m.kind == kind::pull ? 37u * i : 0, m.length = 100, m.flag = i % 2 == 0;
    add(pulls, m);
  }
  write("requests", "pulls-of-two-versions", pulls);
  bytes odd = head(0, {100, 3, 0, 0}, {0, 0, 9});
  for (const tp::ref_id id : {tp::ref_id{}, first_ref, second_ref, withdrawn_ref, tp::ref_id{9, 9}})
    for (const auto& [offset, length] : {std::pair{~std::uint64_t{0}, ~0u},
                                         {std::uint64_t{0}, 0u},
                                         {~std::uint64_t{0} - 5, 10u},
                                         {std::uint64_t{0}, ~0u}}) {
      m = {};
      m.kind = kind::pull, m.ref = id, m.offset = offset, m.length = length;
      add(odd, m);
    }
  write("requests", "r02-offsets-and-lengths", odd);
  bytes all = head(0), refused = head(4);
  for (tp::frame any : every_message()) {
    if (!tp::is_request(any.kind) && any.kind != kind::application) continue;
    any.ref = any.kind == kind::application ? any.ref : first_ref, any.version = 0;
    add(all, any), add(refused, any);
  }
  write("requests", "valid-all-kinds", all);
  write("requests", "nobody-takes-messages", refused);
  for (const auto& [name, f] : hostile_frames()) {
    write("requests", name, joined({head(0), f.bytes()}));
    write("replies", name, joined({head(0), f.bytes()}));
    write("datagrams", name, joined({head(2), f.bytes()}));
  }
  write("datagrams", "l03-pieces", pieces());
  for (const char* target : {"requests", "replies"}) {
    write(target, "f16-zeros", joined({head(0), bytes(512)}));
    write(target, "f16-http",
          joined({head(0), std::as_bytes(std::span(std::string_view("GET / HTTP/1.1\r\nHost: a\r\n\r\n")))}));
    write(target, "f16-tls",
          joined({head(0), std::as_bytes(std::span(std::string_view(
                               "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and thirty-two random bytes")))}));
    write(target, "f16-ssh", joined({head(0), std::as_bytes(std::span(std::string_view("SSH-2.0-OpenSSH_9.2\r\n")))}));
  }
}

void make_headers() {
  // pairs, window; for each pair its lengths and texts; for each tensor dtype, rank and name's length, extents, name
  const auto tensor = [](unsigned type, std::initializer_list<unsigned> extents, std::string_view name) {
    std::string s{static_cast<char>(type), static_cast<char>(extents.size() + 8 * name.size())};
    for (const unsigned n : extents) s += static_cast<char>(n);
    return s.append(name);
  };
  constexpr auto f32 = static_cast<unsigned>(tp::dtype::f32), u8 = static_cast<unsigned>(tp::dtype::u8),
                 f4 = static_cast<unsigned>(tp::dtype::f4);
  const std::string plain("\0\x0a", 2), pair("\x01\x00\x03\x02keyvv", 9);
  write("headers", "valid-none", plain);
  write("headers", "valid-one", plain + tensor(f32, {2, 3}, "weight"));
  write("headers", "valid-all-dtypes", [&] {
    std::string s = plain;
    for (unsigned i = 0; i < tp::dtype_count; ++i) s += tensor(i, {8, i}, "t" + std::to_string(i));
    return s;
  }());
  write("headers", "valid-metadata", pair + tensor(f32, {}, "scalar") + tensor(f32, {0, 5}, "none"));
  write("headers", "valid-escapes",
        plain + tensor(f32, {1}, "\"\\/\b\f\n\r\t\x01\x1f\x7f") +
            tensor(f32, {1}, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80") + tensor(f32, {1}, ""));
  write("headers", "l04-size-overflow", plain + tensor(f32, {232, 232}, "a") + tensor(f32, {0, 239, 239}, "b"));
  write("headers", "l06-one-name-twice", plain + tensor(f32, {2}, "a") + tensor(u8, {2}, "a"));
  write("headers", "reserved-name", plain + tensor(f32, {2}, "__metadata__"));
  write("headers", "no-utf8", plain + tensor(f32, {2}, "\xed\xa0\x80"));
  write("headers", "half-bytes", plain + tensor(f4, {3}, "a"));
}

void make_cursors() {
  const model source = mixed_model().fill(1);
  const auto& schema = source.schema();
  const auto image = source.image_bytes();
  for (const std::uint64_t offset : {std::uint64_t{1}, schema.header_bytes, schema.header_bytes + 1,
                                     schema.image_bytes / 2, schema.image_bytes - 1, schema.image_bytes}) {
    tp::xxhash_digest h;
    h.update(std::span(image).first(static_cast<std::size_t>(offset)));
    const auto cursor = tp::encode(
        tp::resume_cursor{first_ref, schema.fingerprint, version_of(source), offset, h.digest()});
    std::string text(1, '\x10');  // the destination holds the source's bytes
    text.append(reinterpret_cast<const char*>(cursor.data()), cursor.size());
    write("cursors", "valid-" + std::to_string(offset), text);
    write("cursors", "edited-" + std::to_string(offset), text + std::string("\x00\x07\x01", 3));
    text[0] = '\x30';
    write("cursors", "edited-and-believed-" + std::to_string(offset), text + std::string("\x00\x07\x01", 3));
  }
}

void make_files() {
  const auto entry = [](std::string_view name, std::string_view type, std::string_view shape, std::string_view offsets,
                        std::string_view more = {}) {
    return "\"" + std::string(name) + "\":{\"dtype\":\"" + std::string(type) + "\",\"shape\":[" + std::string(shape) +
           "],\"data_offsets\":[" + std::string(offsets) + "]" + std::string(more) + "}";
  };
  const auto text = [](const std::string& name, const std::string& of) { write("files", name, "1" + of); };
  const std::string a = entry("a", "F32", "2,3", "0,24"),
                    ignored = ",\"x\":[{\"y\":null},-1.5e3,\"\\u00e9\\ud83d\\ude00\",true,false]";
  text("valid-none", "{}      ");
  text("valid-one", "{" + a + "}");
  text("valid-metadata", "{\"__metadata__\":{\"format\":\"pt\"}," + a + "}");
  text("valid-unsorted", "{" + entry("z", "U8", "1", "25,26") + "," + entry("b", "BOOL", "", "24,25") + "," + a + "}");
  text("valid-unknown-field", "{" + entry("a", "F32", "2,3", "0,24", ignored) + "}");
  text(
      "valid-odd-words",
      "{ \n\"\\u0061\\n\" : {\"shape\":[0 ,18446744073709551615], \"\\u0064type\":\"F8_E4M3FNUZ\",\"data_offsets\":[0,0]}}");
  text("s03-nested",
       "{" + entry("a", "U8", "1", "0,1", ",\"x\":" + std::string(130, '[') + std::string(130, ']')) + "}");
  text("valid-s03-nested-just-so",
       "{" + entry("a", "U8", "1", "0,1", ",\"x\":" + std::string(125, '[') + std::string(125, ']')) + "}");
  text("s04-size-overflow", "{" + entry("a", "F32", "4294967296,4294967296", "0,0") + "}");
  text("s05-hole", "{" + a + "," + entry("b", "U8", "1", "25,26") + "}");
  text("s05-overlap", "{" + a + "," + entry("b", "U8", "2", "23,25") + "}");
  text("s06-one-name-twice", "{" + entry("a", "U8", "0", "0,0") + "," + entry("a", "F32", "0", "0,0") + "}");
  text("no-number", "{" + entry("a", "U8", "-0,1.0,1e2", "0,0") + "}");
  text("no-utf8", "{" + entry("\xed\xa0\x80", "U8", "0", "0,0") + "}");
  const std::string whole("0\x40\0\0\0\0\0\0\0", 9), one = entry("a", "U8", "3", "0,3");
  write("files", "valid-file", whole + "{" + one + "}" + std::string(62 - one.size(), ' ') + "xyz");
  write("files", "s05-trailing", whole + "{" + one + "}" + std::string(62 - one.size(), ' ') + "xyzPK");
  write("files", "s01-length-wraps", "0\xf8\xff\xff\xff\xff\xff\xff\xff{}      ");
  write("files", "s02-length-too-long", std::string("0\x01\xe1\xf5\x05\0\0\0\0{}      ", 17));
}

void make_texts() {
  const std::pair<const char*, std::string_view> all[] = {
      {"valid-reference", "0123456789abcdef0123456789ABCDEF"},
      {"valid-reference-with-version", "0123456789abcdef0123456789ABCDEF00000000b13dc63d"},
      {"valid-address", "127.0.0.1:8002"},
      {"valid-address-v6", "[fe80::1]:65535"},
      {"valid-port-alone", ":0"},
      {"valid-dtype", "F8_E4M3FNUZ"},
      {"r06-reference-too-short", "0123456789abcdef0123456789abcde"},
      {"r06-reference-version-too-short", "0123456789abcdef0123456789abcdef00000000b13dc63"},
      {"r06-reference-with-zero", std::string_view("0123456789abcdef\0"
                                                   "123456789abcdef",
                                                   32)},
      {"port-too-large", "host:65536"},
      {"port-negative", "host:-1"},
      {"port-missing", "host:"},
      {"v6-without-brackets", "fe80::1:80"},
      {"brackets-alone", "[]:1"},
      {"nothing", ""},
      {"valid-link-tcp", "tcp://host:80"},
      {"valid-link-tls", "tls://[::1]:8002"},
      {"valid-link-unix", "unix:///run/model"},
      {"valid-link-name", "unix:@model"},
      {"valid-link-serial", "serial:/dev/ttyUSB0?speed=115200"},
      {"valid-link-nats", "nats://user:pass@host:4222"},
      {"valid-link-pipe", "pipe:ssh host send 'a b' \"c\\\"d\" --stdio"},
      {"link-without-slashes", "tcp:80"},
      {"link-with-one-slash-too-few", "unix://run/model"},
      {"link-of-nothing", "pipe:"},
      {"link-unknown", "http://host:80"},
      {"command-quote-open", "send 'model"},
      {"command-ends-in-backslash", "send \\"}};
  for (const auto& [name, text] : all) write("texts", name, text);
  write("texts", "valid-serial", "/dev/ttyUSB0?speed=115200&flow=rtscts");
  write("texts", "serial-unknown-speed", "/dev/ttyS0?speed=9601");
  write("texts", "serial-control-bytes", "/dev/ttyS0?flow=xonxoff");
  write("texts", "serial-speed-twice", "/dev/ttyS0?speed=9600&speed=9600");
  write("texts", "host-too-long", std::string(256, 'h') + ":1");
  write("texts", "valid-host-just-fits", std::string(255, 'h') + ":00080");
}

void make_lines() {
  const auto frame = [](std::string_view datagram) {
    static tp::cobs_writer<128> w;
    const std::span<const std::byte> all = std::as_bytes(std::span(datagram));
    require(w.write({&all, 1}), "a datagram of at most 128 bytes has a frame");
    return std::string(reinterpret_cast<const char*>(w.frame().data()), w.frame().size());
  };
  const std::string one("\x07", 1), a = frame("a datagram"), zeros = frame(std::string(100, '\0')),
                                    longest = frame(std::string(128, '\xff'));
  std::string damaged = a;
  damaged[3] ^= 0x10;
  write("lines", "valid-one", one + a);
  write("lines", "valid-zeros", one + zeros);
  write("lines", "valid-longest", "\xff" + longest);
  write("lines", "valid-several", one + a + zeros + std::string(3, '\0') + longest + a);
  write("lines", "valid-after-garbage", one + "garbage\xff\x01 and more of it" + std::string(1, '\0') + a);
  write("lines", "valid-after-damage", one + damaged + a);
  write("lines", "valid-after-a-cut", one + longest.substr(0, 50) + a + zeros);
  write("lines", "nothing-and-its-crc", one + std::string("\x01\x01\x01\x01\x01\0", 6));
  write("lines", "too-long", one + std::string(300, 'x') + std::string(1, '\0'));
}

/// One datagram of the target `cookies`: the sender with its bits, the length in words, the frames.
bytes from(unsigned sender, std::span<const std::byte> frames) {
  bytes d{static_cast<std::byte>(sender), static_cast<std::byte>(frames.size() / 8)};
  d.insert(d.end(), frames.begin(), frames.end());
  return d;
}
void make_cookies() {
  constexpr unsigned with_word = 0x80, with_anothers = 0xc0, with_number = 0x10;
  tp::frame m;
  m.kind = kind::describe;
  m.id = 1;
  m.ref = {1, 2};
  m.recipient = {7};
  const frame describe = encode(m);
  m.kind = kind::pull;
  m.id = 2;
  m.length = 1000;
  const frame pull = encode(m);
  const auto ask = describe.bytes(), more = pull.bytes();
  write("cookies", "strangers", joined({from(0, ask), from(1, ask), from(2, more), from(3, {})}));
  write("cookies", "valid-proved", joined({from(0, ask), from(with_word, ask), from(with_word, joined({more, more}))}));
  write("cookies", "stolen", joined({from(1, ask), from(with_anothers, ask), from(with_anothers, more)}));
  write("cookies", "valid-echoed",
        joined({from(with_number, ask), from(with_word, ask), from(with_number | 1, more), from(with_number | 1, {})}));
  bytes crowd;
  for (unsigned i = 0; i < 8; ++i) crowd = joined({crowd, from(i, ask), from(with_word | i, ask)});
  write("cookies", "valid-crowd", crowd);
}
void make_landings() {
  static small_model a;
  a.fill(1);
  const auto size = static_cast<unsigned>(a.schema().image_bytes),
             header = static_cast<unsigned>(a.schema().header_bytes);
  const auto op = [](unsigned what, unsigned offset, unsigned length) {
    bytes b;
    for (const unsigned n : {what, offset & 0xff, offset >> 8, length & 0xff, length >> 8})
      b.push_back(static_cast<std::byte>(n));
    return b;
  };
  const auto add = [](const std::string& name, unsigned mode, const std::vector<bytes>& ops,
                      std::span<const std::byte> image = {}) {
    bytes all{static_cast<std::byte>(mode), static_cast<std::byte>(ops.size())};
    for (const bytes& o : ops) all = joined({all, o});
    write("landings", name, joined({all, image}));
  };
  add("valid-at-once", 0, {op(0, 0, size)});
  add("valid-in-order", 0,
      {op(1, 0, 8), op(1, 0, 100), op(1, 0, header - 108), op(1, 0, 50), op(1, 0, size - header - 50)});
  add("valid-backwards", 0, {op(1, 0, header), op(3, 100, size - header - 100), op(3, 50, 50), op(3, 0, 50)});
  add("valid-wrong-bytes", 0, {op(1, 0, header), op(128 | 3, 0, size - header)});
  add("twice", 0,
      {op(1, 0, header), op(3, 10, 20), op(3, 10, 20), op(3, 5, 10), op(3, 25, 10), op(3, 0, 100), op(3, 12, 1)});
  add("outside", 0,
      {op(3, 0, 10), op(0, 0, size + 1), op(2, 0, 1), op(2, 0, 100), op(0, size, 1), op(0, size, 0), op(1, 0, header),
       op(3, size - header, 1)});
  const bytes image = a.image_bytes();
  add("valid-of-the-input", 1, {op(1, 0, header), op(3, 0, size - header)}, image);
  bytes longer = image, claims = image;
  longer.resize(image.size() + 40);
  claims[7] = std::byte{0x7f};
  add("longer", 1, {op(1, 0, header), op(3, 0, 200)}, longer);
  add("header-of-exabytes", 1, {op(1, 0, header)}, claims);
  add("image-of-exabytes", 9, {op(1, 0, header)}, image);
}

const seeds all{make_frames,  make_streams, make_headers, make_texts,   make_files,
                make_cursors, make_lines,   make_cookies, make_landings};

}  // namespace

int main() {
  for (const auto make : seed_makers()) make();
}
