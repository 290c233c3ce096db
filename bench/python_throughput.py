"""Python to Python beside C++ to C++: 1 GiB in 16 float32 tensors over TCP on this machine, chunks of 2 MiB, two processes each.

    python bench/python_throughput.py CPP_END [ROUNDS] [BYTES]

CPP_END is the program of tests/satellites/python/cpp_end.cpp, optimised; the package is installed for this Python. One round runs each case once.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time

FRESH = "fresh"


def model(nbytes: int):
    import numpy

    return {f"layers.{i}.weight": numpy.ones(nbytes // 64, "f4") for i in range(16)}


def serve(nbytes: int) -> None:
    import tensorpull

    owner = tensorpull.Downloader()
    ref = owner.add_tensors(model(nbytes))
    print(owner.address, ref, flush=True)
    owner.serve()


def pull(address: str, ref: str, nbytes: int) -> None:
    import tensorpull

    mine = model(nbytes)
    for line in sys.stdin:
        out = None if line.strip() == FRESH else mine
        start = time.perf_counter()
        got = tensorpull.download_tensors(address, ref, out=out)
        print(f"{time.perf_counter() - start:.6f}", flush=True)
        assert got.receipt is not None and got.receipt.outcome == "completed"
        del got


class Process:
    """A program that answers a line with a line."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args} has ended")
        return line

    def run(self, how: str = "go") -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(how + "\n")
        self.process.stdin.flush()
        return float(self.read())

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def main() -> None:
    if sys.argv[1] == "serve":
        return serve(int(sys.argv[2]))
    if sys.argv[1] == "pull":
        return pull(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    cpp, rounds, nbytes = sys.argv[1], int((sys.argv[2:3] or ["9"])[0]), int((sys.argv[3:4] or [str(1 << 30)])[0])
    python = (sys.executable, os.path.abspath(__file__))
    cpp_owner, python_owner = Process(cpp, "serve-bytes", str(nbytes)), Process(*python, "serve", str(nbytes))
    from_cpp, from_python = cpp_owner.read().split()[:2], python_owner.read().split()[:2]
    recipients = {
        "C++ to C++": Process(cpp, "pull-bytes", *from_cpp, str(nbytes)),
        "Python to Python": Process(*python, "pull", *from_python, str(nbytes)),
        "C++ to Python": Process(*python, "pull", *from_cpp, str(nbytes)),
        "Python to C++": Process(cpp, "pull-bytes", *from_python, str(nbytes)),
    }
    fresh = "Python to Python, new arrays"
    seconds: dict[str, list[float]] = {name: [] for name in [*recipients, fresh]}
    try:
        for r in range(rounds + 1):
            for name, recipient in recipients.items():
                took = recipient.run()
                if r:
                    seconds[name].append(took)
            took = recipients["Python to Python"].run(FRESH)
            if r:
                seconds[fresh].append(took)
    finally:
        for process in (*recipients.values(), cpp_owner, python_owner):
            process.end()
    gib = nbytes / (1 << 30)
    base = statistics.median(seconds["C++ to C++"])
    print(f"{gib:g} GiB, {rounds} rounds, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'':30}{'GiB/s':>8}{'min':>8}{'max':>8}{'ratio':>8}")
    for name, all_of in seconds.items():
        median = statistics.median(all_of)
        print(f"{name:30}{gib / median:8.2f}{gib / max(all_of):8.2f}{gib / min(all_of):8.2f}{base / median:8.3f}")


if __name__ == "__main__":
    main()
