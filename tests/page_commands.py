#!/usr/bin/env python3
"""Every command that a page shows is run. usage: page_commands.py check ROOT | page_commands.py run ROOT short|long [--python PYTHON]

COMMANDS has each command as a page shows it, and how it is run:
  THIS           it is the script that runs all tests, in one of its forms
  TEST name      the test of that name runs it
  SHORT command  `run ROOT short` runs this in a copy of the tree: the command itself, or its smallest form
  LONG command   the same with `run ROOT long`, the leg `pages` of `tests/run.sh --all`

check: each command of a page has an entry, each entry stands on a page, and each test that is named is there; those of a satellite that is not in this tree are
passed over. Commands are the lines of the blocks that are claimed as commands (snippets.py), and what stands between `s and begins with the name of a program.
Status: 0 all is well, 1 something is not.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

from page_links import is_of, taken_out
from snippets import blocks, pages

THIS, TEST, SHORT, LONG = "this", "test", "short", "long"
PROGRAMS = re.compile(r"^(?:bash|python3?|cmake|ctest|conan|pip|g\+\+|auditwheel|apt-get|build/\S+) \S")
# What is named in a sentence and is not typed: a step, packages that pip brings, a compiler's options.
NO_PROGRAM = re.compile(r"^(?:cmake --install|pip install [a-z][\w ]*|python -m tensorpull( send.*inspect)?|g\+\+ -std=c\+\+20 -fsyntax-only)$")

COMMANDS = {
    "bash tests/run.sh": (THIS, ""),
    "bash tests/run.sh satellites": (THIS, ""),
    "bash tests/run.sh --all": (THIS, ""),
    "bash tests/run.sh fuzz": (THIS, ""),
    "bash examples/run.sh": (SHORT, "bash examples/run.sh --rounds 2 --plot federated.svg"),
    "bash examples/tools.sh": (LONG, "bash examples/tools.sh"),
    "bash examples/jobs/microcontroller/run.sh": (LONG, "bash examples/jobs/microcontroller/run.sh"),
    "bash examples/jobs/microcontroller/run.sh --rounds 5 --seed 2 --flash flash.bin": (
        LONG, "bash examples/jobs/microcontroller/run.sh --rounds 5 --seed 2 --flash flash.bin"),
    "bash examples/jobs/microcontroller/run.sh --prove": (LONG, "bash examples/jobs/microcontroller/run.sh --prove"),
    "bash examples/jobs/microcontroller/run.sh --update 8-bits": (LONG, "bash examples/jobs/microcontroller/run.sh --update 8-bits"),
    "bash examples/jobs/nvflare/run.sh": (LONG, "bash examples/jobs/nvflare/run.sh --rounds 2 --clients 2"),
    "bash examples/jobs/nvflare/run.sh --table": (
        LONG, "bash examples/jobs/nvflare/run.sh --table --sites 2 --megabytes 7.5 --formats pytorch --rounds 2 --steps 2"),
    "bash examples/jobs/nvflare/run.sh --table --sites 2 --megabytes 20 --line 50 100": (
        LONG, "bash examples/jobs/nvflare/run.sh --table --sites 2 --megabytes 7.5 --formats numpy --rounds 2 --steps 2 --line 50 100"),
    "bash examples/jobs/nvflare/run.sh --differences --clients 2 --width 1865 --line 50 20": (
        LONG, "bash examples/jobs/nvflare/run.sh --differences --clients 2 --width 1024 --rounds 2 --steps 2 --line 50 100"),
    "bash examples/jobs/nvflare_devices/run.sh": (LONG, "bash examples/jobs/nvflare_devices/run.sh"),
    "bash examples/jobs/flower/run.sh --nodes 8 --megabytes 200 --rounds 1": (LONG, "bash examples/jobs/flower/run.sh --megabytes 10 --rounds 1"),
    "python3 examples/jobs/nvflare/upstream.py": (TEST, "python.package"),
    "bash bench/run.sh": (LONG, "bash bench/run.sh --smoke"),
    "bash bench/run.sh --only wan": (LONG, "bash bench/run.sh --only wan --smoke"),
    "bash bench/run.sh --only wan --all": (LONG, "bash bench/run.sh --only wan --all --smoke"),
    "bash bench/run.sh --only changes": (LONG, "bash bench/run.sh --only changes --smoke"),
    "bash bench/run.sh --all": (LONG, "bash bench/run.sh --only latency --all --quick --rounds 1 --no-python"),
    "build/dev/examples/foreign/foreign_owner model.safetensors 1": (TEST, "python.foreign"),
    "python3 examples/foreign/recipient.py localhost PORT REFERENCE copy.safetensors": (TEST, "python.foreign"),
    "python3 bench/size/report.py": (TEST, "size.is_measured"),
    "python3 bench/compile_time/measure.py your.cpp -- -Iinclude": (TEST, "compile_time.measure"),
    "python3 cmake/single_header.py --of module --output build/tensorpull.cppm": (TEST, "single_header.module_pulls"),
    "clang++-19 -std=c++20 --precompile build/tensorpull.cppm -o build/tensorpull.pcm": (TEST, "single_header.module_pulls"),
    "cmake --list-presets": (SHORT, "cmake --list-presets"),
    "cmake --preset dev": (LONG, "cmake --preset dev"),
    "cmake --build build/dev --target tensorpull_chunking_tests": (LONG, "cmake --build build/dev --target tensorpull_chunking_tests"),
    "ctest --test-dir build/dev -R '^chunking\\.'": (LONG, "ctest --test-dir build/dev -R '^chunking\\.' --no-tests=error"),
    "build/dev/tests/tensorpull_chunking_tests --gtest_filter='Chunking*'": (
        LONG, "build/dev/tests/tensorpull_chunking_tests --gtest_filter='Chunking*' --gtest_fail_if_no_test_selected"),
    "python3 tests/includes.py": (TEST, "includes.keep_to_the_table"),
    "bash tests/format.sh": (TEST, "format.obeys"),
    "python3 cmake/doc.py": (TEST, "documentation.names_every_public_name"),
    "cmake -G Ninja -S . -B build/install && cmake --build build/install && cmake --install build/install --prefix /usr/local": (
        LONG, 'cmake -G Ninja -S . -B build/install && cmake --build build/install && cmake --install build/install --prefix "$PWD/build/installed"'),
    "cmake -G Ninja -S . -B build/install && cmake --build build/install --target single_header": (
        LONG, "cmake -G Ninja -S . -B build/install && cmake --build build/install --target single_header"),
    "g++ -std=c++20 program.cpp $(pkg-config --cflags --libs tensorpull)": (TEST, "consumer.pkg_config"),
    "conan create cmake/conan": (TEST, "consumer.conan"),
    "cmake --preset armhf": (THIS, ""),
    "ctest --preset armhf": (THIS, ""),
    "apt-get install g++ libboost-dev zlib1g-dev libcurl4-openssl-dev libssl-dev nlohmann-json3-dev": (LONG, "apt-get install --simulate g++ libboost-dev zlib1g-dev libcurl4-openssl-dev libssl-dev nlohmann-json3-dev"),
    "pip install ./examples/python": (TEST, "python.install"),
    'pip install "./examples/python[nvflare]"': (TEST, "python.install"),
    'pip install "./examples/python[flower]"': (TEST, "python.install"),
    "pip install --config-settings=cmake.define.TENSORPULL_PYTHON_TLS=OFF": (TEST, "python.wheel"),
    "python -m tensorpull send model.safetensors --recipients 1": (TEST, "python.package"),
    "python -m tensorpull recv 127.0.0.1:40123 5d1f0c0a6f0e4c1b9d1f0c0a6f0e4ce2b13dc63db4b0ea6f -o copy.safetensors": (TEST, "python.package"),
    "python -m tensorpull inspect copy.safetensors": (TEST, "python.package"),
    "bash examples/python/wheel.sh": (LONG, "bash examples/python/wheel.sh"),
    "pip install build/wheels/tensorpull-0.1.0-*.whl": (LONG, "bash tests/satellites/python/bare_debian.sh"),
    "python3 tests/satellites/replica/scaling/http_cache.py FOLDER --measure": (LONG, "python3 tests/satellites/replica/scaling/http_cache.py build/tools --measure 3 1 1"),
}


# Commands of a satellite's page that name nothing of it.
SATELLITE = {
    "apt-get install g++ libboost-dev zlib1g-dev libcurl4-openssl-dev libssl-dev nlohmann-json3-dev": "python",
    "pip install build/wheels/tensorpull-0.1.0-*.whl": "python",
    'pip install "./examples/python[nvflare]"': "nvflare",
    'pip install "./examples/python[flower]"': "flower",
    "bash examples/jobs/flower/run.sh --nodes 8 --megabytes 200 --rounds 1": "python",
}


def commands(root):
    """(page, line, command) of every page."""
    shown = [b for b in blocks(root) if b.claim == "commands"]
    for block in shown:
        for i, line in enumerate(block.lines):
            command = re.sub(r"\s#.*$", "", line).strip()
            if command:
                yield block.page, block.line + 1 + i, command
    for page in pages(root):
        inside = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            if re.match(r"^\s*```", line):
                inside = not inside
            elif not inside:
                for text in re.findall(r"`([^`]+)`", line):
                    if PROGRAMS.match(text) and not NO_PROGRAM.match(text):
                        yield page.relative_to(root), number, text


def entries(root):
    """COMMANDS without those of satellites that are not in this tree: their test has the satellite's name, or the command names a path of it."""
    gone = taken_out(root)
    return {command: entry for command, entry in COMMANDS.items()
            if SATELLITE.get(command) not in gone and entry[1].partition(".")[0] not in gone and not any(is_of(word.removeprefix("./"), gone) for word in re.split(r"[\s\"\[]+", command))}


