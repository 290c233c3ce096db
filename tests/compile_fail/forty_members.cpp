// Hana's macro takes 39 members. With one more it is no macro call any more but a declaration of unknown types: an
// error for each member, which nothing can prevent. The library adds the sentence that says why, as the last error but
// none of its own.
// EXPECT: m0
// EXPECT_GCC: (at most 39 members: nest structs for more)
// MAX_ERRORS: 42
// MAX_LINES: 160
#include <tensorpull/tensorpull.hpp>

struct broad {
  float m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23,
      m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35, m36, m37, m38, m39;
};
BOOST_HANA_ADAPT_STRUCT(broad, m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19,
                        m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35, m36, m37, m38,
                        m39);

using net = tensorpull::pipeline<tensorpull::raw_tensors<broad>, tensorpull::whole, tensorpull::loopback>;

int main() {
  net::downloader owner;
  broad model{};
  return owner.add_tensors(model) ? 0 : 1;
}
