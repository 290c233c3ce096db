#!/usr/bin/env python3
"""Shows which tests are awake: breaks the library in one place at a time (breakages.py, here and beside the tests of satellites) and runs the test that should notice.

awake.py BUILD [--only TEXT] [--jobs N], or awake.py --entries. BUILD is a configured build folder (preset dev) whose compiler and libraries are used; nothing in the tree is
changed. A breakage is a copy of one header that stands before the real one, so only one file of tests is compiled for it, without optimisation.
Status: 0 all noticed; 1 a breakage that nothing noticed or that does not compile, a text that is not in its header exactly once, or a test that fails without a breakage.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import runpy
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BREAKAGES = [one for file in (ROOT / "tests/breakages.py", *sorted((ROOT / "tests/satellites").glob("*/breakages.py"))) for one in runpy.run_path(str(file))["BREAKAGES"]]
INCLUDE = ROOT / "include" / "tensorpull"
SECONDS = 120  # a test that never ends has noticed, too


def run(command, where, seconds=None):
    """Status and output; a status of None: it took too long."""
    # counted in seeds and rounds: a tenth is enough to notice
    environment = os.environ | {"TENSORPULL_SIM_SEEDS": "2000", "TENSORPULL_EXPLORE": "40000"}
    try:
        done = subprocess.run(command, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, env=environment, errors="replace")
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode(errors="replace")
    return done.returncode, done.stdout


def group_of(test):
    """The group of a file of tests, given relative to tests/."""
    parts = test.split("/")
    return parts[1] if parts[0] == "satellites" else parts[0]


class Builder:
    def __init__(self, build):
        self.build = build
        entries = json.loads((build / "compile_commands.json").read_text())
        self.commands = {pathlib.Path(e["file"]).resolve(): shlex.split(e["command"]) for e in entries if "/tests/" in e["file"]}
        # where several files of a group are compiled as one, each of them is compiled as that one is
        self.groups = {m[1]: shlex.split(e["command"]) for e in entries if (m := re.search(r"tensorpull_(\w+)_tests\.dir/Unity/", e["file"]))}
        self.links = {}

    def command(self, source):
        return self.commands.get(source) or self.groups.get(group_of(source.relative_to(ROOT / "tests").as_posix()))

    def compile(self, source, before, out):
        """Compiles a file of tests with the headers in `before` in front."""
        words = self.command(source)
        kept, skip = [], False
        for word in words:
            # the precompiled header has the library as it stands
            if skip or word in ("-o", "-c", "-include"):
                skip = not skip
            elif not word.startswith(("-O", "-g")) and word not in ("-Werror",):
                kept.append(word)
        compiler = next(i for i, word in enumerate(kept) if not word.endswith("ccache"))
        return run([*kept[: compiler + 1], "-I", str(before), *kept[compiler + 1 :], "-O0", "-w", "-o", str(out), "-c", str(source)], self.build)

    def rest_of_link(self, group):
        """What the program of a group is linked with besides its files of tests."""
        if group not in self.links:
            target = f"tensorpull_{group}_tests"
            status, text = run(["ninja", "-t", "commands", target], self.build)
            words = shlex.split(text.strip().splitlines()[-1]) if status == 0 else sys.exit(f"awake.py: {target}: {text}")
            others = [w for w in words if w.endswith(".o") and not w.endswith(".test.cpp.o") and "/Unity/" not in w]
            if others:
                status, text = run(["ninja", *others], self.build)
                if status != 0:
                    sys.exit(f"awake.py: {text}")
            self.links[group] = others + [w for w in words if w.endswith((".a", ".so")) or w.startswith(("-l", "-L", "-Wl,"))]
        return self.links[group]

    def test(self, test, chosen, before, folder):
        """"passed", "failed", or why it did not come to that."""
        source = (ROOT / "tests" / f"{test}.test.cpp").resolve()
        if not source.is_file() or not self.command(source):
            return f"no such file of tests: {test}"
        program = folder / "program"
        status, text = self.compile(source, before, folder / "test.o")
        if status != 0:
            reasons = [line for line in text.splitlines() if " error: " in line]
            if reasons and all(line.startswith(f"{source}:") and "static assertion" in line for line in reasons):
                return "failed"  # the test itself is a static assertion
            return f"does not compile: {reasons[0]}" if reasons else f"was not compiled: {text[-300:]}"
        status, text = run(["c++", str(folder / "test.o"), *self.rest_of_link(group_of(test)), "-o", str(program)], self.build)
        if status != 0:
            return "does not link: " + text[-300:]
        status, text = run([str(program), f"--gtest_filter={chosen}", "--gtest_brief=1"], folder, SECONDS)
        (folder / "test.o").unlink()
        program.unlink()
        if status == 0:
            return "no test of that name" if "0 tests from 0 test suites ran" in text else "passed"
        return "failed"


def place_of(header, old):
    """The header's text, and where in it the one place begins and ends that reads as `old` does. Blanks do not count, since a formatter moves them."""
    path = INCLUDE / header
    if not path.is_file():
        raise ValueError("there is no such header")
    text = path.read_text()
    kept = [i for i, c in enumerate(text) if not c.isspace()]
    dense, wanted = "".join(text[i] for i in kept), "".join(old.split())
    if (n := dense.count(wanted)) != 1:
        raise ValueError(f"the text stands in the header {n} times")
    at = dense.index(wanted)
    return text, kept[at], kept[at + len(wanted) - 1] + 1


