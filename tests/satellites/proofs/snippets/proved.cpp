// NEEDS tensorpull::proofs
// SNIPPET 1
#include "context.hpp"

#include <tensorpull/tensors/tensor_list.hpp>

#include <string>
#include <vector>

using net = pipeline<tensor_list, fixed_bytes<64_KiB>, tcp>;

static void report(std::uint64_t) { std::_Exit(1); }

static pem_source of_pem(const char* text) { return {.text = text}; }

int main() {
  // the key of RFC 8032's first test
  const auto key = signing_key::read(of_pem(
      "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n"));
  const auto keys = trusted_keys::parse("hospitals MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n");
  must(key && keys);
  std::vector<float> trained(100'000, 0.5f), mine(100'000);
  const std::uint64_t shape[]{100'000}, round = 3, now = 1'800'000'000, expires = now + 3600;
  const tensor_view from{
      .name = "w", .type = dtype::f32, .shape = shape, .data = reinterpret_cast<const std::byte*>(trained.data())};
  const mutable_tensor_view into{
      .name = "w", .type = dtype::f32, .shape = shape, .data = reinterpret_cast<std::byte*>(mine.data())};
  const auto published = dynamic_image::make({&from, 1});
  auto destination = dynamic_image::make({&into, 1});
  must(published && destination);
  const source_view image = published->source();
  land to(destination->destination());
  serving_owner<net> far;
  auto& owner = far.owner();
  const std::string address = far.address();
  std::string_view addresses[]{address};

  // SNIPPET 2-3

  must(tree && model && beside && text);

  // SNIPPET 4

  must(known && done && mine == trained);
  must(owner.withdraw(*model));
}
