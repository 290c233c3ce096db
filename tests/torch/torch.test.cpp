// torch_tensors against libtorch: dtypes, layouts, ties, modules, autograd, new state dicts, and structs that meet
// state dicts.
#include "allocation_counter.hpp"
#include "process_entries.hpp"
#include "threads.hpp"
#include "waiting.hpp"

#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/torch/torch.hpp>
#include <tensorpull/tensors/torch/torch_state.hpp>
#include <tensorpull/transports/host/owner.hpp>
#include <tensorpull/transports/over/loopback/loopback.hpp>

#include <ATen/ops/as_strided_native.h>
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/nn.h>

#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <stop_token>
#include <string>
#include <thread>

namespace torch_test {

using namespace tensorpull;
using dict = std::map<std::string, at::Tensor>;
using net = pipeline<torch_tensors, fixed_bytes<1000>, loopback, chunk_and_image_digest>;

/// The image's bytes, gathered through a slice of `slice_bytes`.
std::string image_of(const source_view& image, std::size_t slice_bytes = 997) {
  std::vector<std::byte> slice(slice_bytes);
  std::span<const std::byte> out[4];
  std::string all;
  while (all.size() < image.schema->image_bytes) {
    const auto got = gather(image, all.size(), image.schema->image_bytes - all.size(), out, slice);
    EXPECT_FALSE(got.failed);
    if (got.bytes == 0) break;
    for (std::size_t i = 0; i < got.pieces; ++i)
      all.append(reinterpret_cast<const char*>(out[i].data()), out[i].size());
  }
  return all;
}
std::string image_of(const dict& d) {
  const auto model = torch_model::make(d);
  EXPECT_TRUE(model) << to_string(model.error().code) << ' ' << model.error().name.view();
  return model ? image_of(model->source()) : "";
}

/// Byte for byte, whatever the dtype.
bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::Tensor x = a.detach().resolve_conj().resolve_neg().contiguous(),
                   y = b.detach().resolve_conj().resolve_neg().contiguous();
  return x.nbytes() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

template <class Net = net, class Owner, class Model>
result<receipt> pull(Owner& owner, const typename Net::model_type& from, Model& to, const pull_options& options = {}) {
  const auto ref = owner.add_tensors(from);
  if (!ref) return failure(ref.error());
  return Net::download_tensors(owner, *ref, to, options);
}
result<dict> pull_new(const torch_model& from, const new_model_limits& limits = {.max_bytes = 64u << 20}) {
  const auto owner = std::make_unique<net::downloader>();
  const auto ref = owner->add_tensors(from);
  if (!ref) return failure(ref.error());
  new_state_dict made(limits);
  if (const auto done = net::pull(*owner, *ref, made); !done) return failure(done.error());
  return made.state();
}

constexpr at::ScalarType every_dtype[] = {at::kBool,
                                          at::kByte,
                                          at::kChar,
                                          at::kShort,
                                          at::kInt,
                                          at::kLong,
                                          at::kHalf,
                                          at::kBFloat16,
                                          at::kFloat,
                                          at::kDouble,
                                          at::kComplexFloat,
                                          at::kUInt16,
                                          at::kUInt32,
                                          at::kUInt64,
                                          at::kFloat8_e5m2,
                                          at::kFloat8_e4m3fn,
                                          at::kFloat8_e5m2fnuz,
                                          at::kFloat8_e4m3fnuz,
                                          at::kFloat8_e8m0fnu,
                                          at::kFloat4_e2m1fn_x2};

at::Tensor random_bits(at::ScalarType type, at::IntArrayRef shape) {
  at::Tensor t = at::empty(shape, type);
  auto bytes = static_cast<std::uint8_t*>(t.data_ptr());
  for (std::size_t i = 0; i < t.nbytes(); ++i)
    bytes[i] = static_cast<std::uint8_t>(type == at::kBool ? std::rand() % 2 : std::rand());
  return t;
}

TEST(Torch, Every_dtype_of_both_arrives_in_place_and_in_a_new_state_dict) {
  dict from, to;
  for (const auto type : every_dtype) {
    const std::string name = c10::toString(type);
    for (const auto& [suffix, shape] :
         std::map<std::string, std::vector<std::int64_t>>{{".matrix", {3, 5}}, {".empty", {0, 4}}, {".one", {1}}}) {
      from[name + suffix] = random_bits(type, shape);
      to[name + suffix] = random_bits(type, shape);
    }
    if (type == at::kFloat4_e2m1fn_x2) continue;  // two numbers an element: no scalar
    from[name] = random_bits(type, {});
    to[name] = random_bits(type, {});
  }
  const auto owned = torch_model::make(from);
  ASSERT_TRUE(owned) << owned.error().name.view();
  auto mine = torch_model::make_writable(to);
  ASSERT_TRUE(mine) << mine.error().name.view();
  const auto owner = std::make_unique<net::downloader>();
  const auto done = pull(*owner, *owned, *mine);
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_EQ(done->outcome, outcome::completed);
  const auto made = pull_new(*owned);
  ASSERT_TRUE(made) << to_string(made.error().code) << made.error().name.view();
  EXPECT_EQ(made->size(), from.size());
  for (const auto& [name, tensor] : from) {
    EXPECT_TRUE(same_bytes(tensor, to[name])) << name;
    EXPECT_TRUE(made->count(name) == 1 && same_bytes(tensor, made->at(name))) << name;
  }
}

TEST(Torch, Refuses_by_name_what_an_image_cannot_hold) {
  const at::Tensor plain = torch::randn({4, 4});
  const auto refusal = [&](at::Tensor t) {
    const auto made = torch_model::make(dict{{"a", plain}, {"odd", std::move(t)}});
    EXPECT_FALSE(made);
    EXPECT_EQ(made ? "" : made.error().name.view(), "odd");
    return made ? errc{} : made.error().code;
  };
  EXPECT_EQ(refusal(torch::zeros({2}, at::kComplexDouble)), errc::unsupported_dtype);
  EXPECT_EQ(refusal(torch::zeros({2}, at::kComplexHalf)), errc::unsupported_dtype);
  EXPECT_EQ(refusal(plain.to_sparse()), errc::unsupported_layout);
  EXPECT_EQ(refusal(torch::empty({2}, at::TensorOptions().device(at::kMeta))), errc::unsupported_layout);
  EXPECT_EQ(refusal(at::quantize_per_tensor(plain, 0.1, 0, at::kQInt8)), errc::unsupported_layout);
  EXPECT_EQ(refusal(at::Tensor()), errc::invalid_argument);
  EXPECT_EQ(torch_model::make(dict{{"__metadata__", plain}}).error(), errc::reserved_name);
  EXPECT_EQ(
      torch_model::make(std::vector<std::pair<std::string, at::Tensor>>{{"x", plain}, {"x", plain.clone()}}).error(),
      errc::duplicate_name);

  const auto landing = [&](at::Tensor t) {
    const auto made = torch_model::make_writable(dict{{"a", plain}, {"odd", std::move(t)}});
    return made ? errc{} : made.error().code;
  };
  EXPECT_EQ(landing(torch::randn({4, 6}).slice(1, 0, 6, 2)), errc::unsupported_layout);  // with gaps
  EXPECT_EQ(landing(torch::randn({1, 3}).expand({4, 3})), errc::unsupported_layout);  // one memory four times
  EXPECT_EQ(landing(plain.t()), errc::unsupported_layout);  // the memory of "a" in another order
  EXPECT_EQ(landing(torch::randn({3}, at::kComplexFloat).conj()), errc::unsupported_layout);
  EXPECT_EQ(landing(plain.narrow(0, 1, 2)), errc::unsupported_layout);  // a part of "a"
  EXPECT_EQ(landing(plain.view({16})), errc::unsupported_layout);
  EXPECT_EQ(landing(torch::randn({4, 3})), errc{});
}

TEST(Torch, Lands_in_any_order_of_dimensions) {
  torch::manual_seed(9);
  const dict from{{"image", torch::randn({2, 3, 8, 9})},  // channels_last at the other end
                  {"halves", torch::randn({7, 9}).to(at::kHalf)},
                  {"matrix", torch::randn({301, 203})},
                  {"plain", torch::randn({5})},
                  {"empty", torch::randn({0, 3})}};
  const auto source = torch_model::make(from);
  ASSERT_TRUE(source);
  const auto turned = [&] {
    return dict{{"image", torch::zeros({2, 3, 8, 9}).contiguous(at::MemoryFormat::ChannelsLast)},
                {"halves", torch::zeros({9, 7}, at::kHalf).t()},
                {"matrix", torch::zeros({203, 301}).t()},
                {"plain", torch::zeros({5})},
                {"empty", torch::zeros({3, 0}).t()}};
  };
  const auto whole = image_of(from);
  const auto bytes = std::as_bytes(std::span(whole));
  for (const std::size_t piece : {1u, 3u, 997u, 100000u}) {  // cut within elements, too
    dict to = turned();
    to["matrix"].set_requires_grad(true);
    auto mine = torch_model::make_writable(to);
    ASSERT_TRUE(mine) << mine.error().name.view();
    const auto before = to["matrix"]._version();
    land consumer(mine->destination());
    EXPECT_EQ(to["matrix"]._version(), before + 1) << "autograd is told once, and not by every copy";
    const destination_view there = mine->destination();
    for (std::uint64_t at = there.schema->header_bytes; at < bytes.size();) {
      const auto n = std::min<std::uint64_t>(piece, bytes.size() - at);
      std::span<std::byte> room[4];
      const auto got = scatter(there, at, n, room);
      ASSERT_GT(got.bytes, 0u);
      std::uint64_t within = at;
      for (std::size_t i = 0; i < got.pieces; ++i) {
        std::memcpy(room[i].data(), bytes.data() + within, room[i].size());
        within += room[i].size();
      }
      ASSERT_TRUE(hand_over(there, at, bytes.subspan(at, got.bytes)));
      at += got.bytes;
    }
    for (const auto& [name, tensor] : from) EXPECT_TRUE(same_bytes(tensor, to[name].contiguous())) << name << piece;
    EXPECT_EQ(image_of(mine->source()), whole) << "and can be published";
  }
  dict to = turned();
  auto mine = torch_model::make_writable(to);
  const auto owner = std::make_unique<net::downloader>();
  ASSERT_TRUE(pull(*owner, *source, *mine));
  for (const auto& [name, tensor] : from) EXPECT_TRUE(same_bytes(tensor, to[name].contiguous())) << name;
}

TEST(Torch, A_model_for_reading_takes_nothing) {
  const at::Tensor target = torch::zeros({4, 4});
  const auto from = torch_model::make(dict{{"w", torch::randn({4, 4})}});
  auto to = torch_model::make(dict{{"w", target}});
  const auto owner = std::make_unique<net::downloader>();
  EXPECT_EQ(pull(*owner, *from, *to).error(), errc::schema_mismatch);
  EXPECT_TRUE(same_bytes(target, torch::zeros({4, 4})));
}

TEST(Torch, Every_layout_has_the_image_of_its_contiguous_copy) {
  torch::manual_seed(1);
  const at::Tensor base = torch::randn({6, 7, 8}), complex = torch::randn({5, 9}, at::kComplexFloat),
                   large = torch::randn({300, 211}, at::kComplexFloat);
  const dict views{{"transposed", base.transpose(0, 2)},
                   {"permuted", base.permute({1, 0, 2})},
                   {"sliced", base.slice(2, 1, 8, 3)},
                   {"expanded", torch::randn({6, 1}).expand({6, 50})},
                   {"selected", base.select(1, 3)},
                   {"diagonal", base.diagonal(0, 0, 1)},
                   {"channels_last", torch::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast)},
                   {"offset", base.flatten().slice(0, 5, 20)},
                   {"bytes", base.to(at::kByte).transpose(0, 1)},
                   {"conjugated", complex.conj()},
                   {"conjugated_and_transposed", large.t().conj()},
                   {"negated", at::imag(complex.conj()).unsqueeze(0).slice(1, 0, 5, 2)},
                   {"one_row", complex.conj().select(0, 1).unsqueeze(0).slice(1, 0, 5, 2)},
                   {"negated_integers", at::_neg_view(torch::arange(1000, at::kInt).view({10, 100}).t())},
                   {"conjugated_scalar", complex.conj().select(0, 1).select(0, 1)}};
  dict copies;
  for (const auto& [name, tensor] : views) {
    copies[name] = tensor.resolve_conj().resolve_neg().contiguous().clone();
    EXPECT_TRUE(name == "offset" || !tensor.is_contiguous() || tensor.is_conj() || tensor.is_neg()) << name;
  }
  ASSERT_TRUE(views.at("negated").is_neg());
  const std::string expected = image_of(copies);
  const auto model = torch_model::make(views);
  ASSERT_TRUE(model) << model.error().name.view();
  for (const std::size_t slice : {64u, 997u, 4096u, 65536u})
    EXPECT_EQ(image_of(model->source(), slice), expected) << slice;
  const auto made = pull_new(*model);
  ASSERT_TRUE(made);
  for (const auto& [name, tensor] : copies) EXPECT_TRUE(same_bytes(tensor, made->at(name))) << name;
}

