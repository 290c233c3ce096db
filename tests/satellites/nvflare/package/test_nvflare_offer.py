"""What a peer under NVIDIA FLARE may say, and what is not believed."""

from __future__ import annotations

import socket
import threading
import time

import numpy as np
import pytest
import processes

pytest.importorskip("nvflare")

import tensorpull  # noqa: E402
from tensorpull import _peers  # noqa: E402
from tensorpull.nvflare import _offer, _process  # noqa: E402
from tensorpull.nvflare._offer import Refused, Trust, parse_call, parse_offer  # noqa: E402

JOB, SITE = "4d5f", "site-1.4d5f"
LOCAL = Trust(False, "localhost")
SECURE = Trust(True, "fl.example.org")
REF, WORD = "0123456789abcdef" * 2, "fedcba9876543210" * 2


def offer(**changes):
    made = _offer.offer(JOB, SITE, "tcp://127.0.0.1:8004", REF, 7, 1000, 4096, "R1", WORD)
    made.update(changes)
    return made


def test_what_one_end_says_the_other_understands():
    assert parse_offer(offer(), JOB, SITE, LOCAL, 1000) == ("tcp://127.0.0.1:8004", REF, 7, 1000, 4096, "R1", WORD, "")
    assert parse_offer({**offer(), "signed": "head\nlines\n"}, JOB, SITE, LOCAL, 1000).signed == "head\nlines\n"
    assert parse_offer(_offer.offer(JOB, SITE, None, "", 0, 12, 5), JOB, SITE, LOCAL, 1000) == (None, "", 0, 12, 5, "", "", "")
    assert parse_offer(offer(address="tls://FL.example.org:8004"), JOB, SITE, SECURE, 1000).address == "tls://fl.example.org:8004"
    assert parse_offer(offer(address="tls://*:8004"), JOB, SITE, SECURE, 1000).address == "tls://fl.example.org:8004"
    assert parse_offer(offer(address="tcp://*:8004"), JOB, SITE, Trust(False, "::1"), 1000).address == "tcp://[::1]:8004"
    assert parse_offer(offer(address="tls://b.example.org:1"), JOB, SITE, Trust(True, "a.example.org", frozenset({"b.example.org"})), 1000).nbytes == 1000
    assert parse_call(_offer.call(JOB, SITE, "tcp://localhost:9", REF), JOB, SITE, LOCAL) == ("tcp://localhost:9", REF)


@pytest.mark.parametrize(
    "changes",
    [
        {"v": 2}, {"v": 4}, {"v": True}, {"v": "3"}, {"v": None}, {"is": "offer to call"}, {"is": ["offer"]}, {"is": 3}, {"job": "another"}, {"job": ""}, {"job": "a" * 256}, {"job": 1},
        {"site": "site-2.4d5f"}, {"site": b"site-1"}, {"bytes": 2**60}, {"bytes": 1001}, {"bytes": -1}, {"bytes": 10.0}, {"bytes": True}, {"chunk": 0}, {"chunk": -1}, {"chunk": 2**31}, {"chunk": True}, {"chunk": 1.0}, {"version": -1}, {"version": 2**64},
        {"version": "7"}, {"ref": REF.upper()}, {"ref": REF[:-1]}, {"ref": REF + "\n"}, {"ref": REF + "0"}, {"ref": 5}, {"ref": None}, {"of": ""}, {"of": 1}, {"of": "R" * 256}, {"model": WORD[1:]}, {"model": None}, {"model": "G" * 32}, {"more": 1}, {1: 2},
        {"signed": ""}, {"signed": None}, {"signed": "a" * 4097}, {"signed": "\0"}, {"signed": "é"}, {"signed": ["a"]},
    ],
)  # fmt: skip
def test_an_offer_that_makes_no_sense_is_refused(changes):
    with pytest.raises(Refused):
        parse_offer({**offer(), **changes}, JOB, SITE, LOCAL, 1000)


@pytest.mark.parametrize("field", ["v", "is", "job", "site", "bytes", "chunk", "version", "ref", "address", "of", "model"])
def test_each_field_has_to_be_there(field):
    said = offer()
    del said[field]
    with pytest.raises(Refused):
        parse_offer(said, JOB, SITE, LOCAL, 1000)


@pytest.mark.parametrize("said", [None, 1, "offer", [], {}, {"is": "offer"}, {str(i): i for i in range(1000)}, {"is": {"is": "offer"}}])
def test_what_is_no_offer_at_all(said):
    with pytest.raises(Refused):
        parse_offer(said, JOB, SITE, LOCAL, 1000)
    with pytest.raises(Refused):
        parse_call(said, JOB, SITE, LOCAL)


