"""Suites made of the job: transfers, chunks, recipients, tensors, latency."""

import os
import statistics

import svg
from jobs import GIB, KIB, MIB, Case, Model, with_sizes
from report import Section, Table, short, spread, three

OURS, OURS_CHECKED, BARE = "tensorpull, no digest", "tensorpull, digest", "bare pull loop"


def everybody(model, slow_rounds):
    """All that do the job, as their users write it. Those in Python take part in the first rounds only."""

    def case(name, program, **more):
        return Case(name, program, model, **more)

    return [
        case(OURS, "bench_tensorpull", variant="plain"),
        case(OURS_CHECKED, "bench_tensorpull", variant="digest"),
        case("tensorpull, digests of chunks, too", "bench_tensorpull", variant="chunks"),
        case(BARE, "bench_bare", variant="pull"),
        case("bare push", "bench_bare", variant="push"),
        case("memcpy", "bench_bare", variant="copy"),
        case("Cap'n Proto RPC", "bench_capnp_rpc"),
        case("ZeroMQ", "bench_zeromq"),
        case("gRPC stream", "bench_grpc"),
        case("NVIDIA FLARE downloader", "nvflare_tensors.py", variant="downloader", allocates=True, most_rounds=slow_rounds),
        case("NVIDIA FLARE native", "nvflare_tensors.py", variant="native", allocates=True, most_rounds=slow_rounds),
        case("torch.save over a socket", "torch_save.py", allocates=True, most_rounds=slow_rounds),
    ]


def fresh(model):
    """The receiver allocates its tensors inside the timed part."""
    return [
        Case("tensorpull, digest, new memory, huge pages", "bench_tensorpull", model, variant="digest", fresh="huge"),
        Case("tensorpull, digest, new memory, 4 KiB pages", "bench_tensorpull", model, variant="digest", fresh="plain"),
        Case("bare pull loop, new memory, 4 KiB pages", "bench_bare", model, variant="pull", fresh="plain"),
        Case("bare pull loop, new memory, huge pages", "bench_bare", model, variant="pull", fresh="huge"),
    ]


def median(measured, what="seconds"):
    return statistics.median(getattr(measured, what))


def with_more_rounds(cases, close, usual):
    """One transfer is fast or slow by how the processes meet in the caches: the cases of which `close(case)` is true, which are compared within a
    few per cent, take part in all rounds, the others in the usual number."""
    return [c if close(c) else with_sizes(c, most_rounds=min(c.most_rounds, usual)) for c in cases]


def straight_target(what, each, points):
    """`points`: (number, ms)."""
    numbers, times = zip(*points)
    fit, slope = statistics.correlation(numbers, times) ** 2, statistics.linear_regression(numbers, times).slope
    return (f"Time grows in a straight line with the number of {what}", "R² at least 0.98", f"R² {fit:.4f}, {short(1e3 * slope)} us {each}", fit >= 0.98)


def find(results, name):
    return next((m for m in results if m.case.name == name and m.seconds and not m.failure), None)


def rate(m):
    """GiB/s, all recipients together"""
    return m.bytes / GIB / median(m)


def cpu_per_gib(m):
    return median(m, "cpu") / (m.bytes / GIB)


def transfer_table(name, caption, results, bare):
    header = [
        "",
        "GiB/s",
        f"of {bare.case.name}" if bare else "ratio",
        "CPU s/GiB",
        "first tensor, ms",
        "sender, MiB more",
        "receiver, MiB more",
        "threads, sender",
        "threads, receiver",
        "allocations a chunk",
    ]
    rows = []
    for m in results:
        if m.failure or not m.seconds:
            rows.append([m.case.name, "failed"] + [""] * 8)
            continue
        copy = m.case.variant == "copy"
        rows.append(
            [
                m.case.name,
                spread(m.seconds, m.bytes / GIB, invert=True),
                rate(m) / rate(bare) if bare else "",
                spread(m.cpu, GIB / m.bytes),
                spread(m.first, 1e3),
                "" if copy else max(0.0, m.sender_kib / 1024),
                max(0.0, m.receiver_kib / 1024),
                "" if copy else m.sender_threads,
                m.receiver_threads,
                f"{statistics.median(m.allocations):.2f}" if m.allocations else "not counted",
            ]
        )
    return Table(name, caption, header, rows)


