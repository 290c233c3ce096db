// The firmware whose model lands in its memory. After a power cut it begins at byte 0.
#include "device.hpp"

namespace microcontroller {

/// The update of the round before is published from the same memory. The next model begins to come when it is not
/// wanted any more.
template <class Session>
class in_memory {
 public:
  class landing_type : public net::consumer {
   public:
    landing_type(mlp& model, Session& session) noexcept : net::consumer(model), session_(session) {}
    tensorpull::result<void> write(std::uint32_t at, std::span<const std::byte> bytes) noexcept {
      if (at == 0) session_.withdraw();
      return net::consumer::write(at, bytes);
    }

   private:
    Session& session_;
  };

  in_memory(mlp& model, Session& session) noexcept : landing_(model, session) {}
  bool open() noexcept { return true; }
  landing_type& landing() noexcept { return landing_; }
  bool finish() noexcept { return true; }
  std::uint32_t round() noexcept { return 0; }

 private:
  landing_type landing_;
};

static device<in_memory> the_device;

}  // namespace microcontroller

int run() { return microcontroller::the_device.run(); }
