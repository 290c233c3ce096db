// Pipelines of too few, too many or other policies.
#include "model.hpp"

// CASE no_policies
// EXPECT: tensorpull: a pipeline needs a tensor policy
// MAX_ERRORS: 3
pipeline<>::model_type model;

// CASE no_policy
// EXPECT: tensorpull: one of the types given to pipeline<...> is no policy
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, int>::downloader owner;

// CASE policy_of_two_slots
// EXPECT: tensorpull: one of the types given to pipeline<...> names two slots
struct mine : image_digest, default_limits {};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, mine>::model_type model;

// CASE missing_chunking
// EXPECT: tensorpull: a pipeline needs a chunking policy: add fixed_bytes<N>
pipeline<raw_tensors<mlp>, loopback>::downloader owner;

// CASE missing_tensors
// EXPECT: tensorpull: a pipeline needs a tensor policy: add raw_tensors<Model> or tensor_list
// MAX_ERRORS: 1
// MAX_LINES: 10
using net = pipeline<fixed_bytes<1_KiB>, loopback>;
mlp mine;
net::downloader its_owner;
auto done = net::download_tensors(its_owner, reference{}, mine);
auto named = net::download_tensors(its_owner, ref_id{1, 2}, mine);

// CASE missing_transport
// EXPECT: tensorpull: a pipeline needs a transport policy: add tcp or loopback
// MAX_ERRORS: 2
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>>;

int main() {
  mlp mine;
  auto owner = net::downloader::open({});
  auto done = net::download_tensors("127.0.0.1:1", ref_id{1, 2}, mine);
  return done ? 0 : 1;
}

// CASE model_without_raw_tensors
// EXPECT: tensorpull: a model was given to pipeline<...> where its tensor policy belongs: write raw_tensors<Model>
pipeline<mlp, fixed_bytes<1_KiB>, loopback>::model_type model;

// CASE model_not_adapted_without_raw_tensors
// EXPECT: a struct of tensors is given as raw_tensors<Struct>
struct unadapted {
  float w[4][3], b[4];
};
pipeline<unadapted, fixed_bytes<1_KiB>, loopback>::model_type model;

// CASE two_chunking_policies
// EXPECT: tensorpull: a pipeline has two chunking policies: keep one
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, whole, loopback>::model_type model;

// CASE two_framing_policies
// EXPECT: tensorpull: a pipeline has two framing policies: keep one
pipeline<raw_tensors<mlp>, word_framing, word_framing, fixed_bytes<1_KiB>, loopback>::model_type model;

// CASE two_integrity_policies
// EXPECT: tensorpull: a pipeline has two integrity policies: keep one
pipeline<raw_tensors<mlp>, unverified, fixed_bytes<1_KiB>, loopback, image_digest>::model_type model;

// CASE two_limits_policies
// EXPECT: tensorpull: a pipeline has two limits policies: keep one
pipeline<default_limits, raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, default_limits>::model_type model;

// CASE two_tensor_policies
// EXPECT: tensorpull: a pipeline has two tensor policies: keep one
pipeline<raw_tensors<mlp>, tensor_list, fixed_bytes<1_KiB>, loopback>::model_type model;

// CASE two_transport_policies
// EXPECT: tensorpull: a pipeline has two transport policies: keep one
pipeline<tcp, raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback>::model_type model;

// CASE slot_only_transport_used_on
// One error with g++; clang ends the class at the first failed assertion.
// EXPECT: tensorpull: a transport says how much one frame carries (requirement 2)
// MAX_ERRORS: 2
struct nothing {
  using is_transport_policy = void;
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, nothing>;

int main() {
  mlp mine{};
  auto owner = net::downloader::open({});
  auto ref = owner->add_tensors(mine);
  return net::download_tensors("127.0.0.1:1", *ref, mine) ? 0 : 1;
}
