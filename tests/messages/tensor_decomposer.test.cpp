// Message structs over a real connection, each end on a thread of its own.
#include "messages/structs.hpp"

#include <tensorpull/transports/host/owner.hpp>

namespace tensor_decomposer_test {

using namespace test;

TEST(TensorDecomposer, A_task_is_received_eagerly_and_the_sender_hears_of_it) {
  connected_sessions<net> both;
  const auto model = random_model<split_model>(1);
  joined_thread left([&] {
    task t = some_task();
    t.model = tp::tensors_of<split_model>(*model);
    const auto sent = messages::send(both.left(), 7, t);
    ASSERT_TRUE(succeeded(sent));
    EXPECT_EQ(sent->references().size(), 1u);
    ASSERT_TRUE(both.left().serve(tp::until_settled(*sent), 30s));
    EXPECT_TRUE(sent->settled(both.left()));
    EXPECT_EQ(both.left().status_of(sent->references()[0])->completed, 1u);
  });
  const auto mine = std::make_unique<split_model>();
  task got;
  got.model = tp::tensors_of<split_model>::into(*mine);
  const auto kind = messages::receive(both.right(), got);
  ASSERT_TRUE(succeeded(kind)) << " " << kind.error().name.view();
  EXPECT_EQ(*kind, 7u);
  EXPECT_TRUE(equal_but_tensors(got, some_task()));
  EXPECT_TRUE(same(*mine, *model));
}

TEST(TensorDecomposer, A_handle_is_pulled_later_or_never) {
  connected_sessions<net> both;
  const auto model = random_model<split_model>(2);
  joined_thread left([&](std::stop_token stop) {
    task t = some_task();
    t.model = tp::tensors_of<split_model>(*model);
    const auto first = messages::send(both.left(), 1, t), second = messages::send(both.left(), 2, t);
    ASSERT_TRUE(first && second);
    (void)both.left().serve(tp::until_settled(*first), 30s, stop);
    EXPECT_FALSE(second->settled(both.left()));
    second->withdraw(both.left());
    EXPECT_TRUE(both.left().withdraw(second->references()[0])) << "once more changes nothing";
  });
  task one, two;
  ASSERT_TRUE(messages::receive(both.right(), one));
  ASSERT_TRUE(messages::receive(both.right(), two));
  ASSERT_TRUE(one.model.received());
  ASSERT_TRUE(one.model.remote());
  const auto mine = std::make_unique<split_model>();
  const auto done = one.model.download_tensors(both.right(), *mine);
  ASSERT_TRUE(completed(done));
  EXPECT_TRUE(same(*mine, *model));
}

TEST(TensorDecomposer, Chunk_size_zero_puts_everything_inline_that_fits_a_message) {
  using native = tp::pipeline<tp::raw_tensors<split_model>, tp::whole, tp::tcp>;
  using native_messages = tp::tensor_decomposer<native>;
  publisher_of<native> owner;
  const auto model = random_model<split_model>(3);
  task t = some_task();
  t.model = tp::tensors_of<split_model>(*model);
  const auto apart = native_messages::decompose(owner, t);
  ASSERT_TRUE(succeeded(apart));
  EXPECT_TRUE(apart->references().empty());
  EXPECT_TRUE(apart->settled(owner));
  task got;
  ASSERT_TRUE(native_messages::recompose(apart->references(), apart->body(), got));
  EXPECT_FALSE(got.model.remote());
  const auto mine = std::make_unique<split_model>();
  no_session nobody;
  ASSERT_TRUE(got.model.download_tensors(nobody, *mine));
  EXPECT_TRUE(same(*mine, *model));
}

template <class Messages, class Net>
void send_what_one_message_cannot_hold(std::uint64_t inline_limit) {
  const auto big = random_model<too_big_inline>(4);
  connected_sessions<Net> both;
  joined_thread left([&] {
    const auto sent = Messages::send(both.left(), 7, big_task{tp::tensors_of<too_big_inline>(*big)});
    ASSERT_TRUE(succeeded(sent));
    EXPECT_EQ(sent->references().size(), 1u);
    ASSERT_TRUE(both.left().serve(tp::until_settled(*sent), 30s));
  });
  const auto mine = std::make_unique<too_big_inline>();
  big_task got{tp::tensors_of<too_big_inline>::into(*mine)};
  const auto kind = Messages::receive(both.right(), got);
  ASSERT_TRUE(succeeded(kind));
  EXPECT_EQ(tp::detail::set_access::arrived(got.weights)->limit, inline_limit);
  EXPECT_TRUE(same(*mine, *big));
}
TEST(TensorDecomposer, A_tensor_that_one_message_cannot_hold_is_pulled) {
  using native = tp::pipeline<tp::raw_tensors<too_big_inline>, tp::whole, tp::tcp>;
  send_what_one_message_cannot_hold<tp::tensor_decomposer<native, tp::inline_up_to<1000>>, native>(1000);
  send_what_one_message_cannot_hold<tp::tensor_decomposer<native>, native>(8192);
  send_what_one_message_cannot_hold<messages, net>(8192);
}
TEST(TensorDecomposer, A_field_that_no_message_can_hold_is_named) {
  publisher_of<net> owner;
  const auto model = random_model<split_model>(3);
  task t = some_task();
  t.model = tp::tensors_of<split_model>(*model);
  t.history.resize(10'000);
  const auto refused = messages::decompose(owner, t);
  ASSERT_EQ(code_of(refused), errc::does_not_fit);
  EXPECT_EQ(refused.error().name.view(), "history");
}

TEST(TensorDecomposer, An_inline_bool_is_checked_like_one_that_is_pulled) {
  publisher_of<net> owner;
  flags theirs{}, mine{};
  std::memset(theirs.on + 3, 2, 1);
  const auto apart = messages::decompose(owner, flags_task{tp::tensors_of<flags>(theirs)});
  ASSERT_TRUE(apart);
  flags_task got;
  ASSERT_TRUE(messages::recompose(apart->references(), apart->body(), got));
  no_session nobody;
  const auto done = got.all.download_tensors(nobody, mine);
  ASSERT_EQ(code_of(done), errc::value_out_of_range);
  EXPECT_EQ(done.error().name.view(), "on");
  unsigned char byte = 0;
  std::memcpy(&byte, mine.on + 3, 1);
  EXPECT_EQ(byte, 1) << "a value of its type nevertheless";
}

TEST(TensorDecomposer, A_bool_of_a_split_set_is_checked_too) {
  connected_sessions<net> both;
  for (const bool inlined : {true, false}) {
    const auto theirs = std::make_unique<split_flags>(), mine = std::make_unique<split_flags>();
    std::memset(inlined ? theirs->few + 3 : theirs->many + 777, 2, 1);
    joined_thread left([&](std::stop_token stop) {
      const auto sent = messages::send(both.left(), 1, split_flags_task{tp::tensors_of<split_flags>(*theirs)});
      ASSERT_TRUE(sent);
      ASSERT_EQ(sent->references().size(), 1u);
      (void)both.left().serve(tp::until_settled(*sent), 30s, stop);
      sent->withdraw(both.left());
    });
    split_flags_task got;
    ASSERT_TRUE(messages::receive(both.right(), got));
    const auto done = got.all.download_tensors(both.right(), *mine);
    ASSERT_EQ(code_of(done), errc::value_out_of_range) << inlined;
    EXPECT_EQ(done.error().name.view(), inlined ? "few" : "many");
    unsigned char byte = 0;
    std::memcpy(&byte, inlined ? mine->few + 3 : mine->many + 777, 1);
    EXPECT_EQ(byte, 1) << "a value of its type nevertheless";
  }
}

TEST(TensorDecomposer, A_model_of_several_layers_is_split_and_put_together) {
  connected_sessions<net> both;
  const auto model = random_model<stack>(11);
  joined_thread left([&](std::stop_token stop) {
    const auto sent = messages::send(both.left(), 1, stack_task{tp::tensors_of<stack>(*model)});
    ASSERT_TRUE(sent);
    (void)both.left().serve(tp::until_settled(*sent), 30s, stop);
  });
  const auto mine = std::make_unique<stack>();
  stack_task got{tp::tensors_of<stack>::into(*mine)};
  const auto kind = messages::receive(both.right(), got);
  ASSERT_TRUE(succeeded(kind));
  EXPECT_TRUE(same(*mine, *model));
}

TEST(TensorDecomposer, Only_tensors_above_the_threshold_are_published) {
  publisher_of<net> owner;
  const auto model = random_model<split_model>(4);
  task t = some_task();
  t.model = tp::tensors_of<split_model>(*model);
  const auto apart = messages::decompose(owner, t);
  ASSERT_TRUE(apart);
  ASSERT_EQ(apart->references().size(), 1u);
  tp::xxh3_64 h;  // the schema of the one large tensor alone
  const auto& all = tp::raw_tensors<split_model>::schema();
  for (const auto& e : all.entries())
    if (e.size_bytes() > 16384) tp::hash_entry(h, e);
  EXPECT_EQ(apart->references()[0].fingerprint, h.digest());

  using everything = tp::tensor_decomposer<net, tp::inline_up_to<0>>;
  const auto whole = everything::decompose(owner, t);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->references()[0].fingerprint, all.fingerprint);
  EXPECT_EQ(whole->references()[0].version,
            (*tp::image_version<tp::xxhash_digest>(tp::raw_tensors<split_model>::source(*model))))
      << "nothing inline: the image is the model's own";
}

TEST(TensorDecomposer, A_model_that_was_handed_over_lives_as_long_as_it_is_published) {
  publisher_of<net> owner;
  std::weak_ptr<const split_model> watch;
  tp::reference ref;
  {
    std::shared_ptr<const split_model> model = random_model<split_model>(5);
    watch = model;
    task t = some_task();
    t.model = tp::tensors_of<split_model>(std::move(model));
    const auto apart = messages::decompose(owner, t);
    ASSERT_TRUE(apart);
    ref = apart->references()[0];
  }
  EXPECT_FALSE(watch.expired());
  ASSERT_TRUE(owner.withdraw(ref));
  EXPECT_TRUE(watch.expired());
}

struct few : tp::default_limits {
  static constexpr std::size_t references = 1;
};

TEST(TensorDecomposer, After_an_error_nothing_stays_published) {
  using small_net = raw_net<split_model, tp::tcp, few>;
  publisher_of<small_net> owner;
  const auto a = random_model<split_model>(6), b = random_model<split_model>(7);
  two_models two{tp::tensors_of<split_model>(*a), tp::tensors_of<split_model>(*b)};
  const auto refused = tp::tensor_decomposer<small_net>::decompose(owner, two);
  ASSERT_EQ(code_of(refused), errc::table_full);
  EXPECT_EQ(refused.error().name.view(), "second");
  EXPECT_TRUE(owner.add_tensors(*a)) << "the slot of the first is free again";
}

TEST(TensorDecomposer, One_ID_is_for_one_set) {
  publisher_of<net> owner;
  const tp::ref_id id{1, 2};
  const auto a = random_model<split_model>(6), b = random_model<split_model>(7);
  two_models two{tp::tensors_of<split_model>(*a), tp::tensors_of<split_model>(*b)};
  const auto refused = messages::decompose(owner, two, {.id = id});
  ASSERT_EQ(code_of(refused), errc::invalid_argument);
  EXPECT_EQ(refused.error().name.view(), "id");
  EXPECT_EQ(refused.error().at, 2u);
  EXPECT_FALSE(owner.status_of(tp::reference{.id = id}));
  task one = some_task();
  one.model = tp::tensors_of<split_model>(*a);
  const auto sent = messages::decompose(owner, one, {.id = id});
  ASSERT_TRUE(succeeded(sent));
  EXPECT_EQ(sent->references()[0].id, id);
}

TEST(TensorDecomposer, A_handle_is_sent_on_and_pulled_by_a_third_party) {
  auto owner = net::downloader::open();
  ASSERT_TRUE(owner);
  const auto model = random_model<split_model>(8);
  task t = some_task();
  t.model = tp::tensors_of<split_model>(*model);
  const auto apart = messages::decompose(*owner, t);
  ASSERT_TRUE(apart);
  serving run(*owner);

  task middle;
  ASSERT_TRUE(messages::recompose(apart->references(), apart->body(), middle));
  publisher_of<net> nothing;
  const auto without = messages::decompose(nothing, middle);
  EXPECT_EQ(code_of(without), errc::invalid_argument) << "nobody could be asked for it";
  EXPECT_EQ(without.error().name.view(), "model");
  const own_port nobody;
  ASSERT_TRUE(middle.model.owner_at(local(nobody)));  // the next address is tried
  ASSERT_TRUE(middle.model.owner_at(local(owner->port())));
  const auto onward = messages::decompose(nothing, middle);
  ASSERT_TRUE(onward);

  task last;
  ASSERT_TRUE(messages::recompose(onward->references(), onward->body(), last));
  const auto mine = std::make_unique<split_model>();
  const auto done = last.model.download_tensors<net>(*mine);
  ASSERT_TRUE(completed(done));
  EXPECT_TRUE(same(*mine, *model));
}

TEST(TensorDecomposer, A_model_with_ties_is_whole_however_it_landed) {
  connected_sessions<net> both;
  const auto model = random_model<tied_model>(12);
  std::memcpy(model->head, model->embed, sizeof model->head);
  joined_thread left([&](std::stop_token stop) {
    const auto sent = messages::send(both.left(), 1, tied_task{tp::tensors_of<tied_tensors>(*model)},
                                     {.recipients = 0});
    ASSERT_TRUE(sent);
    (void)both.left().serve(tp::until_settled(*sent), 30s, stop);
    sent->withdraw(both.left());
  });
  tied_task got;
  ASSERT_TRUE(messages::receive(both.right(), got));
  const auto mine = std::make_unique<tied_model>(), other = std::make_unique<tied_model>();
  ASSERT_TRUE(got.model.download_tensors(both.right(), *mine));
  EXPECT_TRUE(same(*mine, *model));

  const auto parts = got.model.land_in(*other);  // as a handler of a host does it
  ASSERT_TRUE(parts);
  tp::land to = parts->consumer();
  ASSERT_TRUE(both.right().pull(parts->remote()->reference, to));
  ASSERT_TRUE(parts->finish());
  EXPECT_TRUE(same(*other, *model));
}

TEST(TensorDecomposer, A_set_that_came_wholly_inline_is_sent_on_whether_or_not_its_owner_is_named) {
  publisher_of<net> owner;
  flags theirs{};
  theirs.on[5] = true;
  const auto apart = messages::decompose(owner, flags_task{tp::tensors_of<flags>(theirs)});
  ASSERT_TRUE(apart);
  for (const bool named : {true, false}) {
    flags_task middle;
    ASSERT_TRUE(messages::recompose(apart->references(), apart->body(), middle));
    if (named) {
      ASSERT_TRUE(middle.all.owner_at("example.org:1"));
    }
    EXPECT_EQ(code_of(middle.all.owner_at(any_port)), errc::bad_address) << "checked nevertheless";
    EXPECT_FALSE(middle.all.remote());
    const auto onward = messages::decompose(owner, middle);
    ASSERT_TRUE(onward);
    EXPECT_TRUE(onward->references().empty());
    flags_task last;
    const auto read = messages::recompose(onward->references(), onward->body(), last);
    ASSERT_TRUE(read) << named << to_string(read.error().code);
    flags mine{};
    no_session nobody;
    ASSERT_TRUE(last.all.download_tensors(nobody, mine));
    EXPECT_EQ(std::memcmp(&mine, &theirs, sizeof mine), 0);
  }
}

TEST(TensorDecomposer, Addresses_without_a_reference_are_refused_before_they_are_sent) {
  publisher_of<net> owner;
  auto t = some_task();
  const auto model = random_model<split_model>(9);
  t.model = tp::tensors_of<split_model>(*model);
  ASSERT_TRUE(t.elsewhere.add("h:1"));
  const auto apart = messages::decompose(owner, t);
  ASSERT_EQ(code_of(apart), errc::invalid_argument) << "the other end would refuse the whole message";
  EXPECT_EQ(apart.error().name.view(), "elsewhere");
}

/// A host that sends every client a task, and pulls the result that comes back when it has time.
struct aggregator {
  using host_type = net::host<aggregator, tp::land>;
  using connection = host_type::connection;

