// Trees that prove what is published, references that are signed, and pulls that are proved.
#include "facade/proofs.hpp"
#include "parts.hpp"
#include "publications.hpp"
#include "pulling.hpp"
#include "route.hpp"

#include <tensorpull/consumers/any_schema/finished_file.hpp>
#include <tensorpull/satellites/proofs/signed_reference.hpp>
#include <tensorpull/system/files.hpp>

#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorpull::python {
namespace {

std::string hex_of(const blake3_value& value) { return std::string(detail::hex_digits(value).view()); }
std::string digits_with_version(const reference& ref) {
  if (!ref.id) return {};
  const auto digits = to_digits(ref);
  return {digits.data(), digits.size()};
}
/// A reference with its version, or none ("").
reference whole_reference(std::string_view digits) {
  reference ref{};
  if (!digits.empty() && !detail::take_reference(digits, ref)) raise(errc::invalid_argument, digits);
  return ref;
}
proved_reference proved_of(std::string_view model, std::uint64_t fingerprint, std::string_view tree,
                           std::string_view root, std::uint64_t image_bytes) {
  proved_reference of{whole_reference(model), whole_reference(tree), {}, image_bytes};
  of.model.fingerprint = fingerprint;
  if (!detail::take_hex(root, of.root)) raise(errc::invalid_argument, "root", "a root is 64 hexadecimal digits");
  return of;
}

/// The tree of tensors that are going to be published.
class tree_of_tensors : public opened_image {
 public:
  /// Cost: one pass over the bytes. Ctrl-C is heard.
  tree_of_tensors(const py::sequence& described, const text_pairs& metadata) {
    const device_reader devices;
    const dynamic_image image = devices.image_of(tensor_table(described), metadata);
    interruption stop{py::none()};
    tree_.emplace(value_or_raise(stop.run([&] {
      return devices.copies()->within(stop,
                                      [&] { return proof_tree::make(image.source(), interruption_token{&stop}); });
    })));
  }
  /// Of one that is_root_alone() nothing is published.
  source_view source() const noexcept override { return tree_->image().source(); }
  bool is_root_alone() const noexcept { return tree_->is_root_alone(); }
  std::string root() const { return hex_of(tree_->root()); }

 private:
  std::optional<proof_tree> tree_;
};

/// Sources from which what is pulled is proved: from all at once, or from one after the other.
class proved_source final : public source {
 public:
  /// `all`: a route to all of them, for pulls at once; nullptr: there is none.
  proved_source(std::vector<source*> from, route* all, const proved_reference& of)
      : from_(std::move(from)), all_(all), of_(of) {}

  /// Which source was asked alone last, and which have given wrong bytes.
  std::size_t current() const noexcept { return current_; }
  std::vector<std::size_t> wrong() const {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < from_.size(); ++i)
      if ((wrong_ >> std::min<std::size_t>(i, 63) & 1) != 0) all.push_back(i);
    return all;
  }

  pull_function begin() override {
    std::vector<pull_function> each;
    for (source* const one : from_) each.push_back(one->begin());
    pull_function together = all_ != nullptr ? all_->begin() : nullptr;
    return [this, each = std::move(each), together = std::move(together)](
               const reference&, facade::any_consumer& to, const pull_options& options, std::uint64_t chunk) {
      std::vector<facade::pull_from> all;
      for (std::size_t i = 0; i < each.size(); ++i)
        all.push_back([this, i, chunk, &pull = each[i]](const reference& ref, facade::any_consumer& into,
                                                        const pull_options& with) {
          current_ = i;
          return pull(ref, into, with, chunk);
        });
      const facade::pull_from pull = [&](const reference& ref, facade::any_consumer& into, const pull_options& with) {
        return together(ref, into, with, chunk);
      };
      std::optional<facade::pull_at_once> at_once;
      if (all_ != nullptr && (all_->connections() > 1 || facade::features.several))
        at_once.emplace(facade::pull_at_once{pull, all_->wrong_bits()});
      std::uint64_t wrong = 0;
      const auto done = facade::pull_proved_from(all, of_, to, {.wrong = &wrong}, options,
                                                 at_once ? &*at_once : nullptr);
      wrong_ |= wrong;
      return done ? result<receipt>(done->last) : result<receipt>(failure(done.error()));
    };
  }