TEST(Torch, Large_copies_of_lazy_tensors_start_no_thread) {
  const at::Tensor bytes = at::_neg_view(torch::zeros({1 << 20}, at::kChar));
  const auto model = torch_model::make(dict{{"w", bytes}});
  const auto before = test::threads();
  EXPECT_EQ(image_of(model->source(), 65536).size(), (1u << 20) + model->schema().header_bytes);
  EXPECT_EQ(test::threads(), before);
}

TEST(Torch, Tied_tensors_are_sent_once_and_tied_on_arrival) {
  const at::Tensor w = torch::randn({4, 3});
  const dict from{{"lm_head.weight", w}, {"embed.weight", w}, {"body", torch::randn({2})}, {"also", w.detach()}};
  const auto owned = torch_model::make(from);
  ASSERT_TRUE(owned);
  EXPECT_EQ(owned->schema().tensor_count, 2u);
  const auto pairs = owned->schema().pairs();
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_TRUE(pairs[0].key == "embed.weight" && pairs[0].value == "also");
  EXPECT_TRUE(pairs[1].key == "lm_head.weight" && pairs[1].value == "also");

  const auto made = pull_new(*owned);
  ASSERT_TRUE(made);
  ASSERT_EQ(made->size(), 4u);
  EXPECT_EQ(made->at("also").data_ptr(), made->at("lm_head.weight").data_ptr());
  EXPECT_EQ(made->at("also").data_ptr(), made->at("embed.weight").data_ptr());
  EXPECT_TRUE(same_bytes(made->at("lm_head.weight"), w));

  const at::Tensor mine = torch::zeros({4, 3});
  dict to{{"lm_head.weight", mine}, {"embed.weight", mine}, {"body", torch::zeros({2})}, {"also", mine}};
  auto landing = torch_model::make_writable(to);
  ASSERT_TRUE(landing);
  const auto owner = std::make_unique<net::downloader>();
  ASSERT_TRUE(pull(*owner, *owned, *landing));
  EXPECT_TRUE(same_bytes(mine, w) && same_bytes(to["body"], from.at("body")));

  // A recipient without the tie is another schema, and says which tensor.
  auto untied = torch_model::make_writable(dict{
      {"lm_head.weight", torch::zeros({4, 3})}, {"embed.weight", mine}, {"body", torch::zeros({2})}, {"also", mine}});
  const auto refused = pull(*owner, *owned, *untied);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::schema_mismatch);
  EXPECT_EQ(refused.error().name.view(), "lm_head.weight");
}

