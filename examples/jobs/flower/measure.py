"""Runs the app in both ways, in turns, and prints what each took: measure.py [--nodes N] [--megabytes N] [--rounds N] [--repeats N] [--strategy NAME] [--count | --line MS MBIT]."""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import statistics
import sys
import tempfile
import threading
import time

from federation import Federation

HERE = os.path.dirname(os.path.abspath(__file__))
APP = os.path.join(HERE, "app")
LOCAL = "127.0.0.1"


class Counter:
    """A port that passes on what goes to another one, and counts its bytes both ways."""

    def __init__(self, port: int) -> None:
        self.to, self.bytes = port, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near = self.listener.accept()[0]
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:  # the SuperLink has ended
                near.close()
                continue
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(1 << 20):
                self.bytes += len(data)
                other.sendall(data)
        except OSError:
            pass
        finally:
            for end in (one, other):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


class Counted(Federation):
    """One whose nodes reach the SuperLink through a counter."""

    counter: "Counter | None" = None

    def start_node(self, i: int, superlink: "int | None" = None) -> None:
        self.counter = self.counter or Counter(self.port)
        super().start_node(i, self.counter.port)


def configs(a: argparse.Namespace, folders: str) -> "dict[int, str]":
    """Of each node: over a line they have folders for their last models."""
    if a.host == LOCAL:
        return {}
    for i in range(a.nodes):
        os.mkdir(f"{folders}/{i}")
    return {i: f'tensorpull-folder="{folders}/{i}"' for i in range(a.nodes)}


def run(stock: bool, a: argparse.Namespace) -> "dict[str, object]":
    with tempfile.TemporaryDirectory() as folders, (Counted if a.count else Federation)(a.nodes, configs(a, folders), host=a.host) as there:
        result = os.path.join(there.folder, "result.json")
        values = {"rounds": a.rounds, "nodes": a.nodes, "megabytes": a.megabytes, "strategy": a.strategy, "stock": stock, "listen": a.host, "result": result}
        began = time.monotonic()
        said = there.run(APP, " ".join(f"{name}={json.dumps(value)}" for name, value in values.items()), seconds=3600)
        if not os.path.exists(result):
            raise SystemExit(f"the run has no result\n{said[-5000:]}")
        with open(result) as f:
            got = json.load(f)
        failures = sum(map(int, re.findall(r"results and (\d+) failures", said)))
        bytes_ = there.counter.bytes if isinstance(there, Counted) and there.counter else None
        return {**got, "whole": time.monotonic() - began, "failures": failures, "peaks": there.peaks, "bytes": bytes_}


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--nodes", type=int, default=2)
    p.add_argument("--megabytes", type=float, default=200.0)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--repeats", type=int, default=1)
    p.add_argument("--strategy", default="FedAvg")
    p.add_argument("--count", action="store_true", help="also the bytes of Flower's own connections, which slows them")
    p.add_argument("--line", nargs=2, metavar=("MS", "MBIT"), help="nodes have folders, and reach the server over a line like this, which they share; needs root and iproute2")
    p.add_argument("--host", default=LOCAL, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.line:  # the same again, behind it
        rest = sys.argv[1:]
        del rest[rest.index("--line") : rest.index("--line") + 3]
        os.execv(sys.executable, [sys.executable, os.path.join(HERE, "..", "line.py"), *a.line, "--far", sys.executable, os.path.abspath(__file__), *rest, "--host", "127.1.0.1"])
    found: "dict[bool, list[dict[str, object]]]" = {True: [], False: []}
    for _ in range(a.repeats):
        for stock in (True, False):
            one = run(stock, a)
            found[stock].append(one)
            print(json.dumps({"stock": stock, "load": os.getloadavg()[0], **one}), flush=True)
    print(f"\n{a.nodes} nodes, {a.megabytes:g} MB, {a.rounds} rounds of {a.strategy}; medians of {a.repeats}\n\n| | stock | tensorpull |\n|---|---|---|")
    rows = {"all rounds, s": lambda r: r["seconds"]}
    rows.update({f"peak memory, {name}, MiB": (lambda r, name=name: r["peaks"].get(name, 0.0)) for name in ("flwr-serverapp", "flower-superlink", "flower-supernode", "flwr-clientapp")})
    if a.count:
        rows["bytes between nodes and SuperLink, MB"] = lambda r: r["bytes"] / 1e6
    for name, value in rows.items():
        print(f"| {name} | {statistics.median(map(value, found[True])):,.1f} | {statistics.median(map(value, found[False])):,.1f} |")
    print(f"| final models | {'the same bit for bit' if len({r['sha256'] for runs in found.values() for r in runs}) == 1 else 'differ in the last bits'} | |")


if __name__ == "__main__":
    main()
