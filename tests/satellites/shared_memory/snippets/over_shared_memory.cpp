// NEEDS tensorpull::shared_memory
// SNIPPET 1
#include "context.hpp"

#include <sys/stat.h>

#include <filesystem>

// SNIPPET 2

static Mlp mine{};

int main() {
  const std::string folder = "/tmp/tensorpull-shared-" + std::to_string(::getpid());
  must(::mkdir(folder.c_str(), 0700) == 0);
  const std::string path = folder + "/mlp";

  // SNIPPET 3

  must(shared);
  (*shared)->b2[3] = 3;

  // SNIPPET 4

  must(owner && ref);
  std::jthread serving([&](std::stop_token stop) { owner->run(stop); });

  // SNIPPET 5

  must(done && done->outcome == outcome::completed && mine.b2[3] == 3);
  must(view && view->model() && (*view->model())->b2[3] == 3);
  serving = {};
  std::filesystem::remove_all(folder);
}
