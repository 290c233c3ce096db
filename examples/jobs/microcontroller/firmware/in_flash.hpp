// A model that lands in flash, which here is a file of the emulator's host. After a power cut it goes on where its
// cursor says.
#pragma once

#include "device.hpp"

#include "../file_flash.hpp"

namespace microcontroller {

using flash_place = net::in_flash<file_flash>;

/// For training, the model is copied to memory that held the update of the round before until then.
template <class Session>
class in_flash {
 public:
  /// An update in 8 bits is a difference to what lies in flash. The next model begins to come when it is not wanted any
  /// more.
  class landing_type : public flash_place {
   public:
    landing_type(file_flash& flash, Session& session) noexcept : flash_place(flash), session_(session) {}
    tensorpull::result<void> save(const tensorpull::resume_cursor& c) noexcept {
      session_.withdraw();
      return flash_place::save(c);
    }

   private:
    Session& session_;
  };

  in_flash(mlp& model, Session& session) noexcept : model_(model), landing_(flash_, session) {}
  /// The file is named on the command line. `more`: pages behind the model's.
  bool open(std::uint32_t more = 0) noexcept { return flash_.open(board::argument(1), landing_type::pages + more); }
  landing_type& landing() noexcept { return landing_; }
  bool finish() noexcept {
    std::byte some[64];
    for (std::uint32_t at = 0; at < landing_type::data_bytes;) {
      const std::uint32_t left = landing_type::data_bytes - at,
                          n = left < sizeof some ? left : static_cast<std::uint32_t>(sizeof some);
      if (!landing_.read(at, std::span(some, n)) || !net::image::write(model_, at, std::span(some, n))) return false;
      at += n;
    }
    return true;
  }
  std::uint32_t round() noexcept {
    const auto ref = landing_.cursor().ref;
    return ref.high == model_of(1).high ? static_cast<std::uint32_t>(ref.low) : 0;
  }

 protected:
  file_flash& flash() noexcept { return flash_; }

 private:
  mlp& model_;
  file_flash flash_;
  landing_type landing_;
};

}  // namespace microcontroller
