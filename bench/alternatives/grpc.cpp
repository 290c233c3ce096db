// gRPC, synchronous C++ API: one server-streaming call for each pull, a protobuf message for each chunk.
#include "../job/job.hpp"

#include <grpcpp/grpcpp.h>

#include "tensors.grpc.pb.h"

class sender final : bench::Model::Service {
 public:
  sender(const bench::job&, const bench::model& m) : from_(m) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  std::string address() const { return address_; }

 private:
  grpc::Status Pull(grpc::ServerContext*, const bench::PullRequest* request,
                    grpc::ServerWriter<bench::Chunk>* out) override {
    bench::Chunk chunk;
    for (std::size_t i = 0; i < from_.count(); ++i) {
      const auto tensor = from_.tensor(i);
      for (std::size_t at = 0; at < tensor.size(); at += request->chunk_bytes()) {
        chunk.set_tensor(static_cast<std::uint32_t>(i));
        chunk.set_offset(at);
        chunk.set_data(tensor.data() + at, std::min<std::size_t>(request->chunk_bytes(), tensor.size() - at));
        if (!out->Write(chunk)) return grpc::Status::CANCELLED;
      }
    }
    return grpc::Status::OK;
  }

  const bench::model& from_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

class receiver {
 public:
  receiver(const bench::job& j) : job_(j) {
    grpc::ChannelArguments options;
    options.SetMaxReceiveMessageSize(-1);
    options.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection for each recipient
    stub_ = bench::Model::NewStub(grpc::CreateCustomChannel(j.address, grpc::InsecureChannelCredentials(), options));
  }
  bench::clock::time_point pull(bench::model& m) {
    bench::clock::time_point first{};
    grpc::ClientContext context;
    context.set_wait_for_ready(true);  // a first connection that fails is made again
    bench::PullRequest request;
    request.set_chunk_bytes(job_.chunk);
    const auto in = stub_->Pull(&context, request);
    for (bench::Chunk chunk; in->Read(&chunk);) {
      const auto to = m.tensor(chunk.tensor());
      std::memcpy(to.data() + chunk.offset(), chunk.data().data(), chunk.data().size());
      if (chunk.tensor() == 0 && chunk.offset() + chunk.data().size() == to.size()) first = bench::clock::now();
    }
    if (const auto how = in->Finish(); !how.ok()) bench::give_up(how.error_message().c_str());
    return first;
  }

 private:
  const bench::job& job_;
  std::unique_ptr<bench::Model::Stub> stub_;
};

int main(int count, char** arguments) { return bench::run_job<sender, receiver>(count, arguments); }
