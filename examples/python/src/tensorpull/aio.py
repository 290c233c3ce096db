"""The same for `asyncio`: what waits can be awaited, and cancelled.

    from tensorpull import aio

    state = await aio.download_tensors("server:8002", ref_id, framework="torch")
    async for name, tensor in aio.stream("server:8002", ref_id): ...
    how = await aio.outcome(owner, ref_id)             # while owner.start() serves

    async with aio.Session("server:8003") as session:  # and aio.Listener, aio.WeightedAverage
        message = await session.receive()

Each call that waits has a thread of its own, which is over when its `await` returns or raises. Cancelling stops it within 0.1 s: the `await` raises
`CancelledError` when nothing is written to the tensors or the file any more, and the owner has been told. Everything that had arrived by then is kept: the next `receive()` or `accept()` has it.
Callbacks are called on that thread, not on the loop's. Any event loop of asyncio will do. The end of the main thread stops a
transfer too, if its loop was left without cancelling it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Coroutine, Generator, Iterable, List, Mapping, Optional, Tuple, TypeVar, Union, cast, overload

from . import _average, _directory, _download, _file, _listing, _session, _stream
from ._downloader import Downloader
from ._options import DEFAULT_CHUNK_BYTES, RETRIES, as_abort, milliseconds
from ._route import Addresses
from ._session import Message, Relayed, Tunnelled
from ._tls import TLS
from ._types import Abort, Access, AverageOptions, OfOneProcess, Outcome, Receipt, TensorDict, Unpack, Update

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    Given = ParamSpec("Given")

__all__ = ["Listener", "Session", "WeightedAverage", "download_directory", "download_file", "download_tensors", "list_tensors", "outcome", "run", "stream", "weighted_average"]
Result = TypeVar("Result")


def _awaitable(call: "Callable[Given, Result]", late: Optional[Callable[[Result], object]] = None) -> "Callable[Given, Coroutine[Any, Any, Result]]":
    takes = inspect.signature(call)
    options = next((one.name for one in takes.parameters.values() if one.kind is one.VAR_KEYWORD), "")
    if "abort" not in takes.parameters and not options:
        raise TypeError(f"{call!r} takes no abort, by which it would be stopped")

    @functools.wraps(call)
    async def awaited(*arguments: Any, **more: Any) -> Result:
        given = takes.bind(*arguments, **more)
        abort = (given.arguments if "abort" in takes.parameters else given.arguments.get(options, {})).pop("abort", None)
        return await _in_a_thread(call, abort, given.args, given.kwargs, late)

    return awaited


async def run(call: "Callable[Given, Result]", *arguments: "Given.args", **more: "Given.kwargs") -> Result:
    """Any other call of this package that takes `abort`, as `await aio.run(messages.receive, session.blocking, timeout=60)`."""
    return await _awaitable(call)(*arguments, **more)


def _awaited(call: "Callable[Given, Result]") -> "Callable[[Callable[[], None]], Callable[Given, Coroutine[Any, Any, Result]]]":
    """Puts that call, awaited, in the place of a name. A decorator's type is one that no checker infers in its own way."""
    return lambda _: _awaitable(call)


@_awaited(_download.download_tensors)
def download_tensors() -> None:
    """As of `tensorpull`."""


@_awaited(_file.download_file)
def download_file() -> None:
    """As of `tensorpull`."""


@_awaited(_directory.download_directory)
def download_directory() -> None:
    """As of `tensorpull`."""


@_awaited(_listing.list_tensors)
def list_tensors() -> None:
    """As of `tensorpull`."""


@_awaited(_average.weighted_average)
def weighted_average() -> None:
    """As of `tensorpull`."""


def _iterated(call: "Callable[Given, _stream.TensorStream]") -> "Callable[[Callable[[], None]], Callable[Given, AsyncIterator[Tuple[str, Any]]]]":
    @functools.wraps(call)
    async def iterated(*arguments: Any, **more: Any) -> AsyncIterator[Tuple[str, Any]]:
        given = inspect.signature(call).bind(*arguments, **more)
        if isinstance(given.arguments["address"], Session):
            given.arguments["address"] = given.arguments["address"].blocking
        blocking = call(*given.args, **given.kwargs)
        following = _awaitable(blocking.following)
        try:
            while (one := await following()) is not None:
                yield one
        finally:
            blocking.close()

    return lambda _: iterated


