// The firmware whose model lands in its memory. After a power cut it begins at byte 0.
#include "device.hpp"

namespace microcontroller {

/// The update of the round before is published from the same memory. The next model begins to come when it is not
/// wanted any more.
template <class Owner>
class in_memory {
 public:
  class landing_type : public tensorpull::model_landing<mlp> {
   public:
    landing_type(mlp& model, Owner& owner) noexcept : tensorpull::model_landing<mlp>(model), owner_(owner) {}
    tensorpull::result<void> write(std::uint32_t at, std::span<const std::byte> bytes) noexcept {
      if (at == 0) owner_.withdraw();
      return tensorpull::model_landing<mlp>::write(at, bytes);
    }

   private:
    Owner& owner_;
  };

  in_memory(mlp& model, Owner& owner) noexcept : landing_(model, owner) {}
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
