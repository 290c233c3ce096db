"""Tables, CSV and plots of what was measured, and whether it is what was asked for."""
import csv
import statistics
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "driver"))
import svg

COLUMNS = ("series", "line", "value", "compiler", "seconds", "seconds_min", "seconds_max", "rounds", "peak_memory_bytes", "instantiations", "object_bytes", "refused")


def row(case, measured):
    """One line of the CSV and of the JSON."""
    times = measured["seconds"]
    return dict(zip(COLUMNS, (*case, statistics.median(times) if times else None, min(times, default=None), max(times, default=None), len(times),
                              measured["memory"], measured["instantiations"], measured["object"], measured["refused"])))


def find(rows, **wanted):
    return next((r for r in rows if all(r[k] == v for k, v in wanted.items()) and r["seconds"] is not None), None)


def targets(rows):
    """(what, bound, figure, unit) for each target that the measured rows can answer."""
    judged = []
    for compiler in dict.fromkeys(r["compiler"] for r in rows):
        def seconds(series, line, value):
            r = find(rows, series=series, line=line, value=value, compiler=compiler)
            return r and r["seconds"]

        def more(what, bound, series, line, value, base):
            a, b = seconds(series, line, value), seconds(series, line, base)
            if a is not None and b is not None:
                judged.append((f"{compiler}: {what}", bound, a - b, "s"))

        more("1,000 tensors more than 1, layers that are alike", 1.5, "tensors", "layers that are alike", 1000, 1)
        more("1,000 tensors more than 1, every member distinct", 1.5, "tensors", "every member distinct", 1000, 1)
        more("of these in BOOST_HANA_ADAPT_STRUCT itself", None, "tensors", "Hana's macro alone", 1000, 1)
        more("a pipeline of 400 tensors over loopback more than an empty file", 1.0, "programs", "", "loopback", "empty")
        ours = [r for r in rows if r["compiler"] == compiler and r["series"] in ("programs", "tensors", "nesting") and r["peak_memory_bytes"]]
        for name, chosen in (("", [r for r in ours if r["line"] in ("", "layers that are alike")]),
                             (", every member distinct", [r for r in ours if r["line"] == "every member distinct"])):
            if chosen:
                most = max(r["value"] for r in chosen if r["series"] == "tensors") if any(r["series"] == "tensors" for r in chosen) else 400
                judged.append((f"{compiler}: most memory, up to {most:,} tensors{name}", 500, max(r["peak_memory_bytes"] for r in chosen) / 2**20, "MiB"))
        for line in ("layers that are alike", "every member distinct"):
            points = sorted((r["value"], r["instantiations"]) for r in rows
                            if r["compiler"] == compiler and r["series"] == "tensors" and r["line"] == line and r["instantiations"])
            # where the models are small enough to be one struct, a tensor costs less than where structs hold them
            if len(points) >= 3:
                (x0, y0), (x1, y1), (x2, y2) = points[1], points[-2], points[-1]
                first, last = (y1 - y0) / (x1 - x0), (y2 - y1) / (x2 - x1)
                judged.append((f"{compiler}: instantiations a tensor from {x1} to {x2} more than from {x0} to {x1}, {line}", 1.0, last - first, ""))
    return judged


def amount(value, unit=1, digits=0):
    return "–" if value is None else f"{value / unit:,.{digits}f}"


def tables(rows, all_series, machine):
    out = ["# Compile time", "", machine, "",
           "Seconds: processor time in user mode, median (minimum to maximum) over interleaved rounds, without optimisation. Peak memory: of the compiler.",
           "Instantiations: clang: classes and functions (-ftime-trace); g++: entries of its tables of specialisations (-fstats), which count more.", ""]
    judged = targets(rows)
    if judged:
        out += ["| target | at most | measured | |", "|---|---|---|---|"]
        out += [f"| {what} | {'–' if bound is None else f'{bound:g} {unit}'} | {figure:.2f} {unit} | {'' if bound is None else 'yes' if figure <= bound else 'NO'} |"
                for what, bound, figure, unit in judged] + [""]
    for series in all_series:
        mine = [r for r in rows if r["series"] == series.name]
        if not mine:
            continue
        out += [f"## {series.title}", "", f"| {series.axis} | compiler | seconds | more than the first | peak MiB | instantiations | object KiB |", "|---|---|---|---|---|---|---|"]
        for r in mine:
            name = f"{r['value']}" + (f", {r['line']}" if r["line"] else "")
            if r["refused"]:
                out.append(f"| {name} | {r['compiler']} | {r['refused'].replace('|', '/')} | | | | |")
                continue
            first = next(o for o in mine if o["line"] == r["line"] and o["compiler"] == r["compiler"])
            base = first["seconds"]
            out.append(f"| {name} | {r['compiler']} | {r['seconds']:.2f} ({r['seconds_min']:.2f} to {r['seconds_max']:.2f}) | "
                       f"{'–' if base is None or first is r else format(r['seconds'] - base, '+.2f')} | {amount(r['peak_memory_bytes'], 2**20)} | "
                       f"{amount(r['instantiations'])} | {amount(r['object_bytes'], 1024)} |")
        out.append("")
    return "\n".join(out)


def draw(folder, rows, series):
    """Writes the plots of a series; returns (file, what it shows)."""
    mine = [r for r in rows if r["series"] == series.name and r["seconds"] is not None]
    drawn = []
    if not mine:
        return drawn
    if isinstance(mine[0]["value"], str):
        for compiler in dict.fromkeys(r["compiler"] for r in mine):
            bars = [(r["value"].removeprefix("tensorpull/"), r["seconds_min"], r["seconds"], r["seconds_max"]) for r in mine if r["compiler"] == compiler]
            drawn.append((f"compile_time_{series.name}_{compiler}.svg", f"{series.title}, {compiler}"))
            svg.bars(folder / drawn[-1][0], drawn[-1][1], "seconds of processor time", bars)
        return drawn
    for column, label, unit, suffix in (("seconds", "seconds of processor time", 1, ""), ("peak_memory_bytes", "peak memory, MiB", 2**20, "_memory"),
                                        ("instantiations", "template instantiations", 1, "_instantiations")):
        lines = {}
        for r in mine:
            if r[column] is not None:
                point = (r["value"], r["seconds_min"], r["seconds"], r["seconds_max"]) if column == "seconds" else (r["value"], r[column] / unit)
                lines.setdefault(", ".join(filter(None, (r["line"], r["compiler"]))), []).append(point)
        file = f"compile_time_{series.name}{suffix}.svg"
        if lines and svg.lines(folder / file, series.title, series.axis, label, lines):
            drawn.append((file, f"{series.title}: {label}"))
    return drawn


def write(folder, rows, all_series, machine):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "compile_time.md").write_text(tables(rows, all_series, machine) + "\n")
    with open(folder / "compile_time.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return [plot for series in all_series for plot in draw(folder, rows, series)]
