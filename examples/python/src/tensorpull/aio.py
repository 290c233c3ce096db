"""The same for `asyncio`: what waits can be awaited, and cancelled.

    from tensorpull import aio

    state = await aio.download_tensors("server:8002", ref_id, framework="torch")
    how = await aio.outcome(owner, ref_id)             # while owner.start() serves

Each download has a thread of its own, which is over when its `await` returns or raises. Cancelling stops the transfer within 0.1 s: the `await` raises
`CancelledError` when nothing is written to the tensors or the file any more, and the owner has been told. Any event loop of asyncio will do. The end of the main thread stops a
transfer too, if its loop was left without cancelling it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from typing import TYPE_CHECKING, Any, Callable, Coroutine, List, TypeVar, Union

from . import _average, _download, _file, _listing
from ._downloader import Downloader
from ._options import as_abort, milliseconds
from ._types import Outcome

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    Given = ParamSpec("Given")

__all__ = ["download_file", "download_tensors", "list_tensors", "outcome", "run", "weighted_average"]
Result = TypeVar("Result")


def _awaitable(call: "Callable[Given, Result]") -> "Callable[Given, Coroutine[Any, Any, Result]]":
    takes = inspect.signature(call)
    options = next((one.name for one in takes.parameters.values() if one.kind is one.VAR_KEYWORD), "")
    if "abort" not in takes.parameters and not options:
        raise TypeError(f"{call!r} takes no abort, by which it would be stopped")

    @functools.wraps(call)
    async def awaited(*arguments: Any, **more: Any) -> Result:
        given = takes.bind(*arguments, **more)
        abort = (given.arguments if "abort" in takes.parameters else given.arguments.get(options, {})).pop("abort", None)
        return await _in_a_thread(call, abort, given.args, given.kwargs)

    return awaited


async def run(call: "Callable[Given, Result]", *arguments: "Given.args", **more: "Given.kwargs") -> Result:
    """Any call of this package that takes `abort`, as `await aio.run(session.receive, timeout=60)`: `Session(...)` and the calls of a session, `Listener.accept`,
    `WeightedAverage.pull`. Callbacks are called on its thread, not on the loop's."""
    return await _awaitable(call)(*arguments, **more)


#: As those of `tensorpull`. `progress` is called on the download's thread, not on the loop's.
download_tensors = _awaitable(_download.download_tensors)
download_file = _awaitable(_file.download_file)
list_tensors = _awaitable(_listing.list_tensors)
weighted_average = _awaitable(_average.weighted_average)


async def outcome(owner: Downloader, refs: Any, timeout: "float | None" = None) -> Union[Outcome, List[Outcome]]:
    """Waits until a reference is settled, or each of several, while `owner.start()` or another thread serves, and returns how: an `Outcome`, or a list of them.
    Asks every 0.02 s; starts no thread. Raises TimeoutError after `timeout` seconds, and "unknown_reference"."""
    one = isinstance(refs, str)
    wanted = [refs] if one else list(refs)
    loop = asyncio.get_running_loop()
    end = None if timeout is None else loop.time() + milliseconds(timeout, "timeout") / 1000
    while not all(owner.settled(ref) for ref in wanted):
        if end is not None and loop.time() >= end:
            raise TimeoutError(f"not settled within {timeout} seconds")
        await asyncio.sleep(0.02)
    done = [owner.outcome(ref) for ref in wanted]
    return done[0] if one else done


async def _in_a_thread(call: Callable[..., Result], abort: Any, arguments: Any, more: Any) -> Result:
    loop = asyncio.get_running_loop()
    stop, main = threading.Event(), threading.main_thread()
    asked = as_abort(abort)
    # what was raised is a result, too: a future refuses StopIteration as its exception, and would never be done
    done: "asyncio.Future[Any]" = loop.create_future()

    def settle(done: "asyncio.Future[Any]", value: Any, error: Any) -> None:
        if not done.done():
            done.set_result((value, error))

    def run() -> None:
        value = error = None
        try:
            value = call(*arguments, abort=lambda: stop.is_set() or not main.is_alive() or (asked is not None and asked()), **more)
        except BaseException as e:  # noqa: B902: the task that awaits it gets it
            error = e
        try:
            loop.call_soon_threadsafe(settle, done, value, error)
        except RuntimeError:  # the loop was closed without waiting for its tasks: nobody listens
            pass
        finally:
            error = None  # its traceback has this frame, and so all that the caller gave

    thread = threading.Thread(target=run, name="tensorpull.aio")
    thread.start()
    try:
        value, error = await asyncio.shield(done)
    except asyncio.CancelledError:
        stop.set()
        while not done.done():  # until the transfer lets go of the tensors; another cancellation changes nothing
            try:
                await asyncio.wait([done])
            except asyncio.CancelledError:
                continue
        raise
    finally:
        stop.set()
        thread.join()  # it has only to return
        del done
    try:
        if error is not None:
            raise error
        result: Result = value
        return result
    finally:
        error = None  # as above
