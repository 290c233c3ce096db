"""Downloads of what a key has signed, from several owners at once: some lie, are silent, or leave."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading

import numpy as np
import pytest
import processes
from mutating_path import LyingPath, MutatingPath, held_until, is_long
from processes import eventually

import tensorpull
from tensorpull import Downloader, Error, SignedReference, _native, download_file, download_tensors

if not _native.has_proofs:
    pytest.skip("optional: this build has no proofs", allow_module_level=True)

MODEL = {"w": np.random.default_rng(1).integers(0, 255, 5_000_001, np.uint8), "b": np.ones(7)}
CHUNK = 1 << 16
SMALL = {"chunk_size": CHUNK, "progress_interval": 0}
INTO = ["new", "out", "atomic", "file"]


def pull(into, address, known, folder, **more):
    """Pulls, and looks at what has come."""
    more = {**SMALL, **more}
    if into == "file":
        (folder / "m").unlink(missing_ok=True)
        receipt = download_file(address, known, folder / "m", **more)
        assert _native.blake3_of_file(os.fsencode(folder / "m")) == known.root
    else:
        out = None if into == "new" else {name: np.zeros_like(one) for name, one in MODEL.items()}
        got = download_tensors(address, known, out=out, atomic=into == "atomic", **more)
        assert all(np.array_equal(got[name], MODEL[name]) for name in MODEL)
        receipt = got.receipt
    assert receipt.outcome == "completed" and receipt.confirmed and not receipt.believed
    return receipt


@pytest.fixture
def three():
    """Three owners of the same, and what a recipient knows of it."""
    with Downloader() as a, Downloader() as b, Downloader() as c:
        ref = a.add_tensors(MODEL, proofs=True)
        for other in (b, c):
            other.add_tensors(MODEL, ref_id=ref, proofs=True)
        known = SignedReference(str(ref), ref.fingerprint, ref._tree, ref.root, ref.nbytes, "", 0, 0, "")
        yield (a.start(), b.start(), c.start()), known


class Silent:
    """Is asked, and sends nothing."""

    def __init__(self, owner):
        self.at_the_gate, never = threading.Event(), threading.Event()

        def hold(_, frame):
            self.at_the_gate.set()
            never.wait(processes.AMPLE)

        self.address = MutatingPath(owner.port, hold).address


class Gate:
    """Ways to owners. One lets `before` long frames through, and more once another one has let some through; or it is cut then."""

    def __init__(self, owner, before, until, cut=False):
        self.passed = 0
        self.at_the_gate = threading.Event()

        def carry(_, frame):
            if is_long(frame):
                if self.passed >= before:
                    self.at_the_gate.set()
                    if cut:
                        return None
                    until.wait(processes.AMPLE)
                self.passed += 1
            return frame

        self.way = MutatingPath(owner.port, carry)
        self.address = self.way.address


@pytest.mark.parametrize("into", INTO)
def test_all_give_a_part_and_one_hears_of_the_end(three, into, tmp_path, caplog):
    (a, b, c), known = three
    second_gives = threading.Event()

    def first_to_give(_, frame):
        if is_long(frame):
            second_gives.set()
        return frame

    held, other = Gate(a, 8, second_gives), MutatingPath(b.port, first_to_give)
    with caplog.at_level(logging.INFO, "tensorpull"):
        pull(into, [held.address, other.address], known, tmp_path)
    assert second_gives.is_set() and b.status(known.reference).bytes_sent >= CHUNK
    assert a.status(known.reference).completed + b.status(known.reference).completed == 1
    assert a.status(known.reference).failed + b.status(known.reference).failed == 0
    assert [line for line in caplog.messages if " downloaded from " in line and f"{held.address}, {other.address}" in line], caplog.messages


@pytest.mark.parametrize("into", INTO)
@pytest.mark.parametrize("who", ["honest liar", "liar honest", "liar liar honest", "liar honest liar"])
def test_who_lies_is_named_and_one_that_does_not_is_enough(three, into, who, tmp_path, caplog):
    owners, known = three
    ways = list(zip(who.split(), owners))
    liars = [LyingPath(owner.port) if how == "liar" else None for how, owner in ways]
    # those that lie give a part before the others give any
    sources = [liar or held_until(owner.port, *[each.dropped for each in liars if each]) for liar, (_, owner) in zip(liars, ways)]
    heard: list[tensorpull.Progress] = []
    with caplog.at_level(logging.INFO, "tensorpull"):
        pull(into, [each.address for each in sources], known, tmp_path, progress=heard.append, retries=0)
    named = {line.split(" ")[0] for line in caplog.messages if "other bytes" in line}
    assert named == {each.address for each in liars if each}, caplog.messages
    [line] = [line for line in caplog.messages if " downloaded from " in line]
    assert not any(each in line for each in named)
    seen = [each.bytes_done for each in heard]
    phases = [each.phase for each in heard]
    assert seen == sorted(seen) and seen[-1] == heard[-1].bytes_total and phases[0] == "started" and phases[-1] == "completed"
    assert phases.count("started") == phases.count("completed") == 1 and "failed" not in phases


@pytest.mark.parametrize("into", INTO)
def test_if_all_lie_all_are_named(three, into, tmp_path, caplog):
    owners, known = three
    liars = [LyingPath(owner.port).address for owner in owners]
    with caplog.at_level(logging.WARNING, "tensorpull"), pytest.raises(Error) as refused:
        pull(into, liars, known, tmp_path, retries=0)
    assert refused.value.code == "digest_mismatch"
    assert {line.split(" ")[0] for line in caplog.messages if "other bytes" in line} == set(liars)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("into", INTO)
def test_a_silent_one_is_not_waited_for(three, into, tmp_path):
    (a, _, _), known = three
    quiet = Silent(a)
    for sources in ([quiet.address, a.address], [a.address, quiet.address]):
        pull(into, sources, known, tmp_path, per_request_timeout=None)


@pytest.mark.parametrize("into", INTO)
def test_one_that_dies_at_99_percent_leaves_the_rest_to_another(three, into, tmp_path, caplog):
    (a, b, _), known = three
    dying = Gate(a, known.nbytes * 99 // 100 // CHUNK, threading.Event(), cut=True)
    late = Gate(b, 0, dying.at_the_gate)
    with caplog.at_level(logging.WARNING, "tensorpull"):
        pull(into, [dying.address, late.address], known, tmp_path, retries=0)
    assert dying.passed >= 75 and dying.at_the_gate.is_set()
    assert b.status(known.reference).bytes_sent < known.nbytes // 2, "what was there is not fetched again"
    assert not [line for line in caplog.messages if "other bytes" in line]


@pytest.mark.parametrize("when", ["at the tree", "in the middle"])
@pytest.mark.parametrize("how", ["abort", "timeout", "Ctrl-C"])
def test_a_stop_is_heard(three, when, how, tmp_path):
    (a, b, _), known = three
    never, stop = threading.Event(), threading.Event()
    held = [Silent(a), Silent(b)] if when == "at the tree" else [Gate(a, 6, never), Gate(b, 6, never)]

    def end():
        for each in held if when == "in the middle" else held[:1]:
            each.at_the_gate.wait(processes.AMPLE)
        stop.set() if how == "abort" else os.kill(os.getpid(), signal.SIGINT)

    thread = processes.JoinedThread(target=end, daemon=True)
    if how != "timeout":
        thread.start()
    with pytest.raises(KeyboardInterrupt if how == "Ctrl-C" else Error) as raised:
        pull("file", [each.address for each in held], known, tmp_path, abort=stop, per_request_timeout=None, timeout=3.0 if how == "timeout" else None)
    if how != "timeout":
        thread.join()
    if how != "Ctrl-C":
        assert raised.value.code == ("cancelled" if how == "abort" else "timed_out")
    never.set()
    if when == "in the middle":
        seen: list[int] = []
        pull("file", [a.address, b.address], known, tmp_path, progress=lambda p: seen.append(p.bytes_done))
        assert min(n for n in seen if n > 0) >= 2 * CHUNK, "what had landed is gone on with"


def test_what_lies_in_a_part_is_proved_before_it_is_gone_on_with(three, tmp_path):
    (a, b, _), known = three
    never, stop = threading.Event(), threading.Event()
    held = [Gate(a, 30, never), Gate(b, 30, never)]

    def tell(event):
        if all(each.at_the_gate.is_set() for each in held):
            stop.set()

    thread = processes.JoinedThread(target=lambda: (all(each.at_the_gate.wait(processes.AMPLE) for each in held), stop.set()), daemon=True)
    thread.start()
    with pytest.raises(Error):
        pull("file", [each.address for each in held], known, tmp_path, abort=stop, per_request_timeout=None)
    thread.join()
    never.set()
    with open(tmp_path / ".m.part", "r+b") as part:
        part.seek(100_000)
        part.write(b"\x55" * 100)
    pull("file", [a.address, b.address], known, tmp_path)


def test_owners_on_different_links_and_more_than_eight_are_asked_in_turn(three, tmp_path, caplog):
    (a, b, _), known = three
    liar = LyingPath(b.port)
    with Downloader(f"unix:{tmp_path}/door") as near:
        near.add_tensors(MODEL, ref_id=known.reference, proofs=True)
        near.start()
        with caplog.at_level(logging.INFO, "tensorpull"):
            pull("new", [liar.address, near.address], known, tmp_path, retries=0)
        assert near.status(known.reference).completed == 1
        with pytest.raises(ValueError, match="one kind"):
            pull("new", [a.address, near.address], known, tmp_path, connections=2)
    assert [line for line in caplog.messages if line.startswith(liar.address) and "other bytes" in line]
    assert [line for line in caplog.messages if f"downloaded from {near.address} " in line]
    pull("new", [liar.address] * 8 + [a.address], known, tmp_path, retries=0)
    assert a.status(known.reference).completed == 1


@pytest.mark.parametrize("into", INTO)
def test_several_connections_to_one_owner(three, into, tmp_path):
    (a, b, c), known = three
    first_frames, all_have_begun = [], threading.Event()

    def all_at_once(i, frame):
        if i == 0:
            first_frames.append(frame)
            if len(first_frames) == 5:  # of the tree and of each of four
                all_have_begun.set()
        assert not is_long(frame) or all_have_begun.wait(processes.AMPLE)
        return frame

    pull(into, MutatingPath(a.port, all_at_once).address, known, tmp_path, connections=4)
    assert a.status(known.reference).completed == 1
    pull(into, [b.address, c.address], known, tmp_path, connections=3)
    with pytest.raises(Error) as refused:
        pull(into, LyingPath(a.port).address, known, tmp_path, connections=2, retries=0)
    assert refused.value.code == "digest_mismatch"
    for wrong in (0, 9, "two"):
        with pytest.raises((TypeError, ValueError)):
            pull(into, a.address, known, tmp_path, connections=wrong)
    with pytest.raises(ValueError):
        pull(into, "udp://127.0.0.1:1", known, tmp_path, connections=2)


def test_a_file_that_another_process_changes_meanwhile_is_not_complete(three, tmp_path):
    (a, b, _), known = three
    changed = False

    def change(event):
        nonlocal changed
        if not changed and event.bytes_done > 3_000_000:
            changed = True
            with open(tmp_path / ".m.part", "r+b") as part:
                part.seek(100_000)
                part.write(bytes(100))

    with pytest.raises(Error) as refused:
        pull("file", [a.address, b.address], known, tmp_path, progress=change)
    assert changed and refused.value.code == "io" and not (tmp_path / "m").exists()
    pull("file", [a.address, b.address], known, tmp_path)


def test_memory_does_not_grow_with_the_model(tmp_path):
    program = """
