// A user's program: a model moves in one process. The umbrella is included in both of its files.
#include "model.hpp"

#include <cstdio>
#include <cstring>
#include <memory>

int main() {
  mlp mine{}, theirs{}, again{};
  for (std::size_t i = 0; i < theirs.bias.size(); ++i) theirs.bias[i] = static_cast<float>(i);
  const auto owner = std::make_unique<net::downloader>();
  const auto ref = owner->add_tensors(theirs, {.recipients = 2});
  if (!ref || !pull(*owner, *ref, mine) || !net::download_tensors(*owner, *ref, again)) return 1;
  std::printf("bias[7] = %g\n", static_cast<double>(mine.bias[7]));
  return owner->settled(*ref) && std::memcmp(&mine, &theirs, sizeof mine) == 0 &&
                 std::memcmp(&again, &theirs, sizeof again) == 0
             ? 0
             : 1;
}
