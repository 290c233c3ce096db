// Uploads in parts against an imitation of S3 that dies, lies and says too much: what is sent again and what is not,
// and what is taken for stored. A store that others wrote is in stores.py.
#include "http_server.hpp"

#include <tensorpull/core/describe.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/satellites/http/recipient/s3_put.hpp>

namespace s3_put_test {

struct large {
  std::uint8_t bytes[(std::size_t{10} << 20) + 7];  // two parts, and one with what is left
};

}  // namespace s3_put_test
BOOST_HANA_ADAPT_STRUCT(s3_put_test::large, bytes);

namespace s3_put_test {

using namespace test;
using tp::errc;
using tp::detail::md5_hash;

constexpr std::size_t MiB = std::size_t{1} << 20;

std::string md5_text(std::string_view bytes) {
  md5_hash h;
  h.update(std::as_bytes(std::span(bytes)));
  return std::string(tp::detail::hex_digits(h.value()).view());
}

/// Keeps uploads as S3 does. What a test changes, it changes before a request.
struct s3_store {
  struct upload {
    std::string key;
    std::map<std::uint64_t, std::string> parts;
  };
  std::mutex mutex;
  std::map<std::string, upload> uploads;
  std::map<std::string, std::string> objects;
  std::vector<std::string> aborted;
  std::uint64_t parts_taken = 0, bytes_taken = 0;
  std::size_t per_page = 1000;
  bool md5_etags = true;  ///< false: as of a bucket that encrypts
  http_server::guarded_answer before;  ///< takes over an answer
  http_server::guarded_answer behind;  ///< takes over what is said once the object is there
  http_server server{"x"};

  s3_store() {
    server.instead = [this](const http_asked& a, raw_peer& peer) { return before(a, peer) || serve(a, peer); };
  }
  ~s3_store() { server.instead.end(); }

  template <class F>
  void change(F f) {
    const std::lock_guard lock(mutex);
    f();
  }
  static bool say(raw_peer& peer, std::string_view status, std::string_view body, const std::string& fields = {}) {
    peer.say("HTTP/1.1 " + std::string(status) + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
             fields + "\r\n" + std::string(body));
    return true;
  }
  static bool refuse(raw_peer& peer, std::string_view status, const std::string& code) {
    return say(peer, status, "<?xml version=\"1.0\"?><Error><Code>" + code + "</Code><Message>m</Message></Error>");
  }
  static std::string asks(const http_asked& a, const std::string& name) {
    const std::string query = "&" + a.target.substr(std::min(a.target.find('?'), a.target.size() - 1) + 1);
    const std::size_t at = query.find("&" + name + "=");
    if (at == query.npos) return "";
    const std::size_t begin = at + name.size() + 2;
    return query.substr(begin, query.find('&', begin) - begin);
  }
  static std::string body_of(const http_asked& a, raw_peer& peer) {
    if (!a.field("expect").empty()) peer.say("HTTP/1.1 100 Continue\r\n\r\n");
    std::string body = a.body;
    const std::string length = a.field("content-length");
    if (!length.empty())
      for (const std::byte b : peer.hear(std::stoul(length) - body.size())) body += static_cast<char>(b);
    return body;
  }
  std::string etag_of(std::string_view bytes) const {
    return '"' + (md5_etags ? md5_text(bytes) : md5_text("encrypted " + std::string(bytes.substr(0, 9)))) + '"';
  }

