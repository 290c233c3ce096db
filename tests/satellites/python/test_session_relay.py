"""A third program between two that cannot reach each other: what one has published is passed on to the other."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time

import numpy as np
import pytest
import processes

from authority import certificates
from test_session import STREAMS, address_of, on_thread

import tensorpull
from tensorpull import Error, Listener, Session

MODEL = {"w": np.arange(300_000, dtype=np.float32), "b": np.ones((3, 5))}
NBYTES = 1_200_120


@pytest.fixture(params=STREAMS)
def listen(request):
    return address_of(request.param, request)[0]


def until_lost(session, until=None):
    """Serves until then, or until the other end hangs up."""
    try:
        session.serve(until=until)
    except Error as e:
        assert e.code == "connection_lost"


class Between:
    """The program in the middle: its door, and its session with an owner that has published."""

    def __init__(self, listen="127.0.0.1:0", recipients=0, model=MODEL):
        self.door = Listener(listen)
        self.over = threading.Event()
        self.statuses = []
        self._owner = processes.JoinedThread(target=self._own, args=(recipients, model))
        self._owner.start()
        self.owner = self.door.accept(timeout=60)
        self.ref = self.owner.receive(timeout=60).references[0]

    def _own(self, recipients, model):
        with Session(self.door.address) as session:
            ref = session.add_tensors(model, recipients=recipients)
            session.send(1, b"", [ref])
            try:  # a message from the middle comes after all that the middle has passed on before
                while not self.over.is_set() and not (recipients and session.settled(ref)):
                    if session.receive(timeout=0.05) is not None:
                        break
            except Error as e:
                assert e.code == "connection_lost"
            self.statuses.append(session.status(ref))

    def recipient(self, pull):
        """A session with a recipient, and the thread that it is on: `pull(session)` is called once it may pull."""

        def run():
            with Session(self.door.address) as session:
                message = session.receive(timeout=60)
                if message is not None:
                    pull(session)

        thread = on_thread(run)
        return thread, lambda: self.door.accept(timeout=60)

    def pulled_by(self, pull, **how):
        """What relay_to says when `pull` has pulled."""
        thread, accepted = self.recipient(pull)
        failed = None
        with thread:
            recipient = accepted()
            recipient.send(2, b"", [self.ref])
            try:
                passed = self.owner.relay_to(recipient, self.ref, **how)
            except Error as e:  # the thread ends first
                failed = e
        if failed is not None:
            raise failed
        return passed

    def status(self):
        """The owner's, once it has read all that was passed on to it."""
        try:
            self.owner.send(3)
        except Error as e:  # it may have settled, and gone
            assert e.code == "connection_lost"
        self._owner.join()
        return self.statuses[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        self.owner.close()
        self.door.close()
        self._owner.join()


def pulls(got, ref, **how):
    def pull(session):
        got.append(session.download_tensors(ref, **how))

    return pull


def same(got):
    return got.keys() == MODEL.keys() and all(np.array_equal(got[name], value) and got[name].dtype == value.dtype for name, value in MODEL.items())


def test_the_recipient_gets_the_owners_bytes_and_the_owner_its_confirmation(listen):
    with Between(listen) as between:
        got = []
        for _ in range(2):  # the owner's session goes on
            passed = between.pulled_by(pulls(got, between.ref), chunk_size=65536)
            assert passed == tensorpull.Relayed(got[-1].receipt.bytes, -(-got[-1].receipt.bytes // 65536), 1, 0)
        assert all(map(same, got))
        assert all(g.receipt.version == g.receipt.digest == between.ref.version and g.receipt.confirmed and not g.receipt.believed for g in got)
        assert between.status().completed == 2


def test_a_recipient_pulls_what_it_likes_and_nothing_else(listen):
    with Between(listen) as between:
        heard = []

        def pull(session):
            heard.append(session.download_tensors(between.ref, names=["b"]))
            for ref in ("f" * 32, tensorpull.Reference(between.ref.id, 5)):
                with pytest.raises(Error) as e:
                    session.download_tensors(ref, retries=0)
                heard.append(e.value.code)
            with pytest.raises(Error) as e:
                session.download_tensors(between.ref, out={"w": np.zeros(7)}, retries=0)
            heard.append(e.value.code)
            heard.append(session.download_tensors(between.ref))

        passed = between.pulled_by(pull)
        assert heard[0].keys() == {"b"} and heard[1:4] == ["unknown_reference", "stale_version", "schema_mismatch"] and same(heard[4])
        assert passed.completed == 2 and passed.bytes >= NBYTES


def test_tls_on_both_sides(tmp_path):
    if not tensorpull._native.has_tls:
        pytest.skip("OpenSSL was not there when this was built")
    ssl = certificates(tmp_path, "site-1", "site-2")
    door = Listener("tls://127.0.0.1:0", ssl=ssl["server"])
    over, got = threading.Event(), []

    def own():
        with Session(door.address, ssl=ssl["site-1"]) as session:
            ref = session.add_tensors(MODEL)
            session.send(1, b"", [ref])
            until_lost(session, over)

    def pull():
        with Session(door.address, ssl=ssl["site-2"]) as session:
            got.append(session.download_tensors(session.receive(timeout=60).references[0]))

    with door, on_thread(own):
        owner = door.accept(timeout=60)
        ref = owner.receive(timeout=60).references[0]
        with on_thread(pull):
            recipient = door.accept(timeout=60)
            assert (owner.peer_name, recipient.peer_name) == ("site-1", "site-2")
            recipient.send(2, b"", [ref])
            assert owner.relay_to(recipient, ref).completed == 1
        over.set()
        owner.close()
    assert same(got[0])


def test_a_link_without_certificates_names_nobody(listen):
    with Between(listen) as between:
        assert between.owner.peer_name == ""


def test_refusals_leave_both_sessions_as_they_are():
    with Between() as between:
        got = []

        def pull(session):
            session.send(7)  # a message that nobody receives
            session.send(8)
            got.append(session.receive(timeout=60).kind)
            got.append(session.download_tensors(between.ref))

        thread, accepted = between.recipient(pull)
        with thread:
            recipient = accepted()
            recipient.send(2)
            assert recipient.receive(timeout=60).kind == 7
            assert not recipient.serve(timeout=0.2)
            with pytest.raises(Error, match="has bytes in it already") as e:
                between.owner.relay_to(recipient, between.ref)
            assert e.value.code == "unread_messages" and not recipient.closed
            assert recipient.receive(timeout=60).kind == 8
            for wrong, how in [
                (lambda: between.owner.relay_to(between.owner, between.ref), "not to itself"),
                (lambda: between.owner.relay_to(recipient, between.ref, chunk_size=0), "chunk_size is a whole number from 1"),
                (lambda: between.owner.relay_to(recipient, between.ref, bytes_per_second=-1), "bytes_per_second is a whole number"),
                (lambda: between.owner.relay_to("session", between.ref), "other is a Session"),
                (lambda: between.owner.relay_to(recipient, "no reference"), "reference"),
            ]:
                with pytest.raises((ValueError, TypeError, Error), match=how):
                    wrong()
            recipient.send(3)
            assert between.owner.relay_to(recipient, between.ref).completed == 1
        assert got[0] == 3 and same(got[1]) and recipient.closed
        with pytest.raises(ValueError, match="closed"):
            between.owner.relay_to(recipient, between.ref)


def test_links_of_datagrams_are_refused_by_name():
    with Between() as between, Listener("udp://127.0.0.1:0") as other, Session(other.address), other.accept(timeout=60) as near:
        for owner, recipient in ((between.owner, near), (near, between.owner)):
            with pytest.raises(Error, match="a relay needs streams on both sides") as e:
                owner.relay_to(recipient, between.ref)
            assert e.value.code == "unsupported_request"
        assert not near.closed and not between.owner.closed


@pytest.mark.parametrize("end", ["abort", "timeout"])
def test_a_recipient_that_says_nothing_ends_by_abort_or_by_time(end):
    with Between() as between:
        stop, over = threading.Event(), threading.Event()
        thread, accepted = between.recipient(lambda session: over.wait(60))  # it may not hang up before the relay has heard `stop`
        with thread:
            recipient = accepted()
            recipient.send(2)
            timer = threading.Timer(0.2, stop.set)
            if end == "abort":
                timer.start()
            with pytest.raises(Error) as e:
                between.owner.relay_to(recipient, between.ref, abort=stop if end == "abort" else None, timeout=60 if end == "abort" else 0.2)
            over.set()
            assert e.value.code == ("cancelled" if end == "abort" else "timed_out") and e.value.landed == 0
            assert recipient.closed
        got = []  # the owner's session has been through it unharmed
        assert between.pulled_by(pulls(got, between.ref)).completed == 1 and same(got[0])


def test_a_recipient_that_gives_up_in_the_middle_tells_the_owner():
    with Between() as between:
        enough = threading.Event()

        def gives_up(session):
            with pytest.raises(Error) as e:
                session.download_tensors(between.ref, chunk_size=4096, abort=enough, retries=0, progress=lambda p: enough.set() if p.bytes_done else None, progress_interval=0)
            assert e.value.code == "cancelled"

        passed = between.pulled_by(gives_up, bytes_per_second=400_000)
        assert passed.completed == 0 and 0 < passed.bytes < NBYTES
        status = between.status()
        assert status.completed == 0 and status.cancelled == 1


DIES = """
import os, sys, tensorpull
with tensorpull.Session(sys.argv[1]) as session:
    session.receive(timeout=60)
    session.download_tensors(sys.argv[2], chunk_size=4096, progress=lambda p: os._exit(3) if p.bytes_done else None, progress_interval=0)
"""


def test_a_recipient_that_dies_in_the_middle_is_cancelled_at_the_owner():
    with Between() as between:
        process = processes.Program([sys.executable, "-c", DIES, between.door.address, between.ref])
        recipient = between.door.accept(timeout=60)
        recipient.send(2)
        with pytest.raises(Error) as e:
            between.owner.relay_to(recipient, between.ref, bytes_per_second=400_000)
        assert process.wait(60) == 3
        assert e.value.code == "connection_lost" and e.value.landed < NBYTES and recipient.closed
        got = []
        assert between.pulled_by(pulls(got, between.ref)).completed == 1 and same(got[0])
        status = between.status()
        assert status.completed == 1 and status.cancelled == 1


def test_an_owner_that_dies_in_the_middle():
    with Between() as between:
        failed = []

        def pull(session):
            with pytest.raises(Error) as e:
                session.download_tensors(between.ref, chunk_size=4096, retries=0, progress=lambda p: between.over.set() if p.bytes_done else None, progress_interval=0)
            failed.append(e.value.code)

        with pytest.raises(Error) as e:
            between.pulled_by(pull, bytes_per_second=200_000)
        assert e.value.code == "connection_lost" and 0 < e.value.landed < NBYTES
        assert failed == ["connection_lost"]
        with pytest.raises(Error, match="lost"):
            between.owner.receive(timeout=1)


def test_an_owner_may_go_once_its_recipients_have_confirmed():
    with Between(recipients=1) as between:
        got = []
        assert between.pulled_by(pulls(got, between.ref)).completed == 1
        assert same(got[0]) and got[0].receipt.confirmed and between.status().completed == 1


def test_messages_of_the_owner_wait():
    with Between() as between:
        said = threading.Event()
        got = []

        def run():
            with Session(between.door.address) as owner:
                ref = owner.add_tensors(MODEL, recipients=1)
                owner.send(1, b"", [ref])
                owner.send(9, b"meanwhile")
                said.set()
                until_lost(owner)

        with on_thread(run):
            owner = between.door.accept(timeout=60)
            ref = owner.receive(timeout=60).references[0]
            assert said.wait(60)
            thread, accepted = between.recipient(pulls(got, ref))
            with thread:
                recipient = accepted()
                recipient.send(2)
                assert owner.relay_to(recipient, ref).completed == 1
            message = owner.receive(timeout=60)
            assert (message.kind, message.body) == (9, b"meanwhile") and same(got[0])
            owner.close()


def test_no_more_than_the_limit_is_sent():
    with Between() as between:
        got, began = [], time.monotonic()
        assert between.pulled_by(pulls(got, between.ref), bytes_per_second=NBYTES // 2).completed == 1
        assert time.monotonic() - began > 0.9 and same(got[0])  # a second's worth of the two may leave at once


def test_memory_is_one_chunk_and_there_is_no_thread_however_much_is_passed_on():
    def resident():
        gc.collect()
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def run(count):
        for _ in range(count):
            assert between.pulled_by(lambda s: s.download_tensors(between.ref, out=mine)).completed == 1

    mine = {"w": np.zeros(300_000, dtype=np.float32), "b": np.zeros((3, 5))}
    with Between() as between:
        run(20)
        before, threads = resident(), threading.active_count()
        run(200)
        assert resident() - before < 2 << 20, (before, resident())
        assert threading.active_count() == threads
