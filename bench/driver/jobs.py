"""Cases of the job (job/job.hpp), and their measurement in rounds in which all cases take turns."""

import json
import math
import os
from dataclasses import dataclass, field, replace

from processes import Failed, Program

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Model:
    shape: str
    bytes: int
    tensors: int

    @property
    def words(self):
        return ["--model", self.shape, "--bytes", str(self.bytes), "--tensors", str(self.tensors)]

    def __str__(self):
        if self.shape == "perceptron":
            return "perceptron of 0.4 MB"
        size = f"{self.bytes / GIB:g} GiB" if self.bytes >= GIB else f"{self.bytes / MIB:g} MiB" if self.bytes >= MIB else f"{self.bytes / KIB:g} KiB"
        return f"{size} in {self.tensors:,} {'tensors of mixed sizes' if self.shape == 'mixed' else 'tensors'}"


@dataclass(frozen=True)
class Case:
    name: str
    program: str  # of the build folder, or a Python file
    model: Model
    variant: str = ""
    fresh: str = ""
    chunk: int = 2 * MIB
    window: int = 4
    recipients: int = 1
    threads: int = 1
    pulls: int = 1
    most_rounds: int = 1000  # slow ones take part in the first few
    allocates: bool = False  # the receiver makes its tensors in the timed part

    @property
    def is_python(self):
        return self.program.endswith(".py")


@dataclass
class Measured:
    case: Case
    seconds: list = field(default_factory=list)
    first: list = field(default_factory=list)
    cpu: list = field(default_factory=list)
    sender_kib: int = 0
    receiver_kib: int = 0
    sender_threads: int = 0
    receiver_threads: int = 0
    allocations: list = field(default_factory=list)
    failure: str = ""

    @property
    def bytes(self):
        return self.case.model.bytes * self.case.recipients

    @property
    def chunks(self):
        return math.ceil(self.case.model.bytes / self.case.chunk) * self.case.recipients

    def as_json(self):
        out = {k: v for k, v in self.__dict__.items() if k != "case"}
        case = dict(self.case.__dict__)
        case["model"] = str(self.case.model)
        return {"case": case, **out}


class Runner:
    def __init__(self, build, python, log, most_rounds=None, everything=False):
        self.build, self.python, self.log, self.most_rounds, self.everything = build, python, log, most_rounds, everything
        self.here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "alternatives")

    def available(self, case):
        if case.is_python:
            return self.python is not None
        return os.path.exists(os.path.join(self.build, case.program))

    def command(self, case, role, *more):
        if case.is_python:
            words = [self.python, os.path.join(self.here, case.program), role]
            words += ["--recipients", str(case.recipients)]
        else:
            words = [
                os.path.join(self.build, case.program),
                role,
                "--window",
                str(case.window),
                "--threads",
                str(case.threads),
                "--pulls",
                str(case.pulls),
            ]
            words += ["--recipients", str(case.recipients)] + (["--fresh", case.fresh] if case.fresh else [])
        return words + case.model.words + ["--chunk", str(case.chunk)] + (["--variant", case.variant] if case.variant else []) + list(more)

    def once(self, measured, repeats):
        """One pair of processes (a receiver for each recipient where it is Python): one pull that is checked, then those that count."""
        case = measured.case
        receivers = []
        with Program(self.command(case, "send"), self.log) as sender:
            try:
                for i in range(case.recipients if case.is_python else 1):
                    site = ["--site", f"site-{i + 1}"] if case.is_python else []
                    receivers.append(Program(self.command(case, "receive", "--address", sender.address, *site), self.log))
                everybody = [sender, *receivers]
                before = [p.resident() for p in everybody]
                for p in everybody:
                    p.forget_peak()
                for i in range(repeats + 1):
                    reference = sender.ask("publish")["address"]
                    if i == 0:
                        for r in receivers:
                            r.ask("clear")
                    used = [p.ask("usage") for p in everybody]
                    for r in receivers:
                        r.tell(f"go {reference}")
                    told = [r.answer("done") for r in receivers]
                    sender.count_threads()
                    told = [json.loads(t) for t in told]
                    spent = [p.ask("usage") for p in everybody]
                    if i == 0:
                        if not all(r.ask("check")["good"] for r in receivers):
                            raise Failed("the tensors that arrived are not those that were sent")
                        continue
                    measured.seconds.append(max(t["seconds"] for t in told))
                    measured.first.append(max(t["first"] for t in told))
                    measured.cpu.append(sum(s["cpu"] - u["cpu"] for s, u in zip(spent, used)) / case.pulls)
                    if spent[0]["allocations"] is not None:
                        allocated = sum(s["allocations"] - u["allocations"] for s, u in zip(spent, used))
                        measured.allocations.append(allocated / case.pulls / measured.chunks)
                model = case.model.bytes // KIB * len(receivers) if case.allocates or case.fresh else 0
                after = [p.peak() - b for p, b in zip(everybody, before)]
                measured.sender_kib = max(measured.sender_kib, after[0])
                measured.receiver_kib = max(measured.receiver_kib, sum(after[1:]) - model)
                measured.sender_threads = max(measured.sender_threads, sender.most_threads - 1)  # one listens to the driver
                measured.receiver_threads = max(measured.receiver_threads, sum(r.most_threads for r in receivers))
            finally:
                for r in receivers:
                    r.stop()

    def rounds(self, cases, rounds, repeats, say):
        """Every case once a round. A case that fails is left out from then on, and says why."""
        all_of_them = [Measured(c) for c in cases if self.available(c)]
        for missing in (c for c in cases if not self.available(c)):
            say(f"  {missing.name}: left out, " + ("no Python with its packages" if missing.is_python else f"{missing.program} was not built"))
        for r in range(min(rounds, self.most_rounds or rounds)):
            for m in all_of_them:
                if m.failure or r >= m.case.most_rounds:
                    continue
                try:
                    self.once(m, 1 if m.case.is_python and m.case.model.bytes > 16 * MIB else repeats)
                except Failed as why:
                    m.failure = str(why)
                    say(f"  {m.case.name}: {why}")
        return all_of_them


def with_sizes(case, **what):
    return replace(case, **what)
