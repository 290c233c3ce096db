// The page that whoever runs an owner looks at: what it shows, to whom, and what it costs others.
#include "http_client.hpp"
#include "support/allocation_counter.hpp"

#include <tensorpull/protocol/owner/owner.hpp>
#include <tensorpull/protocol/owner/owner_room.hpp>
#include <tensorpull/satellites/http/detail/base64.hpp>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <random>
#include <regex>
#include <set>

namespace http_status_test {

using namespace test;
using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, tp::http_only<tp::tcp_on_threads>>;
struct with_room : tp::default_limits {
  using owner_room = tp::heap_owner_room;
};
using big_net =
    tp::pipeline<tp::raw_tensors<large>, tp::fixed_bytes<64_KiB>, tp::http_only<tp::tcp_on_threads>, with_room>;

constexpr std::string_view password = "correct horse battery";

std::string basic(std::string_view user, std::string_view word) {
  return "Authorization: Basic " + tp::detail::to_base64(std::string(user) + ":" + std::string(word)) + "\r\n";
}
std::string asks(std::string_view path, std::string_view fields) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: a\r\n" + std::string(fields) + "\r\n";
}
const std::string mine = basic("me", password);

constexpr bool takes(std::string_view text) { return tp::http_password::parse(text).has_value(); }
static_assert(takes("0123456789abcdef") && !takes("0123456789abcde") && !takes("") && !takes("0123456789abcde\n"));
static_assert(tp::http_password::parse("0123456789abcdef")->is("0123456789abcdef") &&
              !tp::http_password::parse("0123456789abcdef")->is("0123456789abcdeF") && !tp::http_password{}.is(""));

struct HttpStatus : testing::Test {
  HttpStatus() : owner(net::downloader::open()), source(random_model<mlp>(1)), image(image_of(*source)) {}
  void serve(bool shows = true) {
    if (shows) owner->shared().options.status = *tp::http_password::parse(password);
    owner->shared().options.names = &names;
    thread.emplace(*owner);
  }
  http_answer look(std::string_view path, std::string_view fields = mine) const {
    http_client c(owner->port());
    c.say(asks(path, fields));
    return c.hear();
  }
  /// Everything that the page may say: as HTML, as JSON and as metrics.
  std::string all_pages() const {
    std::string all;
    for (const char* path : {"/", "/status.json", "/metrics"}) {
      const auto a = look(path);
      EXPECT_EQ(a.status, 200) << path;
      all += a.body;
      for (const auto& [name, value] : a.fields) all += name + ": " + value + "\n";
    }
    return all;
  }
  tp::status_names names;
  tp::result<net::downloader> owner;
  const std::unique_ptr<mlp> source;
  const std::string image;
  std::optional<serving> thread;
};

TEST_F(HttpStatus, Without_a_password_of_the_program_there_is_no_page_even_for_who_shows_one) {
  (void)owner->add_tensors(*source);
  serve(false);
  const auto nothing = look("/nothing");
  for (const char* path : {"/", "/status.json", "/metrics"})
    for (const std::string& shown : {mine, basic("", ""), std::string()}) {
      const auto a = look(path, shown);
      EXPECT_EQ(a.status, 404) << path;
      EXPECT_EQ(a.body, nothing.body);
      EXPECT_EQ(a.at("WWW-Authenticate"), "");
    }
}