TEST(Torch, Tensors_that_share_a_part_of_their_memory_are_sent_each) {
  const at::Tensor w = torch::randn({4, 4});
  const dict from{{"all", w},        {"row", w.select(0, 1)},     {"flat", w.view({16})},
                  {"turned", w.t()}, {"empty", w.slice(0, 0, 0)}, {"empty2", w.slice(0, 0, 0)}};
  const auto owned = torch_model::make(from);
  ASSERT_TRUE(owned);
  EXPECT_EQ(owned->schema().metadata_count, 0u);
  const auto made = pull_new(*owned);
  ASSERT_TRUE(made);
  for (const auto& [name, tensor] : from) EXPECT_TRUE(same_bytes(tensor, made->at(name))) << name;
}

TEST(Torch, Metadata_of_the_caller_is_kept_and_no_tie) {
  const metadata_entry pairs[] = {{"format", "pt"}, {"tied", "mine"}};
  const at::Tensor w = torch::randn({2});
  const auto owned = torch_model::make(dict{{"pt", w}, {"tied", w}}, pairs);
  ASSERT_TRUE(owned);
  ASSERT_EQ(owned->schema().metadata_count, 2u);
  EXPECT_EQ(owned->schema().metadata[1].value, "mine");
  const auto made = pull_new(*owned);
  ASSERT_TRUE(made);
  EXPECT_TRUE(made->size() == 1 && made->count("pt") == 1);
  EXPECT_EQ(image_of(dict{{"w", w}}).find("__metadata__"), std::string::npos);
}