@_iterated(_stream.stream)
def stream() -> None:
    """As of `tensorpull`, for `async for name, tensor in aio.stream(...)`. A loop that is left early ends the pull once the iterator is closed: `contextlib.aclosing` does that at once."""


@overload
async def outcome(owner: Downloader, refs: str, timeout: Optional[float] = None) -> Outcome: ...  # type: ignore[overload-overlap] # a str is one reference


@overload
async def outcome(owner: Downloader, refs: Iterable[str], timeout: Optional[float] = None) -> List[Outcome]: ...


async def outcome(owner: Downloader, refs: Union[str, Iterable[str]], timeout: Optional[float] = None) -> Union[Outcome, List[Outcome]]:
    """Waits until a reference is settled, or each of several, while `owner.start()` or another thread serves, and returns how: an `Outcome`, or a list of them.
    Asks every 0.02 s; starts no thread. Raises TimeoutError after `timeout` seconds, and "unknown_reference"."""
    wanted = [refs] if isinstance(refs, str) else list(refs)
    loop = asyncio.get_running_loop()
    end = None if timeout is None else loop.time() + milliseconds(timeout, "timeout") / 1000
    while not all(owner.settled(ref) for ref in wanted):
        if end is not None and loop.time() >= end:
            raise TimeoutError(f"not settled within {timeout} seconds")
        await asyncio.sleep(0.02)
    done = [owner.outcome(ref) for ref in wanted]
    return done[0] if isinstance(refs, str) else done


async def _in_a_thread(call: Callable[..., Result], abort: Any, arguments: Any, more: Any, late: Optional[Callable[[Result], object]] = None) -> Result:
    """`late` has the result if the call was done before it heard that it was cancelled."""
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
        value, error = done.result()
        if error is None and late is not None:
            late(value)
        value = error = None
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


def _passed(call: "Callable[Concatenate[_session.Session, Given], Result]") -> "Callable[[Callable[[Session], None]], Callable[Concatenate[Session, Given], Result]]":
    @functools.wraps(call)
    def passed(self: "Session", *arguments: Any, **more: Any) -> Result:
        return call(self.blocking, *arguments, **more)

    return lambda _: cast("Callable[Concatenate[Session, Given], Result]", passed)


def _waited(
    call: "Callable[Concatenate[_session.Session, Given], Result]",
) -> "Callable[[Callable[[Session], None]], Callable[Concatenate[Session, Given], Coroutine[Any, Any, Result]]]":
    waited = _awaitable(call)

    @functools.wraps(call)
    async def passed(self: "Session", *arguments: Any, **more: Any) -> Result:
        return await waited(self.blocking, *arguments, **more)

    return lambda _: cast("Callable[Concatenate[Session, Given], Coroutine[Any, Any, Result]]", passed)


