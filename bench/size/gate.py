#!/usr/bin/env python3
"""Holds a report.json of bench/size/report.py to bounds.json: what the library may cost, and what it cost when the bounds were written.

A figure above `at_most` fails with any compiler. One that has grown by more than the tolerance fails with the compiler of the bounds, and the sentence names the
part of the library that grew most. --code: instead, a recipient has no code that it does not use. --readme FILE: instead, the table in FILE has these figures.
--write: writes the report's figures to the bounds. Status: 0 all is well, 1 something is not.
"""

import argparse
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import report as reporting

BOUNDS = pathlib.Path(__file__).resolve().parent / "bounds.json"
FIGURES = {"library": "text of the library", "ram": "static RAM beyond the model and one chunk", "stack": "stack", "painted": "painted stack"}
# What firmware that only receives has no code for: parts of the library, and names of anything.
ROLES = ("owner", "endpoint")
HEADERS = r"framing/(?!frame\.hpp|detail/(control_words|payload_prefix|piece_prefix)\.hpp)|protocol/|pull/|transports/|messages/|testing/|image/(?!static|detail/static|schema|header)"
NAMES = {
    "an owner": r"(?:embedded_|[0-9])owner(?!_)|answering|transaction",
    "messages": r"message|application",
    "subsets": r"subset|locat(?!ion)",
    "schema pages": r"schema_row|schema_comparison|schema_page",
    "progress": r"progress",
    "lists": r"element_list|list_storage|segment_reader|control_reader|control_writer",
    "the heap": r"^_?(malloc|free|calloc|realloc|sbrk)(_r)?$|^_?_sbrk|^_Zn[wa]j|^_Zd[la]Pv",
    "exceptions": r"__cxa_(throw|rethrow|allocate|begin|end_c|free_e|get_e)|_Unwind_|__gxx_personality|^\.ARM\.extab|gcc_except_table",
    "types at run time": r"^_ZT[IVS]",
    "random_device": r"random_device",
}
INCLUDED = r"(^|/)(random|thread|mutex|iostream)$|/(boost|capnp|kj)/"


def tolerance(bounds, figure):
    return max(bounds["tolerance"]["bytes"], figure * bounds["tolerance"]["percent"] / 100)


def grown(bounds, row, held):
    """The part of the library that grew most, and by how much."""
    parts = held.get("parts", {})
    return max(((name, size - parts.get(name, 0)) for name, size in row["parts"].items()), key=lambda p: p[1], default=("", 0))


def judge(report, bounds):
    """A sentence for each figure that is too high."""
    wrong = []
    rows = {r["row"]: r for r in report["rows"] if r["optimisation"] == "-Os"}
    for key, held in bounds["rows"].items():
        row = rows.get(key)
        if row is None and key not in {r.key for r in reporting.ROWS}:
            continue
        if row is None:
            wrong.append(f"{key}: it was not measured.")
            continue
        part, by = grown(bounds, row, held)
        because = f"; {part} grew most, by {by:,} bytes" if by > 0 else ""
        for figure, what in FIGURES.items():
            limits = held.get(figure)
            if limits is None or figure not in row:
                continue
            if "at_most" in limits and row[figure] > limits["at_most"]:
                wrong.append(f"{row['title']}: {what} is {row[figure]:,} bytes, above the bound of {limits['at_most']:,}{because if figure == 'library' else ''}.")
            elif report["version"] == bounds["compiler"] and row[figure] > limits["measured"] + tolerance(bounds, limits["measured"]):
                wrong.append(f"{row['title']}: {what} grew by {row[figure] - limits['measured']:,} bytes, from {limits['measured']:,} to {row[figure]:,}, "
                             f"above the tolerance of {tolerance(bounds, limits['measured']):.0f}{because if figure == 'library' else ''}.")
        if "stack" in held and "painted" in row and row["painted"] > row["painted_bound"]:
            wrong.append(f"{row['title']}: a transfer used {row['painted']:,} bytes of stack, above the {row['painted_bound']:,} that its calls can use.")
        for note in row["stack_notes"] if "stack" in held else ():  # hosts call through pointers, and libgcc's frames for an M0+ are not known
            wrong.append(f"{row['title']}: its stack has no bound, since there is {note}." if note.startswith("recursion") else f"{row['title']}: its stack may be deeper, since {note}.")
    return wrong


