#!/usr/bin/env python3
"""Shows that includes.py fails where it should: a copy of the tree with one wrong line each."""

import pathlib
import re
import shutil
import tempfile

import includes

ROOT = pathlib.Path(__file__).resolve().parent.parent
WRONG = [  # file, line, what is said of it
    ("include/tensorpull/core/result.hpp", "#include <tensorpull/image/schema.hpp>", "core stands above image"),
    ("include/tensorpull/image/detail/sort.hpp", "#include <tensorpull/pipeline.hpp>", "image stands above ."),
    ("include/tensorpull/pipeline.hpp", "#include <tensorpull/satellites/relay/relay.hpp>", "is a satellite"),
    ("include/tensorpull/core/result.hpp", "// as in satellites/relay/relay.hpp", "names no satellite"),
    ("tests/core/result.test.cpp", "#include <tensorpull/satellites/relay/relay.hpp>", "tests of satellites/relay lie in"),
    ("tests/satellites/nats/nats_link.test.cpp", "#include <tensorpull/satellites/relay/relay.hpp>", "tests of satellites/relay lie in"),
    ("include/tensorpull/satellites/relay/relay.hpp", "#include <tensorpull/satellites/parallel/parallel_pull.hpp>", "is a satellite"),
    ("include/tensorpull/core/result.hpp", "#include <unistd.h>", "does not give POSIX to core"),
    ("include/tensorpull/core/result.hpp", "#include <bits/chrono.h>", "only in std/"),
    ("include/tensorpull/framing/word_framing.hpp", "#include <capnp/message.h>", "does not give Cap'n Proto to framing"),
    ("examples/quickstart.cpp", "#include <tensorpull/framing/detail/payload_prefix.hpp>", "not for users"),
    ("tests/core/result.test.cpp", "#include <tensorpull/core/no_such_header.hpp>", "no such header"),
    ("include/tensorpull/core/result.hpp", '#include "../protocol/owner/owner.hpp"', "not by quotes"),
    ("include/tensorpull/core/result.hpp", "#include <./tensorpull/image/schema.hpp>", "without . and .."),
    ("include/tensorpull/core/result.hpp", "#include SOME_HEADER", "a macro hides"),
    ("include/tensorpull/core/result.hpp", "/* a */ #/* b */include /* c */ <tensorpull/image/schema.hpp>", "core stands above image"),
    ("include/tensorpull/core/result.hpp", "#inc\\\nlude <tensorpull/image/schema.hpp>", "core stands above image"),
    ("include/tensorpull/core/result.hpp", "%:include <tensorpull/image/schema.hpp>", "core stands above image"),
    ("include/tensorpull/core/result.hpp", "#include_next <vector>", "is not C++"),
    ("include/tensorpull/core/result.hpp", "#import <vector>", "is not C++"),
    ("include/tensorpull/core/result.hpp", "#if __has_include(<tensorpull/image/schema.hpp>)\n#endif", "always there"),
    ("include/tensorpull/core/result.hpp", "#if __has_include(<unistd.h>)\n#endif", "only for std/"),
    ("include/tensorpull/core/result.hpp", "#include <zstd.h>", "neither a header of C++"),
    ("include/tensorpull/core/result.hpp", "#include <linux/futex.h>", "does not give POSIX to core"),
    ("include/tensorpull/core/result.hpp", "#include <sched.h>", "does not give POSIX to core"),
    ("include/tensorpull/core/result.hpp", "#include <tensorpull/core/x.capnp.h>", "only in messages"),
    ("include/tensorpull/core/extra.h", "#pragma once", "only .hpp"),
    ("include/tensorpull/core/bom.hpp", "\ufeff#include <tensorpull/image/schema.hpp>", "core stands above image"),
    ("examples/other.cc", "#include <tensorpull/framing/detail/payload_prefix.hpp>", "not for users"),
    ("examples/other.ipp", "#include <tensorpull/framing/detail/payload_prefix.hpp>", "not for users"),
    ("examples/quickstart.cpp", '#include "../include/tensorpull/framing/detail/payload_prefix.hpp"', "into include/ by quotes"),
    ("include/tensorpull/new_folder/a.hpp", "#pragma once", "the table has no folder new_folder"),
]


def main():
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder).resolve() / "tree"
        for part in ("include", "examples", "bench", "tests", "cmake"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("build", "report", "__pycache__", "corpus"))
        assert includes.check(copy) == [], includes.check(copy)
        # in a tree that a satellite was taken out of, no line of it is tried
        there = [w for w in WRONG if all((ROOT / "include/tensorpull/satellites" / s).is_dir() for s in re.findall(r"satellites/([a-z]+)/", w[0] + " " + w[1]))]
        for name, line, said in there:
            file = copy / name
            before = file.read_text(encoding="utf-8") if file.exists() else None
            file.parent.mkdir(exist_ok=True)
            file.write_text((before + "\n" if before is not None else "") + line + "\n", encoding="utf-8")
            wrong = includes.check(copy)
            assert len(wrong) == 1 and said in wrong[0] and name in wrong[0], (name, line, wrong)
            if before is None:
                file.unlink()
            else:
                file.write_text(before, encoding="utf-8")
    print(f"{len(there)} wrong lines, each found")


if __name__ == "__main__":
    main()
