// A recipient that has nothing of tensorpull but its schema: Cap'n Proto's library, a socket and XXH3.
// usage: foreign_recipient HOST PORT REFERENCE FILE: pulls what REFERENCE names, which is a safetensors file
#include "frames.hpp"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>

namespace {

using namespace foreign;
using wire::Frame;

constexpr std::uint32_t most_payload = 2 << 20;

void require(bool holds, const char* otherwise) {
  if (!holds) throw std::runtime_error(otherwise);
}

class recipient {
 public:
  recipient(kj::AutoCloseFd socket, const reference& wanted)
      : owner_(kj::mv(socket), most_payload + 4096), wanted_(wanted) {}

  /// Writes the file, and throws unless it has the published bytes.
  void pull_to(const std::string& path) {
    auto described = ask([&](Frame::Builder frame) {
      auto describe = about(frame.initDescribe());
      describe.setRecipient(number_);
    });
    require(described->getRoot<Frame>().isDescription(), "an answer of another kind");
    const auto what = described->getRoot<Frame>().getDescription();
    require(wanted_.version == 0 || what.getVersion() == wanted_.version, "another version is published");
    require(what.getVerifiable(), "the owner has no digest");

    std::ofstream file(path + ".part", std::ios::binary);
    const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(), &XXH3_freeState);
    XXH3_64bits_reset(hash.get());
    for (std::uint64_t at = 0; at < what.getImageBytes();) {
      const auto length = std::min<std::uint64_t>({most_payload, what.getChunkCap(), what.getImageBytes() - at});
      auto answer = ask([&](Frame::Builder frame) {
        auto pull = about(frame.initPull());
        pull.setVersion(what.getVersion());
        pull.setOffset(at);
        pull.setLength(static_cast<std::uint32_t>(length));
      });
      require(answer->getRoot<Frame>().isChunk(), "an answer of another kind");
      const auto chunk = answer->getRoot<Frame>().getChunk();
      const auto payload = chunk.getPayload();
      require(chunk.getVersion() == what.getVersion() && chunk.getNonce() == what.getNonce() &&
                  chunk.getOffset() == at && payload.size() == length && length > 0,
              "not the bytes that were asked for");
      XXH3_64bits_update(hash.get(), payload.begin(), payload.size());
      file.write(reinterpret_cast<const char*>(payload.begin()), static_cast<std::streamsize>(payload.size()));
      at += length;
    }
    const std::uint64_t digest = XXH3_64bits_digest(hash.get());
    file.close();
    if (digest != what.getVersion() || !file) {
      give_up(what, digest != what.getVersion() ? wire::Status::DIGEST_MISMATCH : wire::Status::OK);
      throw std::runtime_error("the bytes are damaged, or could not be written");
    }
    std::filesystem::rename(path + ".part", path);  // the owner hears of it when the file is there

    auto answer = ask([&](Frame::Builder frame) {
      auto confirm = about(frame.initConfirm());
      confirm.setVersion(what.getVersion());
      confirm.setNonce(what.getNonce());
      confirm.setDigest(digest);
      confirm.setVerified(true);
      confirm.setRecipient(number_);
    });
    require(answer->getRoot<Frame>().isConfirmed() &&
                answer->getRoot<Frame>().getConfirmed().getStatus() == wire::Status::OK,
            "the owner does not confirm");
    std::printf("completed: %" PRIu64 " bytes, digest %016" PRIx64 "\n", what.getImageBytes(), digest);
  }

 private:
  template <class Group>
  Group about(Group group) const {
    group.setRefHigh(wanted_.high);
    group.setRefLow(wanted_.low);
    return group;
  }
  /// One request, and the answer to it. A busy owner is asked again after the time that it names.
  template <class Fill>
  kj::Own<capnp::MessageReader> ask(Fill fill) {
    for (;;) {
      capnp::MallocMessageBuilder message;
      auto frame = message.initRoot<Frame>();
      frame.setId(++id_);
      fill(frame);
      owner_.send(message);
      auto answer = owner_.receive();
      const auto got = answer->getRoot<Frame>();
      require(got.getId() == id_, "an answer to something else");
      if (!got.isRefused()) return answer;
      if (got.getRefused().getStatus() != wire::Status::BUSY)
        throw std::runtime_error(kj::str(got.getRefused()).cStr());
      ::usleep(std::min(got.getRefused().getDelayMs(), 1000u) * 1000);
    }
  }
  /// Not answered.
  void give_up(wire::Description::Reader what, wire::Status why) {
    capnp::MallocMessageBuilder message;
    auto cancel = about(message.initRoot<Frame>().initCancel());
    cancel.setVersion(what.getVersion());
    cancel.setNonce(what.getNonce());
    cancel.setRecipient(number_);
    cancel.setStatus(why);
    owner_.send(message);
  }

  connection owner_;
  reference wanted_;
  std::uint64_t number_ = std::uint64_t{std::random_device()()} << 32 | std::random_device()() | 1;
  std::uint32_t id_ = 0;
};

}  // namespace

int main(int argc, char** argv) try {
  require(argc == 5, "usage: foreign_recipient HOST PORT REFERENCE FILE");
  recipient(connect_to(argv[1], argv[2]), reference::parse(argv[3])).pull_to(argv[4]);
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
