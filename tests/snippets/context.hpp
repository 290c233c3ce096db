// What the programs around the READMEs' snippets share: the model, a pipeline over TCP, an owner that serves on a
// thread of its own.
#pragma once

#include <tensorpull/tensorpull.hpp>
#include <tensorpull/transports/host/owner.hpp>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

struct Mlp {
  float w1[128][784], b1[128], w2[10][128], b2[10];
};
BOOST_HANA_ADAPT_STRUCT(Mlp, w1, b1, w2, b2);

using namespace tensorpull;

using over_tcp = pipeline<raw_tensors<Mlp>, fixed_bytes<64_KiB>, tcp>;

/// Ends the program with a failure, with the line that failed.
#define must(condition)       \
  ((condition)                \
       ? static_cast<void>(0) \
       : (std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), std::fflush(stderr), std::_Exit(1)))

inline void complain(const error& e) { std::fprintf(stderr, "%s\n", to_string(e.code).data()); }

/// An owner of `Net`, which serves until it is destroyed.
template <class Net>
class serving_owner {
 public:
  serving_owner() : owner_(Net::downloader::open({.listen = "127.0.0.1:0"})) {
    must(owner_.has_value());
    thread_ = std::jthread([this](std::stop_token stop) { owner_->run([](const auto&) { return false; }, stop); });
  }
  auto& owner() { return *owner_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(owner_->port()); }

 private:
  result<typename Net::downloader> owner_;
  std::jthread thread_;
};
