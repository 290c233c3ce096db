"""What a run leaves behind: a page of Markdown, a CSV file for each table, plots, and everything as JSON."""

import csv
import json
import os
import platform
import re
import statistics
import subprocess
import time
from dataclasses import dataclass, field


def three(values):
    """minimum, median, maximum"""
    return (min(values), statistics.median(values), max(values))


def short(value):
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if value == 0:
        return "0"
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def spread(values, scale=1.0, invert=False):
    """median (minimum to maximum)"""
    seen = sorted(scale / v if invert else scale * v for v in values)
    return f"{short(statistics.median(seen))} ({short(seen[0])} to {short(seen[-1])})"


@dataclass
class Table:
    name: str  # of its CSV file
    caption: str
    header: list
    rows: list

    def markdown(self):
        lines = [f"**{self.caption}**", "", "| " + " | ".join(self.header) + " |", "|" + "---|" * len(self.header)]
        lines += ["| " + " | ".join(short(cell) for cell in row) + " |" for row in self.rows]
        return "\n".join(lines) + "\n"

    def plain(self):
        rows = [self.header] + [[short(cell) for cell in row] for row in self.rows]
        widths = [max(len(r[i]) for r in rows) for i in range(len(self.header))]
        out = [self.caption]
        for r in rows:
            out.append("  " + "  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(r, widths))))
        return "\n".join(out)


@dataclass
class Section:
    name: str
    title: str
    text: list = field(default_factory=list)
    tables: list = field(default_factory=list)
    plots: list = field(default_factory=list)  # (file, what it shows)
    targets: list = field(default_factory=list)  # (what, wanted, measured, met)
    raw: list = field(default_factory=list)
    seconds: float = 0.0


def first_line(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "?"


def machine():
    cpu = "?"
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                cpu = line.split(":")[1].strip()
                break
    with open("/proc/meminfo") as lines:
        memory = int(re.search(r"(\d+)", lines.readline()).group(1)) / (1 << 20)
    huge = "?"
    try:
        with open("/sys/kernel/mm/transparent_hugepage/enabled") as file:
            huge = re.search(r"\[(\w+)\]", file.read()).group(1)
    except (OSError, AttributeError):
        pass
    return {
        "processor": f"{os.cpu_count()} cores of {cpu}",
        "memory": f"{memory:.0f} GiB, huge pages: {huge}",
        "system": f"{platform.system()} {platform.release()}",
        "compiler": first_line("g++", "--version"),
        "load_before": os.getloadavg()[0],
    }


def write(folder, about, sections, options, left):
    """What there is so far; `left` names the suites that are still to run."""
    lines = ["# Benchmark report", ""]
    lines += [f"{about['processor']}; {about['memory']}; {about['system']}; {about['compiler']}."]
    lines += [
        f"Load of the machine before the run {about['load_before']:.2f}, after it {os.getloadavg()[0]:.2f} (1.0 is one busy core). "
        f"Run on {time.strftime('%Y-%m-%d %H:%M')}, `bash bench/run.sh {' '.join(options)}`".rstrip() + "."
    ]
    lines += ["", "Figures are medians of interleaved rounds, with (minimum to maximum), or ratios of medians within this run. GiB is 2^30 bytes."]
    lines += ["What is measured and how: bench/reference.md.", ""]
    if left:
        lines += [f"Still to run, or the run was stopped: {', '.join(left)}.", ""]
    targets = [t for s in sections for t in s.targets]
    if targets:
        lines += ["## Numbers to reach", "", "| What | Wanted | Measured | |", "|---|---|---|---|"]
        lines += [f"| {what} | {wanted} | {measured} | {'reached' if met else '**missed**'} |" for what, wanted, measured, met in targets]
        lines += [""]
    for s in sections:
        lines += [f"## {s.title}", ""] + [t + "\n" for t in s.text]
        for t in s.tables:
            lines += [t.markdown()]
            with open(os.path.join(folder, t.name + ".csv"), "w", newline="") as file:
                out = csv.writer(file)
                out.writerow(t.header)
                out.writerows(t.rows)
        for name, shows in s.plots:
            lines += [f"![{shows}]({name})", ""]
    with open(os.path.join(folder, "report.md"), "w") as file:
        file.write("\n".join(lines))
    with open(os.path.join(folder, "report.json"), "w") as file:
        json.dump(as_json(about, sections), file, indent=1)


def as_json(about, sections):
    return {
        "machine": about,
        "sections": [
            {
                "name": s.name,
                "seconds": round(s.seconds, 1),
                "raw": s.raw,
                "tables": [t.__dict__ for t in s.tables],
                "targets": [dict(zip(("what", "wanted", "measured", "reached"), t)) for t in s.targets],
            }
            for s in sections
        ],
    }
