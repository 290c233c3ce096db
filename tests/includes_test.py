#!/usr/bin/env python3
"""Shows that includes.py fails where it should: a copy of the tree with one wrong line each."""

import pathlib
import shutil
import tempfile

import includes

ROOT = pathlib.Path(__file__).resolve().parent.parent
WRONG = [  # file, line, what is said of it
    ("include/tensorpull/core/result.hpp", "#include <tensorpull/image/schema.hpp>", "core stands above image"),
    ("include/tensorpull/image/detail/sort.hpp", "#include <tensorpull/pipeline.hpp>", "image stands above ."),
    ("include/tensorpull/core/result.hpp", "#include <unistd.h>", "does not give POSIX to core"),
    ("include/tensorpull/core/result.hpp", "#include <bits/chrono.h>", "only in std/"),
    ("include/tensorpull/framing/word_framing.hpp", "#include <capnp/message.h>", "does not give Cap'n Proto to framing"),
    ("examples/quickstart.cpp", "#include <tensorpull/framing/detail/payload_prefix.hpp>", "not for users"),
    ("tests/core/result.test.cpp", "#include <tensorpull/core/no_such_header.hpp>", "no such header"),
    ("include/tensorpull/new_folder/a.hpp", "#pragma once", "the table has no folder new_folder"),
]


def main():
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "tree"
        for part in ("include", "examples", "bench", "tests", "cmake"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("build", "report", "__pycache__", "corpus"))
        assert includes.check(copy) == [], includes.check(copy)
        for name, line, said in WRONG:
            file = copy / name
            before = file.read_text(encoding="utf-8") if file.exists() else None
            file.parent.mkdir(exist_ok=True)
            file.write_text((before or "") + "\n" + line + "\n", encoding="utf-8")
            wrong = includes.check(copy)
            assert len(wrong) == 1 and said in wrong[0] and name in wrong[0], (name, line, wrong)
            if before is None:
                file.unlink()
            else:
                file.write_text(before, encoding="utf-8")
    print(f"{len(WRONG)} wrong lines, each found")


if __name__ == "__main__":
    main()
