"""Arguments as users write them, as the compiled half takes them."""

from __future__ import annotations

import inspect
import math
import operator
import time
from typing import Any, Callable, Iterable, List, Optional, Sequence, Tuple, TypeVar

from . import _native
from ._errors import Error
from ._log import logger, short
from ._types import Access, PartReference, Progress, Reference

DEFAULT_CHUNK_BYTES = 2097152
#: As those of the program recv: how long one request may take without progress, and how often a connection is made anew in a row, which is about a minute.
PER_REQUEST_TIMEOUT = 60.0
RETRIES = 8
#: The longest pause before it is tried again, if it is known how long to wait for somebody.
_SOON_MS = 2_000
_FOR_EVER = 2**53
_Result = TypeVar("_Result")
_Method = TypeVar("_Method", bound=Callable[..., Any])
_Made = TypeVar("_Made")


def takes_what(call: Callable[..., Any], *but: str) -> Callable[[_Method], _Method]:
    """Says of a method that passes its options on that they are those of `call`, so that these stand in one place."""

    def said(method: _Method) -> _Method:
        whole = inspect.signature(call)
        own = inspect.signature(method).parameters  # what it declares itself may be of fewer types
        taken = [option.replace(annotation=own.get(option.name, option).annotation) for option in whole.parameters.values() if option.name not in but]
        method.__signature__ = whole.replace(parameters=[inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *taken])  # type: ignore[attr-defined]
        method.__annotations__ = {option.name: option.annotation for option in taken} | {"return": whole.return_annotation}
        return method

    return said


def text(value: Any, what: str, means: str) -> str:
    """A str, or a TypeError that names the argument and says what it is. ValueError: half of a character, which has no UTF-8."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is {means}, a str; not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} is {means}, and {ascii(value)} is not Unicode text") from None
    return str(value)


def reference_id(ref_id: Any) -> str:
    return text(ref_id, "ref_id", "48 hexadecimal digits, or the first 32")


def whole(value: Any, what: str, most: int, least: int = 0) -> int:
    """A whole number from `least` to `most`, or an error that names the argument."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is a whole number; not {value!r}") from None
    if not least <= number <= most:
        raise ValueError(f"{what} is a whole number from {least} to {most}; not {number}")
    return number


def most_on_disk(max_bytes: Optional[int]) -> int:
    """What may land in files; None: what the disk has room for."""
    return 2**64 - 1 if max_bytes is None else whole(max_bytes, "max_bytes", 2**63 - 1)


def listening(listen: Callable[[], _Made]) -> _Made:
    """What listens, or an error that says that this failed."""
    try:
        return listen()
    except Error as e:
        if e.code == "connection_failed":
            raise e.saying("this address cannot be listened on") from None
        if e.code == "bad_address" and not e.name:
            raise e.saying(f"{e.message}: an address to listen on is wanted, as in 127.0.0.1:8002") from None
        if e.code == "invalid_argument" and e.name in ("context", "certificate"):
            raise e.saying("to listen on tls:// wants ssl=tensorpull.TLS(cert_file=..., key_file=...): this end's certificate and key", "ssl") from None
        raise


def with_port(listen: str, port: int) -> str:
    """The address that was listened on, with the port that was chosen."""
    if port == 0:
        return listen
    head, colon, _ = listen.rpartition(":")
    return f"{head if colon and not listen.endswith('//' + head) else listen}:{port}"


def milliseconds(seconds: Optional[float], what: str, never: int = _FOR_EVER, least: int = 0) -> int:
    """Seconds as whole milliseconds, at least `least`; None: `never`."""
    if seconds is None:
        return never
    try:
        value = float(seconds)
    except OverflowError:  # an int above all floats
        value = math.inf if seconds > 0 else -1.0
    except (TypeError, ValueError):
        raise TypeError(f"{what} is a number of seconds, at least 0, or None; not {seconds!r}") from None
    if math.isnan(value) or value < 0:
        raise ValueError(f"{what} is a number of seconds, at least 0, or None; not {seconds!r}")
    return max(least, int(min(value * 1000, _FOR_EVER)))


def chunk_bytes(chunk_size: Optional[int], ref_id: str) -> int:
    """The length to ask for; the reference's suggestion if the caller has no wish. 0 is "in one chunk"."""
    if chunk_size is None:
        chunk_size = ref_id.chunk_size if isinstance(ref_id, Reference) else DEFAULT_CHUNK_BYTES
    return whole(chunk_size, "chunk_size", _native.max_chunk_bytes) or _native.max_chunk_bytes


def as_authoriser(authorise: Any) -> Optional[Callable[[Tuple[Any, ...]], bool]]:
    """As the compiled half asks it."""
    if authorise is None:
        return None
    if not callable(authorise):
        raise TypeError(f"authorise is a callable; not {authorise!r}")
    return lambda values: bool(authorise(Access._make(values)))


