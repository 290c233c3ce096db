// Models and landings of small machines.
// WITHIN_LINES: 9
// MAX_ERRORS: 3
// MAX_LINES: 30
#include <tensorpull/embedded/flash_landing.hpp>
#include <tensorpull/embedded/recipient.hpp>

using namespace tensorpull;

struct mlp {
  float w[3], b[4];
};

// CASE embedded_member_is_no_tensor
// EXPECT: tensorpull: a member of the model is neither a scalar, an array of scalars nor an adapted struct, or it is const
struct elsewhere {
  float* w;
};
template <>
inline constexpr auto tensorpull::members_of<elsewhere> = members(member{"w", &elsewhere::w});
constexpr auto n = embedded_image<elsewhere>::image_bytes;

// CASE embedded_name_twice
// EXPECT: tensorpull: two tensors of the model have the same name
// MAX_ERRORS: 2
template <>
inline constexpr auto tensorpull::members_of<mlp> = members(member{"w", &mlp::w}, member{"w", &mlp::b});
constexpr auto n = embedded_image<mlp>::image_bytes;

// CASE embedded_recipient_without_landing
// EXPECT: tensorpull: an embedded recipient lands in a landing, such as model_landing<Model>
mlp model;
embedded_recipient<mlp, 512> recipient(model, {.ref = {1, 2}}, 5);

// CASE embedded_without_members
// EXPECT: tensorpull: a model is a struct adapted with BOOST_HANA_ADAPT_STRUCT (at most 39 members: nest structs for more) or one that has members_of
constexpr auto n = embedded_image<mlp>::image_bytes;

// CASE flash_that_is_not_noexcept
// EXPECT: tensorpull: a flash memory has page_bytes and program_bytes, a power of two that divides it
// WITHIN_LINES: 9
// MAX_ERRORS: 1
template <>
inline constexpr auto tensorpull::members_of<mlp> = members(member{"w", &mlp::w}, member{"b", &mlp::b});
struct chip {
  static constexpr std::uint32_t page_bytes = 2048, program_bytes = 8;
  bool erase(std::uint32_t) { return true; }
  bool program(std::uint32_t, std::span<const std::byte>) { return true; }
  bool read(std::uint32_t, std::span<std::byte>) { return true; }
};
chip memory;
flash_landing<embedded_image<mlp>, chip> landing(memory);

// CASE flash_with_units_as_long_as_its_pages
// EXPECT: tensorpull: a page of this flash is too small for a cursor and a unit: let page_bytes be several of its pages
// MAX_ERRORS: 5
template <>
inline constexpr auto tensorpull::members_of<mlp> = members(member{"w", &mlp::w}, member{"b", &mlp::b});
struct chip {
  static constexpr std::uint32_t page_bytes = 512, program_bytes = 512;
  bool erase(std::uint32_t) noexcept { return true; }
  bool program(std::uint32_t, std::span<const std::byte>) noexcept { return true; }
  bool read(std::uint32_t, std::span<std::byte>) noexcept { return true; }
};
chip memory;
flash_landing<embedded_image<mlp>, chip> landing(memory);
