// NEEDS tensorpull::directories
// SNIPPET 1
#include "context.hpp"

#include <filesystem>
#include <fstream>

// SNIPPET 2

int main() {
  const std::string folder = "/tmp/tensorpull-directories-" + std::to_string(::getpid()), path = folder + "/checkpoint",
                    copy = folder + "/copy";
  std::filesystem::create_directories(path);
  std::ofstream(path + "/config.json") << "{}";
  std::ofstream(path + "/model.safetensors") << "weights";
  serving_owner<net> far;
  const std::string address = far.address();
  auto& owner = far.owner();
  const std::string earlier = path;

  // SNIPPET 3

  must(files && ref);

  // SNIPPET 4

  must(done && done->files == 2 && std::filesystem::file_size(copy + "/model.safetensors") == 7);
  must(owner.withdraw(*ref));
  std::filesystem::remove_all(folder);
}
