// One frame in the framing for small machines, for several sets of kinds, against the framing that reads every layout.
#include "target.hpp"

#include "support/frames.hpp"

namespace test::fuzz {
namespace {

using kind = tp::frame_kind;

template <tp::frame_set Kinds>
unsigned compare(std::span<const std::byte> bytes) {
  bool accepted = false;
  const char* const what = layout_disagreement<Kinds>(bytes, accepted);
  require(what == nullptr, what);
  return accepted ? 1 : 0;
}

}  // namespace

unsigned layouts(input in) {
  if (in.empty()) return 0;
  const auto set = static_cast<unsigned>(in[0]) % 8;
  const frame given(in.subspan(1));  // in memory of exactly its size
  unsigned accepted = compare<tp::all_frames>(given.bytes());
  if (accepted > 0) {
    tp::frame by_layout, by_library;
    tp::layout_framing::decode_storage lists;
    tp::capnp_framing::decode_storage more_lists;
    require(tp::layout_framing::decode(given.bytes(), by_layout, lists).has_value(),
            "a frame that was accepted is accepted");
    require(tp::capnp_framing::decode(given.bytes(), by_library, more_lists).has_value(),
            "what is accepted is valid for the library");
    require(same_values(by_layout, by_library), "the library reads the same");
  }
  switch (set) {
    case 0: accepted += compare<tp::recipient_frames>(given.bytes()); break;
    case 1: accepted += compare<tp::owner_frames>(given.bytes()); break;
    case 2: accepted += compare < tp::recipient_frames | tp::frame_set::of(kind::application) > (given.bytes()); break;
    case 3: accepted += compare<tp::frame_set::of(kind::schema_page, kind::pull)>(given.bytes()); break;
    case 4: accepted += compare<tp::frame_set::of(kind::located)>(given.bytes()); break;
    case 5: accepted += compare<tp::frame_set::of(kind::locate, kind::refused)>(given.bytes()); break;
    default: break;
  }
  return accepted;
}

}  // namespace test::fuzz
