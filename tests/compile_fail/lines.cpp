// Lines of small machines that are too short.
// WITHIN_LINES: 8
// MAX_LINES: 20
#include <tensorpull/embedded/line.hpp>
#include <tensorpull/embedded/owner.hpp>
#include <tensorpull/embedded/recipient.hpp>

#include "small_model.hpp"

using recipient = embedded_recipient<model_landing<mlp>, 512>;

// CASE line_too_short_for_its_owner
// EXPECT: tensorpull: a line takes the requests that its owner answers (Owner::request_bytes)
void serve(embedded_line<uart, 64, 592>& line, embedded_owner<mlp, 512>& owner) {
  no_role none;
  (void)step(line, none, owner, 0);
}

// CASE line_too_short_for_its_recipient
// EXPECT: tensorpull: a line takes the longest answer that its recipient asks for (Recipient::answer_bytes)
void receive(embedded_line<uart, 160, 80>& line, recipient& to) {
  (void)pull(line, to, [] { return std::uint32_t{0}; });
}

// CASE line_too_short_for_requests
// EXPECT: tensorpull: a line carries the requests of its recipient (Recipient::max_out)
void receive(embedded_line<uart, 592, 64>& line, recipient& to) {
  (void)pull(line, to, [] { return std::uint32_t{0}; });
}

// CASE line_over_a_device_that_cannot_write
// EXPECT: tensorpull: a line's device has io_result read(memory) and io_result write(bytes), both noexcept
struct reader {
  int read(std::span<std::byte>) noexcept { return 0; }
};
reader device;
embedded_line<reader, 80, 592> line(device);
