"""What becomes of a publication: a recipient's own mistakes, the newest under a fixed ID, how long somebody is waited for, and why it ended as it did."""

from __future__ import annotations

import logging
import threading
import time
import types

import numpy as np
import processes
import pytest
from processes import eventually

import tensorpull
from tensorpull import Error, _options as options

ID = "0123456789abcdef" * 2
CHUNK = 65536


def model(value, n=100_000):
    return {"w": np.full(n, value, np.float32), "b": np.full(3, value, np.float32)}


MISTAKES = {
    "another shape": {"out": {**model(0), "b": np.zeros(4, np.float32)}},
    "another dtype": {"out": {**model(0), "b": np.zeros(3)}},
    "one tensor is missing": {"out": {"w": np.zeros(100_000, np.float32)}},
    "another shape, all or none": {"out": {**model(0), "b": np.zeros(4, np.float32)}, "atomic": True},
    "another shape of some": {"out": {"b": np.zeros(4, np.float32)}, "subset": True},
    "another name of some": {"out": {"c": np.zeros(3, np.float32)}, "subset": True},
    "a name that is not published": {"names": ["c"]},
    "a pattern that fits nothing": {"matching": ["c*"]},
    "a limit that is too low": {"max_bytes": 10},
    "a header that is too long": {"max_header_bytes": 8},
    "too many tensors": {"max_tensors": 1},
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_before_a_byte_has_come_ends_nothing(owner, mistake):
    seen: list[tensorpull.Progress] = []
    ref = owner.add_tensors(model(1), recipients=1, progress=seen.append)
    with pytest.raises(Error):
        tensorpull.download_tensors(owner.address, ref, **MISTAKES[mistake])
    assert tensorpull.download_tensors(owner.address, ref, out=model(0)).receipt.confirmed
    assert owner.wait(ref, processes.AMPLE)
    assert owner.outcome(ref).verdict == "completed"


def test_the_owner_knows_why_a_recipient_has_not_completed(owner, caplog):
    caplog.set_level(logging.INFO, logger="tensorpull")
    ended: list[tensorpull.Outcome] = []
    ref = owner.add_tensors(model(1), recipients=["site-1", "site-2", "site-3"], settled=ended.append)
    wrong = {**model(0), "b": np.zeros(4, np.float32)}
    number = f"{tensorpull.recipient_named('stranger') >> 32:08x}..."
    for name in ("site-1", "site-2", "stranger"):
        with pytest.raises(Error):
            tensorpull.download_tensors(owner.address, ref, out=wrong, recipient=name)
        assert eventually(lambda: owner.outcome(ref).reasons.get(number if name == "stranger" else name) == "schema_mismatch")
    tensorpull.download_tensors(owner.address, ref, recipient="site-1")
    assert eventually(lambda: owner.outcome(ref).reasons == {"site-2": "schema_mismatch", number: "schema_mismatch"})
    owner.withdraw(ref)
    assert eventually(lambda: ended)
    how = ended[0]
    assert how.recipients == {"site-1": "completed", "site-2": "absent", "site-3": "absent"}
    assert how.reasons == {"site-2": "schema_mismatch", "site-3": "withdrawn", number: "schema_mismatch"} == owner.outcome(ref).reasons
    assert eventually(lambda: "site-2 absent: schema_mismatch, site-3 absent: withdrawn" in caplog.text)
    assert any(record.levelno == logging.WARNING and "recipient site-2 cannot take it (schema_mismatch)" in record.getMessage() for record in caplog.records)
    one = owner.add_tensors(model(1), recipients=1)  # a number alone
    with pytest.raises(Error):
        tensorpull.download_tensors(owner.address, one, progress=fail)
    with pytest.raises(Error, match="cancelled_by_peer"):
        owner.wait(one, processes.AMPLE)
    assert list(owner.outcome(one).reasons.values()) == ["cancelled_by_peer"]


def fail(event):
    raise Error("cancelled", "this recipient has seen enough")


class Slow:
    """A recipient that takes its time until it is let go."""

    def __init__(self, address, ref, **options):
        self.begun, self.go, self.got, self.error = threading.Event(), threading.Event(), None, None

        def watch(event):
            if event.bytes_done > 0:
                self.begun.set()
                self.go.wait(processes.AMPLE)

        def work():
            try:
                self.got = tensorpull.download_tensors(address, ref, chunk_size=CHUNK, window=1, progress=watch, progress_interval=0, **options)
            except Error as e:
                self.error = e

        self.thread = processes.JoinedThread(target=work)
        self.thread.start()
        assert self.begun.wait(processes.AMPLE)

    def end(self):
        self.go.set()
        self.thread.join()
        if self.error is not None:
            raise self.error
        return self.got


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "unix", "udp://127.0.0.1:0"])
@pytest.mark.parametrize("pinned", [False, True])
def test_a_slow_recipient_gets_what_it_began_with_whatever_is_published_meanwhile(tmp_path, listen, pinned):
    with tensorpull.Downloader(f"unix:{tmp_path}/s" if listen == "unix" else listen) as owner:
        owner.start()
        ended: list[str] = []
        first = owner.add_tensors(model(1), ref_id=ID, settled=lambda how: ended.append(how.verdict))
        slow = Slow(owner.address, first if pinned else ID)
        for value in (2, 3, 4):
            newest = owner.add_tensors(model(value), ref_id=ID)
            assert tensorpull.download_tensors(owner.address, ID)["w"][0] == value
        assert not owner.settled(first) and not ended
        with pytest.raises(Error) as e:  # it stays for those who have begun with it alone
            tensorpull.download_tensors(owner.address, first)
        assert e.value.code == "stale_version"
        got = slow.end()
        assert (got["w"] == 1).all() and got.receipt.version == first.version and got.receipt.confirmed
        assert eventually(lambda: owner.settled(first) and ended == ["withdrawn"])
        assert not owner.settled(newest) and owner.status(first).completed == 1