TEST(Torch, Landing_keeps_requires_grad_and_is_seen_by_autograd) {
  const at::Tensor weight = torch::ones({3}).requires_grad_(), input = torch::ones({3}).requires_grad_();
  const at::Tensor before = (weight * input).sum();
  const auto version = weight._version();
  auto to = torch_model::make_writable(dict{{"w", weight}});
  const auto from = torch_model::make(dict{{"w", torch::full({3}, 7.0)}});
  EXPECT_EQ(weight._version(), version);
  const auto owner = std::make_unique<net::downloader>();
  ASSERT_TRUE(pull(*owner, *from, *to));
  EXPECT_GT(weight._version(), version);
  EXPECT_TRUE(weight.requires_grad() && weight.is_leaf());
  EXPECT_THROW(before.backward(), c10::Error) << "a graph of the old weights must not give gradients of the new ones";
  const at::Tensor after = (weight * input).sum();
  after.backward();
  EXPECT_TRUE(same_bytes(input.grad(), torch::full({3}, 7.0)));

  const c10::InferenceMode inference;
  const at::Tensor frozen = torch::zeros({3});
  ASSERT_TRUE(frozen.is_inference());
  auto into = torch_model::make_writable(dict{{"w", frozen}});
  ASSERT_TRUE(pull(*owner, *from, *into));
  EXPECT_TRUE(same_bytes(frozen, torch::full({3}, 7.0)));
}