def recipient_named(name: str) -> int:
    """The number that stands for a recipient's name, on both sides."""
    return _native.recipient_named(text(name, "name", "a recipient's name"))


def as_progress(progress: Any) -> Optional[Callable[[Any], None]]:
    """A callable for the compiled half, from a callable that takes a Progress, or from a bar (tqdm's, or anything with `total` and `update`)."""
    if progress is None or isinstance(progress, Throughout):
        return progress
    if hasattr(progress, "update") and hasattr(progress, "total"):
        shown = 0

        def move(event: Any) -> None:
            nonlocal shown
            now = Progress(*event)
            if now.bytes_total:
                progress.total = now.bytes_total
            progress.update(now.bytes_done - shown)
            shown = now.bytes_done
            if now.phase not in ("started", "active") and hasattr(progress, "refresh"):
                progress.refresh()

        return move
    if not callable(progress):
        raise TypeError("progress is a callable that takes a Progress, or a bar such as tqdm's")
    return lambda event: progress(Progress(*event))


class Throughout:
    """The progress of one download that may begin anew at other addresses: begins once, ends once, and its bytes do not go back. That one has failed is held back until it is known
    whether it was the last."""

    def __init__(self, progress: Any) -> None:
        self._tell = as_progress(progress)
        self._last: Optional[Progress] = None
        self._failed: Optional[Progress] = None

    def __call__(self, event: Any) -> None:
        now = Progress(*event)
        self._failed = now if now.phase in ("failed", "aborted") else None
        if self._failed is None and (self._last is None or now.phase != "started"):
            self._say(now)

    def fail(self) -> None:
        """No other address is asked."""
        if self._failed is not None:
            self._say(self._failed)

    def _say(self, now: Progress) -> None:
        last = self._last
        if last is not None:
            now = now._replace(sequence=last.sequence + 1)
            if now.bytes_total in (0, last.bytes_total):  # otherwise it is something else that is published there
                now = now._replace(
                    bytes_done=max(now.bytes_done, last.bytes_done), bytes_total=last.bytes_total,
                    tensors_done=max(now.tensors_done, last.tensors_done), tensors_total=last.tensors_total or now.tensors_total,
                )  # fmt: skip
        self._last = now
        assert self._tell is not None
        self._tell(now)


def newest(ref_id: str, version: Optional[int], retries: int, progress: Any, pull: Callable[[Any], _Result]) -> _Result:
    """What `pull(progress)` gives: anew, if another version takes the place of what is pulled meanwhile, unless one was asked for."""
    if version or getattr(ref_id, "version", 0) or _native.version_of(reference_id(ref_id)):
        return pull(progress)
    told = progress if progress is None or isinstance(progress, Throughout) else Throughout(progress)
    try:
        for _ in range(whole(retries, "retries", 2**32 - 1)):
            try:
                return pull(told)
            except Error as e:
                if e.code != "stale_version":
                    raise
            logger.warning("%s: another version was published meanwhile, and is pulled in its place", short(ref_id))
        return pull(told)
    except BaseException:
        if told is not progress and told is not None:
            told.fail()
        raise


def several(until: Any) -> Optional[List[str]]:
    """The references that serve() waits for, if it is told several."""
    if isinstance(until, (str, bytes)) or callable(until) or hasattr(until, "is_set") or not isinstance(until, Iterable):
        return None
    return [reference_id(ref) for ref in until]


def as_until(until: Any) -> Optional[Callable[[], bool]]:
    """What serve() asks whether it is over, if it is told no reference."""
    try:
        return as_abort(until)
    except TypeError:
        raise TypeError(f"until is a reference or several, a threading.Event, or a callable without arguments; not {until!r}") from None


def as_abort(abort: Any) -> Optional[Callable[[], bool]]:
    """A callable without arguments, from a threading.Event (or what has `is_set`), from what has `triggered`, or from a callable."""
    if abort is None or isinstance(abort, within):
        return abort
    if hasattr(abort, "is_set"):
        return lambda: bool(abort.is_set())
    if hasattr(abort, "triggered"):
        return lambda: bool(abort.triggered)
    if not callable(abort):
        raise TypeError("abort is a threading.Event or a callable without arguments")
    return lambda: bool(abort())


