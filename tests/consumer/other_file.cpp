#include "model.hpp"

bool pull(net::downloader& from, const tensorpull::reference& ref, mlp& to) {
  return net::download_tensors(from, ref, to).has_value();
}