def check(root):
    wrong, seen, known = [], set(), entries(root)
    for page, line, command in commands(root):
        if command not in COMMANDS:
            wrong.append(f"{page}:{line}: nothing runs this command: {command}")
        seen.add(command)
    wrong += [f"tests/page_commands.py: no page shows this command: {command}" for command in known if command not in seen]
    listed = "".join(p.read_text(encoding="utf-8") for p in [*(root / "tests").glob("*.cmake"), *(root / "tests").rglob("CMakeLists.txt")])
    wrong += [f"tests/page_commands.py: there is no test {name}" for how, name in known.values() if how == TEST and name not in listed and name.split(".")[-1] not in listed]
    print("\n".join(wrong) if wrong else f"{len(seen)} commands are run")
    return 1 if wrong else 0


def run(root, which, python):
    """In a copy, so that the folders that commands name are the copy's."""
    chosen = dict.fromkeys(command for how, command in entries(root).values() if how == which)
    environment = dict(os.environ)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="pages-") as folder:
        listed = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True, timeout=60)
        if listed.returncode != 0:
            print("this tree is in no git repository, so there is no list of what belongs to it")
            return 2
        there = b"\0".join(name for name in listed.stdout.split(b"\0") if name and os.path.lexists(os.path.join(os.fsencode(root), name)))
        copy = subprocess.run(["tar", "-C", str(root), "--null", "-T", "-", "-cf", os.path.join(folder, "tree.tar")], input=there, timeout=600)
        tree = pathlib.Path(folder, "tree")
        tree.mkdir()
        if copy.returncode != 0 or subprocess.run(["tar", "-C", str(tree), "-xf", os.path.join(folder, "tree.tar")], timeout=600).returncode != 0:
            print("the tree could not be copied")
            return 2
        subprocess.run(["git", "init", "-q", str(tree)], check=True, timeout=60)
        environment |= {"CCACHE_BASEDIR": str(tree), "CCACHE_NOHASHDIR": "1"}
        digits = root / "build/examples/data"
        if digits.is_dir():  # what was fetched once is not fetched again
            (tree / "build/examples").mkdir(parents=True)
            (tree / "build/examples/data").symlink_to(digits)
        for command in chosen:
            if python and command.startswith(("bash examples/jobs/nvflare/run.sh", "bash examples/jobs/nvflare_devices/run.sh")):
                command = command.replace("run.sh", f"run.sh --python {python}", 1)
            done = subprocess.run(["bash", "-c", command], cwd=tree, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, errors="replace", timeout=2 * 3600)
            print(f"{'ok    ' if done.returncode == 0 else 'FAILED'} {command}", flush=True)
            if done.returncode != 0:
                failed += 1
                print("\n".join(done.stdout.splitlines()[-40:]), flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed else 0


def main():
    words = sys.argv[1:]
    python = words[words.index("--python") + 1] if "--python" in words else None
    if len(words) >= 2 and words[0] == "check":
        return check(pathlib.Path(words[1]).resolve())
    if len(words) >= 3 and words[0] == "run" and words[2] in (SHORT, LONG):
        return run(pathlib.Path(words[1]).resolve(), words[2], python)
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main())
