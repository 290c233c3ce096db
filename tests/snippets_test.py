"""What snippets.py must find wrong."""

import contextlib
import io
import pathlib
import tempfile
import unittest

import snippets

PAGE = """# a
<!-- snippet: first -->
```cpp
int a = 1;

int b = 2;
```
"""


class Check(unittest.TestCase):
    def said(self, page, **files):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            (root / "tests" / "snippets").mkdir(parents=True)
            (root / "README.md").write_text(page)
            for file, text in files.items():
                (root / "tests" / "snippets" / file.replace("__", ".")).write_text(text)
            (root / "CMakePresets.json").write_text('{"configurePresets": [{"name": "dev"}, {"name": "base", "hidden": true}]}')
            (root / "tests" / "CMakeLists.txt").write_text("")
            (root / "program.cpp").write_text("int main() {\n  one();\n  two();\n}\n\n// Output:\n// it works\n")
            with contextlib.redirect_stdout(io.StringIO()) as out:
                status = snippets.check(root)
            self.assertEqual(status == 0, "claimed" in out.getvalue())
            return out.getvalue() if status else ""

    def test_a_program_uses_each_paragraph_once(self):
        self.assertEqual(self.said(PAGE, first__cpp="// SNIPPET 1\nint main() {\n// SNIPPET 2\n}\n"), "")
        self.assertEqual(self.said(PAGE, first__cpp="// SNIPPET\n"), "")
        self.assertIn("does not use the paragraphs [2]", self.said(PAGE, first__cpp="// SNIPPET 1\n"))
        self.assertIn("no paragraph 3", self.said(PAGE, first__cpp="// SNIPPET 1-3\n"))
        self.assertIn("there is no tests/snippets/first.cpp", self.said(PAGE))

    def test_every_block_is_claimed_and_every_program_used(self):
        self.assertIn("README.md:1: no comment", self.said("```cpp\nint a;\n```\n"))
        self.assertIn("README.md:2: no comment", self.said("text\n```\nsomething\n```\n"))
        self.assertIn("second.py: no block", self.said(PAGE, first__cpp="// SNIPPET\n", second__py="# SNIPPET\n"))
        self.assertIn("no blocks at all", self.said("text\n"))

    def test_code_stands_in_blocks_that_can_be_claimed(self):
        good = "<!-- snippet: picture -->\n```\n~~~\n```\n"
        self.assertEqual(self.said(good), "")
        self.assertIn("not between ~~~", self.said(good + "~~~cpp\nint a;\n~~~\n"))
        self.assertIn("indented block", self.said(good + "text\n\n    int a = 1;\n"))
        self.assertEqual(self.said(good + "- text\n\n    more of it\n"), "")

    def test_excerpts_and_outputs(self):
        excerpt = "<!-- snippet: excerpt program.cpp -->\n\n```cpp\n{}\n```\n"
        self.assertEqual(self.said(excerpt.format("one();\n\ntwo();")), "")
        self.assertIn("one();", self.said(excerpt.format("two();\none();")))
        self.assertEqual(self.said("<!-- snippet: output program.cpp -->\n```\nit works\n```\n"), "")
        self.assertIn("does not print: it fails", self.said("<!-- snippet: output program.cpp -->\n```\nit fails\n```\n"))

    def test_commands(self):
        commands = "<!-- snippet: commands -->\n```\n{}\n```\n"
        self.assertEqual(self.said(commands.format("ls tests/snippets  # lists")), "")
        self.assertIn("there is no tests/none.sh", self.said(commands.format("bash tests/none.sh")))
        self.assertIn("has no option --none", self.said(commands.format("bash tests/snippets/a.sh --none"), a__sh="# --some\n"))
        self.assertIn("has no option --som", self.said(commands.format("bash tests/snippets/a.sh --som"), a__sh="# --some\n"))
        self.assertIn("has no option --none", self.said(commands.format("./tests/snippets/a.sh --none=1"), a__sh="# --some\n"))
        self.assertEqual(self.said(commands.format("cmake --preset dev")), "")
        self.assertIn("no preset base", self.said(commands.format("cmake --preset base")))
        self.assertIn("no preset dev in buildPresets", self.said(commands.format("cmake --build --preset dev")))
        self.assertEqual(self.said(commands.format("cmake --build b --target tensorpull_snippets_tests")), "")
        self.assertIn("no tests/none", self.said(commands.format("cmake --build b --target tensorpull_none_tests")))
        self.assertEqual(self.said(commands.format("ctest -R '^snippets\\.'")), "")
        self.assertIn("begins with none", self.said(commands.format("ctest -R '^none\\.'")))
        self.assertIn("bash cannot read", self.said(commands.format("if then")))

    def test_programs_that_are_compiled_together(self):
        whole = '// NEEDS a::b\n#include "context.hpp"\n\n#include <array>\n\nint main() {\n  f();\n}\n'
        part = snippets.as_part("x", "x.cpp", whole)
        self.assertTrue(part.startswith('#include "context.hpp"\n#include <array>\nnamespace snippet_x {\n#line 1 "x.cpp"\n// NEEDS'), part)
        self.assertTrue(part.endswith("int main() {\n  f();\n  return 0;\n}\n}  // namespace snippet_x\n"), part)
        self.assertEqual(part.count("\n"), whole.count("\n") + 6)
        for alone in (whole.replace('"context.hpp"', '"own.hpp"'), whole.replace("\nint", "\ntemplate <>\nint"), whole.replace("\nint", "\n#if 1\nint"),
                      whole.replace("main()", "main(int, char**)"), whole.replace("a::b", "tensorpull::torch")):
            self.assertIsNone(snippets.as_part("x", "x.cpp", alone), alone)


if __name__ == "__main__":
    unittest.main()