class Session(OfOneProcess):
    """A `tensorpull.Session`: `async with aio.Session("server:8003") as session`, or `session = await aio.Session("server:8003")`; `aio.Listener.accept` gives it, too. One call at
    a time waits, as with that: another one gets RuntimeError."""

    def __init__(self, address: str, timeout: Optional[float] = 10.0, retries: int = RETRIES, abort: Abort = None, *, ssl: Optional[TLS] = None) -> None:
        """As of `tensorpull.Session`; connects when it is awaited or entered."""
        self._dialled: Optional[Callable[[], Coroutine[Any, Any, _session.Session]]] = functools.partial(
            _awaitable(_session.Session, _session.Session.close), address, timeout, retries, abort, ssl=ssl
        )  # fmt: skip
        self._is: Optional[_session.Session] = None
        self._early: List[Message] = []  # of calls that were cancelled

    @classmethod
    def _of(cls, session: _session.Session) -> "Session":
        made = cls.__new__(cls)
        made._dialled, made._is, made._early = None, session, []
        return made

    async def _connected(self) -> "Session":
        if self._dialled is not None:
            dialled, self._dialled = self._dialled, None
            self._is = await dialled()
        self.blocking
        return self

    def __await__(self) -> "Generator[Any, Any, Session]":
        return self._connected().__await__()

    async def __aenter__(self) -> "Session":
        return await self._connected()

    async def __aexit__(self, *_: Any) -> None:
        self.close()

    @property
    def blocking(self) -> _session.Session:
        """The session itself, whose calls wait on the thread that calls them. RuntimeError: it is not connected."""
        if self._is is None:
            raise RuntimeError("this session is not connected: `async with aio.Session(...) as session`, or `await aio.Session(...)`")
        return self._is

    @_waited(_session.Session.download_tensors)
    def download_tensors(self) -> None:
        """As of `tensorpull.Session`."""

    @_waited(_session.Session.download_file)
    def download_file(self) -> None:
        """As of `tensorpull.Session`."""

    @_waited(_session.Session.list_tensors)
    def list_tensors(self) -> None:
        """As of `tensorpull.Session`."""

    @_waited(_session.Session.send)
    def send(self) -> None:
        """As of `tensorpull.Session`."""

    @_waited(_session.Session.serve)
    def serve(self) -> None:
        """As of `tensorpull.Session`."""

    @_passed(_session.Session.add_tensors)
    def add_tensors(self) -> None:
        """As of `tensorpull.Session`."""

    @_passed(_session.Session.withdraw)
    def withdraw(self) -> None:
        """As of `tensorpull.Session`."""

    @_passed(_session.Session.status)
    def status(self) -> None:
        """As of `tensorpull.Session`."""

    @_passed(_session.Session.settled)
    def settled(self) -> None:
        """As of `tensorpull.Session`."""

    @overload
    async def receive(self, timeout: None = None, abort: Abort = None) -> Message: ...

    @overload
    async def receive(self, timeout: Optional[float], abort: Abort = None) -> Optional[Message]: ...

    async def receive(self, timeout: Optional[float] = None, abort: Abort = None) -> Optional[Message]:
        """The next message, as of `tensorpull.Session.receive`."""
        if self._early:
            return self._early.pop(0)

        def early(message: Optional[Message]) -> None:
            if message is not None:
                self._early.append(message)

        wait: Callable[..., Coroutine[Any, Any, Optional[Message]]] = _awaitable(self.blocking.receive, early)
        return await wait(timeout, abort)

    async def relay_to(
        self, other: "Session", ref_id: str, *, chunk_size: int = DEFAULT_CHUNK_BYTES, timeout: Optional[float] = 600.0, abort: Abort = None, bytes_per_second: int = 0
    ) -> Relayed:
        """As of `tensorpull.Session.relay_to`."""
        relay = _awaitable(self.blocking.relay_to)
        return await relay(other.blocking, ref_id, chunk_size=chunk_size, timeout=timeout, abort=abort, bytes_per_second=bytes_per_second)

    async def tunnel_to(self, other: "Session", *, memory: int = 1 << 20, timeout: Optional[float] = 600.0, abort: Abort = None, bytes_per_second: int = 0) -> Tunnelled:
        """As of `tensorpull.Session.tunnel_to`."""
        tunnel = _awaitable(self.blocking.tunnel_to)
        return await tunnel(other.blocking, memory=memory, timeout=timeout, abort=abort, bytes_per_second=bytes_per_second)

    async def through_tunnel(self, ssl: Optional[TLS] = None, peer: str = "", *, accepts: bool = False, timeout: Optional[float] = 10.0, abort: Abort = None) -> "Session":
        """As of `tensorpull.Session.through_tunnel`."""
        through = _awaitable(self.blocking.through_tunnel, _session.Session.close)
        return Session._of(await through(ssl, peer, accepts=accepts, timeout=timeout, abort=abort))

    @property
    def peer_name(self) -> str:
        """As of `tensorpull.Session.peer_name`."""
        return self.blocking.peer_name

    @property
    def closed(self) -> bool:
        """Whether `close()` was called."""
        return self._dialled is None and (self._is is None or self._is.closed)

    def close(self) -> None:
        """As of `tensorpull.Session.close`: cancel first what waits."""
        self._dialled = None
        if self._is is not None:
            self._is.close()


