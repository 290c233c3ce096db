"""What page_length.py and page_links.py must find wrong."""

import contextlib
import io
import pathlib
import subprocess
import tempfile
import unittest

import page_length
import page_links
import without

HEADER = "#pragma once\n{}\nint x;\n"


class Tree(unittest.TestCase):
    def said(self, check, **pages):
        """What the check prints of a tree with these files; __ is a slash, and a dot is _dot_."""
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            subprocess.run(["git", "init", "-q", name], check=True, timeout=60)
            for page, text in pages.items():
                path = root / page.replace("__", "/").replace("_dot_", ".")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            with contextlib.redirect_stdout(io.StringIO()) as out:
                status = check(root)
            return out.getvalue() if status else ""


class Length(Tree):
    def said(self, **pages):
        return super().said(page_length.main, **pages)

    def setUp(self):
        for name, value in (("LONGER", ()), ("UNREAD", ()), ("UNREAD_HEADERS", ()), ("TOTAL", 40000)):
            self.addCleanup(setattr, page_length, name, getattr(page_length, name))
            setattr(page_length, name, value)

    def test_a_readme_is_short_with_its_tables_and_without_its_code(self):
        words = "word " * 70 + "\n\n"
        self.assertEqual(self.said(README_dot_md=words * 12 + "```\n" + words * 9 + "```\n"), "")
        self.assertIn("README.md: 910 words", self.said(README_dot_md=words * 13))
        self.assertIn("README.md: 910 words", self.said(README_dot_md="| word | word |\n" * 35 + words * 12))
        self.assertIn("160 lines", self.said(README_dot_md="word\n\n" * 80))

    def test_other_pages_have_a_limit_of_their_own_and_short_paragraphs(self):
        self.assertEqual(self.said(reference_dot_md=("word " * 80 + "\n\n") * 25), "")
        self.assertIn("reference.md: 2080 words", self.said(reference_dot_md=("word " * 80 + "\n\n") * 26))
        self.assertIn("CHANGELOG.md: 960 words", self.said(CHANGELOG_dot_md=("word " * 80 + "\n\n") * 12))
        self.assertIn("reference.md:3: a paragraph of 81 words", self.said(reference_dot_md="# a\n\n" + "word " * 40 + "\n" + "word " * 41 + "\n"))
        self.assertIn("reference.md:2: a paragraph of 81 words", self.said(reference_dot_md="- one\n- " + "word " * 81 + "\n"))
        self.assertIn("reference.md:1: a paragraph of 81 words", self.said(reference_dot_md="| a | " + "word " * 81 + " |\n"))
        self.assertEqual(self.said(reference_dot_md="- " + "word " * 50 + "\n- " + "word " * 50 + "\n"), "")

    def test_all_pages_together_have_a_limit(self):
        page_length.TOTAL = 9
        self.assertEqual(self.said(a_dot_md="one two three four\n", b_dot_md="one two three four five\n"), "")
        self.assertIn("all pages have 10 words", self.said(a_dot_md="one two three four five\n", b_dot_md="one two three four five\n"))

    def test_habits_are_refused_on_pages_and_in_comments(self):
        for habit in ("What was sent is kept.", "It ends. Who asks again is served.", "- What is left\n  goes.", "| a | What is left goes |", "The field says how many.", "It was said before.",
                      "Bytes come in order.", "What is left: bytes.", "It goes to another place.", "It is lost over a long line.", "The line to the owner is lost.", "Each recipient who asks is served."):
            self.assertIn("README.md:", self.said(README_dot_md=f"# a\n\n{habit}\n"), habit)
            self.assertIn("a.hpp:", self.said(include__a_dot_hpp=HEADER.format("/// " + habit.replace("\n", "\n/// "))), habit)

    def test_no_habit_is_seen_in_other_sentences(self):
        for good in ("What is it?", "It lands in place.", "This takes place.", "It comes with Debian, and from there.", "A serial line is a line: over this line bytes travel.", "One line of code.",
                     "`says` is a name", "The outcome becomes known."):
            self.assertEqual(self.said(README_dot_md=f"# What is trusted\n\n{good}\n"), "", good)
        self.assertEqual(self.said(README_dot_md="| What | Measured |\n|---|---|\n| a | b |\n\n```\nWhat comes says so.\n```\n"), "")
        self.assertEqual(self.said(include__a_dot_hpp=HEADER.format('int said = 1;  // "what it says"\n// `come`')), "")
        self.assertEqual(self.said(tests__a_dot_hpp=HEADER.format("// What comes")), "")
        self.assertIn("a.cpp:1: ", self.said(tests__a_dot_cpp="// It ends. Who asks again is served.\n"))

    def test_a_fault_has_its_line(self):
        self.assertIn("README.md:4: ", self.said(README_dot_md="# a\n\nIt is sent,\nand then says how many.\n"))

    def test_an_excuse_is_for_something(self):
        page_length.UNREAD, page_length.UNREAD_HEADERS, page_length.LONGER = ("README.md",), ("include/old",), ("reference.md",)
        bad = {"README_dot_md": "It says so.\n", "include__old__a_dot_hpp": HEADER.format("// It comes."), "reference_dot_md": "word " * 81}
        self.assertEqual(self.said(**bad), "")
        self.assertIn("README.md needs no excuse", self.said(**bad | {"README_dot_md": "It states so.\n"}))
        self.assertIn("include/old needs no excuse", self.said(**bad | {"include__old__a_dot_hpp": HEADER.format("// It arrives.")}))
        self.assertIn("reference.md needs no excuse", self.said(**bad | {"reference_dot_md": "word\n"}))
        self.assertEqual(self.said(), "")


