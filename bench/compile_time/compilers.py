"""One compilation: processor time, peak memory, object size; and, apart from it, how many templates it instantiates."""
import os
import re
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS_AT_MOST = 120
MEMORY_AT_MOST = 6 << 30
TRACE_AT_MOST = 1 << 30


class Refused(Exception):
    """The compiler did not make an object; says why in one line."""


def generate_protocol(folder):
    """The header that `capnp` makes for message structs, as the library's CMake files make it. The folder to include."""
    include = ROOT / "include"
    for schema in ("messages/decomposed",):
        (folder / "tensorpull" / schema).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["capnp", "compile", "-I/usr/include", f"-oc++:{folder}", f"tensorpull/{schema}.capnp"], cwd=include, env={**os.environ, "PWD": str(include)}, check=True)
    return folder


def count_in(path, pattern):
    """How often `pattern` is in a file that may not fit the memory."""
    found, head = 0, b""
    with open(path, "rb") as file:
        while block := file.read(1 << 24):
            found += (head + block).count(pattern)
            head = (head + block)[-len(pattern) + 1:]  # too short to hold one that has been counted
    return found


class Compiler:
    def __init__(self, command, includes=(), flags=()):
        self.command = command
        version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
        self.version = re.sub(r"\s*\([^)]*\)", "", version)
        self.is_clang = "clang" in version
        self.name = Path(command).name
        here = Path(__file__).parent / "alternatives"
        self.flags = ["-std=c++20", f"-I{ROOT / 'include'}", f"-I{here}", *(f"-isystem{i}" for i in includes), *flags]

    def compile(self, text):
        """(seconds of processor time in user mode, peak memory in bytes, bytes of the object)"""
        with tempfile.TemporaryDirectory() as folder:
            used = self._run(text, folder, [])[1]
            return used.ru_utime, used.ru_maxrss * 1024, os.path.getsize(Path(folder) / "file.o")

    def instantiations_and_memory(self, text):
        """Templates instantiated: clang: classes and functions; g++: its tables of specialisations, which also count those only declared.
        The same from run to run. None: the compiler's report would be larger than TRACE_AT_MOST. And the peak memory in bytes."""
        return (self._traced if self.is_clang else self._counted)(text)

    def _counted(self, text):
        with tempfile.TemporaryDirectory() as folder:
            output, used = self._run(text, folder, ["-fstats"])
        tables = re.findall(r"^(?:decl|type)_specializations: size \d+, (\d+) elements", output, re.MULTILINE)
        if len(tables) != 2:
            raise Refused(f"{self.name} -fstats does not say how many specialisations there are")
        return sum(map(int, tables)), used.ru_maxrss * 1024

    def _traced(self, text):
        with tempfile.TemporaryDirectory() as folder:
            # without the optimiser's passes, of which the trace has a hundred for each function
            try:
                used = self._run(text, folder, ["-ftime-trace", "-ftime-trace-granularity=0", "-emit-llvm", "-Xclang", "-disable-llvm-passes"])[1]
            except Refused:
                if (Path(folder) / "file.json").exists() and (Path(folder) / "file.json").stat().st_size >= TRACE_AT_MOST:
                    return None, 0
                raise
            events = sum(count_in(Path(folder) / "file.json", name) for name in (b'"name":"InstantiateClass"', b'"name":"InstantiateFunction"'))
            return events, used.ru_maxrss * 1024

    def _run(self, text, folder, extra):
        source, log = Path(folder) / "file.cpp", Path(folder) / "log"
        source.write_text(text)

        def limit():
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS_AT_MOST, SECONDS_AT_MOST))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_AT_MOST, MEMORY_AT_MOST))
            resource.setrlimit(resource.RLIMIT_FSIZE, (TRACE_AT_MOST, TRACE_AT_MOST))

        # a cache would answer for the compiler
        environment = {**os.environ, "CCACHE_DISABLE": "1", "LC_ALL": "C"}
        with open(log, "wb") as output:
            child = subprocess.Popen([self.command, *self.flags, *extra, "-c", "-o", "file.o", str(source)], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
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
        return said, used


def found(names):
    """The compilers among `names` that are here; names of which one is enough are joined by |."""
    chosen = []
    for alternatives in names:
        chosen += [path for path in map(shutil.which, alternatives.split("|")) if path][:1]
    return chosen