 private:
  std::vector<source*> from_;  // Python keeps them
  route* all_;  // and this
  proved_reference of_;
  std::atomic<std::size_t> current_{0};
  std::atomic<std::uint64_t> wrong_{0};
};

/// `key`: its PEM, or the name of a file that has it.
std::string sign(std::string_view model, std::uint64_t fingerprint, std::string_view tree, std::string_view root,
                 std::uint64_t image_bytes, const std::string& key_text, const std::string& key_file,
                 const std::string& federation, std::uint64_t round, std::uint64_t expires, const std::string& note) {
  pem_source from;
  if (key_file.empty()) from.text = key_text;
  else from.file = key_file;
  const auto key = without_lock([&] { return signing_key::read(from); });
  if (!key)
    raise(key.error(), false, key.error() == errc::bad_file ? "it is no private key of Ed25519 in PEM" : "", key_file);
  return value_or_raise(
      sign_reference({proved_of(model, fingerprint, tree, root, image_bytes), federation, round, expires, note}, *key));
}
/// Why a signed reference is not taken.
std::string_view refused_because(const error& e) {
  const std::string_view name = e.name.view();
  if (name == "signature") return "no trusted key has signed this reference";
  if (name == "revoked") return "the key that has signed this reference is revoked";
  if (name == "federation") return "the signed reference is for another federation";
  if (name == "round") return "the signed reference is of an earlier round";
  if (name == "expires") return "the signed reference has expired";
  return "this is no signed reference";
}
py::tuple verify(const std::string& text, const std::string& keys, const std::string& federation,
                 std::uint64_t least_round) {
  const auto trusted = trusted_keys::parse(keys);
  if (!trusted)
    raise(trusted.error(), false,
          "a line of the keys is not a federation's name, a space and a public key of Ed25519 in base64");
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::system_clock::now().time_since_epoch());
  const auto c = verify_reference(text, *trusted, {federation, least_round, static_cast<std::uint64_t>(now.count())});
  if (!c) raise(c.error(), false, refused_because(c.error()));
  return py::make_tuple(digits_with_version(c->of.model), c->of.model.fingerprint, digits_with_version(c->of.tree),
                        hex_of(c->of.root), c->of.image_bytes, c->federation, c->round, c->expires, c->note);
}
/// The BLAKE3 of a file.
std::string blake3_of_file(const std::string& path) {
  interruption stop{py::none()};
  return hex_of(value_or_raise(stop.run([&]() -> result<blake3_value> {
    auto file = positioned_file::open(path);
    if (!file) return failure(file.error());
    const finished_file all(std::move(*file));
    const auto tree = proof_tree::make(all.read_back(), interruption_token{&stop});
    if (!tree) return failure(tree.error());
    return tree->root();
  })));
}

}  // namespace

void bind_proofs(py::module_& m) {
  py::class_<tree_of_tensors, opened_image>(m, "ProofTree")
      .def(py::init<const py::sequence&, const text_pairs&>())
      .def_property_readonly("root", &tree_of_tensors::root)
      .def_property_readonly("is_root_alone", &tree_of_tensors::is_root_alone);
  py::class_<proved_source, source>(m, "ProvedSource")
      .def(py::init([](std::vector<source*> from, route* all, std::string_view model, std::uint64_t fingerprint,
                       std::string_view tree, std::string_view root, std::uint64_t image_bytes) {
             return std::make_unique<proved_source>(std::move(from), all,
                                                    proved_of(model, fingerprint, tree, root, image_bytes));
           }),
           py::keep_alive<1, 2>(), py::keep_alive<1, 3>())
      .def_property_readonly("wrong", &proved_source::wrong)
      .def_property_readonly("current", &proved_source::current);
  m.def("proof_tree_id", [](std::string_view model) { return digits_of(proof_tree_id(whole_reference(model))); });
  m.def("sign_reference", &sign);
  m.def("verify_reference", &verify);
  m.def("blake3_of_file", &blake3_of_file);
}

}  // namespace tensorpull::python
