#!/usr/bin/env python3
"""Checks every #include of the library, its examples, benchmarks and tests against the table in include/tensorpull/README.md.

The rules:
  - a folder of the library includes itself and the folders above it in the table;
  - headers of the system and of other libraries are included only where the table names them;
  - headers whose names libstdc++ keeps for itself (<bits/...>) are included only in std/;
  - what lies in a detail/ folder is for the library, its tests and its benchmarks: examples do without it;
  - an included header of the library exists, and each folder of the table exists and has the component that CMake gives it.
Prints the lines that break a rule. Status: 0 none, 1 some, 2 the table cannot be read.
"""

import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCES = {".hpp", ".cpp", ".h"}
# Which library a header belongs to, by its first characters; "" is the C++ standard library.
LIBRARIES = {
    "Hana": ("boost/hana",),
    "Boost.Asio": ("boost/asio", "boost/system"),
    "Cap'n Proto": ("capnp/", "kj/"),
    "xxHash": ("xxhash.h",),
    "ISA-L": ("isa-l/", "isa-l.h"),
    "nlohmann's JSON": ("nlohmann/",),
    "zlib": ("zlib.h",),
    "libtorch": ("ATen/", "c10/", "torch/"),
    "POSIX": ("sys/", "netinet/", "arpa/", "net/", "fcntl.h", "unistd.h", "poll.h", "netdb.h", "termios.h", "dirent.h", "pthread.h", "signal.h", "dlfcn.h"),
    "libstdc++": ("bits/",),
}


class Table:
    """The rows of the table, in order: folder, component, the libraries it may include."""

    def __init__(self, page):
        self.order, self.component, self.libraries = {}, {}, {}
        for line in page.read_text(encoding="utf-8").splitlines():
            cells = [c.strip() for c in line.strip().strip("|").split("|")]
            name = re.fullmatch(r"`([\w./]+)`", cells[0])
            if not name or len(cells) < 5:
                continue
            folder = name[1]
            self.order[folder] = len(self.order)
            self.component[folder] = cells[1].strip("`")
            self.libraries[folder] = {x.strip() for x in cells[2].split(",")} - {"—"}
        if not self.order:
            raise ValueError(f"{page} has no table of folders")


def folder_of(path):
    """The table's name for the folder of a header, given relative to include/tensorpull; and whether it lies in detail/."""
    parts = list(path.parts[:-1])
    private = "detail" in parts
    parts = [p for p in parts if p != "detail"]
    return "/".join(parts) or ".", private


def library_of(header):
    for name, starts in LIBRARIES.items():
        if header.startswith(starts):
            return name
    return ""


def includes(file):
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        found = INCLUDE.match(line)
        if found:
            yield number, found[2], line.strip()


def check(root):
    library = root / "include" / "tensorpull"
    table = Table(library / "README.md")
    wrong = []

    def say(file, number, line, why):
        wrong.append(f"{file.relative_to(root)}:{number}: {line}\n    {why}")

    for header in sorted(library.rglob("*.hpp")):
        here, _ = folder_of(header.relative_to(library))
        if here not in table.order:
            say(header, 1, "", f"the table has no folder {here}")
            continue
        for number, name, line in includes(header):
            if name.startswith("tensorpull/"):
                there, _ = folder_of(pathlib.PurePath(name[len("tensorpull/"):]))
                generated = name.endswith(".capnp.h")
                if not generated and not (root / "include" / name).is_file():
                    say(header, number, line, "there is no such header")
                elif there not in table.order:
                    say(header, number, line, f"the table has no folder {there}")
                elif table.order[there] > table.order[here]:
                    say(header, number, line, f"{here} stands above {there} in the table, so it must not include it")
            else:
                library_name = library_of(name)
                if library_name == "libstdc++":
                    if here != "std":
                        say(header, number, line, "headers that libstdc++ keeps for itself are included only in std/")
                elif library_name and library_name not in table.libraries[here]:
                    say(header, number, line, f"the table does not give {library_name} to {here}")

    for part in ("examples", "bench", "tests"):
        for file in sorted(f for f in (root / part).rglob("*") if f.suffix in SOURCES and f.is_file()):
            for number, name, line in includes(file):
                if not name.startswith("tensorpull/"):
                    continue
                there, private = folder_of(pathlib.PurePath(name[len("tensorpull/"):]))
                if not name.endswith(".capnp.h") and not (root / "include" / name).is_file():
                    say(file, number, line, "there is no such header")
                elif there not in table.order:
                    say(file, number, line, f"the table has no folder {there}")
                elif private and part == "examples":
                    say(file, number, line, "what lies in detail/ is not for users, so not for examples")

    headers = (root / "cmake" / "TensorpullHeaders.cmake").read_text(encoding="utf-8")
    given = {}
    for component, folders in re.findall(r"^set\(tensorpull_folders_(\w+)([^)]*)\)", headers, re.M):
        for folder in folders.split():
            given[folder] = component
    for folder in table.order:
        if not (library / folder).is_dir():
            wrong.append(f"include/tensorpull/README.md: there is no folder {folder}")
        if given.get(folder) != table.component[folder]:
            wrong.append(f"include/tensorpull/README.md: {folder} is of the component {table.component[folder]}, in cmake/TensorpullHeaders.cmake of {given.get(folder)}")
    return wrong


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    try:
        wrong = check(root)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(wrong) if wrong else "every include keeps to the table")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