def transfers(run, quick, folder, say):
    section = Section("transfers", "One recipient: the same job, done in every way")
    section.text.append(
        "A sender's process holds the model, a receiver's process ends with all tensors in memory that it had before; chunks of 2 MiB, "
        "4 requests in flight "
        'where there are requests. "More" is the peak of resident memory during the transfers beyond what the process held with its model in place. '
        "FLARE and torch.load make their tensors as they arrive, and the table's second part lets the others do so, too."
    )
    models = [Model("uniform", 256 * MIB if quick else GIB, 16), Model("mixed", 64 * MIB if quick else 256 * MIB, 400)]
    for which, model in zip(("large", "mixed"), models):
        say(f"transfers: {model}")
        cases = everybody(model, 1 if quick else 2) + (fresh(model) if which == "large" else [])
        usual = 2 if quick else 5
        cases = with_more_rounds(cases, lambda c: c.name in (OURS, OURS_CHECKED, BARE), usual)
        results = run.rounds(cases, usual if quick else 3 * usual, 3, say)
        bare = find(results, BARE)
        section.tables.append(transfer_table(f"transfers_{which}", f"{model}, chunks of 2 MiB", results, bare))
        section.raw += [m.as_json() for m in results]
        shown = [m for m in results if m.seconds and not m.failure and m.case.variant != "copy" and not m.case.fresh]
        for what, title, label, value in (
            ("throughput", "Throughput", "GiB/s", lambda m: sorted(m.bytes / GIB / s for s in m.seconds)),
            ("cpu", "CPU time of both sides", "CPU seconds per GiB", lambda m: sorted(s * GIB / m.bytes for s in m.cpu)),
        ):
            file = f"{which}_{what}.svg"
            svg.bars(os.path.join(folder, file), f"{title}: {model}", label, [(m.case.name, *three(value(m))) for m in shown])
            section.plots.append((file, f"{title}, {model}"))
        section.targets += transfer_targets(results, which, model)
    return section


def transfer_targets(results, which, model):
    """None of the others checks what has arrived, so the one without digest is compared; beside it the one with."""
    ours, checked, bare = find(results, OURS), find(results, OURS_CHECKED), find(results, BARE)
    if not ours or not checked:
        return []
    out = []

    def both(what, wanted, value, least):
        seen = f"{short(value(ours))}; with digest {short(value(checked))}"
        if what.endswith("memory that exists") and bare:
            seen += f"; the bare pull loop itself {short(value(bare))}"
        out.append((f"{model}: {what}", f"at least {wanted}", seen, value(ours) >= least))

    if bare:
        both("throughput, of the bare pull loop", "0.95", lambda m: rate(m) / rate(bare), 0.95)
    for name in ("ZeroMQ", "gRPC stream", "Cap'n Proto RPC"):
        other = find(results, name)
        if other:
            both(f"throughput, of {name}", "1", lambda m: rate(m) / rate(other), 1)
            both(f"{name}'s CPU time, of ours", "1", lambda m: cpu_per_gib(other) / cpu_per_gib(m), 1)
    flare = find(results, "NVIDIA FLARE downloader")
    if flare:
        both("throughput, of FLARE's downloader, landing in memory that exists", "15", lambda m: rate(m) / rate(flare), 15)
        huge, plain = (find(results, f"tensorpull, digest, new memory, {kind}") for kind in ("huge pages", "4 KiB pages"))
        if huge and plain:
            value = rate(huge) / rate(flare)
            out.append(
                (
                    f"{model}: the same, with digest, allocating inside the timed part",
                    "at least 10",
                    f"{short(value)}; without huge pages {short(rate(plain) / rate(flare))}",
                    value >= 10,
                )
            )
    return out


