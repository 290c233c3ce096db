#!/usr/bin/env python3
"""What the library costs to compile, swept over the size of models and programs, beside other ways to do the same.

Prints tables; writes compile_time.md, .csv and .svg files into the report's folder. Needs a C++20 compiler, Boost's headers and Cap'n Proto."""
import argparse
import json
import sys
import tempfile
from pathlib import Path

import compilers
import report
import series


def cases_of(chosen, used, quick, only):
    """{(series, line, value, compiler): (the file's text, the compiler)}"""
    return {(s.name, line.name, value, compiler.name): (line.text(value), compiler)
            for s in chosen for line in s.lines for value in (line.quick if quick else line.values) if not only or str(value) in only for compiler in used}


def main():
    everything = series.all_series()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller points, one round: about a minute and a half")
    parser.add_argument("--only", nargs="+", choices=[s.name for s in everything], help="these series")
    parser.add_argument("--values", nargs="+", metavar="VALUE", help="these points of each line: 100 1000, for example")
    parser.add_argument("--pfr", type=Path, metavar="FOLDER", help="where boost/pfr.hpp is, if not among the system's headers: of libboost1.81-dev, unpacked")
    parser.add_argument("--rounds", type=int, help="default 5, with --quick 1")
    parser.add_argument("--compilers", nargs="+", default=["g++", "clang++|clang++-14"], metavar="NAME", help="default: g++, and clang++ where it is")
    parser.add_argument("--generated", type=Path, metavar="FOLDER", help="where tensorpull/messages/decomposed.capnp.h is, instead of running capnp")
    parser.add_argument("--report", type=Path, default=compilers.ROOT / "bench" / "report", metavar="FOLDER", help="default bench/report")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the rows and the targets, for other programs")
    args = parser.parse_args()
    rounds = args.rounds or (1 if args.quick else 5)
    chosen = [s for s in everything if not args.only or s.name in args.only]
    with tempfile.TemporaryDirectory() as folder:
        generated = args.generated or compilers.generate_protocol(Path(folder))
        used = [compilers.Compiler(path, [*compilers.library_flags(generated), *([f"-isystem{args.pfr}"] if args.pfr else [])]) for path in compilers.found(args.compilers)]
        if not used:
            sys.exit(f"run.py: none of these compilers is here: {' '.join(args.compilers)}")
        where = f"{compilers.machine()}; {', '.join(c.version for c in used)}; {rounds} rounds"
        results = compilers.in_turns(cases_of(chosen, used, args.quick, args.values), rounds)
    rows = [report.row(key, r) for key, r in results.items()]
    print(report.tables(rows, chosen, where))
    plots = report.write(args.report, rows, chosen, where)
    if args.json:
        judged = [{"target": what, "at_most": bound, "measured": figure, "unit": unit} for what, bound, figure, unit in report.targets(rows)]
        args.json.write_text(json.dumps({"machine": where, "rows": rows, "targets": judged, "plots": plots}, indent=1) + "\n")


if __name__ == "__main__":
    main()
