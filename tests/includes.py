#!/usr/bin/env python3
"""Checks every #include of the library, its examples, benchmarks and tests against the table of folders, include/tensorpull/folders.txt.

The rules:
  - a folder of the ground floor includes itself and the folders above it in the table, and no satellite;
  - a satellite includes itself and the ground floor, and no other satellite;
  - tests of the ground floor include no satellite; those in tests/satellites/NAME include that one, and those in its folder with_OTHER the other one, too;
    the tests of programs (tools, Python, FLARE) ask for others by __has_include;
  - headers of the system and of other libraries are included only where the table names them;
  - what is neither of C++, nor of a library of the table, nor the library's own is an error; so are macros, quotes, . and .. in the library's includes;
  - __has_include stands only in std/, or asks for a generated header; of the library only messages includes those (.capnp.h);
  - headers whose names libstdc++ keeps for itself (<bits/...>) are included only in std/;
  - what lies in a detail/ folder is for the library, its tests and its benchmarks: examples do without it;
  - an included header of the library exists, and so does each folder of the ground floor.
Prints the lines that break a rule. Status: 0 none, 1 some, 2 the table cannot be read.
"""

import functools
import pathlib
import posixpath
import re
import sys

DIRECTIVE = re.compile(r'^\s*(?:#|%:)\s*(include_next|include|import)\b\s*(.*)$')
HAS_INCLUDE = re.compile(r'__has_include(?:_next)?\s*\(\s*([<"])([^>"]+)[>"]')
NAME = re.compile(r'([<"])([^>"]+)[>"]')
SOURCES = {".hpp", ".cpp", ".cc", ".ipp", ".h"}
STANDARD = set("""algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono cinttypes climits clocale cmath codecvt
    compare complex concepts condition_variable coroutine csetjmp csignal cstdarg cstddef cstdint cstdio cstdlib cstring ctime cuchar cwchar cwctype deque
    exception execution filesystem format forward_list fstream functional future initializer_list iomanip ios iosfwd iostream istream iterator latch limits
    list locale map memory memory_resource mutex new numbers numeric optional ostream queue random ranges ratio regex scoped_allocator semaphore set
    shared_mutex source_location span sstream stack stdexcept stop_token streambuf string string_view strstream syncstream system_error thread tuple
    type_traits typeindex typeinfo unordered_map unordered_set utility valarray variant vector version
    assert.h ctype.h errno.h fenv.h float.h inttypes.h limits.h locale.h math.h setjmp.h stdarg.h stddef.h stdint.h stdio.h stdlib.h string.h time.h
    uchar.h wchar.h wctype.h""".split())
# Which library a header belongs to, by its first characters; STANDARD has those of C++, and what is in neither is an error in the library.
LIBRARIES = {
    "Hana": ("boost/hana",),
    "Boost.Asio": ("boost/asio", "boost/system"),
    "Cap'n Proto": ("capnp/", "kj/"),
    "compiler's vectors": ("immintrin.h",),
    "zlib": ("zlib.h",),
    "OpenSSL": ("openssl/",),
    "libnats": ("nats/nats.h",),
    "libcurl": ("curl/curl.h",),
    "libtorch": ("ATen/", "c10/", "torch/"),
    "POSIX": ("sys/", "netinet/", "arpa/", "net/", "fcntl.h", "unistd.h", "poll.h", "netdb.h", "termios.h", "dirent.h", "pthread.h", "signal.h", "dlfcn.h",
              "spawn.h", "linux/", "ifaddrs.h", "sched.h", "semaphore.h"),
    "libstdc++": ("bits/",),
}


class Table:
    """The rows of the table, in order: folder, component, the libraries it may include."""

    def __init__(self, page):
        self.order, self.libraries = {}, {}
        for line in page.read_text(encoding="utf-8").splitlines():
            cells = [c.strip() for c in line.split("|")]
            if line.startswith("#") or len(cells) != 4:
                continue
            folder = cells[0]
            self.order[folder] = len(self.order)
            self.libraries[folder] = {x.strip() for x in cells[2].split(",")} - {""}
        if not self.order:
            raise ValueError(f"{page} has no table of folders")

    def may_include(self, here, there):
        """Why a header in `here` may not include one in `there`, or None."""
        if is_satellite(there):
            return None if here == there else f"{there} is a satellite, so only its own headers include it"
        if not is_satellite(here) and self.order[there] > self.order[here]:
            return f"{here} stands above {there} in the table, so it must not include it"
        return None


def may_test(file, satellite):
    """Whether a file of tests, relative to tests/, may include this satellite."""
    return file.parts[0] == "satellites" and (file.parts[1] in (satellite, "python", "tools", "nvflare") or file.parts[2] == f"with_{satellite}")


def is_satellite(folder):
    return folder.startswith("satellites/")


def folder_of(path, rows=()):
    """The table's name for the folder of a header, given relative to include/tensorpull, or its own row; and whether it lies in detail/."""
    parts = list(path.parts[:-1])
    private = "detail" in parts
    if path.as_posix() in rows:
        return path.as_posix(), private
    parts = [p for p in parts if p != "detail"]
    return "/".join(parts[:2] if parts[:1] == ["satellites"] else parts) or ".", private


