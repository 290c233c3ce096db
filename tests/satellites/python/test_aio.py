"""Downloads that are awaited and cancelled: what stops, and that nothing is left."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from processes import eventually

import tensorpull
from tensorpull import Error, aio


def model(megabytes: int = 1) -> dict[str, np.ndarray]:
    return {"w": np.random.default_rng(1).integers(0, 255, megabytes << 20, np.uint8)}


def ours() -> int:
    return sum(thread.name == "tensorpull.aio" for thread in threading.enumerate())


def test_downloads_are_awaited_side_by_side(owner, tmp_path):
    refs = [owner.add_tensors(model(), recipients=1) for _ in range(4)]

    async def main():
        tasks = [asyncio.create_task(aio.outcome(owner, refs))]
        got = await asyncio.gather(*(aio.download_tensors(owner.address, ref) for ref in refs[:3]), aio.download_file(owner.address, refs[3], tmp_path / "m"))
        for state in got[:3]:
            assert np.array_equal(state["w"], model()["w"])
        assert got[3].outcome == "completed"
        assert [how.verdict for how in await tasks[0]] == ["completed"] * 4
        assert ours() == 0

    asyncio.run(main())


def test_errors_are_raised_where_it_is_awaited(owner):
    async def main():
        with pytest.raises(Error) as e:
            await aio.download_tensors(owner.address, "0" * 31 + "1")
        assert e.value.code == "unknown_reference"
        with pytest.raises(TypeError):
            await aio.download_tensors(owner.address, 7)
        with pytest.raises(Error):
            await aio.outcome(owner, "0" * 31 + "1")
        ref = owner.add_tensors(model(), recipients=1)
        with pytest.raises(TimeoutError):
            await aio.outcome(owner, ref, timeout=0.05)
        assert ours() == 0

    asyncio.run(main())


def test_a_cancelled_download_has_stopped_when_it_raises():
    with tensorpull.Downloader(bytes_per_second=4 << 20) as owner:
        owner.start()
        ref = owner.add_tensors(model(64))
        out = {"w": np.zeros(64 << 20, np.uint8)}
        seen: list[int] = []

        async def main():
            task = asyncio.create_task(aio.download_tensors(owner.address, ref, out=out, chunk_size=1 << 14, progress=lambda p: seen.append(p.bytes_done), progress_interval=0))
            while not seen or seen[-1] < 1 << 18:
                await asyncio.sleep(0.005)
            at = seen[-1]
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert ours() == 0, "its thread is over"
            # heard within 0.1 s; at this rate 0.4 MiB come in that time, and the bound leaves room for a slow machine
            assert seen[-1] - at < 8 << 20
            landed, events = out["w"].copy(), len(seen)
            await asyncio.sleep(0.3)
            assert len(seen) == events and np.array_equal(landed, out["w"]), "nothing is written any more"

        asyncio.run(main())
        assert eventually(lambda: owner.status(ref).cancelled == 1), "and the owner was told"


def test_a_download_that_waits_for_an_answer_is_cancelled_too():
    with tensorpull.Downloader() as silent:  # nobody serves
        ref = silent.add_tensors(model())

        async def main():
            task = asyncio.create_task(aio.download_tensors(silent.address, ref))
            await asyncio.sleep(0.1)
            assert ours() == 1
            task.cancel()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises((asyncio.TimeoutError, TimeoutError)):
                await asyncio.wait_for(aio.download_tensors(silent.address, ref), 0.1)
            with pytest.raises(Error) as e:
                await aio.download_tensors(silent.address, ref, abort=lambda: True)
            assert e.value.code == "cancelled"
            assert ours() == 0

        asyncio.run(main())


def test_the_loop_ends_with_a_download_under_way():
    with tensorpull.Downloader() as silent:
        ref = silent.add_tensors(model())

        async def main():
            asyncio.create_task(aio.download_tensors(silent.address, ref))
            await asyncio.sleep(0.05)

        asyncio.run(main())  # cancels what is left
        assert ours() == 0


@pytest.mark.parametrize("raised", [StopIteration, KeyError])
def test_whatever_a_callback_raises_ends_the_await(owner, raised):
    ref = owner.add_tensors(model())

    def progress(_):
        raise raised("enough")

    async def main():
        # a coroutine cannot raise StopIteration, so it comes as the cause of a RuntimeError
        with pytest.raises((RuntimeError, KeyError)) as e:
            await asyncio.wait_for(aio.download_tensors(owner.address, ref, progress=progress), 30)
        assert raised in (type(e.value), type(e.value.__cause__))
        assert ours() == 0

    asyncio.run(main())


def test_the_program_ends_with_a_download_whose_loop_was_left():
    """Ctrl-C comes out of run_until_complete() and cancels nothing."""
    program = """
