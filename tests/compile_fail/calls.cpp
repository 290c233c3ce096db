// Calls with what they cannot take.
#include "model.hpp"

using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;

// CASE address_of_another_type
// EXPECT: tensorpull: a transport pulls (requirement 7)
// EXPECT: tcp takes an address as text, loopback a downloader
bool get(mlp& model, const reference& ref) { return net::download_tensors(8002, ref, model).has_value(); }

// CASE callback_from_large_temporary
// EXPECT: tensorpull: a temporary given as a callback is kept by copy if it is trivially copyable and at most three pointers large
pull_options options() {
  int a = 0, b = 0, c = 0, d = 0;
  return {.progress = [&a, &b, &c, &d](const progress_event&) { ++a, ++b, ++c, ++d; }};
}

// CASE callback_from_temporary_that_owns
// EXPECT: this one is not: give it a name that outlives the callback
#include <memory>

pull_options options(std::shared_ptr<int> count) {
  return {.progress = [count](const progress_event&) { ++*count; }};
}

// CASE serve_of_a_reference
// EXPECT: tensorpull: serve(until_settled(ref)) or run(until_settled(ref)), not serve(ref) or run(ref)
// WITHIN_LINES: 8
void serve(net::session& session, const reference& ref) { (void)session.serve(ref); }

// CASE view_of_temporary
// EXPECT: deleted
// MAX_ERRORS: 2
const source_view view = raw_tensors<mlp>::source(mlp{});

// CASE view_over_tcp
// EXPECT: tensorpull: this transport has no views, since it shares no memory between programs
// MAX_LINES: 14
bool look(const reference& ref) { return net::view("127.0.0.1:1", ref).has_value(); }

// CASE message_borrows_temporary_model
// EXPECT: deleted
#include <tensorpull/messages/tensors_of.hpp>

const tensors_of<mlp> set(mlp{});
