"""Each call of each public class again: after each of its errors, after its end, and from several threads at once.

One table (`KINDS`) says for each class how one is made and what can be called, with arguments that are right and wrong ones. What a call gives is tested elsewhere. Here it
returns, or raises what this package says that it raises, whatever was called before. A crash ends the run, most surely in the leg `python-asan` of tests/run.sh.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import socket
import struct
import sys
import threading

import numpy as np
import pytest
import processes

import tensorpull
from tensorpull import Downloader, Landing, Listener, PublishedImage, Session, WeightedAverage

NOBODY = "0" * 31 + "1"
MODEL = {"a": np.arange(10, dtype=np.float32), "b": np.ones((3, 4))}
#: Sequences for each class, and calls of each thread.
SEQUENCES = int(os.environ.get("TENSORPULL_PYTHON_SEQUENCES", "60"))
LENGTH = 6


class Raised(Exception):
    """What a callback of these tests raises."""


def raises(*_):
    raise Raised


def header(tensors: dict, data: bytes) -> bytes:
    """An image as an owner may write it, also of what NumPy cannot make."""
    text = json.dumps(tensors, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


IMAGE = PublishedImage(MODEL)
BYTES = IMAGE.read()
DEEP = header({"a": {"dtype": "F32", "shape": [1] * 70, "data_offsets": [0, 4]}}, bytes(4))
TIED = {"a": MODEL["a"], "b": MODEL["b"]}


def landing(data, *arguments, **more):
    """A landing for `data`, and what can be called."""
    of = Landing(len(data), *arguments, **more)
    return of, {
        "whole": lambda: of.write(0, data),
        "header": lambda: of.write(0, data[:8]),
        "rest": lambda: of.write(8, data[8:]),
        "last": lambda: of.write(len(data) - 1, data[-1:]),
        "behind": lambda: of.write(len(data), b"x"),
        "other": lambda: of.write(0, b"\xff" * len(data)),
        "nothing": lambda: of.write(3, b""),
        "no bytes": lambda: of.write(0, "text"),
        "no number": lambda: of.write("0", data),
        "apart": lambda: of.write(0, memoryview(data)[::2]),
        "finish": lambda: of.finish(0),
        "finish as another": lambda: of.finish(1),
        "finish as nothing": lambda: of.finish("x"),
        "counts": lambda: (of.written, of.first_missing, of.header_left, of.nbytes),
    }, lambda: None


def image():
    of = PublishedImage(MODEL)
    return of, {
        "read": lambda: of.read(0, 64),
        "behind": lambda: of.read(of.nbytes + 1),
        "no number": lambda: of.read("0"),
        "into": lambda: of.readinto(0, bytearray(64)),
        "into what is constant": lambda: of.readinto(0, b"constant"),
        "into gaps": lambda: of.readinto(0, memoryview(bytearray(64))[::2]),
        "counts": lambda: (of.nbytes, of.header_bytes, of.version, of.tensors),
    }, lambda: None


def downloader():
    of = Downloader(max_references=8, http="127.0.0.1:0")
    known = of.add_tensors(MODEL)
    return of, {
        "add": lambda: of.add_tensors(MODEL, settled=raises, progress=raises),
        "add again": lambda: of.add_tensors(MODEL, ref_id=known),
        "add what cannot travel": lambda: of.add_tensors({"a": np.array(["text"])}),
        "add nothing": lambda: of.add_tensors(None),
        "add to nobody": lambda: of.add_tensors(MODEL, recipients=1, least=2),
        "add under no digits": lambda: of.add_tensors(MODEL, ref_id="hello"),
        "transaction": lambda: of.add_transaction([MODEL, {}]),
        "transaction of one twice": lambda: of.add_transaction([MODEL, MODEL], ref_ids=[known, known]),
        "empty transaction": lambda: of.add_transaction([]),
        "serve": lambda: of.serve(timeout=0.0),
        "serve until it raises": lambda: of.serve(until=raises),
        "serve no reference": lambda: of.serve(until="hello", timeout=0.0),
        "start": lambda: of.start(),
        "stop": lambda: of.stop(),
        "wait": lambda: of.wait(known, timeout=0.0),
        "withdraw": lambda: of.withdraw(known),
        "withdraw nobody's": lambda: of.withdraw(NOBODY),
        "pull": lambda: tensorpull.download_tensors(f"127.0.0.1:{of.port}", known, per_request_timeout=0.02, retries=0),
        "ask": lambda: (of.settled(known), of.status(known), of.outcome(known), of.recipient_state(known, "nobody")),
        "ask wrongly": lambda: of.status("hello"),
        "counts": lambda: (of.port, of.address, of.http_address, of.url(known), of.connections),
        "close": of.close,
    }, of.close


@contextlib.contextmanager
def served():
    with Downloader() as owner:
        yield owner.start()


@contextlib.contextmanager
def session(other_end):
    """`other_end`: what the peer does: "serves", "is silent", or "is gone"."""
    with Listener() as door, Session(door.address) as of, door.accept(timeout=60) as peer:
        theirs, over = peer.add_tensors(MODEL), threading.Event()
        known = of.add_tensors(MODEL)
        serving = processes.JoinedThread(target=serve_to_the_end, args=(peer, over))
        if other_end == "serves":
            serving.start()
        elif other_end == "is gone":
            peer.close()
        soon = {"per_request_timeout": 0.02, "retries": 0}
        try:
            yield of, {
                "pull": lambda: of.download_tensors(theirs, **soon),
                "pull into another shape": lambda: of.download_tensors(theirs, out={**MODEL, "a": np.zeros(11, np.float32)}, **soon),
                "pull what nobody has": lambda: of.download_tensors(NOBODY, **soon),
                "pull no reference": lambda: of.download_tensors("hello", **soon),
                "pull too much": lambda: of.download_tensors(theirs, max_bytes=1, **soon),
                "pull and raise": lambda: of.download_tensors(theirs, progress=raises, **soon),
                "pull and stop": lambda: of.download_tensors(theirs, abort=lambda: True, **soon),
                "add": lambda: of.add_tensors(MODEL),
                "add what cannot travel": lambda: of.add_tensors({"a": np.array(["text"])}),
                "send": lambda: of.send(1, b"body", [known], timeout=0.1),
                "send too much": lambda: of.send(1, bytes(70_000), timeout=0.1),
                "send no number": lambda: of.send("1"),
                "receive": lambda: of.receive(timeout=0.0),
                "receive until it raises": lambda: of.receive(timeout=1.0, abort=raises),
                "serve": lambda: of.serve(timeout=0.0),
                "serve until it raises": lambda: of.serve(until=raises, timeout=1.0),
                "withdraw": lambda: of.withdraw(known),
                "ask": lambda: (of.settled(known), of.status(known)),
                "ask about nobody's": lambda: of.status(NOBODY),
                "closed": lambda: of.closed,
                "close": of.close,
            }, of.close
        finally:
            over.set()
            if serving.ident is not None:
                serving.join()


def serve_to_the_end(peer, over):
    with contextlib.suppress(tensorpull.Error):
        while not over.is_set():
            peer.receive(timeout=0.05)


def touch(port):
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port)).close()


def listener():
    of = Listener()
    port = of.port
    return of, {
        "accept": lambda: of.accept(timeout=0.0),
        "accept one": lambda: (touch(port), of.accept(timeout=0.05)),
        "accept until it raises": lambda: of.accept(timeout=1.0, abort=raises),
        "accept no time": lambda: of.accept(timeout="soon"),
        "counts": lambda: (of.port, of.address),
        "close": of.close,
    }, of.close


@contextlib.contextmanager
def average(partial):
    with served() as owner:
        of = WeightedAverage(MODEL, partial=partial, max_peers=2)
        good, other = owner.add_tensors(MODEL), owner.add_tensors({"a": MODEL["a"]})
        peers = itertools.count()

        def pull(ref, **more):
            return of.pull(owner.address, ref, 1.0, peer=more.pop("peer", "site"), round=1, per_request_timeout=5, retries=0, **more)

        yield of, {
            "pull": lambda: pull(good),
            "pull of another site": lambda: pull(good, peer=f"site-{next(peers)}"),
            "pull another model": lambda: pull(other),
            "pull what nobody has": lambda: pull(NOBODY),
            "pull and raise": lambda: pull(good, peer="raises", progress=raises, progress_interval=0),
            "pull and stop": lambda: pull(good, peer="stops", abort=lambda: True),
            "pull without a weight": lambda: of.pull(owner.address, good, float("nan"), peer="x", round=1),
            "pull of no round": lambda: of.pull(owner.address, good, 1.0, peer="x", round=7),
            "pull from nowhere": lambda: of.pull("nowhere", good, 1.0, peer="x", round=1),
            "result": lambda: of.result(),
            "reset": lambda: of.reset(),
            "counts": lambda: (of.updates, of.whole_updates, of.partial_updates, of.whole_weight, of.round),
        }, lambda: None


@contextlib.contextmanager
def functions():
    """What is no class, over one `out` that all calls share."""
    with served() as owner:
        good, other = owner.add_tensors(MODEL), owner.add_tensors({"a": np.zeros(11, np.float32), "b": MODEL["b"]})
        out = {name: np.zeros_like(w) for name, w in MODEL.items()}
        strided = {"a": np.zeros(20, np.float32)[::2], "b": np.zeros((4, 3)).T}
        address, soon = owner.address, {"per_request_timeout": 5, "retries": 0}
        yield owner, {
            "new": lambda: tensorpull.download_tensors(address, good, **soon),
            "into": lambda: tensorpull.download_tensors(address, good, out=out, **soon),
            "into what is apart": lambda: tensorpull.download_tensors(address, good, out=strided, **soon),
            "into another shape": lambda: tensorpull.download_tensors(address, other, out=out, **soon),
            "into one of them": lambda: tensorpull.download_tensors(address, good, out={"a": out["a"]}, subset=True, **soon),
            "into one that is not there": lambda: tensorpull.download_tensors(address, good, out={"c": out["a"]}, subset=True, **soon),
            "too much": lambda: tensorpull.download_tensors(address, good, max_bytes=1, **soon),
            "and raise": lambda: tensorpull.download_tensors(address, good, out=out, progress=raises, progress_interval=0, **soon),
            "and stop": lambda: tensorpull.download_tensors(address, good, out=out, abort=lambda: True, **soon),
            "and raise in abort": lambda: tensorpull.download_tensors(address, good, abort=raises, **soon),
            "a wrong number": lambda: tensorpull.download_tensors(address, good, window=-1),
            "a list for a flag": lambda: tensorpull.download_tensors(address, good, out=out, subset=["a"], **soon),
            "no reference": lambda: tensorpull.download_tensors(address, "hello", **soon),
            "no address": lambda: tensorpull.download_tensors("nowhere", good, **soon),
            "nobody there": lambda: tensorpull.download_tensors(["127.0.0.1:1", "unix:@tensorpull-nobody"], good, **soon),
            "a file": lambda: tensorpull.download_file(address, good, "/nowhere/at/all", **soon),
            "a view": lambda: tensorpull.view_tensors(address, good),
            "a header": lambda: tensorpull.read_header(BYTES),
            "no header": lambda: tensorpull.read_header(b"\x09" + bytes(20)),
        }, owner.close


def plain(make):
    """As a context that ends at once."""
    return contextlib.contextmanager(lambda: (yield make()))


KINDS = {
    "Landing": plain(lambda: landing(BYTES)),
    "Landing into what fits": plain(lambda: landing(BYTES, out={name: np.zeros_like(w) for name, w in MODEL.items()})),
    "Landing into another shape": plain(lambda: landing(BYTES, out={**MODEL, "a": np.zeros(11, np.float32)})),
    "Landing into more": plain(lambda: landing(BYTES, out={**{name: np.zeros_like(w) for name, w in MODEL.items()}, "c": np.zeros(1)})),
    "Landing of what NumPy cannot make": plain(lambda: landing(DEEP)),
    "Landing above its limits": plain(lambda: landing(BYTES, max_bytes=1)),
    "PublishedImage": plain(image),
    "Downloader": plain(downloader),
    "Session whose peer serves": lambda: session("serves"),
    "Session whose peer is silent": lambda: session("is silent"),
    "Session whose peer is gone": lambda: session("is gone"),
    "Listener": plain(listener),
    **{f"WeightedAverage, {partial}": lambda partial=partial: average(partial) for partial in ("error", "divide_by_reached", "staged")},
    "functions": functions,
}


def tried(call):
    """What the call raised, which is what this package says it raises; nothing else comes out of it."""
    try:
        call()
    except (tensorpull.Error, TypeError, ValueError, RuntimeError, BufferError, Raised) as e:
        words = str(e)
        assert not any(ours in words for ours in ("incompatible function arguments", "Unable to cast", "pybind11", "NULL")), words
        return e
    return None


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Callbacks of an owner raise here, and Python prints that."""
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)