import asyncio, os, signal, sys, threading
import numpy as np
import tensorpull
from tensorpull import aio
silent = tensorpull.Downloader()
ref = silent.add_tensors({"w": np.ones(4)})
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
loop = asyncio.new_event_loop()
loop.run_until_complete(aio.download_tensors(silent.address, ref))
"""
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode != 0 and done.stderr.strip().endswith("KeyboardInterrupt"), done.stderr


@pytest.mark.parametrize("awaited", [False, True])
def test_what_was_given_to_a_download_that_failed_is_let_go_of_at_once(awaited):
    """Without the collector of cycles, which runs when it likes."""
    out = {"w": np.zeros(1000)}
    left = weakref.ref(out["w"])

    async def main():
        try:
            await aio.download_tensors("127.0.0.1:1", "ab" * 16, out=out, retries=0)
        except Error:
            pass
        await asyncio.sleep(0)  # the loop has the result until it has called everybody

    gc.disable()
    try:
        if awaited:
            asyncio.run(main())
        else:
            with pytest.raises(Error):
                tensorpull.download_tensors(["127.0.0.1:1", "127.0.0.1:2"], "ab" * 16, out=out, retries=0)
        out.clear()
        assert left() is None
    finally:
        gc.enable()


def both_ends(talk):
    """Runs `talk(door, dialled, accepted)` with a session of aio at each end, and sees that nothing of it stays."""

    async def main():
        async with aio.Listener() as door:
            async with aio.Session(door.address) as dialled, await door.accept() as accepted:
                assert door.port and not dialled.closed and not accepted.closed
                await talk(door, dialled, accepted)
            assert dialled.closed and accepted.closed
        assert ours() == 0

    asyncio.run(main())


def test_a_session_is_awaited_in_both_directions(tmp_path):
    async def talk(_, dialled, accepted):
        ref, another = dialled.add_tensors(model(), recipients=1), dialled.add_tensors(model(), recipients=1)
        await dialled.send(3, b"600 images", [ref, another])
        serving = asyncio.create_task(dialled.serve(until=[ref, another]))
        message = await accepted.receive()
        assert (message.kind, message.body) == (3, b"600 images") and list((await accepted.list_tensors(message.references[0])).tensors) == ["w"]
        got = await accepted.download_tensors(message.references[0])
        assert (await accepted.download_file(message.references[1], tmp_path / "m", resume=False)).bytes == another.nbytes == (tmp_path / "m").stat().st_size
        assert np.array_equal(got["w"], model()["w"]) and await serving and dialled.settled(ref) and dialled.status(ref).completed == 1
        dialled.withdraw(ref)
        assert await accepted.receive(timeout=0.05) is None

    both_ends(talk)


def test_an_average_is_awaited_over_a_session_and_over_an_address(owner):
    base = {"w": np.zeros(3, np.float32)}
    average = aio.WeightedAverage(base=base, partial="staged")

    async def talk(_, dialled, accepted):
        near, far = dialled.add_tensors({"w": np.full(3, 2, np.float32)}, recipients=1), owner.add_tensors({"w": np.full(3, 5, np.float32)})
        serving = asyncio.create_task(dialled.serve(until=near))
        await asyncio.gather(average.pull(accepted, near, 2, peer="near", round=1), average.pull(owner.address, far, 1, peer="far", round=1))
        assert await serving

    both_ends(talk)
    assert {one.peer for one in average.updates if one.counts} == {"near", "far"} and np.array_equal(average.result()["w"], np.full(3, 3, np.float32))
    average.reset()
    assert average.round == 2 == average.blocking.round


def test_what_waits_in_a_session_is_cancelled_and_the_session_goes_on():
    async def talk(door, dialled, accepted):
        ref = accepted.add_tensors(model(), recipients=1)
        never = threading.Event()
        for waits in (
            lambda: accepted.receive(), lambda: accepted.serve(until=ref), lambda: accepted.serve(until=never), lambda: accepted.serve(), lambda: accepted.receive(timeout=600),
            lambda: accepted.download_tensors("ab" * 16), lambda: accepted.list_tensors("ab" * 16), lambda: door.accept(),
            lambda: aio.WeightedAverage(base=model(), partial="staged").pull(accepted, "ab" * 16, 1, peer="a", round=1),
        ):  # fmt: skip
            task = asyncio.create_task(waits())
            await asyncio.sleep(0.05)
            assert ours() == 1 and not task.done()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert ours() == 0
        for waits in (lambda: accepted.serve(until=ref, abort=lambda: True), lambda: accepted.receive(abort=lambda: True)):
            with pytest.raises(Error) as e:
                await waits()
            assert e.value.code == "cancelled"
        await accepted.send(1, b"still here", [ref])
        serving = asyncio.create_task(accepted.serve(until=ref))
        assert (await dialled.receive()).body == b"still here"
        assert np.array_equal((await dialled.download_tensors(ref))["w"], model()["w"]) and await serving

    both_ends(talk)


def test_a_session_that_is_cancelled_in_the_middle_of_a_pull_leaves_no_thread_and_writes_nothing_more():
    out, seen = {"w": np.zeros(64 << 20, np.uint8)}, []

    async def talk(_, dialled, accepted):
        ref = dialled.add_tensors(model(64), recipients=1)
        over = threading.Event()
        serving = asyncio.create_task(dialled.serve(until=over))

        def slowly(now):
            seen.append(now.bytes_done)
            threading.Event().wait(0.002)

        task = asyncio.create_task(accepted.download_tensors(ref, out=out, chunk_size=1 << 14, progress=slowly, progress_interval=0))
        while not seen or seen[-1] < 1 << 17:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        landed, events = out["w"].copy(), len(seen)
        await asyncio.sleep(0.2)
        assert landed[: 1 << 16].any() and not landed[-(1 << 20) :].any(), "in the middle"
        assert len(seen) == events and np.array_equal(landed, out["w"]) and ours() == 1
        over.set()
        assert await serving and dialled.status(ref).cancelled + dialled.status(ref).lost >= 1

    both_ends(talk)


def late(call, held, go):
    """`call`, which returns only after the task was cancelled."""

    def slow(*arguments, **more):
        value = call(*arguments, **more)
        held.set()
        assert go.wait(60)
        return value

    functools.update_wrapper(slow, call)
    return slow


async def cancelled_too_late(waits, held, go):
    task = asyncio.create_task(waits())
    while not held.is_set():
        await asyncio.sleep(0.002)
    task.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_what_had_come_when_it_was_cancelled_is_not_lost(monkeypatch):
    async def talk(door, dialled, accepted):
        for n in (1, 2):
            await dialled.send(n, b"")
        held, go = threading.Event(), threading.Event()
        with monkeypatch.context() as m:
            m.setattr(accepted.blocking, "receive", late(accepted.blocking.receive, held, go))
            await cancelled_too_late(accepted.receive, held, go)
        assert [(await accepted.receive()).kind for _ in range(2)] == [1, 2]

        other = tensorpull.Session(door.address)
        held, go = threading.Event(), threading.Event()
        with monkeypatch.context() as m:
            m.setattr(door.blocking, "accept", late(door.blocking.accept, held, go))
            await cancelled_too_late(door.accept, held, go)
        async with await door.accept() as again:
            await again.send(7, b"")
            assert other.receive().kind == 7
        other.close()

    both_ends(talk)


def test_a_session_that_was_made_too_late_is_closed(monkeypatch):
    with tensorpull.Listener() as door:
        held, go = threading.Event(), threading.Event()
        monkeypatch.setattr(tensorpull.Session, "__init__", late(tensorpull.Session.__init__, held, go))
        asyncio.run(cancelled_too_late(aio.Session(door.address)._connected, held, go))
        with pytest.raises(ConnectionError):
            door.accept().receive(timeout=60)


def test_a_session_is_used_once_it_is_connected():
    async def main():
        session = aio.Session("127.0.0.1:1", retries=0)
        for use in (session.receive, lambda: session.send(1), lambda: session.download_tensors("ab" * 16)):
            with pytest.raises(RuntimeError, match="not connected"):
                await use()
        with pytest.raises(ConnectionRefusedError):
            await session
        with pytest.raises(RuntimeError, match="not connected"):
            await session
        assert session.closed and ours() == 0
        session.close()

    asyncio.run(main())


def test_each_signature_is_that_of_the_call_that_waits():
    for name in ("download_tensors", "download_file", "list_tensors", "send", "serve", "receive", "relay_to", "tunnel_to", "through_tunnel", "add_tensors", "withdraw", "status", "settled", "__init__"):
        theirs, ours_ = inspect.signature(getattr(tensorpull.Session, name)), inspect.signature(getattr(aio.Session, name))
        assert list(theirs.parameters) == list(ours_.parameters) and [p.default for p in theirs.parameters.values()] == [p.default for p in ours_.parameters.values()], name
    for mine, other in ((aio.Listener, tensorpull.Listener), (aio.WeightedAverage, tensorpull.WeightedAverage)):
        assert list(inspect.signature(mine).parameters) == list(inspect.signature(other).parameters)
    for call in ("download_tensors", "download_file", "list_tensors", "weighted_average"):
        assert inspect.signature(getattr(aio, call)) == inspect.signature(getattr(tensorpull, call))
