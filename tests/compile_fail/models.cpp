// Structs that are no models.
// WITHIN_LINES: 0
// MAX_ERRORS: 3
#include "model.hpp"

#include <string>
#include <vector>

// CASE forty_members
// Hana's macro takes 39 members. With one more it is no macro call any more but a declaration of unknown types: an
// error for each member, which nothing can prevent. The library adds the sentence that says why, as the last error but
// none of its own.
// EXPECT: m0
// EXPECT_GCC: (at most 39 members: nest structs for more)
// MAX_ERRORS: 42
// MAX_LINES: 160
struct wrong {
  float m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23,
      m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35, m36, m37, m38, m39;
};
BOOST_HANA_ADAPT_STRUCT(wrong, m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19,
                        m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35, m36, m37, m38,
                        m39);

// CASE member_that_is_a_pointer
// EXPECT: or use tensor_list, which takes views of any memory
// EXPECT: &wrong::on_the_heap
// MAX_LINES: 40
struct wrong {
  float bias[4];
  float* on_the_heap;
};
BOOST_HANA_ADAPT_STRUCT(wrong, bias, on_the_heap);

// CASE member_that_is_a_vector
// EXPECT: or use tensor_list, which takes views of any memory
// EXPECT: &encoder::hidden_weights
// MAX_LINES: 40
struct encoder {
  float bias[4];
  std::vector<float> hidden_weights;
};
struct wrong {
  encoder layers[2];
  float scale;
};
BOOST_HANA_ADAPT_STRUCT(encoder, bias, hidden_weights);
BOOST_HANA_ADAPT_STRUCT(wrong, layers, scale);

// CASE member_that_is_no_tensor
// EXPECT: tensorpull: a member of the model is neither a scalar, an array of scalars nor an adapted struct
// WITHIN_LINES: 6
struct wrong {
  float w[4];
  std::string label;
};
BOOST_HANA_ADAPT_STRUCT(wrong, w, label);

// CASE adapted_name_misspelt
// Hana's macro is refused first: g++ has five errors for it, the first of which names the member. The library adds its
// sentence, and nothing cascades.
// EXPECT: no_such_member
// EXPECT: tensorpull: BOOST_HANA_ADAPT_STRUCT of this struct names something that is not one of its members: correct the name
// MAX_ERRORS: 6
// MAX_LINES: 70
struct wrong {
  float weight[4], bias;
};
BOOST_HANA_ADAPT_STRUCT(wrong, weight, no_such_member);

// CASE struct_not_adapted
// EXPECT: tensorpull: a model is a struct adapted with BOOST_HANA_ADAPT_STRUCT
// WITHIN_LINES: 6
struct wrong {
  float w[4][3], b[4];
};

// EACH ENDS WITH
using net = pipeline<raw_tensors<wrong>, whole, loopback>;
bool publish(net::downloader& owner, wrong& model) { return owner.add_tensors(model).has_value(); }
