"""Tensors one by one, in the order in which they arrive."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import threading

import numpy as np
import pytest
from processes import JoinedThread, be_slow, eventually

import tensorpull
from tensorpull import Error, Session, aio

torch = pytest.importorskip("torch")
MIB = 1 << 20


def model(layers=12, rows=64):
    random = np.random.default_rng(5)
    tensors = {f"layers.{i:02}.w": random.standard_normal((rows, 1000), "f4") for i in range(layers)}
    return {**tensors, "ids": np.arange(7), "none": np.zeros((0, 3), "f8"), "step": np.array(3.0), "last": np.zeros((2, 0), "u1")}


def in_order(tensors):
    """The names as an image has them."""
    return [one.name for one in tensorpull.PublishedImage(tensors).tensors]


@pytest.mark.parametrize("framework", [None, "numpy", "torch"])
@pytest.mark.parametrize("memory", [0, MIB, 1 << 40])
def test_all_tensors_come_in_the_order_of_the_image(owner, framework, memory):
    there = model()
    ref = owner.add_tensors(there, recipients=1)
    stream = tensorpull.stream(owner.address, ref, framework=framework, memory=memory, chunk_size=100_000)
    got = list(stream)
    assert [name for name, _ in got] == in_order(there)
    for name, tensor in got:
        assert isinstance(tensor, torch.Tensor if framework == "torch" else np.ndarray)
        assert np.array_equal(np.asarray(tensor), there[name]) and np.asarray(tensor).dtype == there[name].dtype and tuple(tensor.shape) == there[name].shape
    assert stream.receipt.outcome == "completed" and stream.receipt.confirmed and stream.receipt.digest == ref.version and stream.receipt.bytes == ref.nbytes
    assert owner.wait(ref, 60) and owner.outcome(ref).verdict == "completed"
    with pytest.raises(StopIteration):
        next(stream)


@pytest.mark.parametrize("memory", [0, 600_000, MIB])
def test_what_is_not_taken_yet_has_a_bound(owner, memory, monkeypatch):
    from tensorpull._stream import _Hand

    room, most = _Hand.room_for, 0

    def counted(hand, nbytes):
        nonlocal most
        room(hand, nbytes)
        most = max(most, hand.held)

    monkeypatch.setattr(_Hand, "room_for", counted)
    there = {name: t for name, t in model().items() if name.startswith("layers")}
    ref = owner.add_tensors(there)
    with tensorpull.stream(owner.address, ref, memory=memory, chunk_size=50_000) as stream:
        for _ in range(4):
            next(stream)
            hand = stream._hand
            # as much has come as there is room for, and no more does
            assert eventually(lambda: hand.held + 256_000 > memory and hand.ready), "the room is full"
            held = hand.held
            assert held <= max(memory, 256_000)
            assert not eventually(lambda: hand.held != held, 0.1)
        assert len(list(stream)) == len(there) - 4
        assert 256_000 <= most <= max(memory, 256_000)


def test_the_loops_tensors_are_its_own_and_nothing_else_is_kept(owner):
    there = model(3)
    stream = tensorpull.stream(owner.address, owner.add_tensors(there), memory=0)
    kept = [tensor for _, tensor in stream]
    assert len({id(t) for t in kept}) == len(kept)
    for t in kept:
        t[...] = 1
    assert not any(np.shares_memory(a, b) for a in kept for b in kept if a is not b)


def test_renamed_and_converted_when_they_are_taken(owner):
    there = {**model(3), "half": np.ones((4, 2), "f2")}
    ref = owner.add_tensors(there)
    for rename in ({"layers.00.w": "first", "ids": None}, lambda name: None if name == "ids" else "first" if name == "layers.00.w" else name):
        got = dict(tensorpull.stream(owner.address, ref, framework="torch", dtype=torch.bfloat16, rename=rename))
        assert "ids" not in got and "layers.00.w" not in got
        assert torch.equal(got["first"], torch.from_numpy(there["layers.00.w"]).to(torch.bfloat16)) and got["half"].dtype == torch.bfloat16
    for dtype in ("F16", "float16", np.float16, np.dtype("f2")):
        got = dict(tensorpull.stream(owner.address, ref, dtype=dtype))
        assert got["ids"].dtype == np.int64 and np.array_equal(got["layers.01.w"], there["layers.01.w"].astype("f2")) and got["step"].dtype == np.float16


def test_tied_tensors_come_under_each_of_their_names(owner):
    shared = np.arange(12.0)
    ref = owner.add_tensors({"embed": shared, "head": shared, "other": np.ones(2)})
    got = list(tensorpull.stream(owner.address, ref))
    assert sorted(name for name, _ in got) == ["embed", "head", "other"]
    both = [tensor for name, tensor in got if name != "other"]
    assert both[0] is both[1]
    assert [name for name, _ in tensorpull.stream(owner.address, ref, rename={"embed": None, "other": None})] == ["head"]


def test_some_of_the_tensors_and_slices_of_them(owner):
    there = model()
    ref = owner.add_tensors(there, recipients=1)
    stream = tensorpull.stream(owner.address, ref, names={"layers.03.w": slice(8, 24), "ids": ...}, matching=["layers.1*"])
    got = dict(stream)
    assert got.keys() == {"layers.03.w", "ids", "layers.10.w", "layers.11.w"}
    assert np.array_equal(got["layers.03.w"], there["layers.03.w"][8:24]) and np.array_equal(got["layers.11.w"], there["layers.11.w"])
    assert stream.receipt.outcome == "completed" and stream.receipt.bytes == sum(t.nbytes for t in got.values())
    with pytest.raises(Error) as e:
        next(tensorpull.stream(owner.address, owner.add_tensors(there), names={"ids": slice(3, 3)}))
    assert (e.value.code, e.value.name) == ("invalid_argument", "ids")


def no_thread_is_left():
    return not [each.name for each in threading.enumerate() if each.name.startswith("tensorpull.")]


@pytest.mark.parametrize("leave", ["break", "close", "error", "forgotten"])
def test_a_loop_that_is_left_early_ends_the_pull(owner, leave):
    ref = owner.add_tensors(model(), recipients=1)
    stream = tensorpull.stream(owner.address, ref, memory=0)
    if leave == "break":
        for _name, _tensor in stream:
            break
        del stream
    elif leave == "close":
        next(stream)
        stream.close()
        stream.close()
        assert stream.receipt is None and list(stream) == []
    elif leave == "error":
        with pytest.raises(KeyError), stream:
            for _name, _tensor in stream:
                raise KeyError
        assert stream.receipt is None
    else:
        next(stream)
        del stream
    gc.collect()
    assert no_thread_is_left()
    assert eventually(lambda: owner.status(ref).cancelled == 1), "the owner hears that it was given up"
    assert owner.status(ref).completed == 0


def test_another_thread_ends_a_loop_that_waits(owner):
    silent = socket.create_server(("127.0.0.1", 0))
    stream = tensorpull.stream(f"127.0.0.1:{silent.getsockname()[1]}", owner.add_tensors(model(1)))
    closing = JoinedThread(target=lambda: (eventually(lambda: stream._hand.hungry), stream.close()), daemon=True)
    closing.start()
    assert list(stream) == [] and stream.receipt is None, "it ends as a stream does that was closed before"
    closing.join()
    assert no_thread_is_left()


def test_the_owner_hears_of_the_end_when_the_last_one_was_taken(owner):
    there = model(2)
    ref = owner.add_tensors(there, recipients=1)
    stream = tensorpull.stream(owner.address, ref)
    for _ in there:
        next(stream)
    assert not eventually(lambda: owner.status(ref).completed, 0.2) and stream.receipt is None
    assert list(stream) == [] and owner.wait(ref, 60) and stream.receipt.confirmed


def test_a_stream_that_nobody_begins_asks_for_nothing(owner):
    ref = owner.add_tensors(model())
    with tensorpull.stream(owner.address, ref):
        pass
    del ref
    tensorpull.stream(owner.address, 48 * "0")
    assert owner.connections == 0


class Between:
    """A way to an owner that changes what comes from it."""

    def __init__(self, address, change):
        self._there = tuple(address.rsplit(":", 1))
        self._change, self._door = change, socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._door.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                near, _ = self._door.accept()
            except OSError:
                return
            far = socket.create_connection((self._there[0], int(self._there[1])))
            threading.Thread(target=self._carry, args=(near, far, lambda data: data), daemon=True).start()
            threading.Thread(target=self._carry, args=(far, near, self._change), daemon=True).start()

    def _carry(self, source, to, change):
        try:
            while data := source.recv(65536):
                to.sendall(change(data))
        except OSError:
            pass
        for each in (source, to):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self._door.close()


def test_other_bytes_than_the_published_are_told_at_the_end_and_no_later_tensor_is_given(owner):
    there = model()
    ref = owner.add_tensors(there)
    passed = 0

    def change(data):
        nonlocal passed
        passed += len(data)
        if passed > 2_000_000:
            flipped = bytearray(data)
            flipped[len(data) // 2] ^= 1
            return bytes(flipped)
        return data

    between = Between(owner.address, change)
    got = []
    with pytest.raises(Error) as e:
        for name, tensor in tensorpull.stream(between.address, ref, memory=1 << 30, retries=0):
            got.append(name)
    between.close()
    assert e.value.code in ("digest_mismatch", "bad_frame", "wrong_payload", "unexpected_frame")
    if e.value.code == "digest_mismatch":
        assert "the tensors that the stream has given are not what is published" in str(e.value)


def test_the_digest_of_the_whole_is_compared(owner):
    there = {"a": np.zeros(100_000), "b": np.zeros(100_000)}
    ref = owner.add_tensors(there)
    there["b"][7] = 1  # against the rule
    got = []
    with pytest.raises(Error) as e:
        for name, _ in tensorpull.stream(owner.address, ref, memory=0):
            got.append(name)
    assert e.value.code == "digest_mismatch" and "the tensors that the stream has given are not what is published" in str(e.value)
    assert "a" in got


def test_an_owner_that_goes_away_in_the_middle(owner):
    ref = owner.add_tensors(model())
    stream = tensorpull.stream(owner.address, ref, memory=0, chunk_size=20_000, retries=0)
    next(stream)
    owner.withdraw(ref)
    with pytest.raises(Error) as e:
        list(stream)
    assert e.value.code == "withdrawn" and stream.receipt is None and list(stream) == []


def test_a_connection_that_is_lost_is_made_again_and_nothing_comes_twice(owner):
    there = model()
    ref = owner.add_tensors(there, recipients=1)
    passed, cut = 0, False

    def change(data):
        nonlocal passed, cut
        passed += len(data)
        if passed > 1_000_000 and not cut:
            cut = True
            raise OSError
        return data

    between = Between(owner.address, change)
    got = list(tensorpull.stream(between.address, ref, memory=0, recipient="site-1"))
    between.close()
    assert cut and [name for name, _ in got] == in_order(there) and all(np.array_equal(t, there[name]) for name, t in got)
    assert owner.wait(ref, 60) and owner.outcome(ref).verdict == "completed"


def test_a_slow_loop_is_no_silent_owner(owner):
    there = model(4)
    ref = owner.add_tensors(there, recipients=1)
    for _name, _tensor in tensorpull.stream(owner.address, ref, memory=0, chunk_size=20_000, per_request_timeout=0.5, retries=1000, recipient="slow"):
        be_slow(0.8)
    assert owner.wait(ref, 60) and owner.outcome(ref).verdict == "completed"


def test_abort_is_heard_while_the_loop_waits_and_while_it_does_not(owner):
    ref = owner.add_tensors(model())
    stop = threading.Event()
    stream = tensorpull.stream(owner.address, ref, memory=0, abort=stop)
    next(stream)
    stop.set()
    with pytest.raises(Error) as e:
        list(stream)
    assert e.value.code == "cancelled"
    silent = socket.create_server(("127.0.0.1", 0))
    timer = threading.Timer(0.3, stop.set)
    stop.clear()
    timer.start()
    with pytest.raises(Error) as e:
        next(tensorpull.stream(f"127.0.0.1:{silent.getsockname()[1]}", ref, abort=stop))
    assert e.value.code == "cancelled"


def test_over_a_session_which_goes_on_afterwards():
    there = model(3)
    with tensorpull.Listener() as door:

        def serve():
            with door.accept() as session:
                refs = [session.add_tensors(there, recipients=1) for _ in range(2)]
                session.send(1, b"", refs)
                session.serve(refs)

        serving = JoinedThread(target=serve, daemon=True)
        serving.start()
        with Session(door.address) as session:
            first, second = session.receive().references
            got = dict(tensorpull.stream(session, first))
            assert all(np.array_equal(got[name], t) for name, t in there.items())
            assert set(session.download_tensors(second)) == set(there)
            serving.join()


def test_an_event_loop_goes_on_meanwhile(owner):
    there = model()
    ref = owner.add_tensors(there, recipients=2)
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run():
        counting = asyncio.ensure_future(count())
        got = {name: tensor async for name, tensor in aio.stream(owner.address, ref, memory=0)}
        assert all(np.array_equal(got[name], t) for name, t in there.items()) and got.keys() == there.keys()
        counting.cancel()
        async with contextlib.aclosing(aio.stream(owner.address, ref, memory=0)) as stream:
            async for _ in stream:
                break
        silent = socket.create_server(("127.0.0.1", 0))
        waiting = asyncio.ensure_future(aio.stream(f"127.0.0.1:{silent.getsockname()[1]}", ref).__anext__())
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(run())
    assert turns > 1 and no_thread_is_left()
    assert eventually(lambda: owner.settled(ref)) and (owner.outcome(ref).counts.completed, owner.outcome(ref).counts.cancelled) == (1, 1)


def test_over_links_that_keep_no_order_it_is_refused():
    with tensorpull.Downloader("udp://127.0.0.1:0") as far:
        ref = far.start().add_tensors(model())
        try:
            got = dict(tensorpull.stream(far.address, ref, memory=0))
        except Error as e:
            assert e.code == "unsupported_request"
        else:  # nothing has overtaken anything
            assert all(np.array_equal(got[name], t) for name, t in model().items())


def test_another_owner_is_not_asked_once_a_tensor_was_given(owner):
    ref = owner.add_tensors(model())
    with tensorpull.Downloader("unix:@tensorpull-stream-{}".format(id(ref))) as other:
        other.start().add_tensors(model(), ref_id=ref.id)
        stream = tensorpull.stream([owner.address, other.address], ref, memory=0, chunk_size=20_000, retries=0)
        next(stream)
        owner.withdraw(ref)
        with pytest.raises(Error) as e:
            list(stream)
        assert e.value.code == "withdrawn" and other.status(ref).completed == 0


def test_several_addresses_until_a_tensor_was_given(owner):
    there = model(3)
    ref = owner.add_tensors(there)
    nobody = socket.create_server(("127.0.0.1", 0))
    away = f"127.0.0.1:{nobody.getsockname()[1]}"
    nobody.close()
    got = dict(tensorpull.stream([away, owner.address], ref, retries=0))
    assert got.keys() == there.keys()


def test_arguments_that_make_no_sense(owner):
    ref = owner.add_tensors(model(1))
    for more, kind in (
        ({"framework": "jax"}, ValueError),
        ({"rename": 3}, TypeError),
        ({"dtype": "I64"}, ValueError),
        ({"dtype": "bad"}, ValueError),
        ({"memory": -1}, ValueError),
        ({"max_bytes": -1}, ValueError),
    ):
        with pytest.raises(kind):
            tensorpull.stream(owner.address, ref, **more)
    with pytest.raises(Error) as e:
        list(tensorpull.stream(owner.address, ref, max_bytes=1000))
    assert (e.value.code, e.value.name) == ("too_large", "layers.00.w")
    with pytest.raises(TypeError, match="rename gives names"):
        list(tensorpull.stream(owner.address, ref, rename=lambda name: 3))
    with pytest.raises(Error) as e:
        list(tensorpull.stream(owner.address, ref, rename=lambda name: "x"))
    assert (e.value.code, e.value.name) == ("duplicate_name", "x")
    assert owner.status(ref).bytes_sent <= 1 << 20 and owner.status(ref).completed == 0


def test_what_rename_raises_is_raised_in_the_loop(owner):
    def rename(name):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        next(tensorpull.stream(owner.address, owner.add_tensors(model(1)), rename=rename))
