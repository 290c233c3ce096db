#!/usr/bin/env python3
"""cmake/single_header.py: each header once, in order, standard includes at the top; and what it refuses."""

import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "cmake"))
import single_header


def joined(files, roots):
    with tempfile.TemporaryDirectory() as folder:
        include = pathlib.Path(folder).resolve()
        (include / "tensorpull").mkdir()
        for name, text in files.items():
            (include / "tensorpull" / name).write_text(text)
        made = single_header.Joined(include)
        for root in roots:
            made.add(include / "tensorpull" / root)
        return made


class SingleHeader(unittest.TestCase):
    files = {
        "a.hpp": "// A.\n#pragma once\n\n#include <tensorpull/b.hpp>\n\n#include <span>\n\nint a();\n",
        "b.hpp": "// B.\n#pragma once\n#include <array>  // for b\n#include <span>\n#if defined(X)\n#include <bits/x.h>\n#endif\nint b();\n",
    }

    def test_each_header_once_and_before_what_includes_it(self):
        made = joined(self.files, ["a.hpp", "b.hpp"])
        self.assertEqual(made.order, ["tensorpull/b.hpp", "tensorpull/a.hpp"])
        text = made.text("7.8.9")
        self.assertIn("tensorpull 7.8.9", text)
        self.assertIn("SPDX-License-Identifier: Apache-2.0", text)
        self.assertEqual(text.count("int b();"), 1)
        self.assertLess(text.index("// ---- tensorpull/b.hpp"), text.index("// ---- tensorpull/a.hpp"))
        self.assertEqual(text.count("#include <span>"), 1)
        self.assertLess(text.index("#include <array>"), text.index("// ---- "))
        self.assertNotIn("pragma", text)
        self.assertNotIn("#include <tensorpull", text)

    def test_beside_the_umbrella_it_is_one_error(self):
        include = pathlib.Path(__file__).resolve().parents[2] / "include"
        with tempfile.TemporaryDirectory() as folder:
            for host in (False, True):
                made = single_header.Joined(include)
                for path in single_header.roots(include, host):
                    made.add(path)
                (pathlib.Path(folder) / ("host.hpp" if host else "embedded.hpp")).write_text(made.text("1", host))
            for order in itertools.permutations(("embedded.hpp", "host.hpp", "tensorpull/tensorpull.hpp"), 2):
                command = [os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", f"-I{folder}", f"-I{include}", "-xc++", "-"]
                done = subprocess.run(command, timeout=300, input="".join(f"#include <{name}>\n" for name in order), capture_output=True, text=True)
                self.assertEqual(done.stderr.count(" error: "), 1, done.stderr[:2000])
                self.assertIn("leave one of them out", done.stderr)

    def test_what_is_included_under_a_condition_stays(self):
        text = joined(self.files, ["b.hpp"]).text("1")
        self.assertIn("#if defined(X)\n#include <bits/x.h>\n#endif", text)

    def test_a_circle_is_refused(self):
        with self.assertRaisesRegex(ValueError, "in a circle: tensorpull/a.hpp tensorpull/b.hpp tensorpull/a.hpp"):
            joined({"a.hpp": "#include <tensorpull/b.hpp>\n", "b.hpp": "#include <tensorpull/a.hpp>\n"}, ["a.hpp"])

    def test_a_header_of_the_library_under_a_condition_is_refused(self):
        with self.assertRaisesRegex(ValueError, "a.hpp:2: a header of the library is included under a condition"):
            joined({"a.hpp": "#if 1\n#include <tensorpull/b.hpp>\n#endif\n", "b.hpp": ""}, ["a.hpp"])

    def test_an_include_that_is_not_understood_is_refused(self):
        with self.assertRaisesRegex(ValueError, "a.hpp:1: #include \"b.hpp\" is not understood"):
            joined({"a.hpp": '#include "b.hpp"\n'}, ["a.hpp"])

    def test_a_root_that_is_gone_is_refused(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(ValueError, "there is no "):
            list(single_header.roots(pathlib.Path(folder)))


if __name__ == "__main__":
    unittest.main()
