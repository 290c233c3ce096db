// ZeroMQ, as its guide sends files: a DEALER asks for chunks with credit for a window of them, a ROUTER answers. The
// sender's messages borrow the model's memory (zero copy); what is received is a message of the library's own, copied
// to its place.
#include "../job/job.hpp"

#include <zmq.hpp>

struct fetch {
  std::uint64_t offset, length;
};

class sender {
 public:
  sender(const bench::job& j, const bench::model& m)
      : context_(static_cast<int>(j.threads)), socket_(context_, zmq::socket_type::router), from_(m.block()) {
    socket_.set(zmq::sockopt::sndhwm, 0);
    socket_.bind("tcp://127.0.0.1:*");
    address_ = socket_.get(zmq::sockopt::last_endpoint);
    std::thread([this] { serve(); }).detach();
  }
  std::string address() const { return address_; }

 private:
  void serve() {
    for (;;) {
      zmq::message_t who, request;
      if (!socket_.recv(who) || !socket_.recv(request)) return;
      const auto f = *request.data<fetch>();
      socket_.send(who, zmq::send_flags::sndmore);
      socket_.send(zmq::message_t(const_cast<std::byte*>(from_.data()) + f.offset, f.length, [](void*, void*) {}),
                   zmq::send_flags::none);
    }
  }

  zmq::context_t context_;
  zmq::socket_t socket_;
  std::span<const std::byte> from_;
  std::string address_;
};

class receiver {
 public:
  receiver(const bench::job& j) : job_(j), socket_(context(), zmq::socket_type::dealer) {
    socket_.set(zmq::sockopt::rcvhwm, 0);
    socket_.connect(j.address);
  }
  bench::clock::time_point pull(bench::model& m) {
    bench::clock::time_point first{};
    const auto to = m.block();
    for (std::size_t asked = 0, got = 0; got < to.size();) {
      for (; asked < to.size() && asked < got + job_.window * job_.chunk; asked += job_.chunk) {
        const fetch f{asked, std::min(job_.chunk, to.size() - asked)};
        socket_.send(zmq::buffer(&f, sizeof f), zmq::send_flags::none);
      }
      zmq::message_t chunk;
      if (!socket_.recv(chunk)) bench::give_up("no answer");
      std::memcpy(to.data() + got, chunk.data(), chunk.size());
      got += chunk.size();
      if (first == bench::clock::time_point{} && got >= m.first_tensor_ends_at()) first = bench::clock::now();
    }
    return first;
  }

 private:
  static zmq::context_t& context() {
    static zmq::context_t one;
    return one;
  }
  const bench::job& job_;
  zmq::socket_t socket_;
};

int main(int count, char** arguments) { return bench::run_job<sender, receiver>(count, arguments); }