TEST_F(HttpStatus, A_stranger_is_asked_for_the_password_and_told_nothing_else) {
  names.add("site-1");
  const auto site = tp::recipient_named("site-1");
  const auto ref = *owner->add_tensors(*source, {.named = std::span(&site, 1)});
  names.add(ref.id, "the secret model");
  serve();
  const std::string whole = look("/").body;
  ASSERT_NE(whole.find("site-1"), whole.npos);
  const std::string right(password);
  const std::vector<std::string> others{std::string(),
                                        basic("me", ""),
                                        basic("", right + "x"),
                                        basic("", right.substr(1)),
                                        basic(right, ""),
                                        "Authorization: Bearer " + right + "\r\n",
                                        "Authorization: Basic\r\n",
                                        "Authorization: Basic " + right + "\r\n",
                                        "Authorization: Basic " + tp::detail::to_base64(right) + "\r\n",
                                        "Authorization: Basic " + std::string(1500, 'A') + "\r\n",
                                        "Authorization: Bearer " + key_of(ref) + "\r\n",
                                        std::string("Cookie: password=" + right + "\r\n")};
  for (const std::string& shown : others)
    for (const char* path : {"/", "/status.json", "/metrics", "/?x=0"}) {
      const auto a = look(path, shown);
      EXPECT_EQ(a.status, 401) << path << shown;
      EXPECT_EQ(a.body, "a password is needed\n");
      EXPECT_EQ(a.at("WWW-Authenticate"), "Basic realm=\"tensorpull\", charset=\"UTF-8\"");
    }
  // the password opens nothing but the page, and the page's fields say so to a browser
  http_client c(owner->port());
  c.say(asks(path_of(ref), mine));
  EXPECT_EQ(c.hear().status, 401);
  c.say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n" + mine + "\r\n");
  EXPECT_EQ(c.hear().status, 405);
}

TEST_F(HttpStatus, No_page_has_a_key_a_version_or_a_part_of_one) {
  const auto ref = *owner->add_tensors(*source, {.recipients = 2});
  const auto other = *owner->add_tensors(*source);
  serve();
  EXPECT_EQ(http_client(owner->port()).ask("GET", ref, "Tensorpull-Recipient: site-1\r\n").status, 200);
  const std::string all = all_pages();
  std::string lower = all;
  for (char& c : lower) c = tp::detail::in_lower_case(c);
  for (const auto& r : {ref, other}) {
    for (const std::string& secret : {key_of(r), hex(r.version), hex(r.fingerprint)})
      for (std::size_t i = 0; i + 10 <= secret.size(); ++i)
        EXPECT_EQ(lower.find(secret.substr(i, 10)), lower.npos) << secret.substr(i, 10);
    for (const std::uint64_t n :
         {r.id.high, r.id.low, r.version, r.fingerprint, tp::recipient_named("site-1").value})  // who knows this may
                                                                                                // speak for it
      EXPECT_EQ(all.find(std::to_string(n)), all.npos);
  }
  EXPECT_EQ(lower.find(hex(tp::recipient_named("site-1").value)), lower.npos);
}