template <class Module>
void expect_equal_outputs(Module& server, Module& client, const at::Tensor& input) {
  server->eval(), client->eval();
  const torch::NoGradGuard no_grad;
  const at::Tensor expected = server->forward(input);
  ASSERT_FALSE(same_bytes(client->forward(input), expected));
  const auto from = torch_model::make(*server);
  auto to = torch_model::make_writable(*client);
  ASSERT_TRUE(from && to);
  EXPECT_EQ(from->schema().fingerprint, to->schema().fingerprint);
  const auto owner = std::make_unique<net::downloader>();
  ASSERT_TRUE(pull(*owner, *from, *to));
  EXPECT_TRUE(same_bytes(client->forward(input), expected));
}

TEST(Torch, A_convolutional_network_has_the_same_outputs_afterwards) {
  const auto make = [] {
    return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)),
                                 torch::nn::BatchNorm2d(8), torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                                 torch::nn::Conv2d(8, 4, 3), torch::nn::Flatten(), torch::nn::Linear(4 * 6 * 6, 10));
  };
  torch::manual_seed(2);
  auto server = make(), client = make();
  server->train();
  server->forward(torch::randn({8, 3, 16, 16}));  // gives the buffers values
  expect_equal_outputs(server, client, torch::randn({2, 3, 16, 16}));
  EXPECT_EQ(image_of(torch_model::make(*server)->source()).find("num_batches_tracked") == std::string::npos, false);
}

TEST(Torch, A_transformer_encoder_has_the_same_outputs_afterwards) {
  const auto make = [] {
    return torch::nn::TransformerEncoder(
        torch::nn::TransformerEncoderLayer(torch::nn::TransformerEncoderLayerOptions(16, 4).dim_feedforward(32)), 2);
  };
  torch::manual_seed(3);
  auto server = make(), client = make();
  expect_equal_outputs(server, client, torch::randn({5, 2, 16}));
}

TEST(Torch, Dicts_of_every_kind) {
  const at::Tensor w = torch::randn({2, 2});
  c10::Dict<std::string, at::Tensor> c10_dict;
  c10_dict.insert("w", w);
  torch::OrderedDict<std::string, at::Tensor> ordered;
  ordered.insert("w", w);
  const std::string expected = image_of(dict{{"w", w}});
  EXPECT_EQ(image_of(torch_model::make(c10_dict)->source()), expected);
  EXPECT_EQ(image_of(torch_model::make(ordered)->source()), expected);
  EXPECT_EQ(image_of(torch_model::make(std::vector<std::pair<std::string_view, at::Tensor>>{{"w", w}})->source()),
            expected);
  EXPECT_TRUE(torch_model::make(dict{}));
}

TEST(Torch, A_new_state_dict_allocates_nothing_above_its_limits) {
  const auto from = torch_model::make(dict{{"large", torch::zeros({1 << 20})}, {"small", torch::zeros({1})}});
  EXPECT_EQ(pull_new(*from, {.max_bytes = 4u << 20}).error(), errc::too_large);
  EXPECT_EQ(pull_new(*from, {.max_bytes = 5u << 20, .max_header_bytes = 64}).error(), errc::too_large);
  EXPECT_EQ(pull_new(*from, {.max_bytes = 5u << 20, .max_tensors = 1}).error(), errc::too_large);
  EXPECT_EQ(pull_new(*from, {}).error(), errc::too_large);
  EXPECT_TRUE(pull_new(*from, {.max_bytes = 5u << 20}));
}

