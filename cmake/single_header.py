#!/usr/bin/env python3
"""Makes one file of many headers: single_header.py --version 0.1.0 --output build/tensorpull_embedded.hpp; --of ground: tensorpull_ground.hpp; --of module:
tensorpull.cppm, the ground floor as a C++20 module, which exports all of it.

It has the pipeline of small machines with all that it rests on (ROOTS), each header once, in the order in which they include each other. What they include of the standard
library stands once at the top; what is included under a condition stays where it is. Nothing else changes, so the code is that of the folder of headers.
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
         "protocol/connection", "protocol/datagrams", "links", "embedded", "device.hpp", "satellites/*/embedded_*.hpp")
# The ground floor of hosts: every header of these components (include/tensorpull/folders.txt) but the umbrella, which has nothing of its own.
GROUND = ("freestanding", "tensorpull")
KINDS = {
    "embedded": ("TENSORPULL_EMBEDDED_HPP", "for small machines: the headers of the library that a device needs, in one file. It needs C++20 and nothing else."),
    "ground": ("TENSORPULL_GROUND_HPP", "for hosts: the ground floor of the library in one file. It needs C++20, POSIX and the headers of Boost.Hana."),
}
LEFT_OUT = ("image/dynamic.hpp", "image/header_reader.hpp")  # for machines with a heap
BESIDE = "tensorpull: a header that was made of many has what the library's own headers have: leave one of them out"
OURS = re.compile(r"#include <(tensorpull/[^>]+)>\s*(?://.*)?$")
STANDARD = re.compile(r"#include <([^>]+)>\s*(?://.*)?$")


def roots(include):
    library = include / "tensorpull"
    for name in ROOTS:
        if "*" in name:
            yield from sorted(library.glob(name))
            continue
        path = library / name
        if not path.exists():
            raise ValueError(f"there is no {path}")
        yield from (p for p in sorted(path.glob("*.hpp")) if p.relative_to(library).as_posix() not in LEFT_OUT) if path.is_dir() else [path]


def ground(include):
    library = include / "tensorpull"
    for line in (library / "folders.txt").read_text(encoding="utf-8").splitlines():
        cells = [c.strip() for c in line.split("|")]
        if line.startswith("#") or len(cells) != 4 or cells[1] not in GROUND or cells[0].startswith("satellites/"):
            continue
        place = library / cells[0]
        yield from [place] if place.is_file() else (p for folder in (place, place / "detail") for p in sorted(folder.glob("*.hpp")) if p.name != "tensorpull.hpp")


class Joined:
    def __init__(self, include):
        self.include, self.order, self.standard, self.parts, self.open = include, [], set(), {}, []
        self.conditional = set()  # standard headers that are included under a condition

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
                if standard and not standard[1].startswith("bits/"):
                    self.conditional.add(standard[1])
                kept.append(line)
        self.open.pop()
        text = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip("\n")
        self.parts[name] = text
        self.order.append(name)

    def module(self, version):
        """All that is not the library's comes first, in the global module."""
        of_x86 = {s for s in self.conditional if s == "immintrin.h"}
        out = [f"// tensorpull {version} as a module: the ground floor of the library. Experimental. A generated file: the library's own headers are the source.",
               "// SPDX-License-Identifier: Apache-2.0", "module;", *(f"#include <{s}>" for s in sorted((self.standard | self.conditional) - of_x86)),
               "#if defined(__x86_64__)", *(f"#include <{s}>" for s in of_x86), "#endif", "export module tensorpull;", "export {", ""]
        for name in self.order:
            out += [f"// ---- {name}", "", re.sub(r"(?m)^\s*#\s*include .*$", "", self.parts[name]), ""]
        return "\n".join([*out, "}  // export", ""])

    def text(self, version, kind="embedded"):
        guard, what = KINDS[kind]
        other, = (g for g, _ in KINDS.values() if g != guard)
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
    arguments.add_argument("--of", choices=(*KINDS, "module"), default="embedded", help="what a device needs (embedded), or the ground floor without the parts that need libraries, as a header or a module")
    arguments.add_argument("--output", metavar="FILE", type=pathlib.Path)
    arguments.add_argument("--list", action="store_true", help="print the headers")
    chosen = arguments.parse_args()
    joined = Joined(chosen.include.resolve())
    try:
        for path in (roots if chosen.of == "embedded" else ground)(chosen.include.resolve()):
            joined.add(path)
    except (ValueError, OSError) as error:
        print(f"single_header.py: {error}", file=sys.stderr)
        return 1
    if chosen.list:
        print("\n".join(joined.order))
    elif chosen.output:
        chosen.output.parent.mkdir(parents=True, exist_ok=True)
        chosen.output.write_text(joined.module(chosen.version) if chosen.of == "module" else joined.text(chosen.version, chosen.of), encoding="utf-8")
    else:
        arguments.error("--output or --list is needed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