def chunks(run, quick, folder, say):
    section = Section("chunks", "The size of a chunk")
    model = Model("uniform", 64 * MIB if quick else 256 * MIB, 16)
    sizes = [4 * KIB, 256 * KIB, 2 * MIB] if quick else [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 2 * MIB, 4 * MIB, 16 * MIB]
    base = [
        Case(OURS, "bench_tensorpull", model, variant="plain"),
        Case(OURS_CHECKED, "bench_tensorpull", model, variant="digest"),
        Case(BARE, "bench_bare", model, variant="pull"),
        Case("Cap'n Proto RPC", "bench_capnp_rpc", model),
        Case("ZeroMQ", "bench_zeromq", model),
        Case("gRPC stream", "bench_grpc", model),
    ]
    say(f"chunks: {model}")
    usual = 2 if quick else 5
    cases = [with_sizes(c, chunk=size) for size in sizes for c in base]
    results = run.rounds(with_more_rounds(cases, lambda c: c.chunk == 4 * KIB and c.name in (OURS, BARE), usual), 3 * usual, 3, say)
    names = [c.name for c in base]
    rows, series, ratios = [], {n: [] for n in names}, {}
    for size in sizes:
        row = [svg.byte_count(size)]
        here = {m.case.name: m for m in results if m.case.chunk == size and m.seconds and not m.failure}
        for n in names:
            m = here.get(n)
            row.append(spread(m.seconds, m.bytes / GIB, invert=True) if m else "")
            if m:
                low, mid, high = three([m.bytes / GIB / s for s in m.seconds])
                series[n].append((size, low, mid, high))
        if OURS in here and BARE in here:
            ratios[size] = rate(here[OURS]) / rate(here[BARE])
            row.append(ratios[size])
        rows.append(row)
    section.tables.append(Table("chunks", f"GiB/s, {model}, 4 requests in flight", ["chunk"] + names + ["no digest, of bare"], rows))
    svg.lines(
        os.path.join(folder, "chunks.svg"), f"Throughput and the size of a chunk: {model}", "chunk", "GiB/s", series, x_log=2, x_text=svg.byte_count
    )
    section.plots.append(("chunks.svg", "Throughput and the size of a chunk"))
    ours = {size: m for size in sizes for m in results if m.case.chunk == size and m.case.name == OURS and m.seconds}
    counts = {m.chunks: median(m) * 1e3 for m in ours.values() if m.case.chunk <= 256 * KIB}
    if len(counts) > 1:
        svg.lines(
            os.path.join(folder, "chunk_count.svg"),
            f"Time and the number of chunks: {model}, no digest",
            "chunks",
            "ms",
            {"tensorpull": sorted(counts.items())},
        )
        section.plots.append(("chunk_count.svg", "Time and the number of chunks"))
        if len(counts) > 2:
            section.targets.append(straight_target("chunks", "a chunk", sorted(counts.items())))
    if 4 * KIB in ratios:
        section.targets.append(
            (
                "Chunks of 4 KiB: throughput of the bare pull loop with the same chunk and window",
                "at least 0.9",
                short(ratios[4 * KIB]),
                ratios[4 * KIB] >= 0.9,
            )
        )
    section.raw = [m.as_json() for m in results]
    return section


def recipients(run, quick, folder, say):
    section = Section("recipients", "Many recipients at the same time")
    section.text.append(
        "All recipients are threads of one process, each with a connection of its own; they land in four copies of the model "
        "between them, so that memory suffices. "
        '"One thread" and "two threads" are the sender\'s; the bare loop is epoll on one thread, or a thread for each connection.'
    )
    big, small = Model("mixed", 32 * MIB if quick else 256 * MIB, 400), Model("mixed", 4 * MIB, 400)

    def cases(model, n):
        out = [
            Case("tensorpull, one thread", "bench_tensorpull", model, variant="digest", recipients=n),
            Case("bare, one thread", "bench_bare", model, variant="pull", recipients=n),
            Case("tensorpull, no digest, one thread", "bench_tensorpull", model, variant="plain", recipients=n),
            Case("tensorpull, no digest, two threads", "bench_tensorpull", model, variant="plain", threads=2, recipients=n),
            Case("bare, a thread each", "bench_bare", model, variant="pull", threads=0, recipients=n),
        ]
        if n <= 64:
            out.append(Case("gRPC stream", "bench_grpc", model, recipients=n))
        if n == 4 and model is big:
            out.append(
                Case(
                    "NVIDIA FLARE downloader",
                    "nvflare_tensors.py",
                    model,
                    variant="downloader",
                    recipients=n,
                    allocates=True,
                    most_rounds=1 if quick else 2,
                )
            )
        return out

    many = [4, 16] if quick else [4, 16, 64]
    say(f"recipients: {many} of {big}")
    results = run.rounds([c for n in many for c in cases(big, n)], 2 if quick else 5, 2, say)
    counts = [1, 16] if quick else [1, 4, 16, 64, 256, 1000]
    say(f"recipients: {counts} of {small}")
    spread_out = run.rounds([c for n in counts for c in cases(small, n)], 1 if quick else 3, 3, say)
    for which, model, found in (("recipients_large", big, results), ("recipients", small, spread_out)):
        rows = [
            [m.case.recipients, m.case.name]
            + (
                ["failed"] + [""] * 6
                if m.failure or not m.seconds
                else [
                    spread(m.seconds, m.bytes / GIB, invert=True),
                    cpu_per_gib(m),
                    spread(m.first, 1e3),
                    m.sender_kib / m.case.recipients,
                    m.receiver_kib / m.case.recipients,
                    m.sender_threads,
                    f"{statistics.median(m.allocations):.2f}" if m.allocations else "not counted",
                ]
            )
            for m in found
        ]
        section.tables.append(
            Table(
                which,
                f"{model} to each, GiB/s in total",
                [
                    "recipients",
                    "",
                    "GiB/s",
                    "CPU s/GiB",
                    "first tensor of the last, ms",
                    "sender, KiB more each",
                    "receiver, KiB more each",
                    "threads, sender",
                    "allocations a chunk",
                ],
                rows,
            )
        )
    names = [c.name for c in cases(small, 1)]
    series = {
        n: [(m.case.recipients, *three([1e3 * s for s in m.seconds])) for m in spread_out if m.case.name == n and m.seconds and not m.failure]
        for n in names
    }
    svg.lines(os.path.join(folder, "recipients.svg"), f"Time until all have it: {small}", "recipients", "ms", series, x_log=10, y_log=True)
    section.plots.append(("recipients.svg", "Time until all recipients have the model"))
    one_thread = [(m.case.recipients, 1e3 * median(m)) for m in spread_out if m.case.name == "tensorpull, one thread" and m.seconds and not m.failure]
    if len(one_thread) > 2:
        section.targets.append(straight_target("recipients", "a recipient", one_thread))
    for n in many:
        at = {m.case.name: m for m in results if m.case.recipients == n and m.seconds and not m.failure}
        for ours, bare, wanted in (
            ("tensorpull, no digest, one thread", "bare, one thread", 0.9),
            ("tensorpull, no digest, two threads", "bare, a thread each", 0.85),
        ):
            if ours in at and bare in at:
                ratio = rate(at[ours]) / rate(at[bare])
                section.targets.append((f"{n} recipients of {big}: {ours}, of {bare}", f"at least {wanted}", short(ratio), ratio >= wanted))
    section.raw = [m.as_json() for m in results + spread_out]
    return section


