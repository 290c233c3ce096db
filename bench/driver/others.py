"""Suites that are programs of their own: long lines, flatness, the guide's case, micro benchmarks, profiles, compile time, loopback and pinned latency."""

import array
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import svg
from jobs import GIB, KIB, MIB, Case, Model
from processes import Program, status
from report import Section, Table, short, spread, three

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def output_of(command, log, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}")
    return done.stdout


def flatness_row(label, resident, threads):
    """Of one side, round by round: MiB, threads."""
    late = resident[len(resident) // 8 :]
    return [label, resident[0], min(late), max(late), resident[-1], f"{min(threads)} to {max(threads)}"]


def by_round(values):
    return [(i + 1, v) for i, v in enumerate(values)]


def flatness(run, quick, folder, say):
    section = Section("flatness", "Memory and threads, round after round")
    section.text.append(
        "The main job (`bash examples/run.sh`): federated averaging between two processes, with numbers of participants that change as "
        "examples/participants.txt says, and with 100 in each round. Figures at the end of each round."
    )
    plots = {}
    rows = []
    for name, more in (("changing", []), ("fixed", ["--fixed", "100"])):
        say(f"flatness: {name} participants")
        rounds = 12 if quick else 45
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            output_of(["bash", os.path.join(ROOT, "examples", "run.sh"), "--rounds", str(rounds), "--json", file.name, *more], run.log)
            report = json.load(open(file.name))
        for side in ("server", "clients"):
            resident = [r[side]["resident_bytes"] / MIB for r in report["rounds"]]
            threads = [r[side]["threads"] for r in report["rounds"]]
            rows.append(flatness_row(f"{side}, {name}", resident, threads))
            plots[f"{side}, {name}"] = by_round(resident)
            section.raw.append(
                {
                    "side": side,
                    "participants": name,
                    "resident_mib": resident,
                    "threads": threads,
                    "joined": [r["participants"] for r in report["rounds"]],
                }
            )
    if run.everything:
        flare_flatness(run, quick, folder, say, section, rows)
    section.tables.append(Table("flatness", "Resident memory in MiB", ["", "round 1", "then lowest", "then highest", "last round", "threads"], rows))
    svg.lines(os.path.join(folder, "flatness.svg"), "Resident memory at the end of each round", "round", "MiB", plots)
    section.plots.append(("flatness.svg", "Resident memory at the end of each round"))
    return section


def flare_flatness(run, quick, folder, say, section, rows):
    """The same schedule with a tenth of the participants, each a process: a server's cell publishes, this round's clients pull at the same time."""
    model = Model("mixed", 4 * MIB, 400)
    case = Case("NVIDIA FLARE downloader", "nvflare_tensors.py", model, variant="downloader")
    if not run.available(case):
        say("  NVIDIA FLARE: left out, no Python with its packages")
        return
    with open(os.path.join(ROOT, "examples", "participants.txt")) as file:
        schedule = [max(1, round(int(word) / 10)) for word in file.read().split()][: 12 if quick else 45]
    plots, threads_plots = {}, {}
    for name, numbers in (("changing", schedule), ("fixed", [10] * len(schedule))):
        say(f"flatness: NVIDIA FLARE, {name} participants")
        clients, seen = [], {"server": [], "clients": []}
        with Program(run.command(case, "send"), run.log) as server:
            try:
                for i in range(max(numbers)):
                    clients.append(Program(run.command(case, "receive", "--address", server.address, "--site", f"site-{i + 1}"), run.log))
                for number in numbers:
                    reference = server.ask(f"publish {number}")["address"]
                    for c in clients[:number]:
                        c.tell(f"go {reference}")
                    for c in clients[:number]:
                        c.answer("done")
                    time.sleep(0.5)  # what ends with the round has ended
                    for side, programs in (("server", [server]), ("clients", clients)):
                        seen[side].append([sum(values) for values in zip(*(status(p.pid, "VmRSS", "Threads") for p in programs))])
            finally:
                for c in clients:
                    c.stop()
        for side, values in seen.items():
            resident, threads = [v[0] / 1024 for v in values], [v[1] for v in values]
            label = f"NVIDIA FLARE, {side}, {name}"
            rows.append(flatness_row(label, resident, threads))
            plots[label], threads_plots[label] = by_round(resident), by_round(threads)
            section.raw.append({"side": label, "participants": name, "resident_mib": resident, "threads": threads, "joined": numbers})
    section.text.append(f"NVIDIA FLARE: {model}, a tenth of the participants, each a process (the figures are those of all together).")
    for file, title, label, series in (
        ("flatness_flare.svg", "NVIDIA FLARE: resident memory at the end of each round", "MiB", plots),
        ("flatness_flare_threads.svg", "NVIDIA FLARE: threads at the end of each round", "threads", threads_plots),
    ):
        svg.lines(os.path.join(folder, file), title, "round", label, series)
        section.plots.append((file, title))


def guide(run, quick, folder, say, size=None):
    size = size or (256 * MIB if quick else 2 * GIB)
    section = Section("guide", "The guide's case: FedAvg with a large model and 4 clients, native messages against chunks")
    section.text.append(
        f"A model of {svg.byte_count(size)} in 16 tensors, one round: four clients pull it, change it, and the server averages the four updates "
        "as they arrive. Native: each frame is a whole image (chunk size 0); an image that goes in one frame has at most 512 MiB, so a larger model "
        "travels as several. Peak of resident memory; the models themselves (server: the model and the sums; client: one model) are what "
        "cannot be less."
    )
    rows, peaks, seconds = [], {}, {"chunks": [], "native": []}
    for number in range(1 if quick else min(3, run.most_rounds or 3)):
        for mode in seconds:
            say(f"guide: {mode}, round {number + 1}")
            told = json.loads(output_of([os.path.join(run.build, "bench_fedavg"), mode, str(size), "4"], run.log))
            seconds[mode].append(told.pop("seconds"))
            before = peaks.get(mode, told)
            peaks[mode] = {what: max(value, before[what]) for what, value in told.items()}
    for mode, most in peaks.items():
        rows.append(
            [
                mode,
                most["server_mib"],
                most["client_mib"],
                most["server_mib"] + most["client_mib"] * 4,
                spread(seconds[mode]),
                most["server_least_mib"],
                most["client_least_mib"],
            ]
        )
    section.tables.append(
        Table("guide", "Peak of resident memory in MiB", ["", "server", "a client", "all", "seconds", "server: models", "client: models"], rows)
    )
    saved = 1 - peaks["chunks"]["server_mib"] / peaks["native"]["server_mib"]
    section.text.append(f"Chunks take {100 * saved:.0f} % less at the server; at the clients both land in place.")
    section.targets.append(
        ("FedAvg, 4 clients: server's peak memory with chunks, less than with native messages", "20 to 50 %", f"{100 * saved:.0f} %", saved >= 0.2)
    )
    section.raw = [{"peaks": peaks, "seconds": seconds}]
    return section


def micro(run, quick, folder, say):
    section = Section("micro", "Micro benchmarks")
    say("micro")
    command = [
        os.path.join(run.build, "bench_micro"),
        "--benchmark_format=json",
        f"--benchmark_repetitions={3 if quick else 9}",
        "--benchmark_enable_random_interleaving=true",
        f"--benchmark_min_time={0.02 if quick else 0.1}",
    ]
    told = json.loads(output_of(command, run.log))["benchmarks"]
    found = {}
    for b in told:
        if b["run_type"] == "iteration":
            found.setdefault(b["run_name"], []).append(b)
    unit = {"ns": 1.0, "us": 1e3, "ms": 1e6}
    rows = []
    for name, all_of_it in sorted(found.items()):
        times = three([b["cpu_time"] * unit[b["time_unit"]] for b in all_of_it])
        speed = three([b["bytes_per_second"] / GIB for b in all_of_it])[1] if "bytes_per_second" in all_of_it[0] else ""
        rows.append([name, times[1], times[0], times[2], speed])
    section.tables.append(Table("micro", "Google Benchmark, CPU time", ["", "ns", "min", "max", "GiB/s"], rows))
    section.raw = told
    return section


def profile(run, quick, folder, say):
    section = Section("profile", "Where the time goes in the 1 GiB case")
    if shutil.which("perf") is None:
        section.text.append("No perf here (Debian: linux-perf), so no profile.")
        return section
    model = Model("uniform", 256 * MIB if quick else GIB, 16)
    rows = []
    for case in (
        Case("no digest", "bench_tensorpull", model, variant="plain"),
        Case("digest", "bench_tensorpull", model, variant="digest"),
        Case("bare pull loop", "bench_bare", model, variant="pull"),
        Case("ZeroMQ", "bench_zeromq", model),
        Case("gRPC stream", "bench_grpc", model),
        Case("Cap'n Proto RPC", "bench_capnp_rpc", model),
    ):
        if not run.available(case):
            continue
        say(f"profile: {case.name}")
        with Program(run.command(case, "send"), run.log) as sender, Program(
            run.command(case, "receive", "--address", sender.address), run.log
        ) as receiver:
            receiver.ask("go")
            for side, program in (("sender", sender), ("receiver", receiver)):
                with tempfile.NamedTemporaryFile(suffix=".perf") as data:
                    perf = subprocess.Popen(
                        ["perf", "record", "-q", "-e", "cpu-clock", "-F", "1999", "-p", str(program.pid), "-o", data.name],
                        stdout=run.log,
                        stderr=run.log,
                    )
                    time.sleep(0.5)
                    for _ in range(3 if quick else 5):
                        receiver.ask("go")
                    perf.send_signal(2)
                    perf.wait(60)
                    listed = subprocess.run(
                        [
                            "perf",
                            "report",
                            "-i",
                            data.name,
                            "--stdio",
                            "-F",
                            "overhead,sym",
                            "-t",
                            "|",
                            "--percent-limit",
                            "2",
                            "--no-children",
                            "-g",
                            "none",
                        ],
                        capture_output=True,
                        text=True,
                    ).stdout
                top = re.findall(r"^ *([\d.]+)% *\|\[(.)\] (.*?) *$", listed, re.M)[:6]
                rows.append(
                    [f"{case.name}, {side}"]
                    + [
                        f"{float(share):.0f} % {re.sub(r'[<(].*', '', symbol).split(' ')[-1]}{' (kernel)' if where == 'k' else ''}"
                        for share, where, symbol in top
                    ]
                )
                rows[-1] += [""] * (7 - len(rows[-1]))
    section.tables.append(
        Table(
            "profile", f"{model}: symbols with the largest shares of CPU time (perf, cpu-clock)", ["", "share of CPU time", "", "", "", "", ""], rows
        )
    )
    return section


def one_process(run, quick, folder, say):
    section = Section("local", "Loopback in one process, and the perceptron with each process on a core of its own")
    for program, rounds in (("bench_loopback", 3 if quick else 9), ("bench_latency", 1000 if quick else 5000)):
        say(f"local: {program}")
        section.text.append("```\n" + output_of([os.path.join(run.build, program), str(rounds)], run.log).rstrip() + "\n```")
    return section


WAN_WAYS = ["bare push", "tcp", "tls", "udp", "quic", "curl", "http", "bare push up", "tcp up", "tls up", "tcp, 2", "tcp, 4", "tcp, 8"]
# ms of a round trip, Mbit/s, % of loss each way, bytes, rounds, and TCP's congestion control if it is not the system's
WAN_ROWS = [(ms, 100, 0, 64 * KIB, 3) for ms in (5, 40, 100, 200)] + [
    (100, 100, 1, 64 * KIB, 5),
    (100, 20, 0, 16 * MIB, 1),
    (40, 100, 0, 16 * MIB, 3),
    (200, 100, 0, 16 * MIB, 1),
    (100, 100, 1, 16 * MIB, 3),
    (40, 100, 5, 16 * MIB, 3),
    (5, 100, 1, 16 * MIB, 1, "reno"),
    (100, 100, 1, 4 * MIB, 3, "reno"),
    (5, 1000, 0, 16 * MIB, 3),
    (40, 1000, 0, 256 * MIB, 3),
    (200, 1000, 0, 256 * MIB, 1),
]
WAN_EVERY_ROW = [
    (ms, mbit, loss, size, 3) for size in (64 * KIB, 16 * MIB, 256 * MIB) for mbit in (20, 100, 1000) for loss in (0, 0.1, 1, 5) for ms in (5, 40, 100, 200)
]
# the same with the seconds for which the line carries nothing, from the first second on
WAN_SILENT_ROW = (40, 20, 0, 4 * MIB, 1, "", 30)


def wan(run, quick, folder, say, everything=False):
    section = Section("wan", "Long lines: delay, a rate, a queue of one round trip, loss each way")
    limit = 120 if everything else 60
    section.text.append(
        f"The line is a process of this machine. Seconds, or how many times as long as the bare push (http: as curl; tcp over 2, 4 and 8 connections at a time: as tcp), each with connections of its own; "
        f"\"up\": the end that has dialled is pulled from. A run that takes more than {limit} s is ended."
    )
    rows, trips = [], []
    chosen = [(5, 100, 0, 64 * KIB, 1)] if quick else [*WAN_EVERY_ROW, WAN_SILENT_ROW] if everything else WAN_ROWS
    for ms, mbit, loss, size, rounds, *more in chosen:
        rounds = min(rounds, run.most_rounds or rounds)
        say(f"wan: {ms} ms, {mbit} Mbit/s, {loss} % lost, {svg.byte_count(size)}{''.join(f', {m}' for m in more if m)}")
        command = [os.path.join(run.build, "bench_wan"), *map(str, (ms, mbit, loss, size // KIB, rounds, limit, *more))]
        printed = [json.loads(line) for line in output_of(command, run.log).splitlines()]
        for sentence in (line[k] for line in printed for k in ("skipped", "without") if k in line):
            if sentence not in section.text:
                say(f"  {sentence}")
                section.text.append(sentence)
        if any("skipped" in line for line in printed):
            break
        found = {line["case"]: line for line in printed if "case" in line}
        line = next(line for line in printed if "round_trip" in line)
        section.raw.append({"row": [ms, mbit, loss, size, rounds, line["tcp"]], "line": line, "cases": found})
        for case in found.values():
            if case["ended"] == "failed":
                section.raw[-1]["failure"] = f"{case['case']}: it failed, why is in log.txt"
        seconds = {name: case["seconds"] for name, case in found.items() if case["ended"] == "done"}

        def cell(name, value):
            if name not in found:
                return ""
            ended = found[name]["ended"]
            beside = found[name]["beside"]
            if ended != "done":
                return f"over {limit} s" if ended == "too late" else ended
            return value(seconds[name], seconds.get(beside) if beside != name else None)

        label = [ms, mbit, f"{loss:g}", svg.byte_count(size), line["tcp"], rounds]
        shown = [cell(name, lambda own, beside: own / beside if beside else f"{short(own)} s") for name in WAN_WAYS]
        if len(more) == 2:
            silent = [cell(name, lambda own, beside: f"{short(own)} s") for name in WAN_WAYS]
            section.tables.append(Table("wan_silent", f"Seconds if the line carries nothing for {more[1]} s", ["ms", "Mbit/s", "% lost", "model", "TCP", "rounds"] + WAN_WAYS, [label + silent]))
            continue
        rows.append(label + shown + [f"{line['late_ms']:.1f}"])
        if size == 64 * KIB:
            further = [cell(name, lambda own, beside: f"{(own - beside) / line['round_trip']:.1f}" if beside else "") for name in WAN_WAYS if "bare" not in name and name != "curl"]
            trips.append(label + further)
    header = ["ms", "Mbit/s", "% lost", "model", "TCP", "rounds"]
    if rows:
        section.tables.append(Table("wan", "Seconds, and times as long", header + WAN_WAYS + ["late, ms"], rows))
    if trips:
        section.tables.append(Table("wan_round_trips", "Round trips more than the bare push (http: than curl)", header + [n for n in WAN_WAYS if "bare" not in n and n != "curl"], trips))
    return section


CHANGES_LINE = (50, 20)  # ms, Mbit/s
# Pairs of models that fine_tune.py leaves, and what is sent instead of the second.
CHANGES_PAIRS = [
    ("what a client has made, F32", "base", "client", "adapters"),
    ("the mean of the clients, F32", "base", "mean", "adapters"),
    ("what a client has made, BF16", "base_bf16", "client_bf16", None),
    ("the mean of the clients, BF16", "base_bf16", "mean_bf16", None),
]


def made_up_pair(folder):
    """Two small safetensors files: weights, and the same after a step."""
    chance = random.Random(1)
    weights = [chance.gauss(0, 0.05) for _ in range(1 << 16)]
    for name, values in (("base", weights), ("client", [w + chance.gauss(0, 1e-5) for w in weights])):
        text = json.dumps({"w": {"dtype": "F32", "shape": [len(values)], "data_offsets": [0, 4 * len(values)]}}).encode()
        text += b" " * (-len(text) % 8)
        floats = array.array("f", values)
        if sys.byteorder == "big":
            floats.byteswap()
        with open(os.path.join(folder, f"{name}.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + floats.tobytes())


def changes(run, quick, folder, say):
    section = Section("changes", "What a new version of a model costs a recipient that has the old one")
    ms, mbit = CHANGES_LINE
    say("changes: the main job")
    digits = os.path.join(ROOT, "build", "examples", "data", "mnist_5k.csv")
    rounds = "3" if quick else str(min(15, run.most_rounds or 15))
    printed = output_of([os.path.join(run.build, "bench_changes_job"), str(ms), str(mbit), rounds, *([digits] if os.path.exists(digits) else [])], run.log)
    section.text.append(printed)
    section.raw.append({"job": printed.splitlines()})
    tuned = os.path.join(ROOT, "build", "changes")
    with tempfile.TemporaryDirectory() as made_up:
        if quick or not os.path.exists(os.path.join(tuned, "adapters.safetensors")):
            section.text.append("The models are made up: bench/changes/fine_tune.py makes real ones.")
            made_up_pair(made_up)
            tuned = made_up
        for label, old, new, instead in CHANGES_PAIRS:
            path = lambda name: os.path.join(tuned, f"{name}.safetensors")
            if not os.path.exists(path(new)):
                continue
            say(f"changes: {label}")
            moved = os.path.join(folder, f"{new}_moved.safetensors")
            there = path(instead) if instead and os.path.exists(path(instead)) else "-"
            rows = [json.loads(line) for line in output_of([os.path.join(run.build, "bench_changes"), path(old), path(new), str(ms), str(mbit), there, moved], run.log).splitlines()]
            section.text += [row["without"] for row in rows if "without" in row and row["without"] not in section.text]
            rows = [row for row in rows if "way" in row]
            section.raw.append({"pair": label, "ways": rows})
            section.tables.append(
                Table(
                    f"changes_{new}",
                    f"{label}; {mbit} Mbit/s, {ms} ms",
                    ["", "MB", "of the whole", "made ready in s", "s over the line"],
                    [[r["way"], f"{r['bytes'] / 1e6:.2f}", f"{r['of_the_whole']:.3f}", f"{r['ready_seconds']:.2f}", f"{r['line_seconds']:.1f}" if "line_seconds" in r else ""] for r in rows],
                )
            )
    return section


def unix_socket(run, quick, folder, say):
    section = Section("unix_socket", "Unix sockets, one recipient, chunks of 2 MiB")
    say("unix_socket")
    mib, rounds = ("256", "2") if quick else ("1024", str(run.most_rounds or 9))
    section.raw = rows = [json.loads(line) for line in output_of([os.path.join(run.build, "bench_unix_socket"), mib, rounds], run.log).splitlines()]
    section.tables.append(
        Table("unix_socket", f"{mib} MiB", ["", "GiB/s", "least", "most", "of the bare loop"], [[r["case"]] + [short(r[k]) for k in ("rate", "least", "most")] + [short(r["rate"] / rows[0]["rate"])] for r in rows])
    )
    ratio = rows[1]["rate"] / rows[0]["rate"]
    section.targets.append(("Unix socket without digest, of the bare loop", "at least 0.95", short(ratio), ratio >= 0.95))
    return section


def udp(run, quick, folder, say):
    section = Section("udp", "UDP, datagrams of 1,200 bytes, one recipient, digest of the whole")
    say("udp")
    printed = output_of([os.path.join(run.build, "bench_udp"), "64" if quick else "256", "16" if quick else "64", "2" if quick else str(min(5, run.most_rounds or 5))], run.log)
    section.raw = rows = [json.loads(line) for line in printed.splitlines()]
    for group, of, caption in (
        ("without loss", "a bare loop of sendmsg and recvmsg", "with the same datagrams"),
        ("with faults", "no faults", "all through testing::faulty_datagrams, which adds copies and calls of its own; the owner's payload bytes, of the image"),
    ):
        here = [row for row in rows if row["group"] == group]
        section.tables.append(
            Table(
                f"udp_{group.replace(' ', '_')}",
                f"{here[0]['mib']:g} MiB {group}: {caption}",
                ["", "MiB/s", "least", "most", f"of {of}", "sent"],
                [[r["case"]] + [short(r[k]) for k in ("rate", "least", "most")] + [short(r["rate"] / here[0]["rate"]), short(r["sent"]) if r["sent"] else ""] for r in here],
            )
        )
    rate = {row["case"]: row for row in rows}
    bare, ours = (row["rate"] for row in rows[:2])
    lossy = rate["5 % loss each way"]
    section.targets.append(("UDP without loss, of the bare loop", "at least 0.5", short(ours / bare), ours / bare >= 0.5))
    section.targets.append(("UDP with 5 % loss each way: payload bytes, of the image", "at most 1.15", short(lossy["sent"]), lossy["sent"] <= 1.15))
    return section


def shared_memory(run, quick, folder, say):
    section = Section("shared_memory", "Shared memory between two processes")
    say("shared_memory")
    printed = output_of([os.path.join(run.build, "bench_shared_memory"), "3" if quick else "9"], run.log)
    section.raw = rows = [json.loads(line) for line in printed.splitlines()]
    landing = [row for row in rows if "GiB/s" in row]
    section.tables.append(
        Table(
            "shared_memory",
            "Landing 1 GiB in memory that was written before: a program that maps what it is passed, and copies it",
            ["", "GiB/s", "least", "most", "of it", "CPU s", "of its CPU time"],
            [[row["what"]] + [f"{row[k]:.2f}" for k in ("GiB/s", "least", "most", "of map, memcpy", "CPU s", "of its CPU")] for row in landing],
        )
    )
    of = {row["what"].partition(": ")[2]: row["of map, memcpy"] for row in landing}
    small, large = (row["us"] for row in rows if "us" in row)
    most = next(row["most"] for row in rows if "KiB" in row)
    section.targets.append(("shared memory: landing, of mapping and memcpy", "at least 0.9", f"{of['no digest']:.2f}", of["no digest"] >= 0.9))
    hashed = of["digest"] / of["map, memcpy and hash in one pass"]
    section.targets.append(("shared memory: landing with digest, of mapping, memcpy and hash in one pass", "at least 0.9", f"{hashed:.2f}", hashed >= 0.9))
    section.targets.append(("shared memory: a view of 1 GiB opens, of one of 1 MiB", "at most 1.5 times", f"{large / small:.2f} ({large} us)", large <= 1.5 * small))
    section.targets.append(("shared memory: 64 views of 256 MiB, each besides the model", "under 1,024 KiB", f"{most} KiB", most < 1024))
    return section


def beside_a_bare_loop(section, run, say, *arguments):
    """What the section's program printed, which the section shows; nothing, and why in the section, if it was not built."""
    program = os.path.join(run.build, f"bench_{section.name}")
    if not os.path.exists(program):
        section.text.append(f"bench_{section.name} was not built: TENSORPULL_COMPONENTS does not name {section.name}")
        return ""
    say(section.name)
    printed = output_of([program, *arguments], run.log)
    section.text.append("```\n" + printed.rstrip() + "\n```")
    return printed


def tls(run, quick, folder, say):
    section = Section("tls", "TLS in both directions, beside a bare loop over OpenSSL")
    printed = beside_a_bare_loop(section, run, say, *(("128", "3") if quick else ("512", "7")))
    for direction, table in zip(("an owner is pulled from", "a device that has dialled out is pulled from"), printed.split("\n\n")[1:]):
        ratio = float(table.rstrip().splitlines()[-1].split()[-1])
        section.targets.append((f"tls with digest, of the bare loop: {direction}", "at least 0.85", f"{ratio:.2f}", ratio >= 0.85))
    return section


def nats(run, quick, folder, say):
    section = Section("nats", "NATS, beside a bare request-reply loop through the same server")
    if printed := beside_a_bare_loop(section, run, say, *(("128", "3") if quick else ("1024", "5"))):
        ratio = float(printed.rstrip().splitlines()[-1].split()[-2])
        section.targets.append(("nats with digest, of the bare loop", "at least 0.9", f"{ratio:.2f}", ratio >= 0.9))
    return section


def http(run, quick, folder, say):
    section = Section("http", "A file of a web server over loopback, beside curl; both are a process that writes a new file")
    if shutil.which("curl") is None or not os.path.exists(os.path.join(run.build, "bench_http")):
        section.text.append("No curl here, or no libcurl, so no figures.")
        return section
    say("http")
    mib, rounds = ("64", "2") if quick else ("1024", str(run.most_rounds or 9))
    section.raw = rows = [json.loads(line) for line in output_of([os.path.join(run.build, "bench_http"), mib, rounds], run.log).splitlines()]
    section.tables.append(Table("http", f"{mib} MiB", ["", "GiB/s", "least", "most", "of curl"], [[r["case"]] + [short(r[k]) for k in ("rate", "least", "most")] + [short(r["rate"] / rows[0]["rate"])] for r in rows]))
    ratio = rows[2]["rate"] / rows[0]["rate"]
    section.targets.append(("a file over HTTP with its digest, of curl", "at least 0.95", short(ratio), ratio >= 0.95))
    return section


def hostile(run, quick, folder, say):
    section = Section("hostile", "Honest recipients, paced at half of what they get alone, beside attackers")
    say("hostile")
    printed = output_of([os.path.join(run.build, "bench_hostile"), "0.5" if quick else "2", "1" if quick else str(min(3, run.most_rounds or 3))], run.log)
    said = [json.loads(line) for line in printed.splitlines()]
    alone = [f"{row['alone'] / 1e6:.0f} ({row['over']})" for row in said if "alone" in row]
    rows = [row for row in said if "attack" in row]
    section.raw = rows
    section.tables.append(
        Table(
            "hostile",
            f"MB/s of four recipients together; alone and unpaced: {', '.join(alone)}",
            ["attack", "alone, or beside the same attack on a program that only takes it", "on the owner", "least", "most", "kept"],
            [
                [row["attack"]] + [f"{row[k] / 1e6:.0f}" for k in ("without", "beside the attack", "least", "most")] + [f"{row['percent']:.0f} %"]
                for row in rows
            ],
        )
    )
    for row in rows:
        section.targets.append((f"honest recipients beside {row['attack']}", "at least 80 %", f"{row['percent']:.0f} %", row["percent"] >= 80))
    return section


def serial(run, quick, folder, say):
    section = Section("serial", "A serial line: the share of its bytes that are the model's, and the time in which it carries nothing")
    say("serial")
    printed = output_of([os.path.join(run.build, "bench_serial"), "2" if quick else str(min(5, run.most_rounds or 5)), "1" if quick else "0"], run.log)
    rows = [json.loads(line) for line in printed.splitlines()]
    section.raw = rows
    section.tables.append(
        Table(
            "serial",
            "KB/s of the model, and as a share of what a loop moves that sends bytes alone over the same line",
            ["case", "KiB", "median", "least", "most", "share", "idle"],
            [
                [row["case"], str(row["bytes"] // 1024)] + [f"{row[k] / 1e3:.0f}" for k in ("rate", "least", "most")]
                + [f"{row['goodput']:.2f}", "" if "alone" in row["case"] else f"{max(0, row['idle']):.1%}"]
                for row in rows
            ],
        )
    )
    for row in rows:
        if row["least_goodput"]:
            section.targets.append((f"serial, {row['case']}: share", f"at least {row['least_goodput']:g}", f"{row['goodput']:.2f}", row["goodput"] >= row["least_goodput"]))
        if row["most_idle"] < 1:
            section.targets.append((f"serial, {row['case']}: idle", f"at most {row['most_idle']:.0%}", f"{max(0, row['idle']):.1%}", row["idle"] <= row["most_idle"]))
    return section


def compile_time(run, quick, folder, say):
    section = Section("compile", "What it costs to compile")
    say("compile")
    generated = os.path.join(os.path.dirname(run.build), "tensorpull-generated", "include")
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        printed = output_of([sys.executable, os.path.join(ROOT, "bench", "compile_time", "run.py"), "--json", file.name, "--report", folder,
                             "--generated", generated] + (["--quick"] if quick else ["--rounds", str(min(3, run.most_rounds or 3))]), run.log)
        figures = json.load(file)
    # the tables as they are, without the page's own title
    section.text.append(printed.partition("\n")[2].strip().replace("\n## ", "\n### "))
    section.raw = figures["rows"]
    section.plots = [tuple(plot) for plot in figures["plots"]]
    for t in figures["targets"]:
        if t["at_most"] is not None:
            section.targets.append((t["target"], f"at most {t['at_most']:g} {t['unit']}".strip(), f"{t['measured']:.2f} {t['unit']}".strip(), t["measured"] <= t["at_most"]))
    return section
