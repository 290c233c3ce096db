"""Links besides streams over sockets: shared memory and views of it, commands, datagrams."""

from __future__ import annotations

import gc
import os
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
import processes
from processes import eventually

import tensorpull
from tensorpull import Error

MODEL = {"w": np.arange(100_000, dtype=np.float32), "b": np.ones((3, 5)), "none": np.zeros((0, 4), np.int16), "one": np.array(7, np.int64), "yes": np.array([True, False])}


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) and np.asarray(a[k]).dtype == b[k].dtype for k in b)


@pytest.fixture(params=["shm:{}/models", "shm:@tensorpull-test-{}"])
def shm(request, tmp_path):
    with tensorpull.Downloader(request.param.format(tmp_path if "/" in request.param else os.getpid())) as made:
        made.start()
        yield made


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_an_owner_and_downloads_over_shared_memory(shm):
    ref = shm.add_tensors(MODEL, recipients=2, metadata={"round": "3"})
    got = tensorpull.download_tensors(shm.address, ref)
    assert same(got, MODEL) and got.metadata["round"] == "3" and got.receipt.outcome == "completed"
    mine = {k: np.empty_like(v) for k, v in MODEL.items()}
    tensorpull.download_tensors(shm.address, ref, out=mine)
    assert same(mine, MODEL)
    assert shm.wait(ref, 60) and shm.outcome(ref).verdict == "completed"


def test_a_view_is_read_only_and_outlives_its_owner(shm):
    ref = shm.add_tensors(MODEL, recipients=1, metadata={"round": "3"})
    seen = tensorpull.view_tensors(shm.address, ref)
    assert isinstance(seen, tensorpull.TensorView) and not seen.owner_can_write
    assert seen.receipt.outcome == "completed" and seen.receipt.confirmed and seen.metadata["round"] == "3"
    assert shm.wait(ref, 60) and shm.outcome(ref).verdict == "completed"
    assert same(seen, MODEL)
    for array in seen.values():
        with pytest.raises(ValueError):
            array[...] = 0
        with pytest.raises(ValueError):
            array.flags.writeable = True if array.size else array[...].__setitem__(..., 0)
    shm.close()
    weights = seen["w"][1000:]
    del seen, array
    gc.collect()
    assert np.array_equal(weights, MODEL["w"][1000:]), "an array keeps the memory"


def test_no_array_no_memory(shm):
    ref = shm.add_tensors(MODEL)
    tensorpull.view_tensors(shm.address, ref)
    gc.collect()
    before = open("/proc/self/maps").read().count("memfd"), descriptors()
    for framework in ("numpy", "torch") * 3:
        tensorpull.view_tensors(shm.address, ref, framework)
    gc.collect()
    assert (open("/proc/self/maps").read().count("memfd"), descriptors()) <= (before[0], before[1] + 1)


def test_views_in_torch_are_private(shm):
    torch = pytest.importorskip("torch")
    ref = shm.add_tensors({**MODEL, "half": torch.arange(9).bfloat16().reshape(3, 3)})
    one, other = (tensorpull.view_tensors(shm.address, ref, "torch") for _ in range(2))
    assert one["half"].dtype is torch.bfloat16 and one["half"].shape == (3, 3) and one["none"].shape == (0, 4)
    assert one.keys() == {*MODEL, "half"} and all(np.array_equal(one[k].numpy(), MODEL[k]) for k in MODEL)
    one["w"].zero_()
    assert not one["w"].any() and np.array_equal(other["w"].numpy(), MODEL["w"])
    assert np.array_equal(tensorpull.view_tensors(shm.address, ref)["w"], MODEL["w"])


def test_tied_tensors_are_tied_in_a_view(shm):
    torch = pytest.importorskip("torch")
    w = torch.ones(4)
    seen = tensorpull.view_tensors(shm.address, shm.add_tensors({"a": w, "b": w}), "torch")
    assert seen["a"] is seen["b"]


def test_an_unverified_view_says_so(shm):
    seen = tensorpull.view_tensors(shm.address, shm.add_tensors(MODEL), unverified=True)
    assert seen.receipt.outcome == "completed_unverified" and same(seen, MODEL)


def test_a_view_stays_readable_after_its_owner_was_killed(tmp_path):
    program = """
        import sys, numpy, tensorpull
        owner = tensorpull.Downloader(sys.argv[1])
        print(owner.add_tensors({"w": numpy.arange(1_000_000)}), flush=True)
        owner.serve()
    """
    address = f"shm:{tmp_path}/owner"
    child = processes.Program([sys.executable, "-c", textwrap.dedent(program), address], stdout=subprocess.PIPE, text=True)
    try:
        seen = tensorpull.view_tensors(address, child.stdout.readline().strip())
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=30)
    assert np.array_equal(seen["w"], np.arange(1_000_000))


