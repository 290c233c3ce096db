// Cap'n Proto RPC without tricks: a call that returns a range as Data, a window of calls in flight. The server copies
// the bytes into the answer's message, the client out of it.
#include "../job/job.hpp"

#include "tensors.capnp.h"

#include <capnp/ez-rpc.h>

#include <deque>
#include <thread>

class model_server final : public Model::Server {
 public:
  explicit model_server(std::span<const std::byte> from) : from_(from) {}
  kj::Promise<void> read(ReadContext context) override {
    const auto wanted = context.getParams();
    const auto range = from_.subspan(wanted.getOffset(), wanted.getLength());
    context.getResults(capnp::MessageSize{range.size() / 8 + 16, 0})
        .setData({reinterpret_cast<const kj::byte*>(range.data()), range.size()});
    return kj::READY_NOW;
  }

 private:
  std::span<const std::byte> from_;
};

constexpr capnp::ReaderOptions no_limit{.traversalLimitInWords = 1ull << 40};

class sender {
 public:
  sender(const bench::job&, const bench::model& m) {
    std::thread([this, &m] {
      capnp::EzRpcServer server(kj::heap<model_server>(m.block()), "127.0.0.1", 0, no_limit);
      port_ = server.getPort().wait(server.getWaitScope());
      port_.notify_one();
      kj::NEVER_DONE.wait(server.getWaitScope());
    }).detach();
    port_.wait(0);
  }
  std::string address() const { return bench::loopback_address(static_cast<std::uint16_t>(port_.load())); }

 private:
  std::atomic<unsigned> port_{0};
};

class receiver {
 public:
  receiver(const bench::job& j) : job_(j) {}
  bench::clock::time_point pull(bench::model& m) {
    if (!client_)
      client_ = std::make_unique<capnp::EzRpcClient>(job_.address, 0, no_limit);  // belongs to the thread that uses it
    auto model = client_->getMain<Model>();
    bench::clock::time_point first{};
    const auto to = m.block();
    std::deque<capnp::RemotePromise<Model::ReadResults>> asked;
    for (std::size_t next = 0, got = 0; got < to.size();) {
      for (; next < to.size() && asked.size() < job_.window; next += job_.chunk) {
        auto request = model.readRequest();
        request.setOffset(next);
        request.setLength(std::min(job_.chunk, to.size() - next));
        asked.push_back(request.send());
      }
      const auto answer = asked.front().wait(client_->getWaitScope());
      asked.pop_front();
      const auto data = answer.getData();
      std::memcpy(to.data() + got, data.begin(), data.size());
      got += data.size();
      if (first == bench::clock::time_point{} && got >= m.first_tensor_ends_at()) first = bench::clock::now();
    }
    return first;
  }

 private:
  const bench::job& job_;
  std::unique_ptr<capnp::EzRpcClient> client_;
};

int main(int count, char** arguments) { return bench::run_job<sender, receiver>(count, arguments); }
