// A third party pulls what a locator names.
#include "support/clocks.hpp"
#include "support/own_folder.hpp"
#include "transports/network.hpp"

#include <tensorpull/messages/download.hpp>
#include <tensorpull/transports/over/pipe/pipe.hpp>
#include <tensorpull/transports/over/udp/udp.hpp>
#include <tensorpull/transports/over/unix_socket/unix_socket.hpp>

namespace download_test {

using namespace test;
using net = raw_net<mlp, tp::tcp>;

class Download : public testing::Test {
 protected:
  Download() {
    owner.emplace(std::move(*net::downloader::open()));
    other.emplace(std::move(*net::downloader::open()));
    ref = *owner->add_tensors(*model);
    first.emplace(*owner), second.emplace(*other);
  }
  tp::locator at(std::initializer_list<std::uint16_t> ports) {
    tp::locator l(ref);
    for (const auto p : ports) EXPECT_TRUE(l.add(local(p)));
    return l;
  }
  const own_port nobody;
  std::unique_ptr<mlp> model = random_model<mlp>(1), mine = blank<mlp>();
  std::optional<net::downloader> owner, other;
  tp::reference ref;
  std::optional<serving> first, second;
};

TEST_F(Download, The_first_address_that_has_it_serves) {
  const fast_clock fast(20);
  const auto done = tp::download_tensors<net>(at({nobody, other->port(), owner->port(), nobody}), *mine);
  ASSERT_TRUE(completed(done));
  EXPECT_EQ(done->version, ref.version);
  EXPECT_TRUE(same(*mine, *model));
}

TEST_F(Download, Without_success_the_last_error_is_the_outcome) {
  const fast_clock fast(20);
  EXPECT_EQ(code_of(tp::download_tensors<net>(at({nobody, other->port()}), *mine)), errc::unknown_reference);
  EXPECT_EQ(code_of(tp::download_tensors<net>(at({other->port(), nobody}), *mine)), errc::connection_failed);
  EXPECT_EQ(code_of(tp::download_tensors<net>(at({}), *mine)), errc::bad_address);
  EXPECT_EQ(code_of(tp::download_tensors<net>(tp::locator(), *mine)), errc::bad_address);
}

TEST_F(Download, A_consumer_that_begins_once_keeps_the_failure_that_ended_it) {
  const auto wrong = random_model<mlp>(2);
  ASSERT_TRUE(other->add_tensors(*wrong, {.id = ref.id, .version = ref.version}));
  struct once : tp::land {
    using tp::land::land;
    tp::result<void> begin(const tp::description& d) noexcept {
      if (begun++ > 0) return tp::failure(errc::invalid_argument);
      return tp::land::begin(d);
    }
    int begun = 0;
  } to(tp::raw_tensors<mlp>::destination(*mine));
  EXPECT_EQ(code_of(tp::pull<net>(at({other->port(), owner->port()}), to)), errc::digest_mismatch);
  EXPECT_EQ(to.begun, 2);
}

TEST_F(Download, Addresses_of_other_links_are_passed_over) {
  tp::locator l(ref);
  const auto port = local(owner->port());
  EXPECT_TRUE(l.add("unix:/nobody/is/here") && l.add("tls://" + port) && l.add("tcp://" + port));
  const auto done = tp::download_tensors<net>(l, *mine);
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*mine, *model));
  tp::locator none(ref);
  EXPECT_TRUE(none.add("unix:/nobody/is/here") && none.add("http://h/m"));
  EXPECT_EQ(code_of(tp::download_tensors<net>(none, *mine)), errc::bad_address);
}

TEST_F(Download, An_address_is_what_its_transport_takes) {
  using unix_net = raw_net<mlp, tp::unix_socket>;
  const std::string at = abstract_name();
  auto near = unix_net::downloader::open({.listen = at});
  ASSERT_TRUE(near);
  tp::locator l(*near->add_tensors(*model));
  EXPECT_TRUE(l.add("tcp://" + local(nobody)) && l.add("unix:" + at));
  serving run(*near);
  const auto done = tp::download_tensors<unix_net>(l, *mine);
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*mine, *model));

  using far_net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<1024>, tp::udp>;
  auto far = far_net::downloader::open();
  ASSERT_TRUE(far);
  const auto there = *far->add_tensors(*model);
  serving run_far(*far);
  for (const char* const name : {"udp://", ""}) {
    tp::locator to(there);
    EXPECT_TRUE(to.add(name + local(far->port())));
    *mine = *blank<mlp>();
    EXPECT_TRUE(tp::download_tensors<far_net>(to, *mine)) << name;
    EXPECT_TRUE(same(*mine, *model));
  }
}

TEST_F(Download, No_command_is_run_for_a_locator) {
  using command_net = raw_net<mlp, tp::child_process>;
  const auto done = tp::download_tensors<command_net>(at({1}), *mine, {.retry = {.retries = 0}});
  EXPECT_EQ(code_of(done), errc::bad_address);
  EXPECT_TRUE(done.error().name.empty()) << "a program named so would be missing: " << done.error().name.view();
}

TEST_F(Download, The_caller_makes_anything_that_a_transport_takes_besides_an_address) {
  std::vector<std::string> asked;
  const auto where = [&](std::string_view a) {
    asked.emplace_back(a);
    return a;
  };
  tp::locator l(ref);
  EXPECT_TRUE(l.add("tcp://" + local(nobody)) && l.add(local(owner->port())));
  ASSERT_TRUE(tp::download_tensors<net>(l, where, *mine));
  EXPECT_EQ(asked, (std::vector<std::string>{local(nobody), local(owner->port())}));
  EXPECT_TRUE(same(*mine, *model));
}

TEST_F(Download, Another_version_is_not_taken) {
  tp::locator l = at({owner->port()});
  l.reference.version ^= 1;
  EXPECT_EQ(code_of(tp::download_tensors<net>(l, *mine)), errc::stale_version);
  EXPECT_TRUE(same(*mine, *blank<mlp>()));
}

TEST_F(Download, A_model_that_does_not_fit_ends_the_search) {
  using other_net = raw_net<tiny, tp::tcp>;
  const auto wrong = blank<tiny>();
  EXPECT_EQ(code_of(tp::download_tensors<other_net>(at({owner->port(), nobody}), *wrong)), errc::schema_mismatch)
      << "the next address would say connection_failed";
}

}  // namespace download_test
