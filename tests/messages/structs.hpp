// What the tests of messages share: message structs of every kind of member, and two connected sessions.
#pragma once

#include "support/models.hpp"
#include "transports/network.hpp"

#include <tensorpull/messages/tensor_decomposer.hpp>

namespace test {

/// Two tensors inline, one of 40,000 bytes referenced, by the default threshold.
struct split_model {
  float weight[100][100];
  float bias[100];
  std::int64_t step;
};
/// 80,000 bytes of small tensors: more than a message may have.
struct too_big_inline {
  float a[4000], b[4000], c[4000], d[4000], e[4000];
};
enum class phase : std::uint8_t {
  train = 1,
  evaluate = 2,
};
struct flags {
  bool on[8];
};
/// An ordinary model: in each layer a weight that is pulled and a bias that travels inline.
struct stack_layer {
  float weight[100][100];
  float bias[100];
};
struct stack {
  stack_layer layers[4];
};
/// Split, with a BOOL member on either side of the threshold.
struct split_flags {
  bool many[20000];
  bool few[8];
};
/// Two large members, which tied_tensors makes one, and a small one.
struct tied_model {
  float embed[100][100];
  float head[100][100];
  std::int64_t step;
};
struct schedule {
  double rate;
  std::int16_t offset;
};

}  // namespace test

// before a message struct names them
BOOST_HANA_ADAPT_STRUCT(test::split_model, weight, bias, step);
BOOST_HANA_ADAPT_STRUCT(test::too_big_inline, a, b, c, d, e);
BOOST_HANA_ADAPT_STRUCT(test::flags, on);
BOOST_HANA_ADAPT_STRUCT(test::stack_layer, weight, bias);
BOOST_HANA_ADAPT_STRUCT(test::stack, layers);
BOOST_HANA_ADAPT_STRUCT(test::tied_model, embed, head, step);
BOOST_HANA_ADAPT_STRUCT(test::split_flags, many, few);
BOOST_HANA_ADAPT_STRUCT(test::schedule, rate, offset);

namespace test {

struct task {
  std::uint32_t round = 0;
  std::int64_t seed = 0;
  float momentum = 0;
  bool last = false;
  phase now = phase::train;
  std::string site;
  char tag[8] = {};
  schedule plan{};
  std::array<std::int32_t, 3> shape{};
  std::vector<double> history;
  tp::locator elsewhere;
  tp::tensors_of<split_model> model;
};
struct big_task {
  tp::tensors_of<too_big_inline> weights;
};
/// `head` is the same tensor as `embed`.
using tied_tensors = tp::raw_tensors<tp::tied<tied_model, tp::from_to{"head", "embed"}>>;
struct tied_task {
  tp::tensors_of<tied_tensors> model;
};
struct flags_task {
  tp::tensors_of<flags> all;
};
struct split_flags_task {
  tp::tensors_of<split_flags> all;
};
struct stack_task {
  tp::tensors_of<stack> model;
};
struct two_models {
  tp::tensors_of<split_model> first, second;
};
struct list_task {
  tp::tensors_of<tp::tensor_list> tensors;
};

}  // namespace test

BOOST_HANA_ADAPT_STRUCT(test::task, round, seed, momentum, last, now, site, tag, plan, shape, history, elsewhere,
                        model);
BOOST_HANA_ADAPT_STRUCT(test::flags_task, all);
BOOST_HANA_ADAPT_STRUCT(test::tied_task, model);
BOOST_HANA_ADAPT_STRUCT(test::split_flags_task, all);
BOOST_HANA_ADAPT_STRUCT(test::stack_task, model);
BOOST_HANA_ADAPT_STRUCT(test::big_task, weights);
BOOST_HANA_ADAPT_STRUCT(test::two_models, first, second);
BOOST_HANA_ADAPT_STRUCT(test::list_task, tensors);

namespace test {

using net = tp::pipeline<tp::raw_tensors<split_model>, tp::fixed_bytes<16_KiB>, tp::tcp>;
using messages = tp::tensor_decomposer<net>;

template <class Net>
using publisher_of = tp::publisher<typename Net::parts>;

/// Pulls nothing: what came inline must not ask anybody.
struct no_session {
  template <class C>
  tp::result<tp::receipt> pull(const tp::reference&, C&, const tp::pull_options&) noexcept {
    ADD_FAILURE() << "pulled";
    return tp::failure(errc::busy);
  }
};

inline task some_task() {
  task t;
  t.round = 4'000'000'000;
  t.seed = -7;
  t.momentum = 0.9f;
  t.last = true;
  t.now = phase::evaluate;
  t.site = "h\xc3\xb4pital 3";
  std::memcpy(t.tag, "12345678", 8);
  t.plan = {0.1, -300};
  t.shape = {1, -2, 3};
  t.history = {0.5, 0.25, -1e300};
  return t;
}
inline bool equal_but_tensors(const task& a, const task& b) {
  return a.round == b.round && a.seed == b.seed && a.momentum == b.momentum && a.last == b.last && a.now == b.now &&
         a.site == b.site && std::memcmp(a.tag, b.tag, 8) == 0 && a.plan.rate == b.plan.rate &&
         a.plan.offset == b.plan.offset && a.shape == b.shape && a.history == b.history && a.elsewhere == b.elsewhere;
}

/// Two sessions, each the other's end.
template <class Net>
class connected_sessions {
 public:
  using session = typename Net::session;
  connected_sessions() {
    raw_listener listener;
    auto l = session::connect(local(listener.port()));
    EXPECT_TRUE(l);
    left_.emplace(std::move(*l));
    auto peer = listener.accept();
    right_.emplace(std::move(*session::over(std::move(peer.stream()))));
  }
  session& left() { return *left_; }
  session& right() { return *right_; }

 private:
  std::optional<session> left_, right_;
};

}  // namespace test
