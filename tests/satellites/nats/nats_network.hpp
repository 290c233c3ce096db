// Owners and recipients over NATS, for the tests of its transport.
#pragma once

#include "nats_fixture.hpp"
#include "transports/sample_models.hpp"

#include <tensorpull/satellites/nats/nats.hpp>

namespace test {

template <class Model>
using nats_net = tp::pipeline<tp::raw_tensors<Model>, tp::fixed_bytes<64_KiB>, tp::nats>;

/// An owner of `Model` at a server; a replica if it says so.
template <class Model>
typename nats_net<Model>::downloader nats_owner_at(const nats_process& server,
                                                   tp::nats_part part = tp::nats_part::coordinator,
                                                   tp::nats_patience patience = {}) {
  const std::string url = server.url();
  auto owner = nats_net<Model>::downloader::open(
      {.server = {.url = url, .timeout = std::chrono::minutes(1)}, .part = part, .patience = patience});
  EXPECT_TRUE(owner) << tp::to_string(owner.error().code);
  return std::move(*owner);
}

}  // namespace test
