// Owners that lie: every lie ends as a named error, nothing lands outside the destination, nothing false is called
// completed.
#include <tensorpull/core/byte_order.hpp>
#include "support/pair.hpp"

namespace hostile_owner_test {

using namespace test;
using kind = tp::frame_kind;

constexpr auto page = 1024;

/// Pulls from an owner that lies; gives the error, after checking that nothing outside was written.
template <class Integrity = tp::image_digest, class Chunking = tp::fixed_bytes<page>>
tp::error caught(tampering lie, std::size_t every = ~std::size_t{0}, bool nothing_landed = false) {
  owning_pair p(cut{every});
  p.owner_lies = std::move(lie);
  receiving<Chunking, Integrity> x;
  const auto done = p.pull(x.t);
  EXPECT_FALSE(done);
  EXPECT_TRUE(x.mine.guards_intact());
  EXPECT_TRUE(!nothing_landed || x.mine.untouched());
  EXPECT_EQ(p.left.status().completed, 0u);
  return done ? tp::error{} : done.error();
}
template <class Change>
errc caught_in_chunk(Change change) {
  const errc a = caught(lie_about_chunks(change)).code, b = caught(lie_about_chunks(change), 7).code;
  EXPECT_EQ(a, b);
  return a;
}
template <class Change>
errc caught_in(kind k, Change change) {
  const errc a = caught(lie_about(k, change), ~std::size_t{0}, true).code,
             b = caught(lie_about(k, change), 7, true).code;
  EXPECT_EQ(a, b);
  return a;
}

TEST(HostileOwner, L1_a_payload_shorter_or_longer_than_asked) {
  EXPECT_EQ(caught_in_chunk([](tp::frame& m) { m.length -= 1; }), errc::wrong_payload);
  EXPECT_EQ(caught_in_chunk([](tp::frame& m) { m.length += 1; }), errc::wrong_payload);
  EXPECT_EQ(caught_in_chunk([](tp::frame& m) { m.length = 0; }), errc::wrong_payload);
  EXPECT_EQ(caught_in_chunk([](tp::frame& m) { m.length = 100'000; }), errc::wrong_payload);
}

TEST(HostileOwner, L2_length_fields_that_differ_close_the_connection) {
  const auto with = [](std::size_t word, std::uint64_t by) {
    return [=](byte_vector& f) {
      if (kind_of(f) == kind::chunk) tp::store_le64(f.data() + 8 * word, tp::load_le64(f.data() + 8 * word) + by);
    };
  };
  EXPECT_EQ(caught(with(0, 1ull << 32), 50).code, errc::bad_frame);
  EXPECT_EQ(caught(with(9, 8ull << 35), 50).code, errc::bad_frame);
  EXPECT_EQ(caught(with(9, 0 - (8ull << 35)), 50).code, errc::bad_frame);
  EXPECT_EQ(caught(with(9, 4), 50).code, errc::unsupported_layout);
  EXPECT_EQ(caught(with(1, 4)).code, errc::unexpected_frame) << "the struct one word further: the tag reads 0";
}

TEST(HostileOwner, A_chunk_of_another_version_offset_nonce_or_id_never_lands) {
  for (const std::uint64_t by : {std::uint64_t{1}, std::uint64_t{8}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    EXPECT_EQ(caught_in_chunk([=](tp::frame& m) { m.offset += by; }), errc::wrong_payload);
    EXPECT_EQ(caught_in_chunk([=](tp::frame& m) { m.nonce += by; }), errc::wrong_payload);
    const errc version = caught_in_chunk([=](tp::frame& m) { m.version += by; });
    EXPECT_TRUE(version == errc::wrong_payload || version == errc::stale_version);
  }
  EXPECT_EQ(caught_in_chunk([](tp::frame& m) { m.id += 1; }), errc::wrong_payload);
  EXPECT_EQ(caught_in_chunk([](tp::frame& m) { m.id += 1000; }), errc::wrong_payload);
  // an answer to nobody, or to a request before the first: thrown away, and then nothing else comes
  EXPECT_EQ(caught_in_chunk([](tp::frame& m) { m.id = 0; }), errc::timed_out);
  EXPECT_EQ(caught_in_chunk([](tp::frame& m) { m.ref.low ^= 1; }), errc::timed_out);
}

TEST(HostileOwner, Other_bytes_are_not_taken_whatever_version_they_are_said_to_be) {
  const model asked = mixed_model().fill(1), other = mixed_model().fill(2);
  pair p;
  ASSERT_TRUE(p.left.references.publish(other.source(), version_of(asked), true, {1, 2}, 1));
  const auto description = lie_about(kind::description, [&](tp::frame& m) { m.version = version_of(other); });
  const auto chunks = lie_about_chunks([&](tp::frame& m) { m.version = version_of(other); });
  p.owner_lies = [&](byte_vector& f) { description(f), chunks(f); };
  receiving<> x({.ref = {1, 2}, .version = version_of(asked)});
  const auto done = p.pull(x.t);
  EXPECT_EQ(code_of(done), errc::stale_version);
  EXPECT_TRUE(x.mine.untouched());
}

TEST(HostileOwner, R13_late_duplicates_are_thrown_away_by_id) {
  for (const std::size_t every : {std::size_t{1}, std::size_t{77}, ~std::size_t{0}}) {
    owning_pair p(cut{every});
    byte_vector last;
    p.owner_lies = [&](byte_vector& f) {
      if (kind_of(f) != kind::chunk) return;
      const byte_vector now = f;
      for (std::size_t i = tp::detail::payload_prefix::bytes; i < last.size(); ++i)
        last[i] = std::byte{0xee};  // and with other bytes
      f.insert(f.end(), last.begin(), last.end());
      f.insert(f.end(), now.begin(), now.end());
      last = now;
    };
    receiving<> x;
    const auto done = p.pull(x.t);
    ASSERT_TRUE(succeeded(done));
    EXPECT_TRUE(x.mine.same_tensors(p.source) && x.mine.guards_intact());
  }
}

TEST(HostileOwner, A_flipped_payload_byte_is_never_completed) {
  generator random(7);
  for (int round = 0; round < 60; ++round) {
    const std::uint64_t victim = random.below(6);
    std::uint64_t seen = 0;
    const auto flip = [&](byte_vector& f) {
      if (kind_of(f) != kind::chunk || seen++ != victim) return;
      const auto m = tp::detail::payload_prefix::read(std::span<const std::byte, 80>(f.data(), 80));
      f[80 + random.below(m->length)] ^= static_cast<std::byte>(1 << random.below(8));
    };
    EXPECT_EQ(caught(flip).code, errc::digest_mismatch);
    // even if the owner confirms whatever it is told: the recipient's own digest counts
    seen = 0;
    const tampering confirm_all = lie_about(kind::confirmed, [](tp::frame& m) { m.status = tp::status::ok; });
    EXPECT_EQ(caught([&](byte_vector& f) { flip(f), confirm_all(f); }).code, errc::digest_mismatch);
    // if each chunk has a digest, the damaged one is asked for again, until it has come wrong too often
    const auto flip_always = [&](byte_vector& f) {
      if (kind_of(f) != kind::chunk) return;
      const auto m = tp::detail::payload_prefix::read(std::span<const std::byte, 80>(f.data(), 80));
      if (m->offset / page == victim) f[80 + random.below(m->length)] ^= static_cast<std::byte>(1 << random.below(8));
    };
    EXPECT_EQ(caught<tp::chunk_and_image_digest>(flip_always).code, errc::chunk_digest_mismatch);
    EXPECT_EQ(caught<tp::chunk_digest>(flip_always, 11).code, errc::chunk_digest_mismatch);
  }
}

template <class Integrity>
void expect_mended(std::uint64_t victim, std::size_t every, tp::outcome expected) {
  owning_pair p(cut{every}, 1);
  std::uint64_t seen = 0;
  p.owner_lies = [&](byte_vector& f) {
    if (kind_of(f) == kind::chunk && seen++ % 4 == victim % 4 && seen < 9) f[80 + victim % 8] ^= std::byte{4};
  };
  receiving<tp::fixed_bytes<page>, Integrity> x;
  const auto done = p.pull(x.t);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(done->outcome, expected);
  EXPECT_GE(done->damaged, 1u);
  EXPECT_TRUE(x.mine.same_tensors(p.source) && x.mine.guards_intact());
  EXPECT_TRUE(p.left.references.settled({1, 2}));
}
TEST(HostileOwner, A_damaged_chunk_is_fetched_again) {
  for (const std::size_t every : {std::size_t{1}, std::size_t{13}, ~std::size_t{0}})
    for (std::uint64_t victim = 0; victim < 4; ++victim) {
      expect_mended<tp::chunk_and_image_digest>(victim, every, tp::outcome::completed);
      expect_mended<tp::chunk_digest>(victim, every, tp::outcome::completed_unverified);
    }
}

TEST(HostileOwner, A_chunk_digest_that_is_missing_or_wrong) {
  EXPECT_EQ(caught<tp::chunk_digest>(lie_about_chunks([](tp::frame& m) { m.digest = 0; })).code,
            errc::chunk_digest_mismatch);
  EXPECT_EQ(caught<tp::chunk_and_image_digest>(lie_about_chunks([](tp::frame& m) { m.digest ^= 1; })).code,
            errc::chunk_digest_mismatch);
}

TEST(HostileOwner, Descriptions_that_lie_about_sizes_move_no_data) {
  EXPECT_EQ(caught_in(kind::description, [](tp::frame& m) { m.image_bytes = ~0ull; }), errc::schema_mismatch);
  EXPECT_EQ(caught_in(kind::description, [](tp::frame& m) { m.image_bytes += 1; }), errc::schema_mismatch);
  EXPECT_EQ(caught_in(kind::description, [](tp::frame& m) { m.image_bytes -= 1; }), errc::schema_mismatch);
  EXPECT_EQ(caught_in(kind::description, [](tp::frame& m) { m.image_bytes = m.data_start; }), errc::schema_mismatch);
  EXPECT_EQ(caught_in(kind::description, [](tp::frame& m) { m.image_bytes = 0; }), errc::bad_frame);
  EXPECT_EQ(caught_in(kind::description, [](tp::frame& m) { m.data_start = m.image_bytes + 1; }), errc::bad_frame);
  EXPECT_EQ(caught_in(kind::description, [](tp::frame& m) { m.data_start = ~0ull; }), errc::bad_frame);
  EXPECT_EQ(caught_in(kind::description, [](tp::frame& m) { m.data_start = 7; }), errc::bad_frame);
  EXPECT_EQ(caught_in(kind::description, [](tp::frame& m) { m.data_start += 8; }), errc::schema_mismatch);
  EXPECT_EQ(caught_in(kind::description, [](tp::frame& m) { m.length = 0; }), errc::bad_frame);
  EXPECT_EQ(caught_in(kind::description, [](tp::frame& m) { m.version = 0; }), errc::bad_frame);
  EXPECT_EQ(caught_in(kind::description, [](tp::frame& m) { m.tensors = 1'000'000'000; }), errc::too_large) << "L5";
}

TEST(HostileOwner, A_description_whose_header_is_longer_than_ours_is_taken_only_with_all_its_bytes) {
  // the same data behind a header of 8 bytes more: everything is asked for at moved offsets, so the owner's own bytes
  // give it away
  const errc e = caught(lie_about(kind::description, [](tp::frame& m) { m.data_start += 8, m.image_bytes += 8; })).code;
  EXPECT_TRUE(e == errc::wrong_payload || e == errc::digest_mismatch) << to_string(e);
}

TEST(HostileOwner, An_image_that_is_described_again_has_the_sizes_that_it_had) {
  for (const auto& [header, image] : {std::pair{96u, 1'000u}, std::pair{96u, 1'008u}, std::pair{104u, 1'000u}}) {
    tp::recipient<tp::fixed_bytes<64>> r({.ref = {1, 2}}, {}, 1);
    const auto described = [&](std::uint64_t data_start, std::uint64_t image_bytes) {
      tp::frame m;
      EXPECT_TRUE(r.next(m));
      tp::frame d{.kind = kind::description, .id = m.id, .ref = m.ref, .version = 5, .nonce = 6};
      d.data_start = data_start, d.image_bytes = image_bytes, d.tensors = 1, d.length = 64, d.window = 8;
      return code_of(r.on(d));
    };
    ASSERT_EQ(described(96, 1'000), errc{});
    r.restart(128);
    EXPECT_EQ(described(header, image), header == 96 && image == 1'000 ? errc{} : errc::bad_frame);
  }
}

TEST(HostileOwner, A_fingerprint_that_lies_leads_to_a_comparison_that_finds_nothing) {
  EXPECT_EQ(caught_in(kind::description, [](tp::frame& m) { m.fingerprint ^= 1; }), errc::schema_mismatch);
}

TEST(HostileOwner, A_cap_of_one_byte_is_slow_and_right) {
  owning_pair p;
  p.owner_lies = lie_about(kind::description, [](tp::frame& m) { m.length = 1, m.window = 0; });
  receiving<tp::per_tensor<4096>> x;
  ASSERT_TRUE(p.pull(x.t));
  EXPECT_TRUE(x.mine.same_tensors(p.source));
}

TEST(HostileOwner, Answers_that_nobody_asked_for) {
  for (const kind k : {kind::end, kind::confirmed, kind::schema_page, kind::located, kind::description}) {
    tp::frame extra;
    extra.kind = k;
    extra.ref = {1, 2};
    extra.id = 1;
    extra.length = 8, extra.data_start = 8, extra.image_bytes = 8, extra.version = 1;
    int sent = 0;
    const tp::error e = caught([&](byte_vector& f) {
      if (kind_of(f) != kind::chunk || sent++ > 0) return;
      const frame more = encode(extra);
      f.insert(f.begin(), more.bytes().begin(), more.bytes().end());
    });
    EXPECT_TRUE(e.code == errc::unexpected_frame || e.code == errc::wrong_payload)
        << static_cast<int>(k) << ' ' << to_string(e.code);
  }
}

TEST(HostileOwner, R14_a_recipient_that_is_sent_requests_answers_them_as_an_owner) {
  owning_pair p;
  p.owner_lies = [](byte_vector& f) {
    if (kind_of(f) != kind::chunk) return;
    tp::frame q;
    q.kind = kind::describe;
    q.ref = {1, 2};
    const frame more = encode(q);
    f.insert(f.end(), more.bytes().begin(), more.bytes().end());
  };
  receiving<> x;
  // its refusals reach an end that asked for nothing: that end closes
  const auto done = p.pull(x.t);
  EXPECT_FALSE(done);
  ASSERT_TRUE(p.left_error);
  EXPECT_EQ(p.left_error->code, errc::unexpected_frame);
  EXPECT_TRUE(x.mine.guards_intact());
}

TEST(HostileOwner, A_confirmation_of_another_serve_version_or_request_confirms_nothing) {
  for (const auto& lie : {lie_about(kind::confirmed, [](tp::frame& m) { m.nonce += 1; }),
                          lie_about(kind::confirmed, [](tp::frame& m) { m.version += 1; }),
                          lie_about(kind::confirmed, [](tp::frame& m) { m.id += 1; })}) {
    owning_pair p;
    p.owner_lies = lie;
    receiving<> x;
    const auto done = p.pull(x.t);
    ASSERT_TRUE(succeeded(done));
    EXPECT_FALSE(done->confirmed);
    EXPECT_EQ(done->unconfirmed_because, errc::unexpected_frame);
    EXPECT_TRUE(x.mine.same_tensors(p.source));
  }
}

TEST(HostileOwner, Bytes_that_were_checked_stay_so_if_the_owner_refuses_to_confirm) {
  for (const auto& [s, code] : {std::pair{tp::status::digest_mismatch, errc::digest_mismatch},
                                {tp::status::withdrawn, errc::withdrawn},
                                {tp::status::already_final, errc::already_final},
                                {tp::status::bad_request, errc::bad_request},
                                {static_cast<tp::status>(99), errc::unsupported_request}}) {
    owning_pair p;
    p.owner_lies = lie_about(kind::confirmed, [s = s](tp::frame& m) { m.status = s; });
    receiving<> x;
    const auto done = p.pull(x.t);
    ASSERT_TRUE(completed(done));
    EXPECT_FALSE(done->confirmed);
    EXPECT_EQ(done->unconfirmed_because, code);
    EXPECT_FALSE(x.t.farewell()) << "it does not cancel what it holds";
    EXPECT_TRUE(x.mine.same_tensors(p.source));
  }
}

TEST(HostileOwner, No_flag_of_the_owner_waives_a_requirement_of_the_recipient) {
  for (const std::uint64_t known : {std::uint64_t{0}, version_of(mixed_model().fill(1))}) {
    owning_pair p;
    bool damaged = false;
    p.owner_lies = [&](byte_vector& f) {
      lie_about(kind::description, [](tp::frame& m) { m.flag = false; })(f);
      if (kind_of(f) == kind::chunk && !std::exchange(damaged, true)) f[80 + 700] ^= std::byte{1};
    };
    const auto pull = [&](bool unverified, model& mine) {
      return pull_into(p, mine, {.ref = {1, 2}, .version = known, .unverified = unverified});
    };
    model refused = mixed_model(), taken = mixed_model();
    const auto done = pull(false, refused);
    EXPECT_EQ(code_of(done), errc::not_verifiable);
    EXPECT_TRUE(refused.untouched());
    const auto anyway = pull(true, taken);
    ASSERT_TRUE(succeeded(anyway));
    EXPECT_EQ(anyway->outcome, tp::outcome::completed_unverified);
    EXPECT_TRUE(taken.same_tensors(p.source));
  }
}
TEST(HostileOwner, To_accept_what_has_no_digest_does_not_waive_one_that_is_there) {
  owning_pair p;
  p.owner_lies = [](byte_vector& f) {
    if (kind_of(f) == kind::chunk) f[80 + 5] ^= std::byte{1};
  };
  receiving<> x({.ref = {1, 2}, .unverified = true});
  EXPECT_EQ(code_of(p.pull(x.t)), errc::digest_mismatch);
}
TEST(HostileOwner, A_subset_has_a_digest_of_its_own_whatever_the_flag_says) {
  for (const bool damage : {false, true}) {
    owning_pair p;
    p.owner_lies = [&](byte_vector& f) {
      lie_about(kind::description, [](tp::frame& m) { m.flag = false; })(f);
      if (damage && kind_of(f) == kind::chunk) f[80] ^= std::byte{1};
    };
    model mine;
    const auto& t0 = p.source.schema().tensors[3];
    ASSERT_GT(t0.size_bytes(), 0u);
    mine.add(std::string(t0.name), t0.type, {t0.extents().begin(), t0.extents().end()}).ready();
    const std::string_view names[] = {t0.name};
    const auto done = pull_into(p, mine, {.ref = {1, 2}, .subset = names});
    if (damage) {
      EXPECT_EQ(code_of(done), errc::digest_mismatch);
    } else {
      ASSERT_TRUE(completed(done));
    }
  }
}

TEST(HostileOwner, Only_answers_that_were_asked_for_are_progress) {
  const model source = mixed_model().fill(1);
  for (const kind k : {kind::description, kind::located, kind::schema_page, kind::confirmed, kind::refused})
    for (const std::uint32_t id : {4u, 0x9000'0000u, 1000u}) {
      // before the transfer's first, by far and with wrap-around; never used
      receiving<> x({{1, 2}}, 5);
      tp::frame asked;
      ASSERT_TRUE(x.t.next(asked));
      tp::frame foreign;
      foreign.kind = k;
      foreign.ref = {1, 2};
      foreign.id = id;
      foreign.status = tp::status::busy;
      foreign.length = 8, foreign.data_start = 8, foreign.image_bytes = 8, foreign.version = 1;
      for (int i = 0; i < 100; ++i) x.t.on(foreign);
      EXPECT_EQ(x.t.answers(), 0u) << "kind " << static_cast<int>(k) << ", id " << id;
      if (id == 1000) {
        ASSERT_TRUE(x.t.ended()) << "an id that was never used";
        EXPECT_EQ(code_of(x.t.outcome()), errc::unexpected_frame);
      } else {
        EXPECT_FALSE(x.t.ended()) << "it may answer an earlier transfer of the connection";
        EXPECT_EQ(x.t.pause().count(), 0);
      }
    }
}
TEST(HostileOwner, A_repeated_answer_is_no_progress) {
  owning_pair p;
  receiving<> x;
  std::uint32_t most = 0;
  p.owner_lies = [&](byte_vector& f) {
    if (kind_of(f) != kind::chunk) return;
    most = std::max(most, x.t.answers());
    const byte_vector once = f;
    for (int i = 0; i < 3; ++i) f.insert(f.end(), once.begin(), once.end());
  };
  ASSERT_TRUE(p.pull(x.t));
  EXPECT_EQ(most, 1u) << "the description";
  EXPECT_EQ(x.t.answers(), 2u) << "and the confirmation";
}
TEST(HostileOwner, Ids_wrap_in_the_middle_of_a_transfer) {
  for (std::uint32_t before = 0; before < 10; ++before) {
    owning_pair p;
    p.owner_lies = [last = byte_vector()](byte_vector& f) mutable {
      // and late duplicates come around it
      if (kind_of(f) != kind::chunk) return;
      const byte_vector now = f;
      f.insert(f.begin(), last.begin(), last.end());
      last = now;
    };
    receiving<> x({{1, 2}}, 0u - before);
    const auto done = p.pull(x.t);
    ASSERT_TRUE(done) << before << " ids before the wrap: " << to_string(done.error().code);
    EXPECT_TRUE(x.mine.same_tensors(p.source));
  }
}

TEST(HostileOwner, Every_status_of_a_refusal_is_an_error_of_its_own) {
  // the first: a refusal that says ok is still a refusal
  const std::pair<tp::status, errc> all[] = {{tp::status::ok, errc::bad_request},
                                             {tp::status::unknown_reference, errc::unknown_reference},
                                             {tp::status::withdrawn, errc::withdrawn},
                                             {tp::status::ended, errc::ended},
                                             {tp::status::stale, errc::stale_version},
                                             {tp::status::out_of_range, errc::out_of_range},
                                             {tp::status::busy, errc::busy},
                                             {tp::status::bad_request, errc::bad_request},
                                             {tp::status::unsupported, errc::unsupported_request},
                                             {tp::status::digest_mismatch, errc::digest_mismatch},
                                             {tp::status::cancelled, errc::cancelled_by_peer},
                                             {tp::status::already_final, errc::already_final},
                                             {tp::status::unreadable, errc::unreadable},
                                             {tp::status::owner_lost, errc::owner_lost},
                                             {static_cast<tp::status>(14), errc::unsupported_request},
                                             {static_cast<tp::status>(65535), errc::unsupported_request},
                                             {tp::status::schema_mismatch, errc::schema_mismatch}};
  for (const auto& [s, code] : all)
    for (const std::uint64_t victim : {0u, 1u, 4u}) {
      // instead of the description, of the first chunk, and of a later one
      std::uint64_t n = 0;
      const tp::error e = caught([&, s = s](byte_vector& f) {
        if (n++ != victim) return;
        tp::frame m;
        m.kind = kind::refused;
        m.id = static_cast<std::uint32_t>(tp::load_le64(f.data() + 16));
        m.ref = {1, 2};
        m.status = s;
        m.delay_ms = 0xffffffff;
        const frame r = encode(m);
        f.assign(r.bytes().begin(), r.bytes().end());
      });
      EXPECT_EQ(e.code, code) << "status " << static_cast<int>(s) << " instead of frame " << victim;
      EXPECT_EQ(e.at, victim == 4 ? 3u * page : 0u);
    }
}

}  // namespace hostile_owner_test
