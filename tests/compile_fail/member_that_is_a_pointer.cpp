// A pointer: nobody knows how much it leads to. The diagnostic names the member.
// EXPECT: or use tensor_list, which takes views of any memory
// EXPECT: &borrowed::on_the_heap
// MAX_ERRORS: 3
// MAX_LINES: 40
#include <tensorpull/tensorpull.hpp>

struct borrowed {
  float bias[4];
  float* on_the_heap;
};
BOOST_HANA_ADAPT_STRUCT(borrowed, bias, on_the_heap);

using net = tensorpull::pipeline<tensorpull::raw_tensors<borrowed>, tensorpull::whole, tensorpull::loopback>;

int main() {
  net::downloader owner;
  borrowed model{};
  return owner.add_tensors(model) ? 0 : 1;
}
