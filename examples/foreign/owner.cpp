// An owner that has nothing of tensorpull but its schema: Cap'n Proto's library, sockets and XXH3.
// usage: foreign_owner FILE RECIPIENTS: serves a safetensors file until so many recipients have it. Prints first its
// port on 127.0.0.1 and the reference. Each connection has a thread.
#include "frames.hpp"
#include "safetensors_file.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <semaphore>
#include <set>
#include <thread>

namespace {

using namespace foreign;
using wire::Frame;
using wire::Status;

constexpr std::uint32_t chunk_cap = 1 << 20;
constexpr std::uint64_t longest_request = 4096;

/// The recipients that have confirmed.
class completed {
 public:
  void add(std::uint64_t who) {
    const std::lock_guard hold(lock_);
    who_.insert(who);
    changed_.notify_all();
  }
  void wait_for(std::size_t count) {
    std::unique_lock hold(lock_);
    changed_.wait(hold, [&] { return who_.size() >= count; });
  }

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  std::set<std::uint64_t> who_;
};

/// One connection. Nothing of a request is believed: each answer is made of what this owner has.
class serve {
 public:
  serve(kj::AutoCloseFd socket, const safetensors_file& of, completed& all)
      : peer_(kj::mv(socket), longest_request), of_(of), all_(all) {}

  void run() {
    while (peer_.goes_on()) {
      auto message = peer_.receive();
      answer(message->getRoot<Frame>());
    }
  }

 private:
  void answer(Frame::Reader asked) {
    switch (asked.which()) {
      case Frame::DESCRIBE: return describe(asked, asked.getDescribe());
      case Frame::PULL: return pull(asked, asked.getPull());
      case Frame::CONFIRM: return confirm(asked, asked.getConfirm());
      case Frame::SCHEMA: return decline(asked, asked.getSchema());
      case Frame::LOCATE: return decline(asked, asked.getLocate());
      case Frame::CANCEL: at_end_ = false; break;
      case Frame::APPLICATION: break;  // messages are for programs that expect some
      default:
        if (asked.which() <= Frame::TAKEN) throw std::runtime_error("an answer that nobody asked for");
        reply(asked, [&](Frame::Builder f) { f.initRefused().setStatus(Status::UNSUPPORTED); });
    }
  }

  void describe(Frame::Reader asked, Frame::Describe::Reader request) {
    if (!knows(asked, request)) return;
    reply(asked, [&](Frame::Builder frame) {
      auto d = about(frame.initDescription());
      d.setFingerprint(of_.fingerprint);
      d.setImageBytes(of_.image.size());
      d.setDataStart(of_.header_bytes);
      d.setNonce(nonce_);
      d.setChunkCap(chunk_cap);
      d.setTensors(of_.tensors);
      d.setWindow(8);
      d.setVerifiable(true);
    });
  }
  void pull(Frame::Reader asked, Frame::Pull::Reader p) {
    if (!knows(asked, p)) return;
    const std::uint64_t size = of_.image.size();
    if (p.getVersion() != 0 && p.getVersion() != of_.ref.version) return refuse(asked, p, Status::STALE);
    if (p.getFingerprint() != 0 && p.getFingerprint() != of_.fingerprint)
      return refuse(asked, p, Status::SCHEMA_MISMATCH);
    if (p.getOffset() > size) return refuse(asked, p, Status::OUT_OF_RANGE);
    if (p.getOffset() == size)
      return reply(asked, [&](Frame::Builder frame) {
        auto end = about(frame.initEnd());
        end.setImageBytes(size);
        end.setNonce(nonce_);
      });
    if (p.getLength() == 0) return refuse(asked, p, Status::BAD_REQUEST);
    if (p.getDigestKind() > 1) return refuse(asked, p, Status::UNSUPPORTED);
    const auto length = std::min<std::uint64_t>({p.getLength(), chunk_cap, size - p.getOffset()});
    const char* const bytes = of_.image.data() + p.getOffset();
    const auto fill = [&](Frame::Builder frame) {
      auto chunk = about(frame.initChunk());
      chunk.setOffset(p.getOffset());
      chunk.setNonce(nonce_);
      if (p.getDigestKind() == 1) chunk.setDigest(XXH3_64bits(bytes, length));
      std::memcpy(chunk.initPayload(static_cast<unsigned>(length)).begin(), bytes, length);
    };
    reply(asked, fill, length / 8 + 16);  // room for all in the first segment
    at_end_ = at_end_ || p.getOffset() + length == size;
  }
  void confirm(Frame::Reader asked, Frame::Confirm::Reader c) {
    if (!knows(asked, c)) return;
    if (c.getNonce() != nonce_ || !at_end_) return refuse(asked, c, Status::BAD_REQUEST);
    const bool wrong = c.getVerified() && c.getDigest() != of_.ref.version;
    reply(asked, [&](Frame::Builder frame) {
      auto confirmed = about(frame.initConfirmed());
      confirmed.setNonce(nonce_);
      confirmed.setStatus(wrong ? Status::DIGEST_MISMATCH : Status::OK);
    });
    if (!wrong) all_.add(c.getRecipient() != 0 ? c.getRecipient() : nonce_);
  }
  template <class Request>
  void decline(Frame::Reader asked, Request request) {
    if (knows(asked, request)) refuse(asked, request, Status::UNSUPPORTED);
  }

  template <class Request>
  bool knows(Frame::Reader asked, Request request) {
    if (request.getRefHigh() == of_.ref.high && request.getRefLow() == of_.ref.low) return true;
    refuse(asked, request, Status::UNKNOWN_REFERENCE);
    return false;
  }
  template <class Request>
  void refuse(Frame::Reader asked, Request request, Status why) {
    reply(asked, [&](Frame::Builder frame) {
      auto refused = frame.initRefused();
      refused.setRefHigh(request.getRefHigh());
      refused.setRefLow(request.getRefLow());
      refused.setVersion(why == Status::UNKNOWN_REFERENCE ? 0 : of_.ref.version);
      refused.setStatus(why);
    });
  }
  template <class Fill>
  void reply(Frame::Reader asked, Fill fill, std::size_t words = 64) {
    capnp::MallocMessageBuilder message(static_cast<unsigned>(words));
    auto frame = message.initRoot<Frame>();
    frame.setId(asked.getId());
    fill(frame);
    peer_.send(message);
  }
  template <class Group>
  Group about(Group group) const {
    group.setRefHigh(of_.ref.high);
    group.setRefLow(of_.ref.low);
    group.setVersion(of_.ref.version);
    return group;
  }

  connection peer_;
  const safetensors_file& of_;
  completed& all_;
  std::uint64_t nonce_ = random_number() | 1;
  bool at_end_ = false;  // the last byte was sent
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::runtime_error("usage: foreign_owner FILE RECIPIENTS");
  const safetensors_file file(argv[1]);
  std::uint16_t port = 0;
  const kj::AutoCloseFd listener = listen_anywhere(port);
  std::printf("%d %s\n", port, file.ref.digits().c_str());
  std::fflush(stdout);
  completed all;
  std::counting_semaphore<> room(64);
  std::thread([&] {
    for (;;) {
      room.acquire();
      std::thread([&, socket = ::accept(listener.get(), nullptr, nullptr)] {
        try {
          serve(kj::AutoCloseFd(socket), file, all).run();
        } catch (const std::exception& e) {  // a lost connection, or no frame
          std::fprintf(stderr, "%s\n", e.what());
        }
        room.release();
      }).detach();
    }
  }).detach();
  all.wait_for(static_cast<std::size_t>(std::atoi(argv[2])));
  std::_Exit(0);  // with the connections that are left
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