@pytest.mark.parametrize(
    "address, trust",
    [
        ("tcp://192.0.2.1:8004", LOCAL),  # another machine
        ("tcp://fl.example.org:8004", SECURE),  # what this side requires, the other side cannot waive
        ("tls://localhost:8004", LOCAL),  # no certificates here
        ("tls://fl.example.org.evil.example:8004", SECURE),
        ("tls://localhost:8004", SECURE),
        ("tcp://fl.example.org:8004", Trust(False, "fl.example.org")),  # without TLS and not this machine
        *((address, LOCAL) for address in (
            "127.0.0.1:8004", "tcp://127.0.0.1", "tcp://127.0.0.1:0", "tcp://127.0.0.1:65536", "tcp://127.0.0.1:80x", "unix:/tmp/x", "pipe:touch /tmp/x", "tcp://127.0.0.1:80/x",
            "tcp://user@127.0.0.1:80", "tcp://:80", "tcp://127.0.0.1:80\n", "tcp://127.0.0.1 :80", "tcp://" + "a" * 400 + ":80", "", None, 5, b"tcp://127.0.0.1:80", "tcp://[::2]:80",
        )),
    ],
)  # fmt: skip
def test_an_address_that_this_site_does_not_connect_to(address, trust):
    with pytest.raises(Refused):
        parse_offer(offer(address=address), JOB, SITE, trust, 1000)
    with pytest.raises(Refused):
        parse_call(_offer.call(JOB, SITE, address, REF), JOB, SITE, trust)


def test_plain_text_between_machines_is_switched_on_by_name():
    plain = Trust(False, "fl.example.org", plain=True)
    assert parse_offer(offer(address="tcp://fl.example.org:8004"), JOB, SITE, plain, 1000).nbytes == 1000


@pytest.mark.parametrize("changes", [{"token": "x"}, {"token": None}, {"v": 1}, {"site": "other"}, {"job": "other"}, {"more": 1}])
def test_a_call_that_makes_no_sense_is_refused(changes):
    said = _offer.call(JOB, SITE, "tcp://localhost:9", REF)
    said.update(changes)
    with pytest.raises(Refused):
        parse_call(said, JOB, SITE, LOCAL)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """One that is its own authority, for both ends; made when the tests run."""
    folder = tmp_path_factory.mktemp("certificate")
    processes.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True, cwd=folder,
    )  # fmt: skip
    files = dict(ca_file=folder / "cert.pem", cert_file=folder / "cert.pem", key_file=folder / "key.pem")
    return tensorpull.TLS(**files, require_client_certificates=True), tensorpull.TLS(**files)


THREADS = ("tensorpull-door", "tensorpull-caller")


@pytest.fixture(params=["tcp", "tls"])
def door(request):
    here, there = request.getfixturevalue("certificate") if request.param == "tls" else (None, None)
    made = _process.Door(tensorpull.Listener(f"{request.param}://127.0.0.1:0", ssl=here), lambda port: f"{request.param}://127.0.0.1:{port}")
    made.ssl_of_callers = there
    yield made
    made.close()


def call(door, token):
    session = tensorpull.Session(door.address, ssl=door.ssl_of_callers, timeout=60)
    ref = session.add_tensors({"w": np.ones(3, np.float32)}, recipients=1)
    session.send(_process.HELLO, token.encode(), [ref])
    return session


def test_silent_callers_do_not_hold_the_door(door):
    silent = [socket.create_connection(("127.0.0.1", int(door.address.rpartition(":")[2]))) for _ in range(_peers.UNFINISHED - 2)]
    token = door.expect()
    with call(door, token):
        began = time.monotonic()
        assert door.arrived(token, 60) is not None
        assert time.monotonic() - began < 60
    assert sum(t.name in THREADS for t in threading.enumerate()) <= 1 + _peers.UNFINISHED
    door.forget(token)
    for s in silent:
        s.close()


def test_a_door_that_is_closed_has_no_thread_left(door):
    silent = [socket.create_connection(("127.0.0.1", int(door.address.rpartition(":")[2]))) for _ in range(_peers.UNFINISHED)]
    token = door.expect()
    with call(door, token):
        assert door.arrived(token, 60) is not None
    door.forget(token)
    door.close()
    assert not any(t.name in THREADS for t in threading.enumerate())
    for s in silent:
        s.close()


