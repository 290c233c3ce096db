#!/usr/bin/env python3
"""Measures what the library costs on a Cortex-M3: text, data, bss and the deepest stack of a table of pipelines.

Builds firmware for each row with arm-none-eabi-g++ and newlib-nano, charges each byte of it to a part of the library, follows its calls for the deepest
stack, and runs it in QEMU with a painted stack. Writes report.md and report.json to bench/report/size, or to the folder that --output names.

--main: only the rows that the tests hold to bounds, at -Os. --rows, --levels: only these. --readme FILE: prints the table of README.md from a report.json.
Status: 0 measured, 1 something went wrong, 2 there is no arm-none-eabi-g++.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import elf
import stack

FIRMWARE = pathlib.Path(__file__).resolve().parent / "firmware"
COMPILER = elf.PREFIX + "g++"
COMPILE = ["-mthumb", "-std=c++20", "-g", "-fno-exceptions", "-fno-rtti", "-ffunction-sections", "-fdata-sections", "-fno-threadsafe-statics", "-Wall", "-Wextra",
           "-Werror", "-Wno-psabi", "-fcallgraph-info=su", "-MD"]
LINK = ["-mthumb", "--specs=nano.specs", "--specs=nosys.specs", "-nostartfiles", "-T", str(FIRMWARE / "lm3s6965.ld"), "-Wl,--gc-sections"]


@dataclass(frozen=True)
class Row:
    key: str
    title: str
    source: str
    host: str
    chunk: int = 512
    flags: tuple = ()
    main: bool = False  # held to bounds, and in README.md
    bounded: bool = False  # held to bounds only
    core: str = "cortex-m3"  # of all but the board
    needs: str = ""  # a header of a satellite, without which the row is left out


ROWS = (
    Row("recipient", "recipient, lands in memory", "embedded", "host_datagrams", main=True),
    Row("resuming", "recipient that goes on after a power cut, lands in flash", "embedded", "host_datagrams", flags=("-DFLASH",), main=True),
    Row("updating", "the same, and owner of an update", "embedded", "host_datagrams", flags=("-DFLASH", "-DOWNER"), main=True),
    Row("narrowing", "the same, whose update is a difference in 8 bits", "embedded", "host_datagrams", flags=("-DFLASH", "-DOWNER", "-DNARROWED"), main=True,
        needs="satellites/differences/embedded_difference.hpp"),
    Row("proving", "recipient of a model that a root proves, lands in memory", "embedded", "host_datagrams", flags=("-DPROVED",), bounded=True,
        needs="satellites/proofs/embedded_proof.hpp"),
    Row("resuming-proving", "the same, lands in flash", "embedded", "host_datagrams", flags=("-DFLASH", "-DPROVED"), bounded=True,
        needs="satellites/proofs/embedded_proof.hpp"),
    Row("signed", "recipient of a model whose root a key has signed, lands in memory", "embedded", "host_datagrams", flags=("-DPROVED", "-DSIGNED"), bounded=True,
        needs="satellites/proofs/embedded_reference.hpp"),
    Row("waiting", "recipient that waits, all of it on the stack", "embedded", "host_datagrams", flags=("-DWAITS",), bounded=True),
    Row("recipient-m0", "recipient, lands in memory, Cortex-M0+", "embedded", "host_datagrams", bounded=True, core="cortex-m0plus"),
    Row("updating-m0", "recipient in flash, and owner of an update, Cortex-M0+", "embedded", "host_datagrams", flags=("-DFLASH", "-DOWNER"), core="cortex-m0plus"),
    Row("recipient-128", "recipient, lands in memory, chunks of 128", "embedded", "host_datagrams", 128),
    Row("recipient-1024", "recipient, lands in memory, chunks of 1,024", "embedded", "host_datagrams", 1024),
    Row("resuming-128", "recipient, lands in flash, chunks of 128", "embedded", "host_datagrams", 128, ("-DFLASH",)),
    Row("resuming-1024", "recipient, lands in flash, chunks of 1,024", "embedded", "host_datagrams", 1024, ("-DFLASH",)),
    Row("stream", "engine of hosts over a stream", "stream", "host_stream", bounded=True),
    Row("datagrams", "engine of hosts over datagrams", "datagrams", "host_datagrams", bounded=True),
)
ROWS = tuple(row for row in ROWS if (elf.ROOT / "include/tensorpull" / row.needs).exists())
NOTHING = Row("nothing", "the board alone", "nothing", "")


class Failed(Exception):
    """A step that did not work, in one sentence and with what it said."""


def step(what, command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{what} failed: {' '.join(map(str, command))}\n{done.stderr[-4000:]}")
    return done.stdout


class Builder:
    """Compiles each file once for each set of flags."""

    def __init__(self, folder, include):
        self.folder, self.include, self.made = pathlib.Path(folder), include, {}

    def object(self, source, flags, core="cortex-m3"):
        """The object file, and beside it what the compiler says about its stack."""
        flags = (f"-mcpu={core}", *flags)
        key = (source, *flags)
        if key not in self.made:
            name = "".join(c if c.isalnum() else "_" for c in "".join(flags))
            place = self.folder / "objects" / name
            place.mkdir(parents=True, exist_ok=True)
            path = place / f"{source}.o"
            step(f"compiling {source}.cpp", [COMPILER, *COMPILE, *flags, "-isystem", self.include, "-c", FIRMWARE / f"{source}.cpp", "-o", path])
            self.made[key] = path
        return self.made[key]

    def firmware(self, row, optimisation, host):
        """(the linked program, its map, the compiler's call graphs)"""
        flags = (optimisation, f"-DCHUNK={row.chunk}", *row.flags)
        objects = [self.object(row.source, flags, row.core), self.object("start", ("-Os",))]
        objects += [self.object("rings", ("-Os",)), self.object(row.host, ("-Os", flags[1], *(f for f in row.flags if f in ("-DNARROWED", "-DPROVED", "-DSIGNED"))))] if host else [self.object("uart", ("-Os",))]
        place = self.folder / f"{row.key}{optimisation}{'-painted' if host else ''}"
        program, linked = place.with_suffix(".elf"), place.with_suffix(".map")
        step(f"linking {row.key}", [COMPILER, f"-mcpu={row.core}", *objects, *LINK, f"-Wl,-Map={linked}", "-o", program])
        return elf.Elf(program), linked, [o.with_suffix(".ci") for o in objects]


def painted(program):
    """(status, bytes of stack) of the firmware in QEMU."""
    emulator = ["qemu-system-arm", "-M", "lm3s6965evb", "-display", "none", "-monitor", "none", "-serial", "null", "-semihosting-config", "enable=on,target=native",
                "-kernel", str(program.path)]
    done = subprocess.run(emulator, capture_output=True, text=True, timeout=600)
    said = re.search(r"status (\d+) stack (\d+)", done.stdout + done.stderr)
    if not said:
        raise Failed(f"{program.path.name} ended without figures: {(done.stdout + done.stderr)[-300:]}")
    return int(said[1]), int(said[2])


def plain(names):
    """Symbols as people read them: without arguments."""
    found = []
    for name in elf.run(elf.PREFIX + "c++filt", "-p", *names).splitlines() if names else []:
        depth, out = 0, ""
        for c in name:
            depth += (c == "<") - (c == ">")
            out += c if depth == 0 and c != ">" else ""
        found.append(re.sub(r"^tensorpull::", "", out))
    return found


def measure(builder, row, optimisation, board, paint):
    """One row of the report."""
    program, linked, graphs = builder.firmware(row, optimisation, host=False)
    bytes_of = elf.attribute(program, linked, f"{row.source}.o")
    deepest = stack.Graph(program, graphs).deepest("pipeline")
    model = next(s.size for s in program.symbols if not s.function and re.fullmatch(r"_ZN12_GLOBAL__N_1L?5modelE", s.name))
    statics = {s.name: s.size for s in program.symbols if not s.function and s.size and s.address >= 0x20000000 and "5modelE" not in s.name}
    names = dict(zip(statics, plain(list(statics))))
    ram = program.size(".data", ".bss") - board.size(".data", ".bss")
    found = {
        "row": row.key, "title": row.title, "chunk": row.chunk, "main": row.main, "optimisation": optimisation,
        "text": program.size(*elf.IN_FLASH), "data": program.size(".data"), "bss": program.size(".bss"),
        "library": bytes_of.library(), "program": bytes_of.program, "board": bytes_of.board,
        "parts": dict(sorted(bytes_of.parts().items())), "headers": dict(sorted(bytes_of.headers.items())), "helpers": dict(sorted(bytes_of.helpers.items())),
        "model": model, "ram": ram - model - (0 if "-DWAITS" in row.flags else row.chunk),  # a pull that waits has its chunk on the stack
        "statics": {names[n]: size for n, size in sorted(statics.items(), key=lambda s: -s[1]) if not n.startswith("_ZGV")},
        "stack": deepest.bytes, "stack_path": list(zip(plain([n for n, _ in deepest.path]), [b for _, b in deepest.path])), "stack_notes": [
            re.sub(r"_Z\w+(?:\.\w+)*", lambda m: plain([m[0]])[0], note) for note in deepest.notes],
    }
    if row.main:  # what gate.py looks through
        found["symbols"] = sorted({s.name for s in program.symbols if s.size} | {p.section for p in elf.pieces(linked)})
        found["included"] = sorted(set(graphs[0].with_suffix(".d").read_text().replace("\\\n", " ").split()[1:]))
    if paint:
        program, _, graphs = builder.firmware(row, optimisation, host=True)
        status, found["painted"] = painted(program)
        if status != 0:
            raise Failed(f"{row.key} at {optimisation} ended with status {status} in QEMU")
        found["painted_bound"] = stack.Graph(program, graphs).deepest("pipeline").bytes
    return found


def measure_all(folder, rows, optimisations, paint, include=elf.ROOT / "include", say=lambda text: None):
    """The report as it is written: the compiler and the rows."""
    folder.mkdir(parents=True, exist_ok=True)
    builder = Builder(folder, include)
    board = builder.firmware(NOTHING, "-Os", host=False)[0]
    found = []
    for row in rows:
        for optimisation in optimisations:
            say(f"{row.key} {optimisation}")
            found.append(measure(builder, row, optimisation, board, paint and optimisation == "-Os"))
    return {"compiler": step("asking the compiler", [COMPILER, "--version"]).splitlines()[0], "version": step("asking the compiler", [COMPILER, "-dumpfullversion"]).strip(),
            "emulator": elf.run("qemu-system-arm", "--version").splitlines()[0] if paint else "", "rows": found}


def kilobytes(size):
    """As the tables of AWS's libraries have it."""
    return f"{size / 1024:.1f}K"


def table(header, rows):
    return ["| " + " | ".join(header) + " |", "|" + "---|" * len(header), *("| " + " | ".join(f"{c:,}" if isinstance(c, int) else str(c) for c in row) + " |" for row in rows), ""]


def readme(report):
    """The main rows, for README.md."""
    rows = [(r["title"], r["library"], r["ram"], r["stack"]) for r in report["rows"] if r["main"] and r["optimisation"] == "-Os"]
    return table(("On a Cortex-M3, -Os, chunks of 512 bytes", "text", "static RAM", "stack"), rows)


def written(report):
    out = ["# What the library costs on a Cortex-M3", "", f"{report['compiler']}, newlib-nano, -mcpu=cortex-m3. {report['emulator']}".strip(), "",
           "Bytes. `library`: text of the library with its constants and what it needs of the compiler's libraries; not the program, nor the board. `RAM`: data and bss beyond the model and one chunk.",
           "`stack`: the deepest along the calls, from the pipeline on; `painted`: what a whole transfer used in QEMU, and in brackets the deepest along the calls of that firmware.", ""]
    out += table(("Pipeline", "", "library", "text", "data", "bss", "RAM", "stack", "painted"),
                 [(r["title"], r["optimisation"], r["library"], r["text"], r["data"], r["bss"], r["ram"], r["stack"],
                   f"{r['painted']:,} ({r['painted_bound']:,})" if "painted" in r else "") for r in report["rows"]])
    smallest = [r for r in report["rows"] if r["optimisation"] == "-Os"]
    parts = sorted({p for r in smallest for p in r["parts"]})
    out += ["## By part, -Os", ""]
    out += table(("Pipeline", *parts), [(r["title"], *(r["parts"].get(p, 0) for p in parts)) for r in smallest])
    optimisations = list(dict.fromkeys(r["optimisation"] for r in report["rows"]))
    for key, title in dict.fromkeys((r["row"], r["title"]) for r in report["rows"]):
        same = {r["optimisation"]: r for r in report["rows"] if r["row"] == key}
        files = sorted({f for r in same.values() for f in r["headers"]})
        helpers = sorted({h for r in same.values() for h in r["helpers"]})
        cell = lambda o, kind, name: kilobytes(same[o][kind].get(name, 0)) if o in same else ""
        out += [f"## {title[0].upper()}{title[1:]}", ""]
        out += table(("File", *(f"With {o} optimisation" for o in optimisations)),
                     [*((f, *(cell(o, "headers", f) for o in optimisations)) for f in files), *((f"{h} (of the compiler's libraries)", *(cell(o, "helpers", h) for o in optimisations)) for h in helpers),
                      ("Total", *(kilobytes(same[o]["library"]) if o in same else "" for o in optimisations))])
        r = same.get("-Os") or next(iter(same.values()))
        out += ["Static memory: " + ", ".join(f"`{n}` {b:,}" for n, b in r["statics"].items()) + ".", ""]
        out += ["Deepest stack: " + ", ".join(f"`{n}` {b:,}" for n, b in r["stack_path"]) + ".", ""]
        out += [*(f"- {note}" for note in r["stack_notes"]), ""] if r["stack_notes"] else ["No recursion, no call through a pointer, no frame whose size is computed at run time.", ""]
    return "\n".join(out)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--output", metavar="FOLDER", type=pathlib.Path, default=elf.ROOT / "bench" / "report" / "size")
    arguments.add_argument("--main", action="store_true", help="only the rows with bounds, at -Os")
    arguments.add_argument("--rows", metavar="NAME", nargs="+", choices=[r.key for r in ROWS], help="only these")
    arguments.add_argument("--levels", metavar="LEVEL", nargs="+", choices=["O1", "Os", "O2"], help="only these of O1, Os and O2")
    arguments.add_argument("--no-qemu", action="store_true", help="without painted stacks")
    arguments.add_argument("--readme", metavar="FILE", type=pathlib.Path, help="print the table of README.md from this report.json, and measure nothing")
    chosen = arguments.parse_args()
    if chosen.readme:
        print("\n".join(readme(json.loads(chosen.readme.read_text()))), end="")
        return 0
    if shutil.which(COMPILER) is None:
        print(f"report.py: there is no {COMPILER} here (Debian's gcc-arm-none-eabi and libstdc++-arm-none-eabi-newlib)", file=sys.stderr)
        return 2
    paint = not chosen.no_qemu and shutil.which("qemu-system-arm") is not None
    if not paint and not chosen.no_qemu:
        print("report.py: there is no qemu-system-arm here, so no painted stacks", file=sys.stderr)
    rows = [r for r in ROWS if (r.main or r.bounded or not chosen.main) and (not chosen.rows or r.key in chosen.rows)]
    folder = chosen.output.resolve()
    try:
        levels = tuple("-" + level for level in chosen.levels or (("Os",) if chosen.main else ("O1", "Os", "O2")))
        report = measure_all(folder, rows, levels, paint, say=lambda text: print(text, file=sys.stderr))
    except (Failed, subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 1
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    (folder / "report.md").write_text(written(report))
    print(folder / "report.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
