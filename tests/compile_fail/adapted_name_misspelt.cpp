// A misspelt name in BOOST_HANA_ADAPT_STRUCT. Hana's macro is refused first: g++ has five errors for it, the first of
// which names the member. The library adds its sentence, and nothing cascades.
// EXPECT: no_such_member
// EXPECT: tensorpull: BOOST_HANA_ADAPT_STRUCT of this struct names something that is not one of its members: correct the name
// MAX_ERRORS: 6
// MAX_LINES: 70
#include <tensorpull/tensorpull.hpp>

struct misspelt {
  float weight[4], bias;
};
BOOST_HANA_ADAPT_STRUCT(misspelt, weight, no_such_member);

using net = tensorpull::pipeline<tensorpull::raw_tensors<misspelt>, tensorpull::whole, tensorpull::loopback>;

int main() {
  net::downloader owner;
  misspelt model{};
  return owner.add_tensors(model) ? 0 : 1;
}