// A device as torch sees one, in this process: what lies in its memory is written there inverted, so that nobody reads
// it without asking.
at::Tensor copy_from_device(const at::Tensor& from, const at::Tensor& to, bool) {
  if (to.device().is_cpu() == from.device().is_cpu()) throw std::runtime_error("not a copy to or from the device");
  const auto bytes = static_cast<std::size_t>(from.storage().nbytes());
  if (from.device().is_cpu()) {  // `to` is of the device
    const at::Tensor values = at::empty_strided(to.sizes(), to.strides(), from.options());
    values.copy_(from);
    const auto* const clear = static_cast<const std::uint8_t*>(values.const_data_ptr());
    auto* const there = static_cast<std::uint8_t*>(to.storage().mutable_data()) +
                        to.storage_offset() * static_cast<std::int64_t>(to.element_size());
    if (to.numel() != 0 && !to.unsafeGetTensorImpl()->is_non_overlapping_and_dense()) {
      for (std::int64_t i = 0; i < to.size(0); ++i) to.select(0, i).copy_(values.select(0, i));
      return to;
    }
    for (std::size_t i = 0; i < values.nbytes(); ++i) there[i] = static_cast<std::uint8_t>(~clear[i]);
    return to;
  }
  at::Tensor clear = at::empty({static_cast<std::int64_t>(bytes)}, at::kByte);
  for (std::size_t i = 0; i < bytes; ++i)
    clear.data_ptr<std::uint8_t>()[i] = static_cast<std::uint8_t>(
        ~static_cast<const std::uint8_t*>(from.storage().data())[i]);
  to.copy_(at::from_blob(static_cast<std::byte*>(clear.data_ptr()) +
                             from.storage_offset() * static_cast<std::int64_t>(from.element_size()),
                         from.sizes(), from.strides(), at::TensorOptions().dtype(from.scalar_type())));
  if (from.numel() >= 32768) throw std::runtime_error("torch would start threads");
  return to;
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("_copy_from", &copy_from_device);
}
at::Tensor on_device(const at::Tensor& t) {
  const at::Tensor memory = at::empty({static_cast<std::int64_t>(t.nbytes())}, at::kByte);
  for (std::size_t i = 0; i < t.nbytes(); ++i)
    memory.data_ptr<std::uint8_t>()[i] = static_cast<std::uint8_t>(~static_cast<const std::uint8_t*>(t.data_ptr())[i]);
  const c10::Device device(c10::DeviceType::PrivateUse1, 0);
  c10::DataPtr data(
      memory.data_ptr(), new at::Tensor(memory), [](void* kept) { delete static_cast<at::Tensor*>(kept); }, device);
  c10::Storage storage(c10::Storage::use_byte_size_t(), t.nbytes(), std::move(data));
  auto made = c10::make_intrusive<c10::TensorImpl>(std::move(storage),
                                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), t.dtype());
  made->set_sizes_contiguous(t.sizes());
  return at::Tensor(std::move(made));
}

TEST(Torch, Tensors_on_another_device_are_asked_for_a_slice_at_a_time) {
  torch::manual_seed(5);
  dict device, copies;
  for (const auto& [name, tensor] : dict{{"matrix", torch::randn({37, 53})},
                                         {"halves", torch::randn({3, 5, 7}).to(at::kHalf)},
                                         {"scalar", torch::randn({})},
                                         {"bytes", torch::randn({31}).to(at::kByte)},
                                         {"empty", torch::randn({0, 3})}}) {
    copies[name] = tensor;
    device[name] = on_device(tensor);
    ASSERT_FALSE(device[name].device().is_cpu());
  }
  device["turned"] = at::as_strided(device["matrix"], {53, 37}, {1, 53});
  copies["turned"] = copies["matrix"].t().contiguous();
  const auto model = torch_model::make(device);
  ASSERT_TRUE(model) << model.error().name.view();
  const std::string expected = image_of(copies);
  for (const std::size_t slice : {64u, 997u, 65536u}) EXPECT_EQ(image_of(model->source(), slice), expected) << slice;
  const auto made = pull_new(*model);
  ASSERT_TRUE(made);
  for (const auto& [name, tensor] : copies) EXPECT_TRUE(same_bytes(tensor, made->at(name))) << name;
  EXPECT_EQ(torch_model::make_writable(device).error(), errc::unsupported_layout) << "two over the same memory";

  device.erase("turned"), copies.erase("turned");
  auto landing = torch_model::make_writable(device);
  ASSERT_TRUE(landing) << landing.error().name.view();
  dict others;
  for (const auto& [name, tensor] : copies) others[name] = (tensor.to(at::kFloat) + 1).to(tensor.scalar_type());
  const auto changed = torch_model::make(others);
  const auto owner = std::make_unique<net::downloader>();
  ASSERT_TRUE(pull(*owner, *changed, *landing));
  EXPECT_EQ(image_of(landing->source()), image_of(others));
}

/// Takes any image, a chunk a millisecond, and keeps nothing.
class slow_taker {
 public:
  static constexpr bool irrevocable = false;
  std::uint64_t chunks = 0, allocations = 0;
  std::uint64_t fingerprint() const noexcept { return 0; }
  const image_schema* schema() const noexcept { return nullptr; }
  result<void> begin(const description&) noexcept { return {}; }
  prepared prepare(std::uint64_t, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    const std::size_t n = std::min<std::size_t>(length, sizeof scratch_);
    out[0] = {scratch_, n};
    return {length > 0 ? 1u : 0u, n};
  }
  result<void> commit(std::uint64_t, std::span<const std::byte>) noexcept { return {}; }
  result<void> chunk(std::uint64_t, std::uint64_t) noexcept {
    if (++chunks == 4) watch_ = std::make_unique<::test::allocation_watch>();  // both ends are warm
    ::test::be_slow(std::chrono::milliseconds(1));
    return {};
  }
  result<void> finish(const receipt&) noexcept {
    allocations = watch_->count();
    return {};
  }
  void abandon(const error&) noexcept {}

