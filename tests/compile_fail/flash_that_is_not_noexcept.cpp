// Flash whose calls may throw.
// EXPECT: tensorpull: a flash memory has page_bytes and program_bytes, a power of two that divides it
// WITHIN_LINES: 9
// MAX_ERRORS: 1
// MAX_LINES: 30
#include <tensorpull/embedded/flash_landing.hpp>
#include <tensorpull/embedded/recipient.hpp>

struct mlp {
  float w[3], b[4];
};
template <>
inline constexpr auto tensorpull::members_of<mlp> = tensorpull::members(tensorpull::member{"w", &mlp::w},
                                                                        tensorpull::member{"b", &mlp::b});
struct chip {
  static constexpr std::uint32_t page_bytes = 2048, program_bytes = 8;
  bool erase(std::uint32_t) { return true; }
  bool program(std::uint32_t, std::span<const std::byte>) { return true; }
  bool read(std::uint32_t, std::span<std::byte>) { return true; }
};

chip memory;
tensorpull::flash_landing<tensorpull::embedded_image<mlp>, chip> landing(memory);
