"""Threads that serve, publish, withdraw, pull, and read what is known, all at once: once withdraw() has returned, nothing of it is called.

TENSORPULL_PYTHON_RACE_SECONDS says how long (60)."""

from __future__ import annotations

import faulthandler
import os
import socket
import struct
import sys
import threading
import time

import numpy as np

import tensorpull

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "support"))
import processes  # noqa: E402

SECONDS = float(os.environ.get("TENSORPULL_PYTHON_RACE_SECONDS", "60"))
END = time.monotonic() + SECONDS
MODEL = {"w": np.arange(1000, dtype=np.float32)}


def describe(ref: str, who: int) -> bytes:
    """A frame that asks for a description, as recipient `who`: it makes progress to tell."""
    return struct.pack("<10Q", 9 << 32, 7 << 32 | 1 << 48, 1 | 1 << 32, int(ref[:16], 16), int(ref[16:], 16), who, 0, 0, 0, 0)


class Told:
    """A callback. A new one each time, with memory of its own, so that a call of one that is gone does not go unnoticed."""

    def __init__(self, raises: bool = False):
        self.pad = bytearray(200)
        self.raises = raises
        self.calls = self.late = 0
        self.over = False

    def __call__(self, _event) -> None:
        self.calls += 1
        self.late += self.over


class Race:
    def __init__(self) -> None:
        self.owner = tensorpull.Downloader("127.0.0.1:0").start()
        self.recent: list[str] = []
        self.rounds = self.calls = self.late = self.pulls = 0
        self.failures: list[str] = []
        self.lock = threading.Lock()

    def publish(self, number: int) -> None:
        while time.monotonic() < END:
            progress, settled = Told(), Told()
            ref = self.owner.add_tensors(MODEL, progress=progress, settled=settled, progress_interval=0)
            self.recent = [*self.recent[-8:], str(ref)]
            with socket.create_connection(("127.0.0.1", self.owner.port)) as asking:
                asking.sendall(b"".join(describe(ref.id, number * 1000 + i + 1) for i in range(100)))
                while progress.calls < 20 and time.monotonic() < END:
                    processes.be_slow(0.0002)
                self.owner.withdraw(ref)
                progress.over = settled.over = True
            if not self.owner.settled(ref) or settled.calls != 1:
                self.failures.append(f"withdrawn: settled {self.owner.settled(ref)}, told {settled.calls} times")
            junk = [bytearray(300) for _ in range(50)]
            with self.lock:
                self.rounds += 1
                self.calls += progress.calls
                self.late += progress.late + settled.late
            del progress, settled, junk

    def serve(self) -> None:
        self.owner.serve(until=lambda: time.monotonic() >= END)

    def read(self) -> None:
        while time.monotonic() < END:
            for ref in self.recent:
                try:
                    self.owner.settled(ref), self.owner.connections
                    self.owner.status(ref), self.owner.outcome(ref), self.owner.recipient_state(ref, 1001)
                except tensorpull.Error as error:
                    if error.code != "unknown_reference":
                        raise
            processes.be_slow(0.001)

    def pull(self) -> None:
        while time.monotonic() < END:
            for ref in self.recent[-1:]:
                try:
                    got = tensorpull.download_tensors(self.owner.address, ref, per_request_timeout=5, retries=0)
                    assert np.array_equal(got["w"], MODEL["w"])
                    self.pulls += 1
                except tensorpull.Error as error:
                    if error.code not in ("withdrawn", "unknown_reference", "connection_lost", "busy"):
                        raise

    def guarded(self, work, *arguments) -> None:
        try:
            work(*arguments)
        except BaseException as error:  # of a thread, which would go unnoticed
            self.failures.append(f"{work.__name__}: {error!r}")

    def run(self) -> int:
        works = [(self.publish, 1), (self.publish, 2), (self.serve,), (self.serve,), (self.read,), (self.pull,)]
        threads = [processes.JoinedThread(target=self.guarded, args=work) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS + processes.AMPLE)
        self.owner.close()
        print(f"{self.rounds} rounds, {self.calls} calls, {self.pulls} pulls; late calls: {self.late}", *self.failures, sep="\n")
        return 1 if self.late or self.failures or not self.rounds else 0


if __name__ == "__main__":
    faulthandler.enable()
    processes.limit(SECONDS + 60)
    sys.exit(Race().run())
