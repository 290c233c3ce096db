#!/usr/bin/env python3
"""What a program costs to compile, charged to its parts, with each compiler that is here: measure.py YOUR.cpp [options] [-- flags of the compiler]

Seconds of the processor (of the least disturbed round), the compiler's peak memory, templates and bytes of the object:
  - with every compiler for the whole, and for each #include, by compiling up to it;
  - with clang for each policy, library, header and template; `below` is with all that it includes or instantiates;
  - with g++, which names no time, templates and bytes of each policy, library and template.
`the rest` has no name in the compiler's words: seconds for machine code, templates that are only declared, tables of the object.
"""
import argparse
import json
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import compilers
import parts
import report

KNOWN = [f"g++-{n}" for n in (12, 13, 14)] + ["g++"] + [f"clang++-{n}" for n in range(14, 20)] + ["clang++"]
COLUMNS = {"seconds": ("seconds", 1, 3), "below": ("below", 1, 3), "memory": ("MiB", 2**20, 1), "instantiations": ("templates", 1, 0), "object": ("object KiB", 1024, 1)}


def prefixes(text):
    """{what is added: the file up to there}: an empty file, each #include outside of conditions, the program."""
    found, depth, lines = {"an empty file": ""}, 0, text.splitlines(keepends=True)
    for i, line in enumerate(lines):
        depth += bool(re.match(r"\s*#\s*if", line)) - bool(re.match(r"\s*#\s*endif", line))
        include = re.match(r'\s*#\s*include\s*([<"][^>"]+[>"])', line)
        if include and depth == 0:
            found.setdefault("#include " + include[1], "".join(lines[:i + 1]))
    return {**found, parts.PROGRAM: text}


def measure(program, text, used, rounds, policies_of):
    """Rows: {compiler, kind, name, and a figure or None for each of COLUMNS}. And why compilers refused it."""
    text = f"#line 1 {json.dumps(str(program), ensure_ascii=False)}\n{text}"
    steps = prefixes(text)
    rows, refused, able = [], [], []
    for compiler in used:
        try:
            compiler.compile("")
            able.append(compiler)
        except compilers.Refused as why:
            refused.append(f"{compiler.kind}, with these flags: {why}")
    results = compilers.in_turns({(c.kind, name): (step, c) for c in able for name, step in steps.items()}, rounds)
    for compiler in able:
        found, before = [], dict.fromkeys(COLUMNS, 0)
        for name in steps:
            r = {**results[compiler.kind, name], "below": None}
            if not r["refused"]:  # an #include within braces, for example, counts with the next one
                r["seconds"] = min(r["seconds"])
                found.append({"kind": "include", "name": name, **{c: None if r[c] is None or before[c] is None else r[c] - before[c] for c in COLUMNS}})
                before = r
        try:
            if r["refused"]:
                raise compilers.Refused(r["refused"])
            rows += [{"compiler": compiler.kind, "kind": r["kind"], "name": r["name"], **{c: r.get(c) for c in COLUMNS}}
                     for r in [{"kind": "whole", "name": program.name, **r}, *found, *parts.of(compiler, text, r, rounds, policies_of)]]
        except compilers.Refused as why:
            refused.append(f"{compiler.kind}: {why}")
    return rows, refused


def compared(rows, against):
    """(row, the row of before) of each; parts that are gone have zeros."""
    def key(row):
        return row["compiler"], row["kind"], row["name"]

    old, kinds = {key(row): row for row in against}, {key(row)[:2] for row in rows}
    pairs = [(row, old.pop(key(row), dict.fromkeys(COLUMNS, 0)) if against else None) for row in rows]
    return pairs + [({**row, **{c: row[c] and 0 for c in COLUMNS}}, row) for row in old.values() if key(row)[:2] in kinds]


def weight(pair):
    return pair[0]["name"] != parts.REST, [max(row[c] or 0 for row in pair if row) for c in ("seconds", "instantiations", "object")]


