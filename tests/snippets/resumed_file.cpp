#include "context.hpp"

#include <tensorpull/consumers/any_schema/safetensors_file.hpp>

#include <filesystem>

int main() {
  using net = over_tcp;
  std::string pattern = (std::filesystem::temp_directory_path() / "tensorpull-snippet-XXXXXX").string();
  must(::mkdtemp(pattern.data()) != nullptr);
  std::filesystem::current_path(pattern);
  static Mlp model{};
  serving_owner<net> serving;
  const auto published = serving.owner().add_tensors(model);
  must(published.has_value());
  const reference ref = *published;
  const std::string address = serving.address();

  // SNIPPET

  must(done.has_value() && std::filesystem::file_size("model.safetensors") == done->bytes);
  std::filesystem::remove_all(pattern);
}