def test_what_has_no_view(owner, shm):
    ref = owner.add_tensors(MODEL)
    with pytest.raises(Error) as e:
        tensorpull.view_tensors(owner.address, ref)
    assert e.value.code == "bad_address"
    with pytest.raises(Error) as e:
        tensorpull.view_tensors(shm.address, "0" * 31 + "1", retries=0)
    assert e.value.code == "unknown_reference"
    with pytest.raises(Error) as e:
        tensorpull.view_tensors(shm.address, shm.add_tensors(MODEL), max_tensors=1)
    assert e.value.code == "too_large"
    with pytest.raises(ValueError):
        tensorpull.view_tensors(shm.address, ref, "jax")
    for call in (tensorpull.Session, tensorpull.Listener):
        with pytest.raises(Error) as e:
            call("http://127.0.0.1:1/model")  # a web server answers requests, and has no session
        assert e.value.code == "bad_address"


# Behind an address of pipe: a command whose standard input and output are the connection. This one leads to an owner over TCP.
LEAD_ON = """
    import os, socket, sys, threading
    there = socket.create_connection((sys.argv[1], int(sys.argv[2])))

    def back():
        while data := there.recv(1 << 16):
            while data:
                data = data[os.write(1, data):]

    threading.Thread(target=back, daemon=True).start()
    while data := os.read(0, 1 << 16):
        there.sendall(data)
"""


def test_a_command_as_a_link(owner, tmp_path):
    (tmp_path / "lead_on.py").write_text(textwrap.dedent(LEAD_ON))
    host, _, port = owner.address.rpartition(":")
    command = "pipe:" + shlex.join([sys.executable, str(tmp_path / "lead_on.py"), host, port])
    ref = owner.add_tensors(MODEL, recipients=2)
    assert same(tensorpull.download_tensors(command, ref, chunk_size=4096), MODEL)
    assert same(tensorpull.download_tensors(command, ref, out={k: np.empty_like(v) for k, v in MODEL.items()}), MODEL)
    assert owner.wait(ref, 60) and owner.outcome(ref).verdict == "completed"


def test_a_command_that_ends_is_a_lost_connection():
    with pytest.raises(Error) as e:
        tensorpull.download_tensors("pipe:false", "0" * 31 + "1", retries=0)
    assert e.value.code == "connection_lost"
    with pytest.raises(Error) as e:
        tensorpull.download_tensors("pipe:/nobody/has/this", "0" * 31 + "1", retries=0)
    assert e.value.code == "bad_address"


@pytest.fixture
def datagrams():
    with tensorpull.Downloader("udp://127.0.0.1:0", recipient_bytes_per_second=1 << 30) as made:
        made.start()
        yield made


def test_an_owner_and_downloads_over_udp(datagrams):
    assert datagrams.port and datagrams.address == f"udp://127.0.0.1:{datagrams.port}"
    settled = []
    ref = datagrams.add_tensors(MODEL, recipients=3, metadata={"round": "3"}, settled=settled.append)
    got = tensorpull.download_tensors(datagrams.address, ref, progress=(events := []).append)
    assert same(got, MODEL) and got.metadata["round"] == "3" and got.receipt.confirmed
    assert events[-1].phase == "completed" and events[-1].tensors_done == len(MODEL)
    assert datagrams.connections >= 1 and datagrams.status(ref).completed == 1
    mine = {k: np.empty_like(v) for k, v in MODEL.items()}
    tensorpull.download_tensors(datagrams.address, ref, out=mine)
    assert same(mine, MODEL)
    some = {"b": np.empty((3, 5))}
    tensorpull.download_tensors(datagrams.address, ref, out=some, subset=True)
    assert np.array_equal(some["b"], MODEL["b"])
    assert datagrams.wait(ref, 60) and [o.verdict for o in settled] == [datagrams.outcome(ref).verdict]