  bool serve(const http_asked& a, raw_peer& peer) {
    const std::string body = body_of(a, peer);
    if (!a.field("content-length").empty() && body.size() != std::stoul(a.field("content-length"))) {
      close_now(peer);  // it died in the middle
      return true;
    }
    const std::lock_guard lock(mutex);
    const std::string path = a.target.substr(0, a.target.find('?')), id = asks(a, "uploadId");
    const bool of_bucket = path.find('/', 1) == path.npos;
    if (a.field("authorization").find("AWS4-HMAC-SHA256 Credential=access/") != 0)
      return refuse(peer, "403 F", "AccessDenied");
    if (of_bucket) {
      std::string xml = "<?xml version=\"1.0\"?>\n<ListMultipartUploadsResult xmlns=\"http://s3\">";
      for (const auto& [name, u] : uploads)
        xml += "<Upload><Key>" + tp::detail::xml_escaped(u.key) + "</Key><UploadId>" + name + "</UploadId></Upload>";
      return say(peer, "200 OK", xml + "</ListMultipartUploadsResult>");
    }
    if (a.method == "POST" && id.empty()) {
      const std::string made = "upload-" + std::to_string(uploads.size() + 1);
      uploads[made].key = key;
      return say(peer, "200 OK",
                 "<InitiateMultipartUploadResult><UploadId>" + made + "</UploadId></InitiateMultipartUploadResult>");
    }
    if (a.method == "HEAD") {
      const auto found = objects.find(path);
      if (found == objects.end()) return say(peer, "404 N", "");
      peer.say("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(found->second.size()) +
               "\r\nETag: " + object_etag + "\r\n\r\n");
      return true;
    }
    const auto u = uploads.find(id);
    if (u == uploads.end()) return refuse(peer, "404 N", "NoSuchUpload");
    if (a.method == "GET") {
      const std::string marker = asks(a, "part-number-marker");
      std::string xml = "<ListPartsResult>";
      std::size_t n = 0;
      std::uint64_t last = 0;
      for (auto p = u->second.parts.upper_bound(marker.empty() ? 0 : std::stoul(marker));
           p != u->second.parts.end() && n < per_page; ++p, ++n) {
        last = p->first;
        xml += "<Part><PartNumber>" + std::to_string(last) + "</PartNumber><ETag>&quot;" +
               etag_of(p->second).substr(1, 32) + "&quot;</ETag><Size>" + std::to_string(p->second.size()) +
               "</Size></Part>";
      }
      const bool more = !u->second.parts.empty() && last != 0 && last != u->second.parts.rbegin()->first;
      xml += "<NextPartNumberMarker>" + std::to_string(last) + "</NextPartNumberMarker><IsTruncated>" +
             (more ? "true" : "false") + "</IsTruncated></ListPartsResult>";
      return say(peer, "200 OK", xml);
    }
    if (a.method == "PUT") {
      const auto md5 = [&] {
        md5_hash h;
        h.update(std::as_bytes(std::span(body)));
        const auto v = h.value();
        return tp::detail::to_base64({reinterpret_cast<const char*>(v.data()), v.size()});
      }();
      if (a.field("content-md5") != md5) return refuse(peer, "400 B", "BadDigest");
      ++parts_taken, bytes_taken += body.size();
      u->second.parts[std::stoul(asks(a, "partNumber"))] = body;
      return say(peer, "200 OK", "", "ETag: " + etag_of(body) + "\r\n");
    }
    if (a.method == "DELETE") {
      aborted.push_back(id);
      uploads.erase(u);
      return say(peer, "204 No Content", "");
    }
    // complete: each part that is named is there
    std::string whole;
    md5_hash of_all;
    std::size_t count = 0;
    for (std::size_t at = body.find("<PartNumber>"); at != body.npos; at = body.find("<PartNumber>", at + 1)) {
      const auto p = u->second.parts.find(std::stoul(body.substr(at + 12)));
      const std::size_t tag = body.find("<ETag>", at) + 6;
      if (p == u->second.parts.end() || body.substr(tag, 34) != etag_of(p->second))
        return refuse(peer, "400 B", "InvalidPart");
      whole += p->second;
      md5_hash one;
      one.update(std::as_bytes(std::span(p->second)));
      of_all.update(one.value());
      ++count;
    }
    object_etag = '"' + std::string(tp::detail::hex_digits(of_all.value()).view()) + "-" + std::to_string(count) + '"';
    objects[path] = whole;
    uploads.erase(u);
    if (behind(a, peer)) return true;
    return say(peer, "200 OK",
               "   <?xml version=\"1.0\"?><CompleteMultipartUploadResult><ETag>" + object_etag +
                   "</ETag></CompleteMultipartUploadResult>");
  }
  std::string key = "dir/a model", object_etag;
};

struct S3Put : testing::Test {
  std::unique_ptr<large> model = std::make_unique<large>();
  tp::s3_put_options options{.put = {.timeout = 30s, .retry = {.retries = 0, .first_delay = 1ms}},
                             .part_bytes = 5 * MiB};
  s3_store store;
  std::string file;