  void connected(connection& c) { (void)c.send(1, task_to_send->references(), task_to_send->body()); }
  void message(connection& c, const tp::message& m) {
    const auto read = messages::recompose(m.references, m.body, result);
    ASSERT_TRUE(succeeded(read)) << " " << read.error().name.view();
    auto where = result.model.land_in(update);
    ASSERT_TRUE(where);
    landing.emplace(std::move(*where));
    ASSERT_TRUE(c.pull(landing->remote()->reference, {}, landing->consumer()));
  }
  void pulled(connection&, const tp::result<tp::receipt>& r) {
    ASSERT_TRUE(r);
    ASSERT_TRUE(landing->finish());
    done = r->outcome == tp::outcome::completed;
  }
  void closed(connection&, const tp::error&) { ++closes; }

  const tp::decomposed<>* task_to_send = nullptr;
  task result;
  split_model update{};
  std::optional<tp::set_landing> landing;
  bool done = false;
  int closes = 0;
};

TEST(TensorDecomposer, A_host_sends_one_message_to_many_and_pulls_from_its_handler) {
  const auto server = std::make_unique<aggregator>();
  tp::event_loop io;
  aggregator::host_type host(io, *server);
  const auto port = host.listen(any_port);
  ASSERT_TRUE(port);
  const auto global = random_model<split_model>(1), trained = random_model<split_model>(2);
  task t = some_task();
  t.model = tp::tensors_of<split_model>(*global);
  const auto apart = messages::decompose(host.published(), t, {.recipients = 2});
  ASSERT_TRUE(apart);
  server->task_to_send = &*apart;
  for (int client = 0; client < 2; ++client) {
    server->update = {};
    joined_thread device([&] {
      auto session = net::session::connect(local(*port));
      ASSERT_TRUE(session);
      const auto mine = std::make_unique<split_model>();
      task got;
      got.model = tp::tensors_of<split_model>::into(*mine);
      ASSERT_TRUE(messages::receive(*session, got));
      EXPECT_TRUE(same(*mine, *global));
      got.model = tp::tensors_of<split_model>(*trained);
      const auto sent = messages::send(*session, 2, got);
      ASSERT_TRUE(sent);
      EXPECT_TRUE(session->serve(tp::until_settled(*sent), 60s));
    });
    const auto end = steady_clock::now() + 60s;
    while (server->closes <= client && steady_clock::now() < end) io.run_one_for(50ms);
    EXPECT_TRUE(server->done);
    EXPECT_TRUE(same(server->update, *trained));
    EXPECT_EQ(apart->settled(host.published()), client == 1);
  }
}

TEST(TensorDecomposer, A_locator_is_a_member_too) {
  publisher_of<net> owner;
  auto t = some_task();
  const auto model = random_model<split_model>(9);
  t.model = tp::tensors_of<split_model>(*model);
  t.elsewhere = tp::locator({{3, 4}, 5, 6});
  ASSERT_TRUE(t.elsewhere.add("h:1"));
  const auto apart = messages::decompose(owner, t);
  ASSERT_TRUE(apart);
  EXPECT_EQ(apart->references().size(), 2u);
  task got;
  ASSERT_TRUE(messages::recompose(apart->references(), apart->body(), got));
  EXPECT_EQ(got.elsewhere, t.elsewhere);
}

TEST(TensorDecomposer, A_run_time_list_travels_too) {
  publisher_of<net> owner;
  std::vector<float> weights(10000), landed(10000);
  weights[9999] = 3;
  const std::uint64_t shape[] = {100, 100};
  const std::uint64_t scalar = 1;
  float bias = 2, bias_landed = 0;
  const auto list = [&](float* w, float* b) {
    const std::array views{tp::mutable_tensor_view{"w", dtype::f32, shape, reinterpret_cast<std::byte*>(w)},
                           tp::mutable_tensor_view{"b", dtype::f32, {&scalar, 1}, reinterpret_cast<std::byte*>(b)}};
    return std::move(*tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views)));
  };
  const auto from = list(weights.data(), &bias);
  auto to = list(landed.data(), &bias_landed);
  list_task t{tp::tensors_of<tp::tensor_list>(from)};
  connected_sessions<net> both;
  joined_thread left([&] {
    const auto apart = messages::send(both.left(), 1, t);
    ASSERT_TRUE(apart);
    EXPECT_EQ(apart->references().size(), 1u);
    (void)both.left().serve(tp::until_settled(*apart), 30s);
  });
  list_task got{tp::tensors_of<tp::tensor_list>::into(to)};
  ASSERT_TRUE(messages::receive(both.right(), got));
  EXPECT_EQ(landed, weights);
  EXPECT_EQ(bias_landed, bias);
}

}  // namespace tensor_decomposer_test
