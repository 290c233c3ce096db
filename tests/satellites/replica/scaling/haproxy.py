"""Owners of one content behind HAProxy: real processes of send and recv, one of which is killed while recipients pull.

usage: haproxy.py FOLDER_OF_PROGRAMS [CASE]
Status: 0 well, 1 a case failed, 77 HAProxy is not installed.
"""
import os
import json
import signal
import subprocess
import sys
from pathlib import Path

from cases import SKIPPED, has, run_cases, write_model

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "..", "support"))
import processes  # noqa: E402

REF = "5d1f0c0000000000000000000000000b"
RECIPIENTS = 20
BYTES = 48 << 20

CONFIG = Path(__file__).with_name("owners.cfg")  # which the page "Scaling out" links to


class Run:
    """The processes of one case. They end with it."""

    def __init__(self, programs, folder):
        self.programs, self.folder, self.started, self.ports = programs, folder, [], []
        self.model = folder / "model.safetensors"
        write_model(self.model, BYTES)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.started:
            if p.poll() is None:
                p.kill()
            p.wait()

    def start(self, command, **options):
        p = processes.Program([str(c) for c in command], **options)
        self.started.append(p)
        return p

    def send(self, *options):
        """A sender, once it has said where it listens: the process, and its address."""
        p = self.start([self.programs / "send", self.model, "--ref", REF, "--json", *options], stdout=subprocess.PIPE, text=True)
        said = json.loads(p.stdout.readline())
        assert said["event"] == "published", said
        return p, said["address"]

    def owners(self, *options):
        """A coordinator and two replicas behind HAProxy, whose address is the last."""
        coordinator, at = self.send("--listen", "127.0.0.1:0", *options)
        replicas = [self.send("--listen", "127.0.0.1:0", "--replica-of", at) for _ in range(2)]
        port = processes.OwnPort()
        shown = [line for line in CONFIG.read_text().splitlines() if not line.startswith("  server ")]
        servers = [f"  server replica{i} {address} check inter 200ms fall 1 rise 1" for i, (_, address) in enumerate(replicas)]
        config = self.folder / "haproxy.cfg"
        config.write_text("\n".join(shown + servers).replace("bind :8002", f"bind {port.address}") + "\n")
        self.start(["haproxy", "-db", "-q", "-f", config])
        self.ports.append(port)
        assert processes.eventually(lambda: processes.accepts(port.number)), "HAProxy does not listen"
        return coordinator, [p for p, _ in replicas], port.address

    def recipients(self, address, count=RECIPIENTS):
        """Recipients that do not take everything at once, so that something can happen meanwhile."""
        return [self.start([self.programs / "recv", address, REF, "-o", self.folder / f"copy{i}.safetensors", "--chunk", "65536", "--retries", "10"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for i in range(count)]

    def await_bytes(self):
        """Waits until a recipient has begun a file."""
        assert processes.eventually(lambda: any(f.stat().st_size > 0 for f in self.folder.glob("*copy*"))), "no recipient has begun"


def a_replica_that_is_killed_costs_nobody_the_model(run):
    coordinator, replicas, address = run.owners("--recipients", RECIPIENTS)
    pulling = run.recipients(address)
    run.await_bytes()
    replicas[0].kill()
    for p in pulling:
        said = p.communicate(timeout=120)[1]
        assert p.returncode == 0, said
    for i in range(RECIPIENTS):
        assert (run.folder / f"copy{i}.safetensors").read_bytes() == run.model.read_bytes(), i
    out, _ = coordinator.communicate(timeout=60)
    events = [json.loads(line) for line in out.splitlines()]
    assert coordinator.returncode == 0, events
    assert events[-1]["outcome"] == "done" and events[-1]["completed"] == RECIPIENTS, events[-1]
    assert events[-1]["sent_bytes"] < RECIPIENTS * BYTES / 10, events[-1]
    replicas[1].send_signal(signal.SIGINT)
    out, _ = replicas[1].communicate(timeout=60)
    events = {json.loads(line)["event"] for line in out.splitlines()}
    assert events <= {"owner_lost", "ended"}, out  # recipients are the coordinator's: a replica does not say that they have vanished


def without_the_coordinator_it_is_owner_lost(run):
    coordinator, replicas, address = run.owners("--recipients", 4)
    pulling = run.recipients(address, 4)
    for p in pulling:
        p.send_signal(signal.SIGSTOP)  # nobody finishes before the coordinator is gone
    coordinator.kill()
    coordinator.wait()
    for p in pulling:
        p.send_signal(signal.SIGCONT)
    for i, p in enumerate(pulling):
        said = p.communicate(timeout=120)[1]
        assert p.returncode != 0, said
        assert "coordinates" in said, said
        assert not (run.folder / f"copy{i}.safetensors").exists()
    for p in replicas:
        out, _ = p.communicate(timeout=60)
        assert p.returncode == 1, out
        assert [json.loads(line)["event"] for line in out.splitlines()] == ["owner_lost", "ended"], out


CASES = [a_replica_that_is_killed_costs_nobody_the_model, without_the_coordinator_it_is_owner_lost]


def main():
    if not has("haproxy"):
        return SKIPPED
    run_cases(Run, CASES, Path(sys.argv[1]), sys.argv[2:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
