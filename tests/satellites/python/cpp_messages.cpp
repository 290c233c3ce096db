// The C++ end of message structs whose other end is Python: sends one with fields of every kind, or receives one, pulls
// its tensors, and sends what it understood back.
#include <tensorpull/messages/tensor_decomposer.hpp>
#include <tensorpull/tensorpull.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

using namespace tensorpull;
using namespace std::chrono_literals;

/// Of 16 KiB at most: bias, scale and step. Above: weight.
struct layer {
  float weight[128][64], bias[64];
  bfloat16 scale[3];
  std::int64_t step;
};
struct biases {
  double b[10];
  bool on[4];
};
enum class phase : std::uint8_t {
  train = 1,
  evaluate = 2,
};
struct schedule {
  double rate;
  std::int16_t offset;
};
struct metric {
  std::string name;
  double value = 0;
  std::optional<std::int32_t> step;
};
BOOST_HANA_ADAPT_STRUCT(layer, weight, bias, scale, step);
BOOST_HANA_ADAPT_STRUCT(biases, b, on);
BOOST_HANA_ADAPT_STRUCT(schedule, rate, offset);
BOOST_HANA_ADAPT_STRUCT(metric, name, value, step);

struct everything {
  bool last = false;
  std::uint32_t round = 0;
  std::int64_t seed = 0;
  std::uint64_t large = 0;
  phase now = phase::train;
  float momentum = 0;
  double loss = 0;
  std::string site;
  char tag[8] = {};
  schedule plan{};
  std::array<std::int32_t, 3> shape{};
  float grid[2][3] = {};
  std::vector<double> history;
  std::vector<std::uint8_t> raw;
  std::vector<std::string> sites;
  std::map<std::string, double> metrics;
  std::optional<double> best, none;
  std::vector<metric> rows;
  std::optional<metric> row;
  std::map<std::string, std::vector<metric>> by_site;
  std::vector<std::vector<std::string>> groups;
  locator elsewhere;
  tensors_of<layer> model;
  tensors_of<biases> small;
  std::vector<tensors_of<layer>> updates;
};
BOOST_HANA_ADAPT_STRUCT(everything, last, round, seed, large, now, momentum, loss, site, tag, plan, shape, grid,
                        history, raw, sites, metrics, best, none, rows, row, by_site, groups, elsewhere, model, small,
                        updates);

using net = pipeline<raw_tensors<layer>, fixed_bytes<16_KiB>, tcp>;
using messages = tensor_decomposer<net>;

static int complain(const error& e) {
  std::fprintf(stderr, "%s (%.*s) at %llu\n", to_string(e.code).data(), static_cast<int>(e.name.view().size()),
               e.name.view().data(), static_cast<unsigned long long>(e.at));
  return 1;
}

static std::unique_ptr<layer> some_layer(int seed) {
  auto l = std::make_unique<layer>();
  for (int i = 0; i < 128; ++i)
    for (int k = 0; k < 64; ++k) l->weight[i][k] = static_cast<float>(seed * 10000 + i * 64 + k);
  for (int k = 0; k < 64; ++k) l->bias[k] = static_cast<float>(seed + k) / 4;
  for (int k = 0; k < 3; ++k) l->scale[k].bits = static_cast<std::uint16_t>(0x3f80 + k);
  l->step = -seed;
  return l;
}

static int send_one(net::session& session, const everything& e, std::uint32_t kind) {
  const auto sent = messages::send(session, kind, e);
  if (!sent) return complain(sent.error());
  const auto served = session.serve(until_settled(*sent), 20s);
  std::printf("settled %d of %zu\n", sent->settled(session) ? 1 : 0, sent->references().size());
  return served ? 0 : complain(served.error());
}

/// send ADDRESS: fields whose values test_cpp_messages.py knows.
static int send(net::session& session) {
  const auto model = some_layer(1), first = some_layer(2), second = some_layer(3);
  biases b{};
  b.b[9] = 9.5;
  b.on[2] = true;
  everything e;
  e.last = true, e.round = 4'000'000'000, e.seed = -7, e.large = ~0ull, e.now = phase::evaluate;
  e.momentum = 0.5f, e.loss = 0.1, e.site = "h\xc3\xb4pital 3";
  std::memcpy(e.tag, "12345678", 8);
  e.plan = {0.25, -300}, e.shape = {1, -2, 3};
  e.grid[0][1] = 1.5f, e.grid[1][2] = -2;
  e.history = {0.5, -1e300}, e.raw = {0, 255}, e.sites = {"a", "", "c"};
  e.metrics = {{"accuracy", 0.9}, {"loss", 0.25}}, e.best = -1;
  e.rows = {{"a", 1, 7}, {"b", 2, {}}}, e.row = metric{"c", 3, -4};
  e.by_site = {{"x", {{"d", 4, {}}}}, {"y", {}}}, e.groups = {{"one", "two"}, {}};
  e.elsewhere = locator(reference{{3, 4}, 5, 6});
  (void)e.elsewhere.add("tls://owner:8002");
  e.model = tensors_of<layer>(*model), e.small = tensors_of<biases>(b);
  e.updates.emplace_back(*first), e.updates.emplace_back(*second);
  return send_one(session, e, 9);
}

/// echo ADDRESS: what arrives, with its tensors pulled, goes back.
static int echo(net::session& session) {
  const auto model = std::make_unique<layer>(), first = std::make_unique<layer>(), second = std::make_unique<layer>();
  biases b{};
  everything e;
  e.model = tensors_of<layer>::into(*model), e.small = tensors_of<biases>::into(b);
  e.updates.push_back(tensors_of<layer>::into(*first)), e.updates.push_back(tensors_of<layer>::into(*second));
  const auto kind = messages::receive(session, e);
  if (!kind) return complain(kind.error());
  if (e.updates.size() != 2) return 3;
  e.model = tensors_of<layer>(*model), e.small = tensors_of<biases>(b);
  e.updates[0] = tensors_of<layer>(*first), e.updates[1] = tensors_of<layer>(*second);
  return send_one(session, e, *kind + 1);
}

int main(int count, char** a) {
  const std::string_view what = count == 3 ? a[1] : "";
  if (what != "send" && what != "echo") {
    std::fprintf(stderr, "usage: %s send|echo ADDRESS\n", a[0]);
    return 2;
  }
  auto session = net::session::connect(a[2]);
  if (!session) return complain(session.error());
  return what == "send" ? send(*session) : echo(*session);
}