def chosen(pairs, compiler, kind, most):
    mine = [p for p in pairs if p[0]["compiler"] == compiler and p[0]["kind"] == kind]
    return mine if kind in ("whole", "include") else sorted(mine, key=weight, reverse=True)[:most]


def tables(pairs, most):
    for compiler in dict.fromkeys(row["compiler"] for row, _ in pairs):
        for kind in ("whole", "include", *parts.KINDS):
            mine = chosen(pairs, compiler, kind, most)
            told = [c for c in COLUMNS if any(row[c] is not None for row, _ in mine)]
            if not told:
                continue
            yield f"\n| {compiler}: {kind} | {' | '.join(COLUMNS[c][0] for c in told)} |\n|---|{'---|' * len(told)}"
            for row, old in mine:
                cells = [report.amount(row[c], *COLUMNS[c][1:]) + ("" if not old or None in (row[c], old[c]) else f" ({(row[c] - old[c]) / COLUMNS[c][1]:+,.{COLUMNS[c][2]}f})")
                         for c in told]
                yield f"| {row['name'].replace('|', '/')} | {' | '.join(cells)} |"


def draw(path, title, pairs, most):
    """Bars of all that has seconds; the line on a bar leads from the figure before."""
    bars = []
    for compiler in dict.fromkeys(row["compiler"] for row, _ in pairs):
        for kind in ("include", *parts.KINDS):
            for row, old in chosen(pairs, compiler, kind, most):
                if row["seconds"] is not None:
                    now = max(0, row["seconds"])
                    was = max(0, old["seconds"] or 0) if old else now
                    bars.append((f"{compiler.split('.')[0]}, {kind.removeprefix('include')} {row['name'][-30:]}", min(now, was), now, max(now, was)))
    report.svg.bars(path, title, "seconds of processor time", bars)


def main():
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--compilers", nargs="+", default=KNOWN, metavar="NAME", help="default: g++ 12 to 14 and clang 14 to 19, those that are here")
    parser.add_argument("--policies-of", default="tensorpull::pipeline_parts", metavar="TEMPLATE", help="whose arguments are the policies; default tensorpull::pipeline_parts")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--rows", type=int, default=12, help="of libraries, headers and templates, those that cost most, default 12. The JSON has all")
    parser.add_argument("--against", type=Path, metavar="FILE", help="the JSON of before a change: figures have their differences")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="SVG")
    args = parser.parse_args(words[:end])
    try:
        text = args.program.read_text(errors="surrogateescape")
        against = [{c: row[c] for c in ("compiler", "kind", "name", *COLUMNS)} for row in json.loads(args.against.read_text())["rows"]] if args.against else []
    except OSError as why:
        sys.exit(f"measure.py: {why.filename}: {why.strerror}")
    except (ValueError, KeyError, TypeError):
        sys.exit(f"measure.py: {args.against} is no JSON of measure.py")
    flags = ["-std=c++20", f"-iquote{args.program.parent}", *words[end + 1:]]
    used = {c.kind: c for c in (compilers.Compiler(path, flags) for path in compilers.found(args.compilers))}
    if not used:
        sys.exit(f"measure.py: none of these compilers is here: {' '.join(args.compilers)}")
    where = f"{compilers.machine()}; {max(1, args.rounds)} rounds"
    rows, refused = measure(args.program, text, list(used.values()), max(1, args.rounds), args.policies_of)
    pairs = compared(rows, against)
    print(f"{args.program}: {where}", *tables(pairs, args.rows), sep="\n")
    if not any(c.is_clang for c in used.values()):
        print("\nNo clang was asked: only clang tells the seconds of a header and of a template.")
    try:
        if args.json:
            args.json.write_text(json.dumps({"program": str(args.program), "flags": flags, "machine": where, "rows": rows}, indent=1) + "\n")
        if args.picture and rows:
            draw(args.picture, f"What {args.program.name} costs to compile", pairs, args.rows)
    except OSError as why:
        sys.exit(f"measure.py: {why.filename}: {why.strerror}")
    if refused:
        sys.exit(f"measure.py: {args.program} was refused by {'; '.join(refused)}")


if __name__ == "__main__":
    main()
