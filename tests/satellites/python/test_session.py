"""Both directions over one connection: a client dials out, and is pulled from."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from safetensors.numpy import load_file
import processes

import tensorpull
from tensorpull import Error, Listener, Session

MODEL = {"w": np.arange(100_000, dtype=np.float32), "b": np.ones((3, 5))}


#: Over streams a listener accepts many, and the end of a connection is heard of.
STREAMS = ["127.0.0.1:0", "tcp://127.0.0.1:0", "unix:{}/door", "unix:@tensorpull-test-{}", "shm:@tensorpull-shared-{}"]
DATAGRAMS = ["udp://127.0.0.1:0", "serial", "nats"]


def address_of(link, request):
    """Where to listen, and where to connect, if that is another address."""
    if link == "serial":
        near, far = request.getfixturevalue("line")
        return f"serial:{near}?speed=4000000", f"serial:{far}?speed=4000000"
    if link == "nats":
        if not tensorpull._native.has_nats:
            pytest.skip("libnats was not there when this was built")
        return request.getfixturevalue("nats_server") + "#door", None
    return link.format(request.getfixturevalue("tmp_path") if "/door" in link else os.getpid()), None


@pytest.fixture(params=STREAMS)
def listen(request):
    return address_of(request.param, request)[0]


@pytest.fixture(params=STREAMS + DATAGRAMS)
def ends(request):
    """A function for the two ends of any link that has sessions: the client's and the server's."""
    listen, connect = address_of(request.param, request)
    return lambda: connected(listen, connect)


@contextmanager
def connected(listen="127.0.0.1:0", connect=None):
    """The client's session and the server's."""
    with Listener(listen) as door, Session(connect or door.address) as client, door.accept(timeout=60) as server:
        yield client, server


@contextmanager
def on_thread(what):
    """Runs it meanwhile; what it raises is raised at the end."""
    failed = []

    def run():
        try:
            what()
        except BaseException as e:  # noqa: BLE001
            failed.append(e)

    thread = processes.JoinedThread(target=run)
    thread.start()
    yield thread
    thread.join()
    if failed:
        raise failed[0]


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


def test_a_client_that_dials_out_is_pulled_from(ends):
    settled = []
    with ends() as (client, server):

        def site():
            ref = client.add_tensors(MODEL, recipients=1, metadata={"round": "3"}, settled=settled.append)
            client.send(7, b"600 images", [ref])
            assert client.serve(until=ref, timeout=30)

        with on_thread(site):
            message = server.receive(timeout=30)
            assert (message.kind, message.body) == (7, b"600 images")
            got = server.download_tensors(message.references[0])
            server.serve(timeout=0.3)  # over datagrams the other end may not have heard that it arrived
        assert same(got, MODEL)
        assert got.metadata["round"] == "3"
        assert got.receipt.confirmed
    assert [o.verdict for o in settled] == ["completed"]


def test_an_average_pulls_over_a_session(ends):
    updates = [{"w": np.full((300, 70), i, "f4"), "b": np.full(7, -i, "f8")} for i in (1, 5)]
    with ends() as (client, server):

        def site():
            for number, update in enumerate([*updates, {"w": np.ones((300, 71), "f4"), "b": np.ones(7)}]):
                ref = client.add_tensors(update, recipients=1)
                client.send(7, str(number).encode(), [ref])
                if number < 2:
                    assert client.serve(until=ref, timeout=30)
                    continue
                with pytest.raises(Error) as refused:
                    client.serve(until=ref, timeout=30)
                assert refused.value.code == "not_delivered"
            assert client.receive(timeout=30).body == b"end"

        with on_thread(site):
            average = tensorpull.WeightedAverage(updates[0], partial="staged")
            for weight in (3, 1):
                message = server.receive(timeout=30)
                receipt = average.pull(server, message.references[0], weight, peer=f"site {weight}", round=1)
                assert receipt.outcome == "completed" and receipt.confirmed
            assert average.whole_weight == 4
            other = server.receive(timeout=30)
            with pytest.raises(Error) as e:
                average.pull(server, other.references[0], 1, peer="site 3", round=1)
            assert (e.value.code, e.value.name) == ("schema_mismatch", "w")
            server.send(7, b"end")
            server.serve(timeout=0.3)
    assert same(average.result(), {"w": np.full((300, 70), 2, "f4"), "b": np.full(7, -2.0)})
    assert [(u.peer, u.state) for u in average.updates][:2] == [("site 3", "told"), ("site 1", "told")]


def test_over_a_session_an_average_has_to_be_staged():
    with connected() as (_, server):
        for partial in ("error", "divide_by_reached"):
            with pytest.raises(ValueError, match="staged"):
                tensorpull.WeightedAverage(MODEL, partial=partial).pull(server, "ab" * 16, 1, peer="a", round=1)
        with pytest.raises(ValueError, match="ssl"):
            tensorpull.WeightedAverage(MODEL, partial="staged").pull(server, "ab" * 16, 1, peer="a", round=1, ssl=tensorpull.TLS())


def test_the_same_connection_carries_both_directions(ends):
    with ends() as (client, server):

        def site():
            client.send(9)  # over datagrams nobody is known before it has said something
            order = client.receive(timeout=30)
            state = client.download_tensors(order.references[0])  # the server serves while it receives
            ref = client.add_tensors({k: v * 2 for k, v in state.items()}, recipients=1)
            client.send(2, references=[ref])
            assert client.serve(until=ref, timeout=30)

        with on_thread(site):
            assert server.receive(timeout=30).kind == 9
            ref = server.add_tensors(MODEL)
            server.send(1, references=[ref])
            update = server.receive(timeout=30)
            mine = {k: np.empty_like(v) for k, v in MODEL.items()}
            got = server.download_tensors(update.references[0], out=mine)
            server.serve(timeout=0.3)
        assert same(got, {k: v * 2 for k, v in MODEL.items()})
        assert got["w"] is mine["w"]
        assert server.status(ref).completed == 1
        server.withdraw(ref)
        assert server.settled(ref)


def test_what_the_other_end_has_not_is_an_error():
    with connected() as (client, server), on_thread(lambda: server.serve(timeout=1)):
        with pytest.raises(Error) as e:
            client.download_tensors("0" * 31 + "1", retries=0)
        assert e.value.code == "unknown_reference"


def test_waits_end_in_time_and_on_abort(ends):
    with ends() as (client, _):
        assert client.receive(timeout=0.05) is None
        for unknown in ("0" * 31 + "1", (ref for ref in ["0" * 31 + "1"])):
            with pytest.raises(Error) as e:
                client.serve(until=unknown, timeout=5)
            assert e.value.code == "unknown_reference", "it ends at once, and nobody knows how"
        assert not client.serve(until=threading.Event(), timeout=0.05)
        with pytest.raises(TypeError, match="until"):
            client.serve(until=7)
        stop = threading.Event()
        threading.Timer(0.2, stop.set).start()
        with pytest.raises(Error) as e:
            client.receive(abort=stop)
        assert e.value.code == "cancelled"
        with pytest.raises(Error) as e:
            client.download_tensors("1" * 48, abort=stop)
        assert e.value.code == "cancelled"
        assert client.receive(timeout=0) is None, "the connection goes on"
    with Listener() as door:
        assert door.accept(timeout=0.05) is None
        threading.Timer(0.2, door.close).start()
        assert door.accept() is None
        with pytest.raises(ValueError):
            door.accept()


def test_a_connection_that_is_lost_stays_lost():
    with connected() as (client, server):
        server.close()
        server.close()
        for _ in range(2):
            with pytest.raises(Error) as e:
                client.receive(timeout=30)
            assert e.value.code == "connection_lost"
        with pytest.raises(ValueError):
            server.receive()
        assert server.closed and not client.closed


def test_a_message_that_has_left_was_sent_though_the_other_end_closes_at_once():
    """What the last call saw of the end, it saw after its message: before this was so, one in ten here was an error."""
    with Listener("unix:@closes-{}".format(os.getpid())) as door:
        for i in range(50):

            def other(i=i):
                with door.accept(timeout=60) as session:
                    session.send(2, b"last") if i % 2 else session.receive(timeout=60)

            with on_thread(other), Session(door.address) as session:
                if i % 2:
                    assert session.receive(timeout=60).body == b"last"
                else:
                    session.send(1, bytes(60_000))
                with pytest.raises(Error) as e:
                    session.receive(timeout=60)
                assert e.value.code == "connection_lost"


def test_one_thread_at_a_time():
    with connected() as (client, _):
        begun, stop = threading.Event(), threading.Event()

        def until():
            begun.set()
            return stop.is_set()

        with on_thread(lambda: client.serve(until=until)):
            assert begun.wait(60)
            for call in (lambda: client.receive(timeout=0), client.close, lambda: client.add_tensors(MODEL)):
                with pytest.raises(RuntimeError, match="one thread at a time"):
                    call()
            stop.set()


def test_a_callback_may_publish_and_not_wait():
    told = []
    with connected() as (client, server):

        def settled(outcome):
            told.append(outcome.verdict)
            told.append(client.add_tensors({"next": np.zeros(2)}))
            try:
                client.receive(timeout=0)
            except RuntimeError as e:
                told.append(str(e))

        def site():
            ref = client.add_tensors(MODEL, recipients=1, settled=settled)
            client.send(1, references=[ref])
            assert client.serve(until=lambda: len(told) == 3, timeout=30)

        with on_thread(site):
            server.download_tensors(server.receive(timeout=30).references[0])
    assert told[0] == "completed" and isinstance(told[1], tensorpull.Reference) and "one thread" in told[2]


def test_what_a_callback_raises_is_raised_here():
    with connected() as (client, _):
        with pytest.raises(ZeroDivisionError):
            client.serve(until=lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            client.receive(abort=lambda: 1 / 0)
        ref = client.add_tensors(MODEL)

        def oops(_):
            raise KeyError("mine")

    with connected() as (client, server):
        ref = server.add_tensors(MODEL)
        with on_thread(lambda: server.serve(timeout=2)), pytest.raises(KeyError, match="mine"):
            client.download_tensors(ref, progress=oops)


def test_ctrl_c_is_heard_while_it_waits():
    program = """
        import sys, threading, time, tensorpull
        with tensorpull.Listener() as door, tensorpull.Session(door.address) as s:
            print("waiting", flush=True)
            try:
                s.receive()
            except KeyboardInterrupt:
                print("heard", flush=True)
    """
    child = processes.Program([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "waiting\n"
    processes.be_slow(0.3)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=30)
    assert (out, child.returncode) == ("heard\n", 0)


def test_a_child_of_fork_leaves_the_session_alone():
    with connected() as (client, server):
        pid = os.fork()
        if pid == 0:
            try:
                client.send(1)
            except ValueError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        client.send(9, b"still here")
        assert server.receive(timeout=30).body == b"still here"


@pytest.mark.parametrize(
    "call, kind",
    [
        (lambda s: s.send("1"), TypeError),
        (lambda s: s.send(-1), ValueError),
        (lambda s: s.send(1, "text"), TypeError),
        (lambda s: s.send(1, references="0" * 32), TypeError),
        (lambda s: s.send(1, references=["x"]), Error),
        (lambda s: s.send(1, b"x" * 100_000), Error),
        (lambda s: s.receive(timeout=-1), ValueError),
        (lambda s: s.add_tensors(3), TypeError),
        (lambda s: s.download_tensors(3), TypeError),
    ],
)
def test_arguments_that_make_no_sense(call, kind):
    with connected() as (client, _):
        with pytest.raises(kind):
            call(client)


@pytest.mark.parametrize("link", DATAGRAMS)
def test_a_listener_over_datagrams_has_one_session(link, request):
    with Listener(address_of(link, request)[0]) as door:
        with door.accept(timeout=1), pytest.raises(Error, match="one session") as e:
            door.accept(timeout=1)
        assert e.value.code == "unsupported_request"


def test_a_session_with_a_command_that_is_started():
    program = """
        import numpy, tensorpull
        with tensorpull.Session("pipe:-") as s:
            ref = s.add_tensors({"w": numpy.arange(1000.0)}, recipients=1)
            s.send(3, references=[ref])
            s.serve(until=ref, timeout=60)
    """
    with Session("pipe:" + shlex.join([sys.executable, "-c", textwrap.dedent(program)])) as s:
        message = s.receive(timeout=60)
        assert message.kind == 3
        assert np.array_equal(s.download_tensors(message.references[0])["w"], np.arange(1000.0))


def test_addresses(tmp_path):
    with pytest.raises(Error) as e:
        Listener("pipe:cat")
    assert e.value.code == "bad_address"
    for make in (Session, Listener):
        with pytest.raises(Error) as e:
            make("nats://127.0.0.1:1")
        assert e.value.code == "bad_address" and ("#name" if tensorpull._native.has_nats else "libnats") in str(e.value)
    for address in ("ftp://host:1", "nats:/", "tcp://", "unix:", "host", "http://127.0.0.1:1/x"):
        with pytest.raises(Error) as e:
            Session(address, retries=0, timeout=1)
        assert e.value.code == "bad_address", address
    with pytest.raises(Error) as e:
        Session(f"unix:{tmp_path}/nobody", retries=0, timeout=1)
    assert e.value.code == "connection_failed"


def test_an_owner_and_downloads_over_other_addresses(listen):
    with tensorpull.Downloader(listen, bytes_per_second=100_000_000) as owner:
        owner.start()
        ref = owner.add_tensors(MODEL, recipients=1)
        assert same(tensorpull.download_tensors(owner.address, ref), MODEL)
        assert owner.wait(ref, timeout=60)
        one = owner.add_tensors({"w": np.ones(4, np.float32)})
        mean = tensorpull.weighted_average([(owner.address, one, 2.0)], like={"w": np.zeros(4, np.float32)})
        assert same(mean, {"w": np.ones(4, np.float32)})


def test_a_session_pulls_into_a_file(tmp_path):
    """As download_file does, over the connection that the other end has made."""
    with connected() as (client, server):
        ref, another = client.add_tensors(MODEL, recipients=1), client.add_tensors(MODEL)
        client.send(1, b"", [ref, another])
        published, refuses = server.receive(60).references
        client_serves = processes.JoinedThread(target=lambda: client.serve(until=ref, timeout=60))
        client_serves.start()
        with pytest.raises(Error) as refused:
            server.download_file(refuses, tmp_path / "m", max_bytes=1000)
        assert refused.value.code == "too_large" and not os.listdir(tmp_path)
        receipt = server.download_file(published, tmp_path / "m", resume=False)
        client_serves.join()
        assert receipt.outcome == "completed" and receipt.confirmed and receipt.digest == ref.version and client.settled(ref)
        assert os.listdir(tmp_path) == ["m"]
        got = load_file(tmp_path / "m")
        assert got.keys() == MODEL.keys() and all(np.array_equal(got[k], MODEL[k]) for k in MODEL)