def unused_code(report):
    """A sentence for each thing in firmware that only receives, and that it does not need."""
    wrong = []
    rows = [r for r in report["rows"] if r["main"] and not r["parts"].get("owner") and r["row"] != "updating"]
    if not rows:
        return ["There is no row of a recipient alone."]
    for row in rows:
        wrong += [f"{row['title']}: {row['parts'][part]:,} bytes are of the part {part}." for part in ROLES if row["parts"].get(part)]
        wrong += [f"{row['title']}: {size:,} bytes are of {header}." for header, size in row["headers"].items() if re.match(HEADERS, header)]
        wrong += [f"{row['title']}: it has code for {what}: {name}." for what, pattern in NAMES.items() for name in row["symbols"] if re.search(pattern, name)]
        if not any(name.endswith("embedded/recipient.hpp") for name in row["included"]) or "pipeline" not in row["symbols"]:
            wrong.append(f"{row['title']}: the report does not know what it includes, or what it consists of.")
        wrong += [f"{row['title']}: it includes {name}." for name in row["included"] if re.search(INCLUDED, name)]
    return wrong


def stale(report, bounds, page):
    """A sentence for each figure of the page's table that is another one by now."""
    wrong, text = [], page.read_text(encoding="utf-8")
    if report["version"] != bounds["compiler"]:
        return []
    for line in reporting.readme(report)[2:-1]:
        title, *figures = (c.strip() for c in line.strip("| ").split("|"))
        found = re.search(r"^\| " + re.escape(title) + r" \|(.*)\|$", text, re.M)
        if not found:
            wrong.append(f"{page.name} has no row '{title}': report.py --readme prints the table.")
            continue
        for stated, measured in zip(found[1].split("|"), figures):
            stated, measured = (int(re.sub(r"\D", "", n)) for n in (stated, measured))
            if abs(stated - measured) > tolerance(bounds, stated):
                wrong.append(f"{page.name} says {stated:,} for '{title}' where {measured:,} was measured: report.py --readme prints the table.")
    return wrong


def write(report, bounds):
    bounds["compiler"] = report["version"]
    for row in report["rows"]:
        held = bounds["rows"].get(row["row"])
        if held is not None and row["optimisation"] == "-Os":
            for figure in FIGURES:
                if figure in row and (figure in held or row["main"]):
                    held.setdefault(figure, {})["measured"] = row[figure]
            held["parts"] = row["parts"]
    BOUNDS.write_text(re.sub(r'\{\s+("(?:at_most|measured)": \d+)(?:,\s+("measured": \d+))?\s+\}', lambda m: "{" + ", ".join(filter(None, m.groups())) + "}", json.dumps(bounds, indent=1)) + "\n")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("report", type=pathlib.Path)
    arguments.add_argument("--code", action="store_true", help="look for code that a recipient does not use")
    arguments.add_argument("--readme", metavar="FILE", type=pathlib.Path, help="compare the table in this page")
    arguments.add_argument("--write", action="store_true", help="write the figures to bounds.json")
    chosen = arguments.parse_args()
    report, bounds = json.loads(chosen.report.read_text()), json.loads(BOUNDS.read_text())
    if chosen.write:
        write(report, bounds)
        return 0
    wrong = unused_code(report) if chosen.code else stale(report, bounds, chosen.readme) if chosen.readme else judge(report, bounds)
    print("\n".join(wrong) if wrong else "all is well")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