def tensors(run, quick, folder, say):
    section = Section("tensors", "The number of tensors")
    section.text.append("Tensors of 4 KiB each, so that what is in them costs little beside their number.")
    counts = [10, 1000, 10000] if quick else [1, 10, 100, 1000, 10000, 20000, 40000]
    say(f"tensors: {counts}")
    cases = []
    for n in counts:
        model = Model("uniform", n * 4 * KIB, n)
        cases += [
            Case(OURS, "bench_tensorpull", model, variant="plain", pulls=5),
            Case(BARE, "bench_bare", model, variant="pull", pulls=5),
            Case("gRPC stream", "bench_grpc", model, pulls=5),
        ]
    results = run.rounds(cases, 1 if quick else 5, 3, say)
    names = [OURS, BARE, "gRPC stream"]
    series = {n: [(m.case.model.tensors, *three([1e3 * s for s in m.seconds])) for m in results if m.case.name == n and m.seconds] for n in names}
    rows = []
    for n in counts:
        at = {m.case.name: m for m in results if m.case.model.tensors == n and m.seconds}
        rows.append([n] + [spread(at[k].seconds, 1e3) if k in at else "" for k in names] + [1e6 * median(at[OURS]) / n if OURS in at else ""])
    section.tables.append(Table("tensors", "ms for a pull", ["tensors"] + names + ["tensorpull, us a tensor"], rows))
    svg.lines(os.path.join(folder, "tensors.svg"), "Time and the number of tensors (4 KiB each)", "tensors", "ms", series)
    section.plots.append(("tensors.svg", "Time and the number of tensors"))
    ours = [(m.case.model.tensors, 1e3 * median(m)) for m in results if m.case.name == OURS and m.seconds and not m.failure]
    if len(ours) > 2:
        section.targets.append(straight_target("tensors", "a tensor", ours))
    section.raw = [m.as_json() for m in results]
    return section


def latency(run, quick, folder, say):
    section = Section("latency", "A perceptron of 0.4 MB on an open connection")
    model = Model("perceptron", 407080, 4)
    say("latency: perceptron")
    pulls = 200 if quick else 1000
    cases = [with_sizes(c, window=4, pulls=1 if c.is_python else pulls) for c in everybody(model, 2 if quick else 5) if c.variant != "copy"]
    results = run.rounds(cases, 2 if quick else 7, 3, say)
    bare = find(results, BARE)
    rows = [[m.case.name, spread(m.seconds, 1e3), median(m) / median(bare) if bare else ""] for m in results if m.seconds and not m.failure]
    section.tables.append(
        Table(
            "latency",
            f"ms for a pull; each value is the median of {pulls:,} pulls one after the other (Python: one pull)",
            ["", "ms", "times the bare pull loop"],
            rows,
        )
    )
    section.raw = [m.as_json() for m in results]
    return section
