"""One compilation: processor time, peak memory, object size; and, apart from it, how many templates it instantiates, and what each part of it costs."""
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS_AT_MOST = 120
MEMORY_AT_MOST = 6 << 30
TRACE_AT_MOST = 1 << 30
LONG_SECONDS = 8  # what takes longer is compiled once: its spread is small beside it
# without the optimiser's passes, of which the trace has a hundred for each function
TRACE = ("-ftime-trace", "-ftime-trace-granularity=0", "-emit-llvm", "-Xclang", "-disable-llvm-passes")


class Refused(Exception):
    """The compiler did not make an object; says why in one line."""


def generate_protocol(folder):
    """The header that `capnp` makes for message structs, as the library's CMake files make it. The folder to include."""
    include = ROOT / "include"
    for schema in ("messages/decomposed",):
        (folder / "tensorpull" / schema).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["capnp", "compile", "-I/usr/include", f"-oc++:{folder}", f"tensorpull/{schema}.capnp"], cwd=include, env={**os.environ, "PWD": str(include)}, check=True)
    return folder


def library_flags(generated):
    """For files of this repository."""
    return ["-std=c++20", f"-I{ROOT / 'include'}", f"-I{Path(__file__).parent / 'alternatives'}", f"-isystem{generated}"]


def machine():
    try:
        model = next(line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.machine()
    return f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, load {os.getloadavg()[0]:.1f} at the start"


def events(path, kinds, block_bytes=1 << 24):
    """The events of `kinds` in clang's trace, which may not fit the memory."""
    decoder, wanted, rest = json.JSONDecoder(), [f'"name":"{kind}"' for kind in kinds], ""
    with open(path, errors="replace") as file:
        while block := file.read(block_bytes):
            *whole, rest = (rest + block).split('{"pid":')
            yield from (decoder.raw_decode('{"pid":' + event)[0] for event in whole if any(name in event for name in wanted))
    if any(name in rest for name in wanted):
        yield decoder.raw_decode('{"pid":' + rest)[0]


class Compiler:
    def __init__(self, command, flags=()):
        self.command, self.flags = command, list(flags)
        version = subprocess.run([command, "--version"], capture_output=True, text=True).stdout.partition("\n")[0]
        self.version = re.sub(r"\s*\([^)]*\)", "", version)
        self.is_clang = "clang" in version
        self.name = Path(command).name
        self.kind = ("clang " if self.is_clang else "g++ ") + "".join(re.findall(r"\d+(?:\.\d+)+", self.version)[:1])

    def compile(self, text):
        """(seconds of processor time in user mode, peak memory in bytes, bytes of the object)"""
        with tempfile.TemporaryDirectory() as folder:
            used = self.run(text, folder)[1]
            return used.ru_utime, used.ru_maxrss * 1024, os.path.getsize(Path(folder) / "file.o")

    def instantiations_and_memory(self, text):
        """Templates instantiated: clang: classes and functions; g++: its tables of specialisations, which also count those only declared.
        The same from run to run. None: the compiler's report would be larger than TRACE_AT_MOST. And the peak memory in bytes."""
        return (self._traced if self.is_clang else self._counted)(text)

    def _counted(self, text):
        with tempfile.TemporaryDirectory() as folder:
            output, used = self.run(text, folder, "-fstats")
        tables = re.findall(r"^(?:decl|type)_specializations: size \d+, (\d+) elements", output, re.MULTILINE)
        if len(tables) != 2:
            raise Refused(f"{self.name} -fstats does not say how many specialisations there are")
        return sum(map(int, tables)), used.ru_maxrss * 1024

    def _traced(self, text):
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "file.json"
            try:
                used = self.run(text, folder, *TRACE)[1]
            except Refused:
                if trace.exists() and trace.stat().st_size >= TRACE_AT_MOST:
                    return None, 0
                raise
            return sum(1 for _ in events(trace, ("InstantiateClass", "InstantiateFunction"))), used.ru_maxrss * 1024

    def run(self, text, folder, *extra):
        """Compiles into `folder`, as file.o: what the compiler printed, and what it used. Flags with relative paths mean those of this process."""
        source, log = Path(folder) / "file.cpp", Path(folder) / "log"
        source.write_text(text, errors="surrogateescape")

        def limit():
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS_AT_MOST, SECONDS_AT_MOST))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_AT_MOST, MEMORY_AT_MOST))
            resource.setrlimit(resource.RLIMIT_FSIZE, (TRACE_AT_MOST, TRACE_AT_MOST))

        # a cache would answer for the compiler
        environment = {**os.environ, "CCACHE_DISABLE": "1", "LC_ALL": "C"}
        with open(log, "wb") as output:
            child = subprocess.Popen([self.command, *self.flags, *extra, "-c", "-o", f"{folder}/file.o", str(source)], env=environment, stdin=subprocess.DEVNULL,
                                     stdout=output, stderr=subprocess.STDOUT, preexec_fn=limit)
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        with open(log, errors="replace") as output:
            said = output.read(1 << 20)
        if child.returncode != 0:
            if used.ru_utime >= SECONDS_AT_MOST - 1:
                raise Refused(f"stopped after {SECONDS_AT_MOST} s")
            found = re.search(r"(?:fatal )?error: (.{0,120})", said)
            raise Refused(found[1].strip() if found else f"status {child.returncode}")
        if not Path(folder, "file.o").exists():
            raise Refused("there is no object: its flags ask for something else")
        return said, used


def found(names):
    """The compilers among `names` that are here; names of which one is enough are joined by |."""
    chosen = []
    for alternatives in names:
        chosen += [path for path in map(shutil.which, alternatives.split("|")) if path][:1]
    return chosen


def in_turns(cases, rounds):
    """`cases`: {key: (text, compiler)}. {key: what was measured}: each round compiles every file once."""
    results = {key: {"seconds": [], "memory": None, "instantiations": None, "object": None, "refused": None} for key in cases}
    for k in range(rounds + 1):
        for i, (key, (text, compiler)) in enumerate(cases.items()):
            r = results[key]
            if r["refused"] or (r["seconds"] and r["seconds"][0] > LONG_SECONDS):
                continue
            if sys.stderr.isatty():
                print(f"\r\033[Kround {k} of {rounds}, {i + 1} of {len(cases)}: {' '.join(map(str, key))}", end="", file=sys.stderr)
            try:
                if k == 0:  # the round that counts also warms the disk's cache
                    r["instantiations"] = compiler.instantiations_and_memory(text)[0]
                else:
                    seconds, r["memory"], r["object"] = compiler.compile(text)
                    r["seconds"].append(seconds)
            except Refused as why:
                # a compiler that fails while it counts may still compile
                r["refused"] = str(why) if k > 0 else None
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return results