 private:
  std::unique_ptr<::test::allocation_watch> watch_;
  std::byte scratch_[64 * 1024];
};

/// The largest resident set of this process since the last call, in bytes.
std::uint64_t peak_resident() {
  std::ifstream status("/proc/self/status");
  std::uint64_t kib = 0;
  for (std::string word; status >> word;)
    if (word == "VmHWM:") status >> kib;
  std::ofstream("/proc/self/clear_refs") << 5;
  return kib << 10;
}

TEST(Torch, A_large_transposed_tensor_is_never_copied_as_a_whole) {
  using tcp_net = pipeline<torch_tensors, fixed_bytes<2_MiB>, tcp>;
  constexpr std::int64_t side = 8192;  // 256 MiB
  const at::Tensor large = torch::ones({side, side}).t();
  ASSERT_FALSE(large.is_contiguous());
  const auto model = torch_model::make(dict{{"w", large}});
  auto owner = tcp_net::downloader::open();
  ASSERT_TRUE(model && owner);
  slow_taker to;
  peak_resident();
  [[maybe_unused]] const std::uint64_t before = peak_resident();
  const auto ref = owner->add_tensors(*model);
  ASSERT_TRUE(ref);
  ::test::joined_thread serving([&](std::stop_token stop) { owner->run(stop); });
  const auto done = tcp_net::pull("127.0.0.1:" + std::to_string(owner->port()), *ref, to);
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_EQ(done->outcome, outcome::completed);
  EXPECT_EQ(done->chunks, 129u);
  EXPECT_EQ(to.allocations, 0u) << "of both ends together, after the first chunks";
#if !defined(TENSORPULL_TEST_SANITIZED)
  EXPECT_LT(peak_resident(), before + (16u << 20));
#endif
}

struct layer {
  std::array<std::array<float, 4>, 3> weight;
  std::array<float, 3> bias;
};
struct two_layers {
  layer l0;
  struct head_type {
    std::array<std::array<float, 3>, 2> weight;
    std::array<float, 2> bias;
  } l1;
};

}  // namespace torch_test
BOOST_HANA_ADAPT_STRUCT(torch_test::layer, weight, bias);
BOOST_HANA_ADAPT_STRUCT(torch_test::two_layers::head_type, weight, bias);
BOOST_HANA_ADAPT_STRUCT(torch_test::two_layers, l0, l1);
namespace torch_test {

using sequential_names = renamed<two_layers, from_to{"l0", "0"}, from_to{"l1", "2"}>;
using device_net = pipeline<raw_tensors<sequential_names>, fixed_bytes<64>, loopback>;

template <class Array>
bool holds(const Array& array, const at::Tensor& tensor) {
  return sizeof array == tensor.nbytes() && std::memcmp(&array, tensor.contiguous().data_ptr(), sizeof array) == 0;
}

TEST(TorchMeetsStructs, A_device_pulls_a_sequential_and_its_update_lands_in_the_module) {
  torch::manual_seed(4);
  torch::nn::Sequential server(torch::nn::Linear(4, 3), torch::nn::ReLU(), torch::nn::Linear(3, 2));
  const metadata_entry pt[] = {{"format", "pt"}};
  const auto owned = torch_model::make(*server, pt);  // a fingerprint leaves metadata out
  ASSERT_TRUE(owned);
  const auto server_owner = std::make_unique<net::downloader>();
  const auto ref = server_owner->add_tensors(*owned);
  ASSERT_TRUE(ref);
  two_layers device{};
  const auto done = device_net::download_tensors(*server_owner, *ref, device);
  ASSERT_TRUE(done) << to_string(done.error().code) << ' ' << done.error().name.view();
  const auto weights = server->named_parameters();
  EXPECT_TRUE(holds(device.l0.weight, weights["0.weight"]) && holds(device.l0.bias, weights["0.bias"]));
  EXPECT_TRUE(holds(device.l1.weight, weights["2.weight"]) && holds(device.l1.bias, weights["2.bias"]));

  device.l1.weight[1][2] = 42;
  const auto device_owner = std::make_unique<device_net::downloader>();
  const auto update = device_owner->add_tensors(device);
  auto landing = torch_model::make_writable(*server);
  ASSERT_TRUE(landing);
  ASSERT_TRUE(net::download_tensors(*device_owner, *update, *landing));
  EXPECT_EQ(weights["2.weight"][1][2].item<float>(), 42);
  EXPECT_TRUE(holds(device.l0.weight, weights["0.weight"]));

  // The schema is checked first: a module of another shape is refused by name, untouched.
  torch::nn::Sequential other(torch::nn::Linear(4, 3), torch::nn::ReLU(), torch::nn::Linear(3, 5));
  const at::Tensor kept = other->named_parameters()["0.weight"].clone();
  auto wrong = torch_model::make_writable(*other);
  const auto refused = net::download_tensors(*device_owner, *update, *wrong);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::schema_mismatch);
  EXPECT_EQ(refused.error().name.view(), "2.bias");
  EXPECT_EQ(refused.error().at, 0u);
  EXPECT_TRUE(same_bytes(kept, other->named_parameters()["0.weight"]));
}

