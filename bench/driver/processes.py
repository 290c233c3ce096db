"""Senders and receivers as processes: started, spoken to line by line, watched while they work."""

import json
import os
import select
import subprocess
import time


class Failed(Exception):
    pass


def status(pid, *names):
    """Numbers of /proc/PID/status: memory in KiB, threads."""
    found = {}
    with open(f"/proc/{pid}/status") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            if key in names:
                found[key] = int(value.split()[0])
    return [found.get(name, 0) for name in names]


class Program:
    def __init__(self, command, log):
        self.command = command
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        self.pid = self.process.pid
        self.pending = b""
        self.most_threads = 0
        self.address = self.answer("ready", 120)

    def answer(self, word, limit=300):
        """The rest of the next line that begins with `word`; counts threads while it waits."""
        end = time.monotonic() + limit
        while True:
            line, newline, rest = self.pending.partition(b"\n")
            if newline:
                self.pending = rest
                text = line.decode()
                if text.split(" ")[0] == word:
                    return text[len(word) :].strip()
                continue
            if select.select([self.process.stdout], [], [], 0.02)[0]:
                more = os.read(self.process.stdout.fileno(), 65536)
                if not more:
                    raise Failed(f"{' '.join(self.command)}: ended with {self.process.wait()}")
                self.pending += more
            else:
                self.count_threads()
            if time.monotonic() > end:
                raise Failed(f"{' '.join(self.command)}: no answer in {limit} s")

    def count_threads(self):
        self.most_threads = max(self.most_threads, *status(self.pid, "Threads"))

    def tell(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, line):
        self.tell(line)
        return json.loads(self.answer("done"))

    def resident(self):
        """KiB."""
        return status(self.pid, "VmRSS")[0]

    def forget_peak(self):
        try:
            with open(f"/proc/{self.pid}/clear_refs", "w") as file:
                file.write("5")
        except OSError:
            pass  # a container may forbid it; the peak is then that of the process's whole life

    def peak(self):
        """KiB since forget_peak()."""
        return status(self.pid, "VmHWM")[0]

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
