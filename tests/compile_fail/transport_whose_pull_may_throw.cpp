// A transport whose pull is not noexcept.
// EXPECT: tensorpull: a transport pulls (requirement 7)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : loopback {
  template <class Parts, class Owner, consumer Consumer>
  static result<receipt> pull(Owner&& from, const reference& ref, Consumer& to, const pull_options& options,
                              typename Parts::chunking chunking) {
    return loopback::pull<Parts>(from, ref, to, options, chunking);
  }
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, mine>;
bool get(mlp& model, net::downloader& owner, const reference& ref) {
  return net::download_tensors(owner, ref, model).has_value();
}