def test_an_owner_over_udp_is_asked_while_it_serves(datagrams):
    refs, failed = [], []

    def publish(seed):
        try:
            for n in range(3):
                model = {"w": np.full(1000, seed * 10 + n, np.int32)}
                ref = datagrams.add_tensors(model)
                assert same(tensorpull.download_tensors(datagrams.address, ref), model)
                refs.append(ref)
                assert datagrams.status(ref).acquired == 1
                datagrams.withdraw(ref)
                assert datagrams.settled(ref)
        except BaseException as e:  # noqa: BLE001
            failed.append(e)

    threads = [processes.JoinedThread(target=publish, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and len(set(refs)) == 12


def test_calls_of_an_owner_over_udp_do_not_wait_for_the_thread_that_serves():
    """Only time shows it: each waited 0.05 s, as long as the thread that serves waits for a datagram. It may take half of that, and takes a tenth."""
    with tensorpull.Downloader("udp://127.0.0.1:0") as owner:
        owner.start()
        begun = time.monotonic()
        for _ in range(100):
            processes.be_slow(0.002)  # the other thread begins to wait
            owner.withdraw(owner.add_tensors({"a": np.zeros(3)}))
        assert time.monotonic() - begun < 100 * 0.025


def test_a_callback_of_an_owner_over_udp_may_publish(datagrams):
    made = []
    ref = datagrams.add_tensors(MODEL, recipients=1, settled=lambda _: made.append(datagrams.add_tensors({"next": np.zeros(2)})))
    tensorpull.download_tensors(datagrams.address, ref)
    assert datagrams.wait(ref, 60) and eventually(lambda: made)
    assert same(tensorpull.download_tensors(datagrams.address, made[0]), {"next": np.zeros(2)})


def test_errors_cross_datagrams(datagrams):
    ref = datagrams.add_tensors(MODEL)
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(datagrams.address, ref, chunk_size=0)
    assert e.value.code == "does_not_fit", "the whole in one frame"
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(datagrams.address, "0" * 31 + "1", retries=0)
    assert e.value.code == "unknown_reference"
    with pytest.raises(Error) as e:
        tensorpull.download_tensors("udp://nowhere", ref)
    assert e.value.code == "bad_address"
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(f"udp://127.0.0.1:{silent.getsockname()[1]}", ref, abort=stop)
    assert e.value.code == "cancelled"


def test_a_serial_line(line):
    model = {"w": np.arange(20_000, dtype=np.float32), "b": np.ones(3)}
    with tensorpull.Downloader(f"serial:{line[0]}?speed=4000000") as owner:
        owner.start()
        ref = owner.add_tensors(model, recipients=1)
        assert same(tensorpull.download_tensors(f"serial:{line[1]}?speed=4000000", ref), model)
        assert owner.wait(ref, 60) and owner.outcome(ref).verdict == "completed"
    with pytest.raises(Error) as e:
        tensorpull.download_tensors("serial:/dev/null?speed=1", ref)
    assert e.value.code == "bad_address"


def test_links_that_have_no_owner_of_many():
    for address in ("pipe:cat", "ftp://host:1"):
        with pytest.raises(Error) as e:
            tensorpull.Downloader(address)
        assert e.value.code == "bad_address"


@pytest.mark.skipif(not tensorpull._native.has_nats, reason="libnats was not there when this was built")
def test_through_a_nats_server(nats_server):
    with tensorpull.Downloader(nats_server) as owner:
        owner.start()
        ref = owner.add_tensors(MODEL, recipients=2)
        assert owner.address == nats_server
        assert same(tensorpull.download_tensors(nats_server, ref), MODEL)
        assert same(tensorpull.download_tensors(nats_server, ref, out={k: np.empty_like(v) for k, v in MODEL.items()}), MODEL)
        assert owner.wait(ref, 60) and owner.outcome(ref).verdict == "completed"


@pytest.mark.skipif(not tensorpull._native.has_nats, reason="libnats was not there when this was built")
def test_over_nats_a_version_is_wanted_unless_the_caller_believes_whoever_answers(nats_server, tmp_path):
    with tensorpull.Downloader(nats_server) as owner:
        owner.start()
        ref = owner.add_tensors({"w": np.ones(3)})
        average = tensorpull.WeightedAverage({"w": np.ones(3)})
        calls = [
            lambda known, **how: tensorpull.download_tensors(nats_server, known, **how).receipt,
            lambda known, **how: tensorpull.download_file(nats_server, known, tmp_path / "m.safetensors", overwrite=True, **how),
            lambda known, **how: average.pull(nats_server, known, 1.0, peer=known, round=1, **how),
        ]
        for call in calls:
            for how in ({}, {"version": 0}):
                with pytest.raises(tensorpull.Error, match="give the version") as e:
                    call(ref.id if not how else ref, **how)
                assert e.value.code == "version_required" and e.value.landed == 0
            assert call(ref.id, believe=True).believed
            assert not call(str(ref)).believed


def test_no_nats_server():
    for call in (tensorpull.Downloader, lambda url: tensorpull.download_tensors(url, "1" * 48, retries=0)):
        with pytest.raises(Error) as e:
            call("nats://127.0.0.1:1")
        if tensorpull._native.has_nats:
            assert e.value.code == "connection_failed"
        else:
            assert e.value.code == "bad_address" and "libnats was not there" in str(e.value)