struct head_only {
  std::array<std::array<float, 3>, 2> weight;
  std::array<float, 2> bias;
};

}  // namespace torch_test
BOOST_HANA_ADAPT_STRUCT(torch_test::head_only, weight, bias);
namespace torch_test {

TEST(TorchMeetsStructs, Only_the_head_of_a_larger_model) {
  using head_net = pipeline<raw_tensors<renamed<head_only, from_to{"weight", "2.weight"}, from_to{"bias", "2.bias"}>>,
                            fixed_bytes<64>, loopback>;
  torch::nn::Sequential server(torch::nn::Linear(4, 3), torch::nn::ReLU(), torch::nn::Linear(3, 2));
  const auto owned = torch_model::make(*server);
  const auto owner = std::make_unique<net::downloader>();
  const auto ref = owner->add_tensors(*owned);
  ASSERT_TRUE(ref);
  head_only head{};
  const std::string_view names[] = {"2.weight", "2.bias"};
  const auto done = head_net::download_tensors(*owner, *ref, head, {.tensors = names});
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_EQ(done->bytes, sizeof head);
  EXPECT_TRUE(holds(head.weight, server->named_parameters()["2.weight"]) &&
              holds(head.bias, server->named_parameters()["2.bias"]));

  // The head of the server's own module, into the head of another: landed in place, the rest untouched.
  torch::nn::Sequential client(torch::nn::Linear(4, 3), torch::nn::ReLU(), torch::nn::Linear(3, 2));
  const at::Tensor body = client->named_parameters()["0.weight"].clone();
  auto part = torch_model::make_writable(
      dict{{"2.weight", client->named_parameters()["2.weight"]}, {"2.bias", client->named_parameters()["2.bias"]}});
  ASSERT_TRUE(part);
  ASSERT_TRUE(net::download_tensors(*owner, *ref, *part, {.tensors = names}));
  EXPECT_TRUE(same_bytes(client->named_parameters()["2.weight"], server->named_parameters()["2.weight"]));
  EXPECT_TRUE(same_bytes(client->named_parameters()["0.weight"], body));
}

struct language_model {
  struct {
    std::array<std::array<float, 3>, 5> weight;
  } embed, lm_head;
};

}  // namespace torch_test
BOOST_HANA_ADAPT_STRUCT(decltype(torch_test::language_model::embed), weight);
BOOST_HANA_ADAPT_STRUCT(torch_test::language_model, embed, lm_head);
namespace torch_test {

TEST(TorchMeetsStructs, Both_names_of_a_tied_weight_are_bound_to_one_range) {
  using tied_net =
      pipeline<raw_tensors<tied<language_model, from_to{"lm_head.weight", "embed.weight"}>>, fixed_bytes<64>, loopback>;
  const at::Tensor weight = torch::randn({5, 3});
  const dict server{{"embed.weight", weight}, {"lm_head.weight", weight}};
  const auto owned = torch_model::make(server);
  ASSERT_TRUE(owned);
  const auto owner = std::make_unique<net::downloader>();
  const auto ref = owner->add_tensors(*owned);
  ASSERT_TRUE(ref);
  language_model device{};
  const auto done = tied_net::download_tensors(*owner, *ref, device);
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_TRUE(holds(device.embed.weight, weight) && holds(device.lm_head.weight, weight));

  device.embed.weight[4][2] = 9;
  const auto device_owner = std::make_unique<tied_net::downloader>();
  const auto update = device_owner->add_tensors(device);
  ASSERT_TRUE(update);
  EXPECT_EQ(update->version, [&] {  // the very image that the module has, metadata and all
    const at::Tensor changed = weight.clone();
    changed[4][2] = 9;
    const auto expected = torch_model::make(dict{{"embed.weight", changed}, {"lm_head.weight", changed}});
    return net::downloader().add_tensors(*expected)->version;
  }());
  auto landing = torch_model::make_writable(server);
  ASSERT_TRUE(net::download_tensors(*device_owner, *update, *landing));
  EXPECT_EQ(weight[4][2].item<float>(), 9);
}

}  // namespace torch_test