import sys, numpy as np, tensorpull
reference, tree, root, nbytes, *addresses = sys.argv[1:]
out = {"w": np.full(64 << 20, 1, np.uint8)}
known = tensorpull.SignedReference(reference, 0, tree, root, int(nbytes), "", 0, 0, "")
open("/proc/self/clear_refs", "w").write("5")
peak = lambda: int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
before = peak()
tensorpull.download_tensors(addresses, known, out=out)
print(peak() - before, int(out["w"][-1]))
"""
    if sys.platform != "linux":
        pytest.skip("optional: there is no /proc")
    model = {"w": np.full(64 << 20, 3, np.uint8)}
    with Downloader() as a, Downloader() as b:
        ref = a.start().add_tensors(model, proofs=True)
        b.start().add_tensors(model, ref_id=ref, proofs=True)
        done = processes.run([sys.executable, "-c", program, ref, ref._tree, ref.root, str(ref.nbytes), a.address, b.address], check=True, capture_output=True, text=True)
    grown, last = map(int, done.stdout.split())
    assert last == 3 and grown < 16 << 10, f"{grown} KiB for 64 MiB"


def test_no_connection_and_no_thread_is_left(three, tmp_path):
    owners, known = three
    before = threading.active_count()
    for into in INTO:
        pull(into, [each.address for each in owners], known, tmp_path)
    assert threading.active_count() == before
    for each in owners:
        assert eventually(lambda each=each: each.connections == 0)