class Listener(OfOneProcess):
    """A `tensorpull.Listener`, whose `accept` is awaited: `async with aio.Listener("0.0.0.0:8003") as door`."""

    def __init__(self, listen: str = "127.0.0.1:0", *, ssl: Optional[TLS] = None, authorise: Optional[Callable[[Access], bool]] = None) -> None:
        """As of `tensorpull.Listener`."""
        self.blocking: _session.Listener = _session.Listener(listen, ssl=ssl, authorise=authorise)
        self._early: List[_session.Session] = []  # of calls that were cancelled

    @property
    def port(self) -> int:
        """The port that it listens on; 0 if the transport has none."""
        return self.blocking.port

    @property
    def address(self) -> str:
        """The address as `listen` had it, with the port."""
        return self.blocking.address

    @overload
    async def accept(self, timeout: None = None, abort: Abort = None) -> Session: ...

    @overload
    async def accept(self, timeout: Optional[float], abort: Abort = None) -> Optional[Session]: ...

    async def accept(self, timeout: Optional[float] = None, abort: Abort = None) -> Optional[Session]:
        """The next connection, as of `tensorpull.Listener.accept`."""
        if self._early:
            return Session._of(self._early.pop(0))

        def early(session: Optional[_session.Session]) -> None:
            if session is not None:
                self._early.append(session)

        wait: Callable[..., Coroutine[Any, Any, Optional[_session.Session]]] = _awaitable(self.blocking.accept, early)
        session = await wait(timeout, abort)
        return None if session is None else Session._of(session)

    def close(self) -> None:
        """Stops listening. Sessions that were accepted stay."""
        self.blocking.close()
        while self._early:
            self._early.pop().close()

    async def __aenter__(self) -> "Listener":
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.close()


class WeightedAverage(OfOneProcess):
    """A `tensorpull.WeightedAverage`, whose `pull` is awaited. Pulls that are awaited at a time take turns."""

    def __init__(
        self,
        like: Optional[Mapping[str, Any]] = None,
        *,
        base: Optional[Mapping[str, Any]] = None,
        out: Optional[Mapping[str, Any]] = None,
        partial: str = "error",
        chunk_size: int = DEFAULT_CHUNK_BYTES,
        max_peers: int = 4096,
        refuse_no_numbers: bool = True,
        longest: Optional[float] = None,
        heaviest: float = 2.0**60,
    ) -> None:
        """As of `tensorpull.WeightedAverage`."""
        self.blocking: _average.WeightedAverage = _average.WeightedAverage(like, base=base, out=out, partial=partial, chunk_size=chunk_size, max_peers=max_peers, refuse_no_numbers=refuse_no_numbers, longest=longest, heaviest=heaviest)

    async def pull(
        self, address: Union[Addresses, _session.Session, Session], ref_id: str, weight: float, *, peer: str, round: int, **options: Unpack[AverageOptions]
    ) -> Receipt:  # fmt: skip
        """As of `tensorpull.WeightedAverage.pull`; in the place of an address there may be either kind of `Session`."""
        pull = _awaitable(self.blocking.pull)
        return await pull(address.blocking if isinstance(address, Session) else address, ref_id, weight, peer=peer, round=round, **options)

    def result(self) -> TensorDict:
        """As of `tensorpull.WeightedAverage.result`."""
        return self.blocking.result()

    def clip(self, longest: float) -> None:
        """As of `tensorpull.WeightedAverage.clip`."""
        self.blocking.clip(longest)

    def reset(self) -> None:
        """As of `tensorpull.WeightedAverage.reset`."""
        self.blocking.reset()

    @property
    def round(self) -> int:
        """The number of the current round."""
        return self.blocking.round

    @property
    def updates(self) -> List[Update]:
        """What has become of this round's updates, as of `tensorpull.WeightedAverage.updates`. The rest is that of `blocking`."""
        return self.blocking.updates
