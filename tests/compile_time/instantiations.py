#!/usr/bin/env python3
"""Compiles a few files and counts the templates that they instantiate: instantiations.py COMPILER FOLDER_OF_GENERATED_HEADERS COMPONENT...

Seconds vary from run to run, counts do not: a header that pulls in more, or a walk that instantiates for each tensor what it needs once, shows here.
Counts above the bounds fail; so does a cost that grows faster than the model, and memory above 500 MiB. Counts depend on the compiler and its
library: with another version than the bounds are for, only growth and memory are judged."""
import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "compile_time"))
sys.dont_write_bytecode = True
import compilers
import sources

MEMORY_MIB = 500
# Measured through the umbrella header, as users include it, and 3 % more. If you make a count smaller, make its bound smaller.
BOUNDS = {
    "g++ 12": {"one tensor": 32_840, "1,000 tensors in layers that are alike": 35_120, "4 pipelines": 40_970, "udp": 36_520, "serial": 36_620, "tls": 47_640, "tcp, owner": 44_350},
    "clang 14": {"one tensor": 8_640, "1,000 tensors in layers that are alike": 9_390, "4 pipelines": 11_520, "100 distinct tensors": 18_360, "udp": 10_530, "serial": 10_610, "tls": 13_530, "tcp, owner": 11_850},
}
FILES = {
    "one tensor": sources.with_pipeline(sources.repeated_model(1)),
    "1,000 tensors in layers that are alike": sources.with_pipeline(sources.repeated_model(1000)),
    "4 pipelines": sources.many_pipelines(4),
}
# The programs that people write over a transport of the ground floor, each with the components that it needs.
PROGRAMS = {"udp": (), "serial": (), "tls": ("tls",), "tcp, owner": ()}
# In the ordinary run g++ counts in these alone; with TENSORPULL_WHOLE_SCHEDULE=1 in all of them, as clang always does.
IN_SHORT = ("udp",)
# With clang alone, whose counting costs nothing: g++ asks for the time at every template.
DISTINCT = {f"{n} distinct tensors": sources.image_of_struct(n) for n in (1, 50, 100)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("compiler")
    parser.add_argument("generated")
    parser.add_argument("components", nargs="*", help="of this build: programs that need others are left out")
    args = parser.parse_args()
    compiler = compilers.Compiler(args.compiler, compilers.library_flags(args.generated))
    kind = compiler.kind.partition(".")[0]
    bounds = BOUNDS.get(kind)
    programs = dict(PROGRAMS)
    for satellite, by_compiler in sources.BOUNDS.items():
        if satellite in args.components and bounds is not None:
            bounds |= by_compiler.get(kind, {})
        if satellite in args.components:
            programs |= {name: () for counts in by_compiler.values() for name in counts}
    if bounds is None:
        print(f"no bounds for {kind} ({compiler.version}): growth and memory only")
    wrong, counts = 0, {}

    def judge(what, value, bound):
        nonlocal wrong
        bad = value > bound
        wrong += bad
        print(f"{what}: {value:,.0f}, at most {bound:,.0f}{'   TOO MANY' if bad else ''}")

    whole = compiler.is_clang or os.environ.get("TENSORPULL_WHOLE_SCHEDULE") == "1"
    programs = {name: sources.roles(name) for name, needs in programs.items() if set(needs) <= set(args.components) and (whole or name in IN_SHORT)}
    for name, text in {**FILES, **programs, **(DISTINCT if compiler.is_clang else {})}.items():
        counts[name], memory = compiler.instantiations_and_memory(text)
        judge(f"{name}: MiB", memory / 2**20, MEMORY_MIB)
        if bounds and name in bounds:
            judge(f"{name}: instantiations", counts[name], bounds[name])
    if compiler.is_clang:
        one, fifty, hundred = (counts[name] for name in DISTINCT)
        judge("100 distinct tensors more than 50: instantiations", hundred - fifty, 1.1 * (fifty - one))
    judge("1,000 tensors in layers that are alike: instantiations more than one tensor",
          counts["1,000 tensors in layers that are alike"] - counts["one tensor"], 3000)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