def library_of(header):
    """The library, "" for C++'s own, None for one that nobody knows."""
    for name, starts in LIBRARIES.items():
        if header.startswith(starts):
            return name
    return "" if header in STANDARD else None


def without_comments(text):
    """Joins continued lines and blanks comments; every line keeps its number."""
    text = re.sub(r"((?:[^\n]*\\[ \t]*\n)+)([^\n]*)", lambda m: re.sub(r"\\[ \t]*\n", "", m[1]) + m[2] + "\n" * m[1].count("\n"), text)
    token = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^()\\\s]{0,16})\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"', re.S)
    return token.sub(lambda m: " " + "\n" * m[0].count("\n") if m[0][0] == "/" or m[0][0] == "R" else m[0], text)


def includes(file):
    """(line number, quote, name, line, directive); a name of None is a macro."""
    return includes_of(file.read_text(encoding="utf-8-sig", errors="replace"))


@functools.cache  # whoever checks two trees that are nearly alike reads each text once
def includes_of(text):
    return list(found_in(without_comments(text)))


def found_in(text):
    for number, line in enumerate(text.splitlines(), 1):
        found = DIRECTIVE.match(line)
        if found:
            name = NAME.match(found[2])
            yield number, name and name[1], name and name[2], line.strip(), found[1]
        elif re.match(r"\s*(?:#|%:)", line):
            for quote, name in HAS_INCLUDE.findall(line):
                yield number, quote, name, line.strip(), "__has_include"


def check(root):
    library = root / "include" / "tensorpull"
    table = Table(library / "folders.txt")
    wrong = []

    def say(file, number, line, why):
        wrong.append(f"{file.relative_to(root)}:{number}: {line}\n    {why}")

    def one(file, here, part, number, quote, name, line, directive):
        """What is wrong with one directive, or None; here is None outside the library."""
        if name is None:
            return "a macro hides what is included" if here is not None else None
        if directive in ("include_next", "import"):
            return f"#{directive} is not C++"
        if quote == '"':
            target = (file.parent / name).resolve()
            if here is not None:
                return "the library names its headers from <tensorpull/...>, not by quotes"
            if target.is_relative_to(root / "include"):
                return "this reaches into include/ by quotes"
        plain = posixpath.normpath(name)
        if plain != name and (plain.startswith("tensorpull/") or here is not None):
            return "a path to a header is written without . and .."
        if plain.startswith("tensorpull/"):
            there, private = folder_of(pathlib.PurePath(plain[len("tensorpull/"):]), table.order)
            generated = plain.endswith(".capnp.h")
            if generated and part == "include" and here != "messages":
                return "the library includes generated headers only in messages"
            if directive == "__has_include" and not generated and not (part in ("examples", "tests") and is_satellite(there)):
                return "a header of the library is always there"
            if is_satellite(there) and there not in table.order and part != "include":
                return None  # it was taken out, and what needs it is not built (tests/without.py)
            if directive != "__has_include" and not generated and not (root / "include" / plain).is_file():
                return "there is no such header"
            if there not in table.order:
                return f"the table has no folder {there}"
            if here is not None and (why := table.may_include(here, there)):
                return why
            if part == "tests" and is_satellite(there) and not may_test(file.relative_to(root / "tests"), there.partition("/")[2]):
                return f"tests of {there} lie in tests/{there}"
            if private and part == "examples":
                return "what lies in detail/ is not for users, so not for examples"
            return None
        if here is None:
            return None
        if directive == "__has_include" and here != "std":
            return "__has_include is only for std/ and generated headers"
        library_name = library_of(name)
        if library_name == "libstdc++":
            return None if here == "std" else "headers that libstdc++ keeps for itself are included only in std/"
        if library_name is None:
            return "this is neither a header of C++ nor of a library of the table"
        if library_name and library_name not in table.libraries[here]:
            return f"the table does not give {library_name} to {here}"
        return None

    for file in sorted(f for f in (root / "include").rglob("*") if f.is_file()):
        if file.suffix not in (".hpp", ".capnp", ".md") and file != library / "folders.txt":
            say(file, 1, "", "include/ has only .hpp, .capnp and .md")
        elif file.suffix == ".hpp":
            here = folder_of(file.relative_to(library), table.order)[0] if file.is_relative_to(library) else None
            if here not in table.order:
                say(file, 1, "", f"the table has no folder {here}")
                continue
            for found in includes(file):
                why = one(file, here, "include", *found)
                if why:
                    say(file, found[0], found[3], why)
            if not is_satellite(here):
                for number, line in enumerate(file.read_text(encoding="utf-8-sig").splitlines(), 1):
                    if "satellites/" in line and not DIRECTIVE.match(line):
                        say(file, number, line, "the ground floor names no satellite")
    for part in ("examples", "bench", "tests"):
        for file in sorted(f for f in (root / part).rglob("*") if f.suffix in SOURCES and f.is_file()):
            for found in includes(file):
                why = one(file, None, part, *found)
                if why:
                    say(file, found[0], found[3], why)

    for folder in table.order:
        if not is_satellite(folder) and not (library / folder).exists():
            wrong.append(f"include/tensorpull/folders.txt: there is no {folder}")
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