@pytest.mark.parametrize("kind", KINDS)
def test_each_call_again_after_each_error(kind):
    with KINDS[kind]() as (_, calls, _end):
        names = list(calls)
    for first, second in itertools.product(names, names) if kind.startswith(("Landing", "PublishedImage")) else []:
        with KINDS[kind]() as (_, calls, _end):
            for name in (first, second, first, second):
                tried(calls[name])
    with KINDS[kind]() as (_, calls, _end):
        for name in names * 2:
            tried(calls[name])
    for seed in range(SEQUENCES):
        with KINDS[kind]() as (_, calls, _end):
            for name in random.Random(f"{kind} {seed}").choices(names, k=LENGTH):
                tried(calls[name])


@pytest.mark.parametrize("kind", KINDS)
def test_each_call_after_the_end(kind):
    with KINDS[kind]() as (_, calls, end):
        for name in calls:
            tried(calls[name])
            end()
        for name in calls:
            tried(calls[name])


@pytest.mark.parametrize("kind", KINDS)
def test_calls_of_several_threads(kind):
    """One of the threads ends the object while the others call."""
    failures = []
    for seed in range(max(1, SEQUENCES // 20)):
        with KINDS[kind]() as (_, calls, end):
            start = threading.Barrier(4)

            def work(number, calls=calls, end=end, start=start, seed=seed):
                rng = random.Random(f"{kind} {seed} {number}")
                start.wait(processes.AMPLE)
                try:
                    for step in range(20):
                        if number == 0 and step == 15:
                            tried(end)
                        tried(calls[rng.choice(list(calls))])
                except BaseException as e:  # noqa: B902: of a thread, which would go unnoticed
                    failures.append(e)

            threads = [processes.JoinedThread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("http", [None, "127.0.0.1:0"])
@pytest.mark.parametrize("asks", [True, False])
def test_several_threads_close_at_once(http, asks):
    for _ in range(100):
        of = Downloader(http=http)
        of.add_tensors(MODEL)
        start = threading.Barrier(3)

        def end(first, of=of, start=start):
            start.wait(processes.AMPLE)
            if first and asks:
                tried(lambda: of.connections)
            of.close()

        threads = [processes.JoinedThread(target=end, args=(number == 0,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert isinstance(tried(lambda: of.connections), ValueError)


def test_a_transaction_that_is_withdrawn_while_it_is_published():
    """Another thread ends it, under an ID that both know, before the call that publishes it has returned."""
    ids = ["0" * 31 + "1", "0" * 31 + "2"]
    with Downloader() as of:
        over = threading.Event()

        def withdraw():
            while not over.is_set():
                tried(lambda: of.withdraw(ids[0]))

        thread = processes.JoinedThread(target=withdraw)
        thread.start()
        try:
            sizes = set()
            for _ in range(200):
                try:
                    sizes.add(tuple(ref.nbytes for ref in of.add_transaction([MODEL, {}], ref_ids=ids)))
                except tensorpull.Error:  # the one before is still there
                    tried(lambda: of.withdraw(ids[0]))
        finally:
            over.set()
            thread.join()
    assert len(sizes) == 1, sizes
