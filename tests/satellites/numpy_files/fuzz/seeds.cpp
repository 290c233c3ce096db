// The seeds of this folder's targets.
#include "fuzz/seeds.hpp"
#include "support/zip_archive.hpp"

namespace test::fuzz {
namespace {

void make_arrays() {
  const std::string six(6, 'x'), twelve(12, 'y'), one = npy("|u1", "(6,)", false, six),
                                                  other = npy(">i2", "(2, 3)", true, twelve);
  const std::pair<const char*, std::string> files[] = {
      {"valid-bytes", one},
      {"valid-fortran-swapped", other},
      {"valid-scalar", npy("<f4", "()", false, "1234")},
      {"valid-empty", npy("<f8", "(0, 3)", false, "")},
      {"valid-version-2", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1), }", twelve, 2)},
      {"valid-version-3", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1), } # \xc3\xa9", twelve, 3)},
      {"valid-python-2", npy("{'descr': '<c8', 'fortran_order': True, 'shape': (1L, 1L), }", twelve)},
      {"valid-other-spelling",
       npy("({\"shape\": (0x3, +1), # rows\n u'des' 'cr': r'''>u4''', 'fortran_order': (False)})", twelve)},
      {"n1-structure", npy("{'descr': [('a', '<i4'), ('b', '>f8')], 'fortran_order': False, 'shape': (1,), }", twelve)},
      {"n1-object", npy("|O", "(1,)", false, six)},
      {"valid-n2-two-arrays", one + other},
      {"sizes-that-wrap", npy("<f4", "(4294967296, 4294967296)", false, "")},
      {"brackets", npy("{'descr': " + std::string(300, '('), "")},
      {"valid-archive", zip({{"a.npy", one}, {"../b.npy", other}, {"notes.txt", "none"}})},
      {"valid-archive-64", zip({{"a.npy", one, 0, 0, 45, true}, {"\xe4\xb8\xad.npy", other, 0x800, 0, 45, true}},
                               {.comment = "c", .zip64 = true})},
      {"archive-deflated", zip({{"a.npy", one, 0, 8}})},
      {"archive-of-claims", zip({{"a.npy", one}}, {.zip64 = true, .length_change = 1ll << 40})},
  };
  for (const auto& [name, file] : files) write("arrays", name, file);
}

const seeds mine{make_arrays};

}  // namespace
}  // namespace test::fuzz
