"""The interpreter's end while threads of the caller's own are in calls of this package, and other interpreters in one process."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Daemons in all calls that wait or call Python. The main thread ends while they are at it; what would be wrong is a status other than 0, or no end.
CALLS = """
import sys, threading, time
import numpy as np
import tensorpull

begun = []
def daemon(call):
    started = threading.Event()
    def run():
        started.set()
        call()
    threading.Thread(target=run, daemon=True).start()
    begun.append(started)

owner = tensorpull.Downloader(bytes_per_second=4 << 20).start(daemon=True)
ref = owner.add_tensors({"w": np.zeros(64 << 20, np.uint8)})
mean = tensorpull.WeightedAverage({"w": np.zeros(64 << 20, np.uint8)})
silent, door = tensorpull.Downloader(), tensorpull.Listener()
client, server = tensorpull.Session(door.address), door.accept()

daemon(lambda: tensorpull.download_tensors(owner.address, ref))
daemon(lambda: tensorpull.download_tensors(owner.address, ref, out={"w": np.zeros(64 << 20, np.uint8)}, progress=lambda e: None, progress_interval=0, chunk_size=4096))
daemon(lambda: tensorpull.download_tensors(owner.address, ref, abort=lambda: time.sleep(0.001)))
daemon(lambda: tensorpull.download_file(owner.address, ref, sys.argv[2]))
daemon(lambda: mean.pull(owner.address, ref, 1.0, peer="a", round=1))
daemon(lambda: silent.serve(until=lambda: time.sleep(0.001)))
daemon(lambda: silent.wait(silent.add_tensors({"w": np.zeros(1)})))
daemon(door.accept)
daemon(client.receive)
daemon(lambda: server.serve(until=lambda: False))
for started in begun:
    assert started.wait(100)
time.sleep(float(sys.argv[1]))
print("the end", flush=True)
"""

#: Copies from and to a device on daemons, one serving and one landing. torch, ended in the middle of a copy, aborts the process.
COPIES = """
import sys, threading
import torch
import tensorpull
from tensorpull import _devices

class StandIn(_devices.Copier):
    bytes_of = {}
    busy = threading.Event()
    def put(self, n):
        made = torch.empty(n, dtype=torch.uint8, device="meta")
        self.bytes_of[made.untyped_storage()._cdata] = (made, torch.zeros(n, dtype=torch.uint8))
        return made
    def host(self, t):
        return self.bytes_of[t.untyped_storage()._cdata][1][t.storage_offset() : t.storage_offset() + t.numel()] if t.device.type == "meta" else t
    def copy(self, to, source):
        self.busy.set()
        super().copy(self.host(to), self.host(source))
    def address(self, t):
        return 1 << 40

_devices.COPIERS["meta"] = device = StandIn()
owner = tensorpull.Downloader()
ref = owner.add_tensors({"w": device.put(16 << 20)})
out = {"w": device.put(16 << 20)}
device.busy.clear()
def pull():
    while True:
        tensorpull.download_tensors(owner.address, ref, out=out, chunk_size=65536)
for target in (owner.serve, pull):
    threading.Thread(target=target, daemon=True).start()
assert device.busy.wait(100)
print("the end", flush=True)
"""


def ends(program: str, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "the end"), done.stdout


@pytest.mark.parametrize("after", ["0", "0.03", "0.2"])
def test_daemons_of_the_callers_own_do_not_abort_the_process_at_its_end(tmp_path, after):
    ends(CALLS, after, str(tmp_path / "file"))


def test_a_thread_that_is_no_daemon_ends_its_download_first(tmp_path):
    ends("""
import sys, threading
import numpy as np
import tensorpull
owner = tensorpull.Downloader(bytes_per_second=8 << 20)
ref = owner.add_tensors({"w": np.ones(4 << 20, np.uint8)}, recipients=1)
def pull():
    got = tensorpull.download_tensors(owner.address, ref)
    assert got["w"].all()
    print("the end", flush=True)
threading.Thread(target=lambda: owner.serve(until=ref)).start()
threading.Thread(target=pull).start()
""")


def test_daemons_that_copy_from_and_to_a_device_do_not_either():
    pytest.importorskip("torch")
    ends(COPIES)


def test_another_interpreter_of_the_process_is_refused_with_a_sentence():
    ends("""
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import tensorpull
other = interpreters.create()
said = interpreters.run_string(other, "try:\\n  import tensorpull\\nexcept ImportError as e:\\n  assert 'interpreter' in str(e), e\\nelse:\\n  raise SystemExit('taken')\\n")
assert said is None, said
interpreters.destroy(other)
print("the end", flush=True)
""")