TEST_F(HttpStatus, It_shows_each_recipient_and_how_it_ended) {
  std::vector<tp::recipient_id> sites;
  for (const char* name : {"has-it", "gave-up", "damaged", "half", "silent"}) {
    names.add(name);
    sites.push_back(tp::recipient_named(name));
  }
  const auto ref = *owner->add_tensors(*source, {.named = sites});
  names.add(ref.id, "round 7");
  serve();
  http_client c(owner->port());
  const auto as = [](std::string_view name) { return "Tensorpull-Recipient: " + std::string(name) + "\r\n"; };
  const auto post = [&](std::string_view name, std::string_view how, const std::string& body) {
    c.say(http_client::request("POST", path_of(ref) + std::string(how), ref,
                               "Content-Length: " + std::to_string(body.size()) + "\r\n" + as(name)) +
          body);
    return c.hear().status;
  };
  for (const char* name : {"has-it", "gave-up", "damaged"}) EXPECT_EQ(c.ask("GET", ref, as(name)).status, 200);
  EXPECT_EQ(post("has-it", "/confirm", "digest=" + hex(ref.version)), 200);
  EXPECT_EQ(post("gave-up", "/cancel", ""), 200);
  EXPECT_EQ(post("damaged", "/confirm", "digest=0000000000000001"), 409);
  const std::string half = "Range: bytes=0-" + std::to_string(image.size() / 2 - 1) + "\r\n";
  EXPECT_EQ(c.ask("GET", ref, as("half") + half).status, 206);
  const std::string page = look("/").body;
  for (const char* row : {"<bdi>round 7</bdi>", "<bdi>has-it</bdi><td><progress max=100 value=100>", "has it",
                          "gave up", "digest mismatch", "<bdi>half</bdi><td><progress max=100 value=50>", "pulling",
                          "has not asked yet", "1 of 5 have it"})
    EXPECT_NE(page.find(row), page.npos) << row << "\n" << page;
  const std::string json = look("/status.json").body;
  for (const char* row :
       {"{\"name\":\"has-it\",\"state\":\"completed\",", "{\"name\":\"gave-up\",\"state\":\"cancelled\"",
        "{\"name\":\"damaged\",\"state\":\"failed\"", "{\"name\":\"half\",\"state\":\"acquired\"",
        "{\"name\":\"silent\",\"state\":\"unseen\"", "\"title\":\"round 7\""})
    EXPECT_NE(json.find(row), json.npos) << row << "\n" << json;
  const auto metrics = [&] { return look("/metrics").body; };
  const auto counts = [&](std::string_view outcome, int n) {
    return "\ntensorpull_transfers_total{outcome=\"" + std::string(outcome) + "\"} " + std::to_string(n) + "\n";
  };
  const std::string before = metrics();
  EXPECT_EQ(post("has-it", "/confirm", "digest=" + hex(ref.version)), 200);  // again, and counted once
  for (const char* one : {"completed", "cancelled", "failed"}) EXPECT_NE(before.find(counts(one, 1)), before.npos);
  for (const char* line : {"_count 1", "_bucket{le=\"5000\"} 1", "_bucket{le=\"+Inf\"} 1"})
    EXPECT_NE(before.find("\ntensorpull_transfer_seconds" + std::string(line) + "\n"), before.npos) << line;
  thread->stop();
  ASSERT_TRUE(owner->withdraw(ref));
  thread.emplace(*owner);
  const std::string after = metrics(), over = look("/").body;
  for (const auto& [outcome, n] : {std::pair{"completed", 1}, {"unfinished", 1}, {"absent", 1}, {"vanished", 0}})
    EXPECT_NE(after.find(counts(outcome, n)), after.npos) << outcome << after;
  EXPECT_NE(over.find("<b class=dim>withdrawn</b>"), over.npos) << over;
  EXPECT_NE(over.find("ended before it was done (withdrawn)"), over.npos) << over;
}

