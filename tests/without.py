#!/usr/bin/env python3
"""Shows that a satellite can be taken out: without.py [--build FOLDER] [--groups GROUPS] [--tests NAMES] SATELLITE... | all

Copies the tree without the satellite: without each folder and file of its name (PLACES) and without its line in include/tensorpull/folders.txt. The copy is
configured, built and tested as the preset `dev` says, with the groups of tests that are named (all of the ground floor and the other satellites). Satellites
that need it go with it. Status: 0 all pass, 1 a copy does not configure, build or pass, 2 there is no such satellite.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = "include/tensorpull/folders.txt"
# Where a satellite's folder or file may be; nothing of it is anywhere else.
PLACES = ("include/tensorpull/satellites/{0}", "examples/{0}", "examples/jobs/{0}*", "examples/python/src/tensorpull/{0}", "examples/facade/{0}*", "tests/satellites/{0}", "bench/{0}", "bench/{0}.cpp")


def satellites():
    """{name: the satellites that it needs}"""
    found = {}
    for line in (ROOT / TABLE).read_text().splitlines():
        cells = [c.strip() for c in line.split("|")]
        if not line.startswith("#") and len(cells) == 4 and cells[0].startswith("satellites/"):
            found[cells[0].partition("/")[2]] = cells[1].split()
    return found


def taken_out(name, all_of_them):
    """The satellite, and those that need it."""
    out = {name}
    while more := {s for s, needs in all_of_them.items() if s not in out and out & set(needs)}:
        out |= more
    return out


def copy_without(names, to):
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True, check=True).stdout
    gone = {p for name in names for place in PLACES for p in ROOT.glob(place.format(name))}
    wanted = set()
    for file in (ROOT / os.fsdecode(name) for name in listed.split(b"\0") if name):
        if not file.is_file() or file in gone or gone & set(file.parents):
            continue
        there = to / file.relative_to(ROOT)
        wanted.add(there)
        if not there.exists() or there.read_bytes() != file.read_bytes():  # what is the same keeps its time, so that it is not compiled again
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, there)
    table = to / TABLE
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(line for line in lines if not any(line.startswith(f"satellites/{name} ") for name in names)))
    for file in to.rglob("*"):
        if file.is_file() and file not in wanted and not {"build", ".git"} & set(file.relative_to(to).parts):
            file.unlink()
    for folder in sorted((p for p in to.rglob("*") if p.is_dir() and ".git" not in p.parts), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
    if not (to / ".git").exists():
        subprocess.run(["git", "init", "-q", str(to)], check=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("satellite", nargs="+")
    arguments.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "without")
    arguments.add_argument("--groups", default="ground;satellites")
    arguments.add_argument("--tests", default=".", metavar="NAMES", help="of what is built only tests run whose names have this regular expression")
    arguments.add_argument("--define", action="append", default=[], help="for the configuration: NAME=VALUE")
    options = arguments.parse_args()
    known = satellites()
    chosen = list(known) if options.satellite == ["all"] else options.satellite
    if unknown := [name for name in chosen if name not in known]:
        print(f"without.py: there is no satellite {unknown[0]}; there are {' '.join(known)}", file=sys.stderr)
        return 2
    tree, build = options.build / "tree", options.build / "build"
    tree.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"CCACHE_BASEDIR": str(tree)}
    bad = 0
    for name in chosen:
        names = taken_out(name, known)
        copy_without(names, tree)
        steps = (("the check of includes", [sys.executable, str(tree / "tests/includes.py"), str(tree)]),
                 ("the configuration", ["cmake", "-S", str(tree), "--preset", "dev", "-B", str(build), "-DTENSORPULL_TEST_FILES_AT_ONCE=24", "-DTENSORPULL_LONG_TESTS=OFF",
                                        f"-DTENSORPULL_TEST_GROUPS={options.groups}", *(f"-D{d}" for d in options.define)]),
                 ("the build", ["cmake", "--build", str(build), "--parallel"]),
                 ("the tests", ["ctest", "--test-dir", str(build), "--parallel", str(2 * (os.cpu_count() or 1)), "--output-on-failure", "--no-tests=error",
                                "-R", options.tests]))
        for what, command in steps:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment)
            if done.returncode != 0:
                bad += 1
                print(f"without {' and '.join(sorted(names))}: {what} failed\n" + "\n".join(done.stdout.splitlines()[-60:]), flush=True)
                break
        else:
            print(f"without {' and '.join(sorted(names))}: all the rest configures, builds and passes", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