def test_a_version_that_makes_way_is_pulled_anew_as_the_newest(owner):
    """One earlier version stays at a time: whoever began with a later one gets the newest."""
    kept = Slow(owner.address, owner.add_tensors(model(1), ref_id=ID)[:32])
    owner.add_tensors(model(2), ref_id=ID)
    mine = model(0)
    second = Slow(owner.address, ID, out=mine)
    owner.add_tensors(model(3), ref_id=ID)
    assert (second.end()["w"] == 3).all() and (mine["w"] == 3).all() and (kept.end()["w"] == 1).all()


def test_progress_of_a_download_that_begins_anew_is_that_of_one(owner, caplog):
    ref = owner.add_tensors(model(1), ref_id=ID)
    kept = Slow(owner.address, ref)
    owner.add_tensors(model(2), ref_id=ID)
    events: list[tensorpull.Progress] = []

    def watch(event):
        events.append(event)
        if event.bytes_done > CHUNK and len(events) < 1000 and not replaced:
            replaced.append(owner.add_tensors(model(3), ref_id=ID))

    replaced: list[tensorpull.Reference] = []
    got = tensorpull.download_tensors(owner.address, ID, chunk_size=CHUNK, window=1, progress=watch, progress_interval=0)
    assert (got["w"] == 3).all() and replaced
    assert [event.phase for event in events].count("started") == 1 and [event.phase for event in events if event.phase in ("completed", "failed", "aborted")] == ["completed"]
    done = [event.bytes_done for event in events]
    assert done == sorted(done)
    assert "another version was published meanwhile" in caplog.text
    kept.end()


def test_withdrawing_ends_every_version(owner):
    first = owner.add_tensors(model(1), ref_id=ID)
    slow = Slow(owner.address, ID)
    owner.add_tensors(model(2), ref_id=ID)
    owner.withdraw(ID)
    assert owner.settled(first)
    with pytest.raises(Error) as e:
        slow.end()
    assert e.value.code == "withdrawn"


def test_a_file_of_the_newest_too(owner, tmp_path):
    kept = Slow(owner.address, owner.add_tensors(model(1), ref_id=ID)[:32])
    owner.add_tensors(model(2), ref_id=ID)
    replaced: list[tensorpull.Reference] = []

    def watch(event):
        if event.bytes_done > CHUNK and not replaced:
            replaced.append(owner.add_tensors(model(3), ref_id=ID))

    got = tensorpull.download_file(owner.address, ID, tmp_path / "m", chunk_size=CHUNK, window=1, progress=watch, progress_interval=0)
    assert replaced and got.version == replaced[0].version
    kept.end()


def test_an_owner_that_is_not_there_yet_is_waited_for():
    """However few tries there are, and an owner that is never there ends it in time."""
    port = processes.OwnPort()
    late: list[tensorpull.Downloader] = []

    def begin():
        late.append(tensorpull.Downloader(port.address).start(daemon=True))
        late[0].add_tensors(model(1), ref_id=ID)

    timer = threading.Timer(1.0, begin)
    with pytest.raises(TimeoutError, match="nobody has answered for wait=0.2 seconds"):
        tensorpull.download_tensors(port.address, ID, wait=0.2)
    timer.start()
    assert tensorpull.download_tensors(port.address, ID, wait=processes.AMPLE, retries=0)["w"][0] == 1
    timer.join()
    late[0].close()


def test_waiting_is_over_only_if_nothing_comes(monkeypatch):
    now, told = [100.0], []
    monkeypatch.setattr(options, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    with pytest.raises(TimeoutError, match="nobody has answered for wait=10 seconds") as e, options.within(None, 10, None) as stop:
        settings = options.pull_settings(ID, 60.0, None, told.append, 3.0, stop, None, None, 0, 3)
        assert settings.retries > 1_000_000 and settings.longest_delay_ms < settings.per_request_timeout_ms and settings.progress_interval_ms < 3000
        for at, phase, tells in ((109.0, "started", True), (118.0, "active", True), (120.0, "active", False), (129.0, "failed", True)):
            while now[0] < at:  # it is asked several times a second
                now[0] += 0.5
                assert not settings.abort()
            settings.progress((phase, ID, 0, 5, 9, 0, 1, 1, ""))
            assert bool(told) is tells
            told.clear()
        for now[0] in (129.5, 130.0, 130.5):  # ten seconds after something came last, and a little
            over = settings.abort()
        assert over
        raise Error("cancelled", "the transfer was cancelled", landed=5)
    assert e.value.landed == 5


def test_of_several_addresses_each_is_asked(owner):
    """Whoever does not answer is not waited for to the end while another may."""
    port = processes.OwnPort()
    ref = owner.add_tensors(model(1))
    assert tensorpull.download_tensors([port.address, "unix:/nowhere", owner.address], ref, wait=processes.AMPLE, retries=1).receipt.confirmed


def test_a_process_that_was_stopped_has_not_waited_meanwhile(monkeypatch):
    now = 100.0
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", lambda: now)
        with options.within(None, 10, None) as heard:
            for step in (0.9, 0.9, 3600, 0.9):
                now += step
                assert not heard()
            late = 0
            while not heard() and late < 100:
                now += 0.5
                late += 1
    assert late == 13  # 3.7 of the ten seconds were over