TEST_F(HttpStatus, A_browser_may_use_its_own_style_and_nothing_else_and_other_origins_read_nothing) {
  owner->shared().options.allow_origin = tp::http_origin::any();
  serve();
  const auto a = look("/", mine + "Origin: https://app.example\r\n");
  const std::string policy = a.at("Content-Security-Policy");
  EXPECT_EQ(policy.substr(0, 48), "default-src 'none'; style-src 'sha256-" + policy.substr(38, 10));
  EXPECT_NE(policy.find("frame-ancestors 'none'"), policy.npos);
  EXPECT_EQ(policy.find("unsafe"), policy.npos);
  EXPECT_EQ(a.at("Access-Control-Allow-Origin"), "");
  EXPECT_EQ(a.at("Cache-Control"), "no-store");
  EXPECT_EQ(a.at("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(a.at("Referrer-Policy"), "no-referrer");
  for (const char* none : {"<script", " style=", " on", "src=", "url(", "http://", "https://", "href"})
    EXPECT_EQ(a.body.find(none), a.body.npos) << none;
  EXPECT_EQ(look("/status.json", mine).at("Content-Type"), "application/json");
}

TEST_F(HttpStatus, Hostile_names_are_text) {
  const std::vector<std::string> hostile{"<script>alert(1)</script>",
                                         "\"><img src=x onerror=alert(1)>",
                                         "' onmouseover='x",
                                         "a\r\nSet-Cookie: a=b",
                                         std::string("nul\0inside", 10),
                                         "\x1b[2J\x07\x7f",
                                         "\xff\xfe\x80\xc0\xaf",
                                         "\xed\xa0\x80 surrogate",
                                         "\xe2\x80\xae"
                                         "evil\xe2\x80\xac",
                                         "\xf0\x9f\x98",
                                         "</bdi></table></style>",
                                         "\\u0022,\"state\":\"completed",
                                         "&lt;already&gt;",
                                         "caf\xc3\xa9 \xe6\xa8\xa1\xe5\x9e\x8b",
                                         std::string(500, '"'),
                                         std::string(500, '\'')};
  std::vector<tp::recipient_id> sites;
  for (std::size_t i = 0; i < hostile.size(); ++i) {
    sites.push_back({i + 1});
    names.add(sites.back(), hostile[i]);
  }
  for (const auto& title : hostile) names.add(owner->add_tensors(*source, {.named = sites})->id, title);
  serve();
  const std::string page = look("/").body, json = look("/status.json").body;
  for (const std::string* all : {&page, &json}) {
    EXPECT_TRUE(tp::is_utf8(*all));
    for (const char c : *all) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n');
    for (const char* none : {"<script", "<img", "\x7f", "\xe2\x80\xae", "\xe2\x80\xac"})
      EXPECT_EQ(all->find(none), all->npos) << none;
    EXPECT_NE(all->find("caf\xc3\xa9 \xe6\xa8\xa1\xe5\x9e\x8b"), all->npos) << "names of other languages stay";
  }
  EXPECT_NE(page.find("&lt;script&gt;alert(1)&lt;/script&gt;"), page.npos);
  EXPECT_NE(page.find("&amp;lt;already&amp;gt;"), page.npos);
  EXPECT_EQ(json.find("\"state\":\"completed"), json.npos);
  EXPECT_EQ(std::count(page.begin(), page.end(), '<'), std::count(page.begin(), page.end(), '>'));
}

TEST_F(HttpStatus, An_old_client_hears_it_up_to_the_end_of_the_connection_and_HEAD_has_no_body) {
  serve();
  http_client old(owner->port());
  old.say("GET / HTTP/1.0\r\nConnection: keep-alive\r\n" + mine + "\r\n");
  const auto all = old.peer().hear(1'000'000);
  const std::string text(reinterpret_cast<const char*>(all.data()), all.size());
  EXPECT_EQ(text.find("Transfer-Encoding"), text.npos);
  EXPECT_NE(text.find("\r\nConnection: close\r\n"), text.npos);
  EXPECT_EQ(text.substr(text.size() - 15), "</body></html>\n");
  http_client c(owner->port());
  for (int i = 0; i < 10; ++i) {  // each gives its view back
    c.say("HEAD / HTTP/1.1\r\nHost: a\r\n" + mine + "\r\n");
    EXPECT_EQ(c.hear(true).status, 200);
    c.say(asks("/", mine));
    EXPECT_EQ(c.hear().status, 200);
  }
}

TEST(HttpStatusAlone, Who_reads_a_page_slowly_keeps_nobody_from_pulling_and_few_others_from_looking) {
  auto owner = big_net::downloader::open({.host = {.room = {10, 2100}}});
  ASSERT_TRUE(owner);
  owner->shared().options.status = *tp::http_password::parse(password);
  const auto source = random_model<large>(1);
  const std::string image = image_of(*source);
  std::vector<tp::reference> refs;
  std::vector<tp::recipient_id> sites;
  tp::status_names names;
  for (std::uint64_t i = 0; i < 200; ++i) {
    sites.push_back({i + 1});
    names.add(sites.back(), std::string(96, '"'));
  }
  owner->shared().options.names = &names;
  for (int i = 0; i < 10; ++i) refs.push_back(*owner->add_tensors(*source, {.named = sites}));
  serving thread(*owner);
  std::vector<std::unique_ptr<http_client>> slow;
  std::string many;
  for (int i = 0; i < 20; ++i) many += asks("/", mine);
  constexpr std::size_t most = tp::detail::status_views<tp::no_lock>::most;
  for (std::size_t i = 0; i < most; ++i) {
    slow.push_back(std::make_unique<http_client>(owner->port()));
    slow.back()->say(many);  // 20 pages of 1.5 MB, and reads none
  }
  const auto status_now = [&] {
    http_client c(owner->port());
    c.say(asks("/status.json", mine));
    return c.hear().status;
  };
  EXPECT_TRUE(eventually("all views are taken", [&] { return status_now() == 503; }));
  http_client stranger(owner->port());
  stranger.say(asks("/", {}));
  EXPECT_EQ(stranger.hear().status, 401);
  for (int i = 0; i < 3; ++i) {
    http_client pulls(owner->port());
    EXPECT_TRUE(pulls.ask("GET", refs[0]).body == image);
  }
  slow.clear();
  EXPECT_TRUE(eventually("the views are back", [&] { return status_now() == 200; }));
}

TEST(HttpStatusAlone, A_page_of_ten_thousand_publications_has_the_memory_of_any_other) {
  struct shared_handler {
    tp::http_shared<tp::no_lock, 16> of_all{};
    auto& shared() noexcept { return of_all; }
  };
  using owner_type = tp::owner<tp::xxhash_digest, tp::default_limits>;
  using end_type = tp::detail::owner_endpoint<owner_type, shared_handler>;
  constexpr std::size_t many = 10'000;
  tp::heap_owner_storage storage({many, 3 * many});
  const tp::owner_memory rows = storage.view();
  for (std::size_t i = 0; i < many; ++i)  // as if they had been published one after the other
    rows.slots[i] = {.id = {i + 1, 1}, .order = i + 1, .generation = 1, .now = tp::publication::state::published};
  owner_type references(rows, [n = std::uint64_t{0}]() mutable { return ++n; });
  for (std::size_t i = 0; i < 3 * many; ++i) {
    tp::recipient_record& r = rows.records[i];
    r.who = {i + 1};
    r.ref = rows.slots[i / 3].id;
    r.slot = static_cast<std::uint32_t>(i / 3);
    r.generation = 1;
  }
  shared_handler handler;
  handler.of_all.options.status = *tp::http_password::parse(password);
  alignas(64) std::byte memory[8192];
  tp::buffer_pool<tp::no_lock> pool(memory, 4096);
  tp::no_transfer none;
  std::array<std::byte, 8192> scratch;
  std::size_t bytes = 0;
  std::string tail;
  const std::time_t any = 0;
  std::tm parts;
  (void)::gmtime_r(&any, &parts);  // the C library reads its time zone once in a process
  for (int round = 0; round < 2; ++round) {
    end_type end(references, pool, handler);
    const std::string request = asks("/", mine);
    std::array<std::span<std::byte>, 32> room;
    ASSERT_EQ(end.plan_read(none, room, 1), 1u);
    std::memcpy(room[0].data(), request.data(), request.size());
    tail.reserve(1'000'000);
    tail.clear();
    const allocation_watch watch;
    ASSERT_TRUE(end.received(none, room, request.size()));
    std::size_t longest = 0;
    while (end.output_ready()) {
      end_type::plan_type plan;
      ASSERT_TRUE(end.plan_write(none, plan, scratch, 1));
      std::size_t n = 0;
      for (std::size_t k = 0; k < plan.span_count; ++k) {
        tail.append(reinterpret_cast<const char*>(plan.spans[k].data()), plan.spans[k].size());
        n += plan.spans[k].size();
      }
      longest = std::max(longest, n);
      ASSERT_TRUE(end.written(none, plan, n));
    }
    EXPECT_LE(longest, tp::detail::status_view::bytes + 896);
    EXPECT_EQ(watch.count(), round == 0 ? 1u : 0u) << "the views, once";
    bytes = tail.size();
  }
  const auto times = [&](const std::string& what) {
    std::size_t n = 0;
    for (auto at = tail.find(what); at != tail.npos; at = tail.find(what, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(times("<section>"), 100u);  // a row that began at the end of a piece is there once
  EXPECT_EQ(times("<tr><th scope=row>"), 300u);
  EXPECT_NE(tail.find("and 9900 more publications"), tail.npos);
  EXPECT_EQ(tail.find("Publication 9900<"), tail.npos);
  EXPECT_NE(tail.find("Publication 9901<"), tail.npos);
  EXPECT_LT(bytes, 300'000u);
}

/// The tables of an owner, and how often a page looks at a row of them.
struct watched_tables {
  tp::detail::owner_tables real;
  mutable std::size_t looks = 0;
  struct {
    const watched_tables& of;
    auto all() const {
      of.looks += of.real.publications.all().size();
      return of.real.publications.all();
    }
    auto& at(std::size_t i) const { return of.real.publications.at(static_cast<std::uint32_t>(i)); }
    auto index(const tp::publication& p) const { return of.real.publications.index(p); }
  } publications{*this};
  struct {
    const watched_tables& of;
    auto all() const { return of.real.records.all(); }
  } records{*this};
  std::chrono::milliseconds now{};
  const tp::transaction* find(tp::transaction_id id) const { return real.find(id); }
  bool is_of(const tp::recipient_record& r, const tp::publication& p) const {
    ++looks;
    return real.is_of(r, p);
  }
};
struct watched_owner {
  watched_tables tables;
  template <class See>
  auto look_over(See see) const {
    return see(tables);
  }
};
/// Publications, and recipients in any state of any of them.
struct crowd {
  crowd(std::size_t references, std::size_t recipients) : storage({references, recipients}) {
    std::mt19937 any(7);
    for (std::size_t i = 0; i < references; ++i)
      rows.slots[i] = {.id = {i + 1, 1},
                       .order = 1 + i * 7919 % references,
                       .generation = 1,
                       .now = i % 3 == 0 ? tp::publication::state::withdrawn : tp::publication::state::published};
    for (std::size_t i = 0; i < recipients; ++i) {
      tp::recipient_record& r = rows.records[i];
      const std::size_t slot = std::min(any() % references, any() % references);  // some have more than others
      if (i % 11 != 0) r.who = {i + 1};
      r.ref = rows.slots[slot].id;
      r.slot = static_cast<std::uint32_t>(slot);
      r.generation = 1;
      r.state = static_cast<tp::recipient_state>(any() % 10);
    }
  }
  tp::heap_owner_storage storage;
  const tp::owner_memory rows = storage.view();
  const watched_owner owner{{tp::detail::owner_tables(rows)}};
};

TEST(HttpStatusAlone, A_page_looks_three_times_at_each_recipient_however_much_is_published) {
  const crowd all(512, 50'000);
  tp::detail::status_walk walk;
  walk.begin(all.owner);
  std::size_t shown = 0;
  while (walk.next(all.owner).is != tp::detail::status_row::kind::end) ++shown;
  EXPECT_EQ(shown, 2000u + 2 * 100u);
  EXPECT_LE(all.owner.tables.looks, 512u + 3 * 50'000u);
}

TEST(HttpStatusAlone, A_page_has_the_newest_first_and_of_each_those_under_way_then_those_that_failed) {
  using walk_type = tp::detail::status_walk;
  using kind = tp::detail::status_row::kind;
  for (const auto& [references, recipients] : {std::pair{1, 0}, {1, 700}, {7, 900}, {120, 3000}, {130, 9000}}) {
    const crowd all(static_cast<std::size_t>(references), static_cast<std::size_t>(recipients));
    std::vector<const tp::publication*> order;
    for (const auto& p : all.rows.slots) order.push_back(&p);
    std::sort(order.begin(), order.end(),
              [](const auto* a, const auto* b) { return std::pair(a->now, ~a->order) < std::pair(b->now, ~b->order); });
    walk_type walk;
    for (int time = 0; time < 2; ++time) {  // a view is used again
      walk.begin(all.owner);
      std::uint32_t left = walk_type::most_recipients;
      for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), walk_type::most_publications); ++i) {
        const auto first = walk.next(all.owner);
        ASSERT_EQ(first.is, kind::publication);
        EXPECT_EQ(first.publication.number, order[i]->order);
        std::vector<std::uint32_t> wanted;
        for (int group = 0; group < 3; ++group)
          for (std::uint32_t k = 0; k < all.rows.records.size(); ++k) {
            const auto& r = all.rows.records[k];
            const int of = tp::is_final(r.state) + tp::has_completed(r.state);
            if (r.who && r.ref == order[i]->id && of == group) wanted.push_back(k);
          }
        const auto shown = std::min(
            {static_cast<std::uint32_t>(wanted.size()), walk_type::most_recipients_of_one, left});
        left -= shown;
        for (std::uint32_t k = 0; k < shown; ++k) {
          const auto row = walk.next(all.owner);
          ASSERT_EQ(row.is, kind::recipient);
          EXPECT_EQ(row.recipient.record, wanted[k]);
        }
        const auto last = walk.next(all.owner);
        ASSERT_EQ(last.is, kind::publication_ends);
        EXPECT_EQ(last.more, wanted.size() - shown);
      }
      const auto end = walk.next(all.owner);
      ASSERT_EQ(end.is, kind::end);
      EXPECT_EQ(end.more, order.size() - std::min<std::size_t>(order.size(), walk_type::most_publications));
    }
  }
}

TEST(HttpStatusAlone, What_has_made_room_for_something_else_meanwhile_is_left_out) {
  const crowd all(3, 60);
  using kind = tp::detail::status_row::kind;
  tp::detail::status_walk walk;
  walk.begin(all.owner);
  ASSERT_EQ(walk.next(all.owner).is, kind::publication);
  ASSERT_EQ(walk.next(all.owner).is, kind::recipient);
  for (auto& r : all.rows.records) r.ref.high += 100;
  EXPECT_EQ(walk.next(all.owner).is, kind::publication_ends);
  ASSERT_EQ(walk.next(all.owner).is, kind::publication);
  for (auto& p : all.rows.slots) p.order += 100;
  EXPECT_EQ(walk.next(all.owner).is, kind::publication_ends);
  EXPECT_EQ(walk.next(all.owner).is, kind::end);
}

TEST(StatusNames, The_last_ones_are_remembered_and_one_that_is_said_again_keeps_its_place) {
  tp::status_names names(3);
  const auto name_of = [&](std::uint64_t who) {
    std::array<char, tp::status_names::most_bytes> room;
    return std::string(room.data(), names.find(tp::recipient_id{who}, room));
  };
  for (std::uint64_t i = 1; i <= 3; ++i) names.add(tp::recipient_id{i}, std::to_string(i));
  names.add(tp::recipient_id{1}, "again");
  EXPECT_EQ(name_of(1), "again");
  names.add(tp::ref_id{4, 0}, "title");
  EXPECT_EQ(name_of(1), "");
  EXPECT_EQ(name_of(4), "") << "a title is not a name";
  for (std::uint64_t i = 5; i <= 100; ++i) {
    names.add(tp::recipient_id{i}, std::to_string(i));
    EXPECT_EQ(name_of(i), std::to_string(i));
  }
  EXPECT_EQ(name_of(2) + name_of(3) + name_of(97), "");
  EXPECT_EQ(name_of(98) + name_of(99), "9899");
}

TEST(HttpStatusAlone, The_dashboard_asks_for_nothing_that_metrics_have_not_and_for_all_of_them) {
  std::ifstream file(TENSORPULL_HEADERS "/../../examples/http/grafana.json");
  const std::string asked(std::istreambuf_iterator<char>(file), {});
  std::array<char, tp::http_metrics_bytes> room;
  constexpr std::uint64_t most = ~std::uint64_t{0};
  tp::owner_totals all{.references = most, .bytes_sent = most, .active = most};
  std::fill_n(all.recipients, 10, most), std::fill_n(all.transfers.ended, 10, most);
  std::fill(std::begin(all.transfers.within), std::end(all.transfers.within), most);
  all.transfers.completed_ms = most;
  tp::http_figures http{.open = most, .accepted = most, .image_bytes = most, .pulls = tp::pull_figures{}};
  http.answers.fill(most);
  *http.pulls = {most, most, most, most, most};
  const std::size_t n = tp::write_http_metrics(all, http, room);
  ASSERT_GT(n, 0u) << "it fits";
  const std::string given = "\n" + std::string(room.data(), n);
  const auto names_in = [](const std::string& text, const std::string& pattern) {
    std::set<std::string> found;
    const std::regex name(pattern);
    for (std::sregex_iterator i(text.begin(), text.end(), name), end; i != end; ++i) found.insert((*i)[1]);
    return found;
  };
  const auto metrics = names_in(given, "\n(tensorpull_[a-z_]+)[{ ]");
  EXPECT_EQ(names_in(asked, "(tensorpull_[a-z_]+)"), metrics);
  const auto labels = names_in(given, "[{,]([a-z]+)="), wanted = names_in(asked, "[{,]([a-z]+)[=!]");
  for (const std::string& label : wanted)
    EXPECT_TRUE(labels.count(label) == 1 || label == "job" || label == "instance") << label;
  for (const std::string& by : names_in(asked, "by \\(([a-z]+)\\)"))
    EXPECT_TRUE(labels.count(by) == 1 || by == "instance") << by;
}

TEST(HttpStatusAlone, Durations_are_a_histogram_of_Prometheus) {
  tp::owner_totals all;
  const auto end = [&](std::uint32_t ms) {
    ++all.transfers.ended[static_cast<std::size_t>(tp::recipient_state::completed)];
    all.transfers.took(ms);
  };
  for (const std::uint32_t ms : {0u, 100u, 101u, 5000u, 5'000'000u, 5'000'001u, ~0u}) end(ms);
  std::array<char, tp::http_metrics_bytes> room;
  const std::string page(room.data(), tp::write_http_metrics(all, {}, room));
  const std::string name = "tensorpull_transfer_seconds";
  std::string wanted = "# TYPE " + name + " histogram\n";
  const std::pair<const char*, int> buckets[]{{"0.1", 2},  {"0.2", 3},  {"0.5", 3},  {"1", 3},   {"2", 3},   {"5", 4},
                                              {"10", 4},   {"20", 4},   {"50", 4},   {"100", 4}, {"200", 4}, {"500", 4},
                                              {"1000", 4}, {"2000", 4}, {"5000", 5}, {"+Inf", 7}};
  for (const auto& [le, n] : buckets) wanted += name + "_bucket{le=\"" + le + "\"} " + std::to_string(n) + "\n";
  EXPECT_NE(page.find(wanted + name + "_sum 4304972.497\n" + name + "_count 7\n"), page.npos) << page;
}

TEST_F(HttpStatus, Metrics_have_the_pulls_of_the_program_if_it_counts_them) {
  serve();
  const std::string without = look("/metrics").body;
  EXPECT_EQ(without.find("tensorpull_pulls_total"), without.npos);
  thread->stop();
  tp::pull_counts pulls;
  pulls.add(tp::receipt{.outcome = tp::outcome::completed, .bytes = 1000, .damaged = 3});
  pulls.add(tp::receipt{.bytes = 10});
  pulls.add(tp::failure(tp::errc::timed_out));
  owner->shared().options.pulls = &pulls;
  thread.emplace(*owner);
  const std::string body = look("/metrics").body;
  for (const char* line :
       {"tensorpull_pulls_total{outcome=\"completed\"} 1", "tensorpull_pulls_total{outcome=\"completed_unverified\"} 1",
        "tensorpull_pulls_total{outcome=\"failed\"} 1", "tensorpull_pulled_bytes_total 1010",
        "tensorpull_damaged_chunks_total 3"})
    EXPECT_NE(body.find("\n" + std::string(line) + "\n"), body.npos) << line << body;
}

TEST(HttpStatusAlone, Rates_are_of_the_seconds_between_two_looks) {
  tp::detail::rate_sample s;
  EXPECT_FALSE(s.look(1, 1000, 10'000));
  EXPECT_FALSE(s.look(1, 1500, 10'500));  // too soon
  EXPECT_EQ(*s.look(1, 6000, 15'000), 1000u);
  EXPECT_EQ(*s.look(1, 7000, 16'000), 1000u);  // somebody else looks, too
  EXPECT_EQ(*s.look(1, 26'000, 20'000), 4000u);
  EXPECT_FALSE(s.look(2, 26'000, 25'000)) << "another recipient";
  EXPECT_EQ(*s.look(2, 26'000, 30'000), 0u);
  EXPECT_FALSE(s.look(2, 90'000, 100'000)) << "nobody has looked for long";
  EXPECT_FALSE(s.look(2, 80'000, 105'000)) << "a count that has shrunk is another one";
}

}  // namespace http_status_test