  S3Put() {
    std::uint32_t x = 1;
    for (auto& b : model->bytes) b = static_cast<std::uint8_t>((x = x * 1664525 + 1013904223) >> 24);
    file = file_of<tp::raw_tensors<large>>(*model);
  }
  tp::result<tp::s3_put_receipt> put() {
    const std::string url = store.server.url("/bucket/dir/a%20model");
    return tp::s3_put({.url = url, .user = "access", .password = "secret"}, tp::raw_tensors<large>::source(*model),
                      options);
  }
  void expect_stored() {
    const std::lock_guard lock(store.mutex);
    EXPECT_TRUE(store.objects["/bucket/dir/a%20model"] == file);
    EXPECT_TRUE(store.uploads.empty());
  }
};

TEST(S3, Parts_are_as_long_as_the_length_of_the_model_wants) {
  using tp::detail::s3_part_bytes;
  constexpr std::uint64_t MB = MiB, GiB = 1024 * MB;
  EXPECT_EQ(*s3_part_bytes(1, 0), 16 * MB);
  EXPECT_EQ(*s3_part_bytes(10'000 * 16 * MB, 0), 16 * MB);
  EXPECT_EQ(*s3_part_bytes(10'000 * 16 * MB + 1, 0), 17 * MB);
  EXPECT_EQ(*s3_part_bytes(10'000 * 5 * GiB, 0), 5 * GiB);
  EXPECT_EQ(s3_part_bytes(10'000 * 5 * GiB + 1, 0).error(), errc::too_large);
  EXPECT_EQ(s3_part_bytes(1, 5 * MB - 1).error(), errc::invalid_argument);
  EXPECT_EQ(s3_part_bytes(1, 5 * GiB + 1).error(), errc::invalid_argument);
  EXPECT_EQ(s3_part_bytes(10'000 * 5 * MB + 1, 5 * MB).error(), errc::invalid_argument);
}

TEST(S3, MD5_is_that_of_RFC_1321) {
  EXPECT_EQ(md5_text(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5_text("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
  const std::string digits = "12345678901234567890123456789012345678901234567890123456789012345678901234567890";
  EXPECT_EQ(md5_text(digits), "57edf4a22be3c955ac49da2e2107b67a");
  for (std::size_t n = 0; n <= digits.size(); ++n) {
    md5_hash h;
    h.update(std::as_bytes(std::span(digits).first(n)));
    h.update(std::as_bytes(std::span(digits).subspan(n)));
    EXPECT_EQ(tp::detail::hex_digits(h.value()).view(), "57edf4a22be3c955ac49da2e2107b67a") << n;
  }
}

TEST(S3, Answers_that_are_no_XML_of_S3_are_none) {
  using namespace tp::detail;
  const auto code = [](std::string_view xml) { return s3_answer(xml, "Error", "Code"); };
  EXPECT_EQ(code("<?xml version='1.0'?>\n<Error a='<'><Code>A&amp;B&#x43;</Code><x/></Error>\n"), "A&BC");
  const std::string deep = [] {
    std::string s;
    for (int i = 0; i < 100'000; ++i) s += "<a>";
    return s;
  }();
  for (const std::string bad :
       {"", "Code", "<Error>", "<Error><Code>A</Error></Code>", "<Error><Code>A</Code>",
        "<Error><Code>A</Code></Error></Error>", "<Error><Code>A</Code></Error><Error/>",
        "<!DOCTYPE x><Error><Code>A</Code></Error>", "<Error><!x/><Code>A</Code></Error>",
        "<Error><![CDATA[<]]><Code>A</Code></Error>", "<Error a='><Code>A</Code></Error>", "<", "<>", "</>", "</Error>",
        "<?", deep.c_str(), "<Other><Code>A</Code></Other>", "<Error><x><Code>A</Code></x></Error>"})
    EXPECT_FALSE(code(bad)) << bad.substr(0, 100);
  s3_parts_page page;
  EXPECT_TRUE(page.read(
      "<ListPartsResult><NextPartNumberMarker/><Part><PartNumber> 7 </PartNumber><Size>5</Size><ETag>e</ETag></Part></ListPartsResult>"));
  ASSERT_EQ(page.parts.size(), 1u);
  EXPECT_EQ(page.parts[0].number, 7u);
  for (const std::string number : {"-1", "", "1x", "99999999999999999999"})
    EXPECT_FALSE(
        s3_parts_page().read("<ListPartsResult><Part><PartNumber>" + number + "</PartNumber></Part></ListPartsResult>"))
        << number;
  const auto ids = s3_uploads(
      "<ListMultipartUploadsResult><Upload><Key>k</Key><UploadId>1</UploadId></Upload><Upload><Key>kk</Key><UploadId>2</UploadId></Upload>"
      "<Upload><UploadId>3</UploadId></Upload></ListMultipartUploadsResult>",
      "k");
  ASSERT_TRUE(ids);
  EXPECT_EQ(*ids, std::vector<std::string>{"1"});
}

TEST_F(S3Put, The_object_is_there_when_all_parts_are) {
  bool seen_early = false;
  store.before = [&](const http_asked& a, raw_peer&) {
    const std::lock_guard lock(store.mutex);
    seen_early = seen_early || (a.method == "PUT" && !store.objects.empty());
    return false;
  };
  options.put.digest = *tp::image_version<tp::xxhash_digest>(tp::raw_tensors<large>::source(*model));
  options.session_token = "lent";
  const auto done = put();
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(done->bytes, file.size());
  EXPECT_EQ(done->sent, file.size());
  EXPECT_EQ(done->parts, 3u);
  EXPECT_EQ(done->digest, options.put.digest);
  EXPECT_FALSE(seen_early);
  expect_stored();
  for (const auto& a : store.server.asked()) {
    EXPECT_EQ(a.field("x-amz-security-token"), "lent");
    EXPECT_EQ(a.head.find("secret"), a.head.npos);
    EXPECT_NE(a.field("authorization").find("x-amz-security-token"), std::string::npos) << "it is signed";
  }
}

TEST_F(S3Put, A_killed_upload_goes_on_and_sends_nothing_twice) {
  store.per_page = 1;
  store.before = [&](const http_asked& a, raw_peer& peer) {
    if (s3_store::asks(a, "partNumber") != "3") return false;
    close_now(peer);
    return true;
  };
  EXPECT_EQ(put().error(), errc::connection_lost);
  store.change([&] {
    EXPECT_TRUE(store.objects.empty());
    EXPECT_EQ(store.parts_taken, 2u);
  });
  store.before.end();
  store.change([&] {
    store.uploads["zz"] = {"dir/a model", {{1, std::string(5 * MiB, 'x')}}};  // somebody's, who sends another model
    store.uploads["zzz"] = {"dir/a model too", {}};
  });
  const auto done = put();
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(done->sent, file.size() - 10 * MiB);
  store.change([&] {
    EXPECT_EQ(store.bytes_taken, file.size());
    EXPECT_EQ(store.uploads.size(), 2u);
    EXPECT_EQ(store.uploads["zz"].parts[1], std::string(5 * MiB, 'x'));
    store.uploads.clear();
  });
  expect_stored();
}

TEST_F(S3Put, A_part_that_the_store_has_otherwise_is_sent_again) {
  const auto part = [&](std::size_t i) { return file.substr((i - 1) * 5 * MiB, 5 * MiB); };
  std::string flipped = part(2);
  flipped[100] ^= 1;
  store.change([&] {
    store.uploads["old"] = {"dir/a model", {{1, part(1)}, {2, flipped}, {3, part(3) + "x"}, {4, "behind the end"}}};
  });
  auto done = put();
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(done->sent, file.size() - 5 * MiB);
  expect_stored();
  // an entity tag that is no MD5 proves nothing
  store.change([&] {
    store.md5_etags = false;
    store.uploads["old"] = {"dir/a model", {{1, part(1)}, {2, part(2)}}};
  });
  done = put();
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(done->sent, file.size());
}

TEST_F(S3Put, What_a_store_says_in_a_body_counts_more_than_its_status) {
  std::atomic<int> calls{0};
  std::string code = "InvalidPart";
  store.before = [&](const http_asked& a, raw_peer& peer) {
    if (a.method != "POST" || s3_store::asks(a, "uploadId").empty() || calls++ > 0) return false;
    (void)s3_store::body_of(a, peer);
    return s3_store::refuse(peer, "200 OK", code);
  };
  auto done = put();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), errc::bad_request) << describe(done.error());
  EXPECT_EQ(done.error().name.view().substr(0, 15), "200 InvalidPart");
  store.change([&] { EXPECT_TRUE(store.objects.empty()); });
  // one that has failed is asked again
  code = "InternalError";
  calls = 0;
  options.put.retry.retries = 1;
  done = put();
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(done->sent, 0u);
  expect_stored();
}

TEST_F(S3Put, An_answer_that_was_lost_may_have_been_a_good_one) {
  options.put.retry.retries = 1;
  bool other = false;
  store.behind = [&](const http_asked&, raw_peer& peer) {
    if (other) store.object_etag = "\"0123456789abcdef0123456789abcdef-3\"";
    close_now(peer);
    return true;
  };
  const auto done = put();
  ASSERT_TRUE(done) << describe(done.error());
  expect_stored();
  other = true;  // what is there is somebody else's
  EXPECT_EQ(put().error(), errc::unknown_reference);
}

TEST_F(S3Put, A_model_that_changes_meanwhile_is_not_stored) {
  options.put.digest = *tp::image_version<tp::xxhash_digest>(tp::raw_tensors<large>::source(*model));
  for (const bool in_its_part : {false, true}) {
    store.before = [&](const http_asked& a, raw_peer&) {
      if (s3_store::asks(a, "partNumber") == "2") model->bytes[in_its_part ? 6 * MiB : 10 * MiB + 6] ^= 1;
      return false;
    };
    const auto done = put();
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error(), errc::digest_mismatch) << describe(done.error());
    store.change([&] { EXPECT_TRUE(store.objects.empty()); });
    eventually("the store keeps nothing", [&] {
      const std::lock_guard lock(store.mutex);
      return store.uploads.empty();
    });
    model->bytes[in_its_part ? 6 * MiB : 10 * MiB + 6] ^= 1;
  }
}

TEST_F(S3Put, Refusals_have_the_word_of_the_store) {
  store.before = [](const http_asked&, raw_peer& peer) {
    return s3_store::refuse(peer, "403 Forbidden", "SignatureDoesNotMatch");
  };
  auto done = put();  // it may not list, and then it may not begin
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), errc::not_permitted);
  EXPECT_EQ(done.error().name.view().substr(0, 25), "403 SignatureDoesNotMatch");
  store.before = [](const http_asked&, raw_peer& peer) {
    return s3_store::say(peer, "301 Moved", "", "Location: /elsewhere\r\n");
  };
  EXPECT_EQ(put().error(), errc::unexpected_frame);  // no redirect is followed
  // keys that may not list uploads can send, and a store that is busy is left alone
  std::atomic<int> calls{0};
  options.put.retry.retries = 2;
  store.before = [&](const http_asked& a, raw_peer& peer) {
    if (a.target.find("&uploads=") != a.target.npos) return s3_store::refuse(peer, "403 Forbidden", "AccessDenied");
    if (s3_store::asks(a, "partNumber") != "2" || calls++ > 0) return false;
    (void)s3_store::body_of(a, peer);
    return s3_store::refuse(peer, "503 Slow Down", "SlowDown");
  };
  done = put();
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(calls, 2);
  expect_stored();
}

TEST_F(S3Put, Answers_without_sense_end_it) {
  store.change([&] { store.uploads["old"] = {"dir/a model", {{1, file.substr(0, 5 * MiB)}}}; });
  const auto answers = [&](std::string_view method, std::string_view what, std::string body,
                           const std::string& fields = {}) {
    store.before = [=](const http_asked& a, raw_peer& peer) {
      if (a.method != method || a.target.find(what) == a.target.npos) return false;
      (void)s3_store::body_of(a, peer);
      return s3_store::say(peer, "200 OK", body, fields);
    };
    const auto done = put();
    return done ? errc{} : done.error().code;
  };
  const std::string parts = "<ListPartsResult>", end = "</ListPartsResult>", more = "<IsTruncated>true</IsTruncated>";
  const auto part = [](int n) {
    return "<Part><PartNumber>" + std::to_string(n) + "</PartNumber><Size>1</Size><ETag>e</ETag></Part>";
  };
  EXPECT_EQ(answers("GET", "&uploads=", std::string(2 * MiB, ' ')), errc::too_large);
  EXPECT_EQ(answers("GET", "&uploads=", "<html></html>"), errc::bad_frame);
  EXPECT_EQ(
      answers(
          "GET", "&uploads=",
          "<ListMultipartUploadsResult><Upload><Key>dir/a model</Key><UploadId>a&#10;b</UploadId></Upload></ListMultipartUploadsResult>"),
      errc::bad_frame);
  EXPECT_EQ(answers("GET", "uploadId=old", parts + part(2) + part(1) + end), errc::bad_frame);
  EXPECT_EQ(answers("GET", "uploadId=old", parts + part(1) + part(1) + end), errc::bad_frame);
  EXPECT_EQ(answers("GET", "uploadId=old", parts + part(10'001) + end), errc::bad_frame);
  EXPECT_EQ(answers("GET", "uploadId=old", parts + more + end), errc::bad_frame);  // always more, and never a part
  EXPECT_EQ(
      answers("GET", "uploadId=old", parts + part(1) + more + "<NextPartNumberMarker>0</NextPartNumberMarker>" + end),
      errc::bad_frame);
  EXPECT_EQ(answers("POST", "?uploads=", ""), errc{});  // it goes on with the old one
  EXPECT_EQ(answers("POST", "?uploads=", ""), errc::bad_frame);
  EXPECT_EQ(answers("PUT", "partNumber=1", ""), errc::bad_frame);  // without an ETag
  EXPECT_EQ(answers("POST", "?uploadId=", ""), errc::bad_frame);
  EXPECT_EQ(answers("POST", "?uploadId=", "<html>Thank you</html>"), errc::bad_frame);
}

TEST_F(S3Put, Spaces_without_end_are_no_answer) {
  options.put.timeout = 200ms;
  store.before = [](const http_asked&, raw_peer& peer) {
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
    while (peer.say(" ")) peer.stream().wait(true, false, 20ms);
    return true;
  };
  EXPECT_EQ(put().error(), errc::timed_out);
}

TEST_F(S3Put, What_cannot_be_asked_is_refused_first) {
  const auto source = tp::raw_tensors<large>::source(*model);
  const auto why = [&](tp::http_address to) { return tp::s3_put(to, source, options).error().code; };
  for (const std::string path : {"/", "/bucket", "/bucket/", "//key", "/bucket/key?x", "/bucket/%zz"}) {
    const std::string url = store.server.url(path);
    EXPECT_EQ(why({.url = url, .user = "access", .password = "secret"}), errc::bad_address) << url;
  }
  const std::string url = store.server.url("/bucket/key");
  EXPECT_EQ(why({.url = url}), errc::invalid_argument);
  EXPECT_EQ(why({.url = url, .bearer = "key", .user = "access", .password = "secret"}), errc::invalid_argument);
  const tp::http_address to{.url = url, .user = "access", .password = "secret"};
  options.region = "a:b";
  EXPECT_EQ(why(to), errc::invalid_argument);
  options.region = "eu-central-1";
  options.session_token = "a\r\nb";
  EXPECT_EQ(why(to), errc::invalid_argument);
  options.session_token = {};
  options.part_bytes = 1;
  EXPECT_EQ(why(to), errc::invalid_argument);
  EXPECT_TRUE(store.server.asked().empty());
}

TEST_F(S3Put, A_stop_ends_it_and_leaves_what_is_there) {
  std::stop_source stop;
  options.put.stop = stop.get_token();
  store.before = [&](const http_asked& a, raw_peer&) {
    if (s3_store::asks(a, "partNumber") != "2") return false;
    stop.request_stop();
    return true;
  };
  EXPECT_EQ(put().error(), errc::cancelled);
  options.put.stop = {};
  store.before.end();
  const auto done = put();
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(done->sent, file.size() - 5 * MiB);
  expect_stored();
}

}  // namespace s3_put_test
