// What the tests of shared_memory share: an owner under an abstract name of its own, which runs on a thread.
#pragma once

#include "support/own_folder.hpp"
#include "transports/network.hpp"

#include <tensorpull/satellites/shared_memory/shared_memory.hpp>

namespace test {


template <class Model = mlp>
using shared_net = raw_net<Model, tp::shared_memory>;

/// An owner that listens, and serves from serve() to stop().
template <class Net>
struct shared_owner {
  std::string address = abstract_name();
  typename Net::downloader owner = *Net::downloader::open({.listen = address});
  std::optional<serving> server;

  void serve() { server.emplace(owner); }
  void stop() { server.reset(); }
  template <class Model>
  tp::reference add(Model&& model, tp::publish_options options = {.recipients = 1}) {
    const auto ref = owner.add_tensors(std::forward<Model>(model), options);
    EXPECT_TRUE(ref);
    return ref ? *ref : tp::reference{};
  }
};

}  // namespace test
