#!/usr/bin/env python3
"""Makes one header of those that a small machine needs: single_header.py --version 0.1.0 --output build/tensorpull_embedded.hpp

It has the small engine with all that it rests on (ROOTS), each header once, in the order in which they include each other. What they include of the standard
library stands once at the top; what is included under a condition stays where it is. Nothing else changes, so the code is that of the folder of headers.
With --host it has what the umbrella includes, and owners, for Compiler Explorer, for example. That needs Boost.Hana as well.
With --list it prints the headers, and writes nothing.
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Folders with all of their headers (not those of folders below), and single headers. Whatever these include comes with them. A satellite's headers for small
# machines are named embedded_*.hpp.
ROOTS = ("core", "image", "chunking", "integrity", "framing/word_framing.hpp", "consumers/land.hpp", "protocol", "protocol/owner", "protocol/recipient",
         "protocol/connection", "protocol/datagrams", "links", "embedded", "satellites/*/embedded_*.hpp")
LEFT_OUT = ("image/dynamic.hpp", "image/header_reader.hpp")  # for machines with a heap
BESIDE = "tensorpull: a single header has what the library's own headers have: leave one of them out"
OURS = re.compile(r"#include <(tensorpull/[^>]+)>\s*(?://.*)?$")
STANDARD = re.compile(r"#include <([^>]+)>\s*(?://.*)?$")


def roots(include, host=False):
    library = include / "tensorpull"
    if host:
        yield library / "transports/host/owner.hpp"
        yield from (include / found[1] for found in map(OURS.match, (library / "tensorpull.hpp").read_text(encoding="utf-8").splitlines()) if found)
    for name in () if host else ROOTS:
        if "*" in name:
            yield from sorted(library.glob(name))
            continue
        path = library / name
        if not path.exists():
            raise ValueError(f"there is no {path}")
        yield from (p for p in sorted(path.glob("*.hpp")) if p.relative_to(library).as_posix() not in LEFT_OUT) if path.is_dir() else [path]


class Joined:
    def __init__(self, include):
        self.include, self.order, self.standard, self.parts, self.open = include, [], set(), {}, []

    def add(self, path):
        name = path.relative_to(self.include).as_posix()
        if name in self.parts:
            return
        if name in self.open:
            raise ValueError("headers include each other in a circle: " + " ".join([*self.open, name]))
        self.open.append(name)
        kept, conditions = [], 0
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            ours, standard = OURS.match(line), STANDARD.match(line)
            conditions += bool(re.match(r"\s*#\s*if", line)) - bool(re.match(r"\s*#\s*endif", line))
            if line.strip() == "#pragma once":
                continue
            if ours and conditions:
                raise ValueError(f"{name}:{number}: a header of the library is included under a condition")
            if ours:
                self.add(self.include / ours[1])
            elif standard and not conditions:
                self.standard.add(standard[1])
            elif re.match(r"\s*#\s*include", line) and not conditions:
                raise ValueError(f"{name}:{number}: {line.strip()} is not understood")
            else:
                kept.append(line)
        self.open.pop()
        text = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip("\n")
        self.parts[name] = text
        self.order.append(name)

    def text(self, version, host=False):
        what = "in one file: what tensorpull/tensorpull.hpp and transports/host/owner.hpp include. It needs C++20, Linux and Boost.Hana." if host else (
            "for small machines: the headers of the library that a device needs, in one file. It needs C++20 and nothing else.")
        guard, other = ("TENSORPULL_HOST_HPP", "TENSORPULL_EMBEDDED_HPP")[::1 if host else -1]
        out = [f"// tensorpull {version} {what}",
               "// A generated file: the library's own headers are the source, and cmake/single_header.py puts them together.",
               "// SPDX-License-Identifier: Apache-2.0",
               "// Licence: the Apache License, Version 2.0, http://www.apache.org/licenses/LICENSE-2.0",
               f"#if defined TENSORPULL_HPP || defined {other}", f'#error "{BESIDE}"', f"#elif !defined {guard}", f"#define {guard}", "", *(f"#include <{s}>" for s in sorted(self.standard)), ""]
        for name in self.order:
            out += [f"// ---- {name}", "", self.parts[name], ""]
        return "\n".join([*out, f"#endif  // {guard}", ""])


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--include", metavar="FOLDER", type=pathlib.Path, default=ROOT / "include")
    arguments.add_argument("--version", default="of a source tree")
    arguments.add_argument("--output", metavar="FILE", type=pathlib.Path)
    arguments.add_argument("--host", action="store_true", help="what the umbrella includes, and owners")
    arguments.add_argument("--list", action="store_true", help="print the headers")
    chosen = arguments.parse_args()
    joined = Joined(chosen.include.resolve())
    try:
        for path in roots(chosen.include.resolve(), chosen.host):
            joined.add(path)
    except (ValueError, OSError) as error:
        print(f"single_header.py: {error}", file=sys.stderr)
        return 1
    if chosen.list:
        print("\n".join(joined.order))
    elif chosen.output:
        chosen.output.parent.mkdir(parents=True, exist_ok=True)
        chosen.output.write_text(joined.text(chosen.version, chosen.host), encoding="utf-8")
    else:
        arguments.error("--output or --list is needed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
