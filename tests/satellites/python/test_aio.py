"""Downloads that are awaited and cancelled: what stops, and that nothing is left."""

from __future__ import annotations

import asyncio
import gc
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
