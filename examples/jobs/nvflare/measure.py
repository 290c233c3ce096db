"""Runs job.py in two ways or more, in turns, and prints what each took: measure.py [--table | --differences] [--repeats N] [--line MS MBIT] [options of job.py]."""

from __future__ import annotations

import argparse
import glob
import hashlib
import itertools
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime

HERE = os.path.dirname(os.path.abspath(__file__))
TICKS = os.sysconf("SC_CLK_TCK")
LEAST_BYTES = int(os.environ.get("NVFLARE_TENSORPULL_LEAST_BYTES", 2 << 20))  # of a model that is offered (tensorpull_least_bytes)
# with --flat an update of tensors is pulled when FLARE's sum asks for it, so that the server holds one at a time
WAYS = {
    "stock": (["--stock"], {}), "tensorpull": ([], {}), "tensorpull, flat": (["--flat"], {"NVFLARE_TENSORPULL_LAZY": "1"}),
    "differences": ([], {"NVFLARE_TENSORPULL_DIFFERENCES": "coded"}),
}  # fmt: skip
DONE = {True: r"download ref=\S+ done: elapsed=([\d.]+)s size=([\d.]+)MB", False: r"tensorpull: ref=\S+ from (\S+) by (\S+): done in ([\d.]+) s, (\d+) bytes"}


def processes_of(root: int) -> "dict[int, str]":
    """A process and its descendants, with their command lines."""
    parents, found = {}, {root: ""}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                parents[int(pid)] = int(f.read().rpartition(")")[2].split()[1])
        except OSError:
            pass
    grew = True
    while grew:
        grew = False
        for pid, parent in parents.items():
            if parent in found and pid not in found:
                found[pid], grew = "", True
    for pid in found:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                found[pid] = f.read().decode(errors="replace").replace("\0", " ")
        except OSError:
            pass
    return found


def role_of(command: str) -> str:
    if "simulator_worker" in command:
        site = re.search(r"site-\d+", command)
        return site[0] if site else "site"
    return "server" if "simulator" in command else "driver"


def look(pid: int, seen: dict) -> None:
    with open(f"/proc/{pid}/status") as f:
        status = dict(re.findall(r"^(VmHWM|VmRSS|Threads):\s+(\d+)", f.read(), re.M))
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    seen["memory"] = max(seen["memory"], int(status.get("VmHWM", 0)) / 1024)
    seen["threads"].append((time.time(), int(status.get("Threads", 0)), int(status.get("VmRSS", 0)) / 1024))
    seen["cpu"] = (int(fields[11]) + int(fields[12])) / TICKS