class within:
    """`with within(timeout, wait, abort) as heard`: what `abort` is, or is true once `timeout` seconds are over, or `wait` since anything came last; then what was "cancelled" is "timed_out". None: no limit."""

    def __init__(self, timeout: Optional[float], wait: Optional[float], abort: Any, address: Any = "") -> None:
        self._timeout, self._wait, self._abort, self._asked = timeout, wait, abort, as_abort(abort)
        self._several = not isinstance(address, str)  # after some tries another is asked
        self._seconds = [math.inf if seconds is None else milliseconds(seconds, what) / 1000 for what, seconds in (("timeout", timeout), ("wait", wait))]
        self._began = self._came = self._looked = time.monotonic()
        self._why = ""

    def __enter__(self) -> Any:
        return self._abort if self._timeout is None and self._wait is None else self

    def __call__(self) -> bool:
        if self._asked is not None and self._asked():
            return True
        now = time.monotonic()
        # it is asked several times a second: a longer time is that of a process that was stopped, and nobody's silence
        self._came += max(0.0, now - self._looked - 1)
        self._looked = now
        if now - self._began >= self._seconds[0]:
            self._why = f"it was not done within timeout={self._timeout} seconds"
        elif now - self._came >= self._seconds[1]:
            self._why = f"nobody has answered for wait={self._wait} seconds"
        return bool(self._why)

    def here(self) -> bool:
        """The same while this end is at work, which is no waiting."""
        self._came = self._looked = time.monotonic()
        return self()

    def noting(self, settings: "PullSettings") -> None:
        """Makes a pull try until this is over, and tells this of what comes."""
        if isinstance(self._abort, within):
            self._abort.noting(settings)
        if self._wait is None:
            return
        tell, interval, last = settings.progress, settings.progress_interval_ms / 1000, -math.inf

        def note(event: Any) -> None:
            nonlocal last
            if event[0] in ("started", "active"):  # it is told if something has come
                self._came = self._looked = time.monotonic()
            if tell is not None and (event[0] != "active" or self._came - last >= interval):
                last = self._came
                tell(event)

        settings.progress, settings.progress_interval_ms = note, min(settings.progress_interval_ms, int(self._seconds[1] * 1000) // 8)
        if not self._several:
            settings.retries, settings.longest_delay_ms = 2**32 - 1, _SOON_MS

    def __exit__(self, _kind: Any, e: Any, _trace: Any) -> None:
        if self._why and isinstance(e, Error) and e.code == "cancelled":
            raise Error("timed_out", self._why, e.name, e.landed) from None


def at_work(abort: Any) -> Any:
    """What ends this end's own work, of what ends a pull."""
    return abort.here if isinstance(abort, within) else abort


class PullSettings:
    """How something is pulled. The compiled half reads it when a pull begins."""

    per_request_timeout_ms: int
    chunk_bytes: int
    version: int
    recipient: int
    window: int
    retries: int
    longest_delay_ms: int = 60_000  # between two tries
    progress_interval_ms: int
    native: bool  # the image in one chunk, or an error
    unverified: bool
    believe: bool
    progress: Optional[Callable[[Any], None]]
    abort: Optional[Callable[[], bool]]
    cursor: Optional[_native.Cursor] = None  # if a pull goes on that another one began
    agrees: Optional[Callable[[], bool]] = None  # asked when all has arrived, before the owner hears of it


class PublishSettings:
    """How something is published, read as well when a call begins."""

    id = beside = ""  # digits, or none
    recipients = least = version = 0
    named: Sequence[int] = ()
    acquire_ms, recipient_idle_ms, transaction_idle_ms, progress_interval_ms = 0, 600_000, 600_000, 30_000
    settled: Optional[Callable[[Any], None]] = None
    progress: Optional[Callable[[Any], None]] = None


def pull_settings(
    ref_id: str,
    per_request_timeout: Optional[float] = PER_REQUEST_TIMEOUT,
    chunk_size: Optional[int] = None,
    progress: Any = None,
    progress_interval: float = 0.1,
    abort: Any = None,
    version: Optional[int] = None,
    recipient: Optional[str] = None,
    window: int = 0,
    retries: int = RETRIES,
    unverified: bool = False,
    believe: bool = False,
) -> PullSettings:
    digits = reference_id(ref_id)
    if isinstance(ref_id, PartReference):
        how = "tensorpull.messages.recompose(message) reads the message, and its sets have download_tensors(session)"
        raise Error("invalid_argument", f"this reference is a part of a message struct, whose other fields would be lost: {how}")
    made = PullSettings()
    made.per_request_timeout_ms = milliseconds(per_request_timeout, "per_request_timeout")
    made.chunk_bytes = chunk_bytes(chunk_size, ref_id)
    made.native = (chunk_size if chunk_size is not None else getattr(ref_id, "chunk_size", 1)) == 0
    if version is None:
        version = ref_id.version if isinstance(ref_id, Reference) else _native.version_of(digits)
    made.version = whole(version, "version", 2**64 - 1)
    made.recipient = _native.recipient_named(text(recipient, "recipient", "this recipient's name")) if recipient is not None and recipient != "" else 0
    made.window = whole(window, "window", 2**32 - 1)
    made.retries = whole(retries, "retries", 2**32 - 1)
    made.unverified = bool(unverified)
    made.believe = bool(believe)
    made.progress_interval_ms = milliseconds(progress_interval, "progress_interval")
    made.progress = as_progress(progress)
    made.abort = as_abort(abort)
    if isinstance(abort, within):
        abort.noting(made)
    return made
