// Calls of a pipeline within one process with what they cannot take.
#include "model.hpp"

using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback>;

// CASE landing_in_temporary
// EXPECT: tensorpull: download_tensors was given a temporary
auto pull(net::downloader& owner) { return net::download_tensors(owner, ref_id{1, 2}, mlp{}); }

// CASE loopback_given_an_address
// EXPECT: tensorpull: a transport pulls (requirement 7)
bool get(mlp& model, const reference& ref) { return net::download_tensors("127.0.0.1:1", ref, model).has_value(); }

// CASE published_const_temporary
// EXPECT: tensorpull: add_tensors was given a constant temporary
mlp const make();

auto publish(net::downloader& owner) { return owner.add_tensors(make()); }

// CASE session_on_loopback
// EXPECT: tensorpull: this transport has no session
auto session = net::session::connect("127.0.0.1:1");

// CASE irrevocable_without_chunk_digest
// EXPECT: tensorpull: this consumer cannot undo what it has taken, so the pipeline needs an integrity policy that checks each chunk
#include <tensorpull/consumers/average/weighted_average.hpp>

result<receipt> pull(net::downloader& owner, weighted_average<>::update& to) {
  return net::pull(owner, reference{{1, 2}, 0, 0}, to);
}