def apply(header, old, new, to):
    try:
        text, begin, end = place_of(header, old)
    except ValueError as wrong:
        return str(wrong)
    broken = to / "tensorpull" / header
    broken.parent.mkdir(parents=True)
    broken.write_text(text[:begin] + new + text[end:])
    return None


def wrong_entries():
    """What is wrong with the list itself, without compiling anything."""
    for header, old, _, test, _ in BREAKAGES:
        try:
            place_of(header, old)
        except ValueError as wrong:
            yield f"{header}: {old!r}: {wrong}"
        for each in test.split(":"):
            if not (ROOT / "tests" / f"{each}.test.cpp").is_file():
                yield f"{header}: {old!r}: there is no tests/{each}.test.cpp"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("build", type=pathlib.Path, nargs="?")
    arguments.add_argument("--entries", action="store_true", help="only look whether each text stands in its header once, and each file of tests is there")
    arguments.add_argument("--only", default="", help="breakages whose header or test has this text")
    arguments.add_argument("--jobs", type=int, default=os.cpu_count())
    options = arguments.parse_args()
    if options.entries:
        wrong = list(wrong_entries())
        print("\n".join(wrong) if wrong else f"{len(BREAKAGES)} breakages, each in its place")
        return 1 if wrong else 0
    if options.build is None:
        arguments.error("a build folder is needed")
    builder = Builder(options.build.resolve())
    chosen = [b for b in BREAKAGES if options.only in b[0] or options.only in b[3]]
    for group in {group_of(test) for b in chosen for test in b[3].split(":")}:
        builder.rest_of_link(group)

    def one(breakage):
        header, old, new, test, names = breakage
        with tempfile.TemporaryDirectory() as folder:
            if wrong := apply(header, old, new, pathlib.Path(folder)):
                return wrong
            for each in test.split(":"):
                said = builder.test(each, names, folder, pathlib.Path(folder))
                if said != "passed":
                    break
            return said

    def whole(tests):
        with tempfile.TemporaryDirectory() as folder:
            return builder.test(*tests, folder, pathlib.Path(folder))

    filters = {}
    for _, _, _, test, names in chosen:
        for each in test.split(":"):
            filters.setdefault(each, set()).add(names)
    unbroken = sorted((test, ":".join(sorted(names))) for test, names in filters.items())
    bad = noticed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for breakage, said in zip(chosen, pool.map(one, chosen)):
            header, old, new, test, names = breakage
            if said == "failed":
                noticed += 1
                continue
            bad += 1
            print(f"{'UNNOTICED' if said == 'passed' else said}: {header}: {old!r} -> {new!r} ({test}, {names})", flush=True)
        for (test, names), said in zip(unbroken, pool.map(whole, unbroken)):
            if said != "passed":
                bad += 1
                print(f"without a breakage: {test}, {names}: {said}", flush=True)
    print(f"{noticed} of {len(chosen)} breakages noticed, in {len({b[0].rpartition('/')[0] for b in chosen})} folders")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