def test_more_silent_callers_than_the_door_has_threads_are_dropped_in_time(door):
    silent = [socket.create_connection(("127.0.0.1", int(door.address.rpartition(":")[2]))) for _ in range(3 * _peers.UNFINISHED)]
    token = door.expect()
    with call(door, token):
        assert door.arrived(token, 120) is not None
    assert sum(t.name in THREADS for t in threading.enumerate()) < 2 * _peers.UNFINISHED  # one that has given its place away may still be ending
    door.forget(token)
    for s in silent:
        s.close()


def test_a_word_that_was_not_expected_opens_nothing_and_one_word_opens_once(door):
    token = door.expect()
    with pytest.raises(tensorpull.Error):  # in which of its calls it hears that depends on time
        with call(door, "f" * 32) as stranger:
            stranger.serve(timeout=60)
    with call(door, token):
        first = door.arrived(token, 60)
        assert first is not None
        with pytest.raises(tensorpull.Error):
            with call(door, token) as second:
                second.serve(timeout=60)
        assert door.arrived(token, 0) is first
    door.forget(token)


def test_a_model_lands_in_files_and_a_failed_one_leaves_none(tmp_path):
    from safetensors import safe_open

    from tensorpull.nvflare._files import land_in_files

    model = {"../T0": np.arange(100_000, dtype=np.float32).reshape(100, 1000), "T1": np.zeros((0, 3), np.int64), "T2": np.array(2.5)}
    how = dict(per_request_timeout=30.0, chunk_size=1 << 21, retries=1, max_bytes=1_000_000, abort=None)
    with tensorpull.Downloader() as owner:
        owner.start()
        ref = owner.add_tensors(model, metadata={"nvflare.ref": "x"})
        got = land_in_files(tensorpull, (owner.address,), str(ref), str(tmp_path), version=ref.version, **how)
        assert got.keys() == model.keys() and got.metadata["nvflare.ref"] == "x" and got.receipt.confirmed
        for name, (path, key) in got.items():
            with safe_open(path, framework="np") as file:
                assert np.array_equal(file.get_tensor(key), model[name])
        other = tmp_path / "other"
        other.mkdir()
        with pytest.raises(tensorpull.Error):
            land_in_files(tensorpull, (owner.address,), str(ref), str(other), version=ref.version ^ 1, **how)
        with pytest.raises(tensorpull.Error):
            land_in_files(tensorpull, (owner.address,), str(ref), str(other), **{**how, "max_bytes": 1000})
        assert list(other.iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other", "tensor_0.safetensors", "tensor_1.safetensors", "tensor_2.safetensors"]


def test_a_model_of_more_tensors_than_descriptors_lands_in_files(tmp_path):
    import resource

    pytest.importorskip("torch")
    from tensorpull.nvflare._files import land_in_files

    model = {f"layers.{i}.weight": np.full((16,), i, np.float32) for i in range(600)}
    how = dict(per_request_timeout=30.0, chunk_size=1 << 21, retries=0, max_bytes=1_000_000, abort=None)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with tensorpull.Downloader() as owner:
        owner.start()
        ref = owner.add_tensors(model)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
        try:
            got = land_in_files(tensorpull, (owner.address,), str(ref), str(tmp_path), version=ref.version, **how)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert got.keys() == model.keys()
    for i, (path, _) in enumerate(got[name] for name in model):
        with open(path, "rb") as file:
            assert file.read()[-64:] == np.full((16,), i, np.float32).tobytes()


@pytest.mark.parametrize("fails", ["posix_fallocate", "replace"])
def test_a_disk_that_is_full_leaves_no_file_behind(tmp_path, monkeypatch, fails):
    import errno
    import os

    pytest.importorskip("torch")
    from tensorpull.nvflare import _files

    calls, real = [], getattr(os, fails)

    def full(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments)

    model = {f"l{i}": np.full((16,), i, np.float32) for i in range(5)}
    with tensorpull.Downloader() as owner:
        owner.start()
        ref = owner.add_tensors(model)
        monkeypatch.setattr(_files.os, fails, full)
        with pytest.raises((OSError, tensorpull.Error)):
            _files.land_in_files(
                tensorpull, (owner.address,), str(ref), str(tmp_path), version=ref.version, per_request_timeout=30.0, chunk_size=1 << 21, retries=0, max_bytes=1_000_000, abort=None
            )
    assert len(calls) >= 3 and list(tmp_path.iterdir()) == []