class Links(Tree):
    def said(self, **pages):
        return super().said(page_links.main, **pages)

    def test_files_and_folders_are_there(self):
        self.assertEqual(self.said(a_dot_md="[b](f/b.md), [f](f), [x](https://example.org/y), [`a` b](f/b.md)\n", f__b_dot_md="[a](../a.md)\n"), "")
        self.assertIn("a.md:2: c.md leads nowhere", self.said(a_dot_md="\n[b](c.md)\n"))
        self.assertIn("f/b.md:1: a.md leads nowhere", self.said(a_dot_md="[a](a.md)", f__b_dot_md="[a](a.md)\n"))
        self.assertIn("../a.md leads nowhere", self.said(a_dot_md="[a](../a.md)\n"))
        self.assertIn("/etc leads nowhere", self.said(a_dot_md="[a](/etc)\n"))
        self.assertIn("no links at all", self.said(a_dot_md="text\n"))

    def test_headings_are_there(self):
        page = "# One `two`, three!\n## Again\n## Again\n[a](#one-two-three), [b](#again-1), [c](b.md#d-e)\n"
        self.assertEqual(self.said(a_dot_md=page, b_dot_md="### [D](a.md) e\n"), "")
        self.assertIn("a.md:4: #again-1: a.md has no such heading", self.said(a_dot_md=page.replace("## Again\n", "# x\n", 1), b_dot_md="### D e\n"))
        self.assertIn("b.md has no such heading", self.said(a_dot_md=page, b_dot_md="```\n### D e\n```\n"))
        self.assertIn("f has no such heading", self.said(a_dot_md="[a](f#b)\n", f__b_dot_md="# b\n"))

    def test_code_has_no_links(self):
        self.assertEqual(self.said(a_dot_md="[a](a.md) `[](const x& y)`\n```\n[a](nowhere.md)\n```\n"), "")

    def test_every_satellite_is_known_and_may_be_taken_out(self):
        self.assertEqual(set(without.satellites()) - set(page_links.SATELLITES), set())

    def test_a_tree_without_a_second_satellite_is_a_tree_of_git_again(self):
        one, two = [s for s in without.satellites() if (without.ROOT / "include/tensorpull/satellites" / s).is_dir()][:2]
        with tempfile.TemporaryDirectory() as folder:
            for name, other in ((one, two), (two, one)):
                without.copy_without({name}, pathlib.Path(folder))
                listed = subprocess.run(["git", "-C", folder, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True, timeout=60).stdout
                self.assertIn(f"include/tensorpull/satellites/{other}/", listed)
                self.assertNotIn(f"include/tensorpull/satellites/{name}/", listed)

    def test_a_satellite_that_was_taken_out_is_passed_over(self):
        page = "[a](include/tensorpull/satellites/http/README.md), [b](examples/jobs/nvflare_devices/README.md)\n"
        table = "satellites/http | asio |\nsatellites/nvflare | |\n"
        self.assertIn("http/README.md leads nowhere", self.said(a_dot_md=page, include__tensorpull__folders_dot_txt=table))
        self.assertEqual(self.said(a_dot_md=page, include__tensorpull__folders_dot_txt="# none\n"), "")
        self.assertIn("htpp/README.md leads nowhere", self.said(a_dot_md=page.replace("http", "htpp"), include__tensorpull__folders_dot_txt="# none\n"))


if __name__ == "__main__":
    unittest.main()