def run(way: str, options: "list[str]", folder: str, line: "list[str]") -> dict:
    stock, (words, environment) = way == "stock", WAYS[way]
    workspace = os.path.join(folder, words[0].strip("-") if words else "plain")
    shutil.rmtree(workspace, ignore_errors=True)
    os.makedirs(workspace)
    command = [sys.executable, os.path.join(HERE, "job.py"), "--workspace", workspace, *words, *options]
    if line:
        command = [sys.executable, os.path.join(HERE, "..", "line.py"), *line, *command]
    with open(os.path.join(folder, "console.txt"), "w") as console:
        child = subprocess.Popen(command, cwd=HERE, stdout=console, stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1", **environment})
        seen: "dict[int, dict]" = {}
        known, last = {}, 0.0
        while child.poll() is None:
            if time.monotonic() - last > 0.5:
                known, last = processes_of(child.pid), time.monotonic()
            for pid, command_line in known.items():
                one = seen.setdefault(pid, {"role": "", "memory": 0.0, "cpu": 0.0, "threads": []})
                one["role"] = role_of(command_line) if command_line else one["role"]
                try:
                    look(pid, one)
                except (OSError, IndexError):
                    pass
            time.sleep(0.05)
    load = os.getloadavg()[0]
    with open(os.path.join(folder, "console.txt"), errors="replace") as f:
        text = f.read()
    if child.returncode:
        raise SystemExit(f"job.py ended with {child.returncode}:\n{text[-3000:]}")
    logs = ""
    for path in glob.glob(f"{glob.escape(workspace)}/**/log.txt", recursive=True):
        with open(path, errors="replace") as f:
            logs += f.read()
    lines = sorted(set(logs.splitlines()))
    import torch

    (model,) = glob.glob(f"{glob.escape(workspace)}/**/FL_global_model.pt", recursive=True)
    state = torch.load(model, weights_only=False)
    state = state.get("model", state)
    nbytes = sum(torch.as_tensor(state[name]).nbytes for name in state)
    by_flare = stock or nbytes < LEAST_BYTES  # a small model is FLARE's chunks in each way, and FLARE's own line says how long each took
    found = [re.search(DONE[by_flare], line) for line in lines]
    if by_flare:
        times = [(float(m[1]), float(m[2]) * 2**20) for m in found if m]
    else:
        # an update that waits is not timed: its time in the log has the wait in it
        times = [(float(m[3]), float(m[4])) for m in found if m and m[2] == "tensorpull" and not ("--flat" in words and m[1].startswith("site"))]
    if not times:
        raise SystemExit(f"no transfer of {way} is in the logs")
    largest = max(size for _, size in times)
    to_sites = [(float(m[3]), float(m[4])) for m in found if not by_flare and m and m[1].startswith("server")]
    ended = sorted({stamp(line) for line in lines if re.search(r"Aggregated (\d+)/\1 results", line)})
    server = max((s for s in seen.values() if s["role"] == "server"), key=lambda s: s["memory"])
    sites = [s for s in seen.values() if s["role"].startswith("site")]

    def most(column: int, begin: float, end: float) -> float:
        return max((row[column] for row in server["threads"] if begin <= row[0] <= end), default=0)

    digest = hashlib.sha256(b"".join(name.encode() + torch.as_tensor(state[name]).numpy().tobytes() for name in sorted(state))).hexdigest()[:16]
    accuracies = re.findall(r"ACCURACY round=(\d+) ([\d.]+)", text + logs)
    return {
        "transfer": statistics.median(t for t, size in times if size >= largest / 2), "first transfer": statistics.median([t for t, _ in times[: len(sites)]]),
        "transfers": len(times), "bytes": largest, "MB to sites": sum(size for _, size in to_sites) / 1e6,
        "to a site": statistics.median([t for t, _ in to_sites[len(sites) :]] or [0.0]),  # after the first round
        "round": statistics.median([b - a for a, b in zip(ended, ended[1:])] or [0.0]), "cpu": sum(s["cpu"] for s in seen.values()), "server cpu": server["cpu"],
        "server memory": server["memory"], "site memory": max((s["memory"] for s in sites), default=0.0),
        "server threads": most(1, 0, 1e12), "threads, round 2": most(1, *ended[:2]) if len(ended) > 2 else 0, "threads, last round": most(1, *ended[-2:]) if len(ended) > 2 else 0,
        "memory, round 2": most(2, *ended[:2]) if len(ended) > 2 else 0, "memory, last round": most(2, *ended[-2:]) if len(ended) > 2 else 0, "digest": digest,
        "model": nbytes, "load": load, "accuracy": max(accuracies)[1] if accuracies else "",
    }  # fmt: skip


def stamp(line: str) -> float:
    try:
        return datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").timestamp()
    except ValueError:
        return 0.0


def in_turns(ways: "list[str]", repeats: int, options: "list[str]", line: "list[str]") -> "dict[str, list[dict]]":
    runs: "dict[str, list[dict]]" = {way: [] for way in ways}
    folder = tempfile.mkdtemp(prefix="tensorpull-digits-")
    try:
        for _ in range(repeats):
            for way in ways:
                runs[way].append(run(way, options, folder, line))
                print(way, json.dumps(runs[way][-1]), file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return runs


def width_of(megabytes: float) -> int:
    """Of a model that has about so many MB (10^6 bytes) of FP32."""
    return max(1, round(-397.5 + math.sqrt(397.5**2 + megabytes * 250_000)))


def table(a: argparse.Namespace, options: "list[str]") -> "list[dict]":
    """Prints a row for each number of sites, size, format and way as soon as it is there; the figures in brackets are stock's through this way's."""
    rows = []
    columns = (("transfer", "{:.2f} s"), ("round", "{:.2f} s"), ("cpu", "{:.1f} s"), ("server memory", "{:,.0f} MiB"), ("server threads", "{:.0f}"))
    print("| sites | MB | format | way | one transfer | one round | processor time | server's peak memory | server's most threads |\n|---|---|---|---|---|---|---|---|---|", flush=True)
    for sites, megabytes, kind in itertools.product(a.sites, a.megabytes, a.formats):
        these = [*options, "--clients", str(sites), "--width", str(width_of(megabytes)), "--format", kind]
        runs = in_turns(list(WAYS)[:3], a.repeats, these, a.line)
        of = {way: {name: statistics.median(r[name] for r in runs[way]) for name, _ in columns} for way in runs}
        for way, mine in of.items():
            beside = {name: f" ({of['stock'][name] / mine[name]:.1f})" if way != "stock" and mine[name] else "" for name in mine}
            cells = [form.format(mine[name]) + beside[name] for name, form in columns]
            print("|", " | ".join([str(sites), f"{runs[way][0]['model'] / 1e6:.3g}", kind, way, *cells]), "|", flush=True)
        rows.append({"sites": sites, "megabytes": megabytes, "format": kind, "line": a.line, "runs": runs})
    return rows


def main() -> None:
    p = argparse.ArgumentParser(allow_abbrev=False)  # job.py's --format is not --formats
    p.add_argument("--repeats", type=int, default=1)
    p.add_argument("--json", default="")
    p.add_argument("--line", nargs=2, default=[], metavar=("MS", "MBIT"), help="the job's processes reach each other over a line like this; needs root")
    p.add_argument("--differences", action="store_true", help="with tensorpull, and with what has changed since the model before, instead of without tensorpull and with it")
    p.add_argument("--table", action="store_true", help="a row for each of --sites, --megabytes and --formats")
    p.add_argument("--sites", type=int, nargs="+", default=[2, 8])
    p.add_argument("--megabytes", type=float, nargs="+", default=[20.0, 207.0])
    p.add_argument("--formats", nargs="+", choices=("numpy", "pytorch"), default=["numpy", "pytorch"])
    a, options = p.parse_known_args()
    if a.table:
        rows = table(a, options)
        if a.json:
            with open(a.json, "w") as f:
                json.dump(rows, f, indent=1)
        return
    first, second = ("tensorpull", "differences") if a.differences else ("stock", "tensorpull")
    runs = in_turns([first, second], a.repeats, options, a.line)
    print(f"{'':34}{first:>12}{second:>12}{'ratio':>8}")
    for name, unit, what in (
        ("transfer", "s", "one transfer"), ("first transfer", "s", "the first one to a site"), ("round", "s", "one round"), ("cpu", "s", "processor time, all processes"), ("server cpu", "s", "processor time, server"),
        ("server memory", "MiB", "peak memory, server"), ("site memory", "MiB", "peak memory, a site"), ("server threads", "", "threads, server"),
        ("threads, round 2", "", "threads, server, round 2"), ("threads, last round", "", "threads, server, last round"),
        ("memory, round 2", "MiB", "memory, server, round 2"), ("memory, last round", "MiB", "memory, server, last round"),
        *([("MB to sites", "MB", "models to the sites"), ("to a site", "s", "one to a site, after round 1")] if a.differences else []),
    ):  # fmt: skip
        before, after = (statistics.median(r[name] for r in runs[way]) for way in runs)
        print(f"{what + (', ' + unit if unit else ''):34}{before:12.2f}{after:12.2f}{before / after if after else 0:8.2f}")
    print(f"{'final model':34}{runs[first][-1]['digest'][:10]:>12}{runs[second][-1]['digest'][:10]:>12}")
    if a.json:
        with open(a.json, "w") as f:
            json.dump(runs, f, indent=1)


if __name__ == "__main__":
    main()
