// The seeds of this folder's targets.
#include "fuzz/seeds.hpp"

#include <tensorpull/satellites/proofs/signed_reference.hpp>

namespace test::fuzz {
namespace {

void make_signed_references() {
  tensorpull::reference_claims c;
  c.of.model = {{1, 2}, 3, 4};
  c.of.tree = {{5, 6}, 7, 0};
  c.of.image_bytes = 1'000'000;
  c.federation = "hospitals";
  c.round = 12;
  c.expires = 2'000'000'000;
  c.note = "best so far";
  const std::string text = tensorpull::detail::claims_text(c), signature = "signature " + std::string(128, '0') + "\n";
  write("signed_references", "valid", text + signature);
  c.note.clear();
  write("signed_references", "valid-without-note", tensorpull::detail::claims_text(c) + signature);
  write("signed_references", "cut", text);
  write("signed_references", "two-signatures", text + signature + signature);
  write("signed_references", "key", "hospitals MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n");
}
const seeds mine{make_signed_references};

}  // namespace
}  // namespace test::fuzz
