"""Tensors one by one, in the order in which they arrive, for what loads a model layer by layer."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Union

from . import _native
from ._download import physical_memory
from ._errors import Error
from ._listing import chosen, look_closely, looking
from ._options import PER_REQUEST_TIMEOUT, RETRIES, as_abort, pull_settings, whole
from ._route import Addresses, kept, over_addresses, web_settings
from ._session import Session
from ._slices import Slice, sliced
from ._tensors import FLOATING, convert_into, dtype_named, numpy_maker, torch_maker
from ._tls import TLS
from ._types import Abort, Framework, Receipt, Tell

#: The memory that bytes arrive in, before they are copied to their tensor.
_BLOCK_BYTES = 2 << 20
Rename = Union[Mapping[str, str], Callable[[str], Optional[str]], None]


def stream(
    address: Union[Addresses, Session],
    ref_id: str = "",
    per_request_timeout: Optional[float] = PER_REQUEST_TIMEOUT,
    chunk_size: Optional[int] = None,
    progress: Tell = None,
    abort: Abort = None,
    *,
    framework: Optional[Framework] = None,
    names: Optional[Iterable[str]] = None,
    matching: Optional[Iterable[str]] = None,
    rename: Rename = None,
    dtype: Any = None,
    memory: int = 256 << 20,
    max_bytes: Optional[int] = None,
    max_header_bytes: int = 16 << 20,
    max_tensors: int = 1_000_000,
    progress_interval: float = 0.1,
    version: Optional[int] = None,
    recipient: Optional[str] = None,
    retries: int = RETRIES,
    unverified: bool = False,
    believe: bool = False,
    ssl: Optional[TLS] = None,
    digest: Optional[str] = None,
    bearer: Optional[str] = None,
) -> "TensorStream":
    """Pulls what is published under `ref_id`, and gives each tensor as soon as it has arrived:

        for name, tensor in tensorpull.stream("server:8002", ref, framework="torch"):
            engine.load_weight(name, tensor)

    **What has been given is unproved until the loop has ended.** The digest is that of all bytes, and is compared when the last of them is here. If it is another one, the loop raises
    "digest_mismatch", and the tensors that it has had before are not what was published; so do not use what was loaded before the loop has ended without an error. The owner hears of the end
    when the last tensor was taken and the next one is asked for.

    They come in the order of the image: by dtype, and among those of one dtype by name, as text ("layers.10" before "layers.2"). A tied tensor comes under each of its names, one after the other.

      memory     bytes of tensors that have arrived, or are arriving, and were not taken yet; a single tensor may be larger. When they are used up nothing is read, until the loop goes on: an owner
                 drops a recipient that takes nothing for `recipient_idle_timeout`. What the loop has taken is its own, and each tensor has memory of its own. Besides: 2 MiB
      max_bytes  of each tensor ("too_large" otherwise, before anything arrives); default: this machine's memory
      dtype      floating tensors are converted to this one, of F16, BF16, F32 and F64, as torch, NumPy or safetensors call it, when they are taken
      rename     a dict of names, or a callable that takes a name, under which tensors are given; those that it makes None are not. It is called before anything arrives, on a thread
      names, matching, and all others  as for `download_tensors`; slices, too

    It has one thread, which is over when the loop is. A loop that is left early (`break`, an exception, `close()`) ends the pull, and the owner hears that this recipient gave up. Errors in the
    middle are raised in the loop; those of `download_tensors`, and "duplicate_name": `rename` gives two tensors one name; "unsupported_request": over this link bytes come in any order (udp://, nats://, serial:).
    A `Session` in the place of an address belongs to the stream until it ends."""
    address, names, matching = kept(address), kept(names), kept(matching)
    if framework not in (None, "numpy", "torch"):
        raise ValueError(f'framework is "numpy" or "torch", not {framework!r}')
    if rename is not None and not isinstance(rename, Mapping) and not callable(rename):
        raise TypeError(f"rename is a dict or a callable; not {rename!r}")
    converted = None if dtype is None else dtype_named(dtype)
    if converted is not None and converted not in FLOATING:
        raise ValueError(f"dtype is one of {', '.join(sorted(FLOATING))}; not {dtype!r}")
    most = physical_memory() if max_bytes is None else whole(max_bytes, "max_bytes", 2**63 - 1)
    hand = _Hand(whole(memory, "memory", 2**63 - 1), as_abort(abort))
    settings = pull_settings(ref_id, per_request_timeout, chunk_size, progress, progress_interval, hand.over, version, recipient, 0, retries, unverified, believe)
    settings.agrees = hand.taken
    about = looking(ref_id, per_request_timeout, hand.over, version, recipient, retries)

    no_slices: List[Slice] = []

    def run(source: Any) -> Receipt:
        if hand.began:  # what was given may be another's
            raise hand.failed or Error("connection_lost", "the owner is lost")
        hand.order.clear()
        try:
            return pulled(source)
        except Error as e:
            hand.failed = e
            raise

    def pulled(source: Any) -> Receipt:
        there = look_closely(source, source.reference_of(ref_id, settings.version), max_header_bytes, max_tensors, about)
        wanted, slices = there.listing.tensors, no_slices
        if names is not None or matching is not None:
            wanted, slices = sliced(chosen(there.listing, names, matching), names)
        part = names is not None or matching is not None
        given = _given(wanted, rename)
        arriving = sorted({one.name: one for one in wanted.values()}.values(), key=lambda one: one.begin) if part else there.in_image
        block = ctypes.create_string_buffer(_BLOCK_BYTES)
        made: Dict[str, Any] = {}
        make = torch_maker(made) if framework == "torch" else numpy_maker(made)
        rows: List[Any] = []
        for one in arriving:
            if one.nbytes > most:
                raise Error("too_large", f"the bytes of this tensor are {one.nbytes}, and max_bytes is {most}", one.name)
            at = _Arriving(hand, block, one, made, make, given.get(one.name, []))
            hand.order.append(at)
            # a row of a device's, which nobody reads an address of: each begins somewhere else
            rows.append((one.name, one.dtype, one.shape, None, one.begin, 0, at, 1) if one.nbytes else (one.name, one.dtype, one.shape, None, 0, 0))
        settings.version = there.listing.version if there.listing.verifiable else settings.version
        receipt, _ = _native.download_into(source, source.reference_of(ref_id, settings.version), rows, part, {}, max_header_bytes, settings, slices)
        return Receipt(*receipt)

    if isinstance(address, Session):
        if ssl is not None or digest is not None or bearer is not None:
            raise ValueError("ssl, digest and bearer are for addresses: a session is connected")
        session = address._session
        return TensorStream(hand, lambda: run(session), framework, converted)
    web = web_settings(address, ref_id, digest, bearer, recipient)
    web.max_header_bytes = whole(max_header_bytes, "max_header_bytes", 2**63 - 1)
    places = address
    return TensorStream(hand, lambda: over_addresses(places, ssl, run, web)[0], framework, converted)


def _given(wanted: Mapping[str, Any], rename: Rename) -> Dict[str, List[str]]:
    """Of each tensor that travels the names under which it is given."""
    called = rename.get if isinstance(rename, Mapping) else None
    given: Dict[str, List[str]] = {}
    seen: Dict[str, str] = {}
    for name, one in wanted.items():
        new = called(name, name) if called is not None else rename(name) if callable(rename) else name
        under = given.setdefault(one.name, [])
        if new is None:
            continue
        if not isinstance(new, str):
            raise TypeError(f"rename gives names, or None; not {new!r} for {name!r}")
        if seen.setdefault(new, name) != name:
            raise Error("duplicate_name", f"rename gives this name to {seen[new]!r} and to {name!r}", new)
        under.append(new)
    return given


class _Closed(Exception):
    """The loop was left."""


class _Hand:
    """What the thread that pulls hands to the loop."""

    def __init__(self, memory: int, asked: Optional[Callable[[], bool]]) -> None:
        self.changed = threading.Condition()
        self.ready: Deque[Tuple[List[str], Any, int]] = deque()
        self.order: List["_Arriving"] = []  # what is still to come
        self.held = 0  # bytes of tensors that were made and not taken
        self.closed = self.done = self.hungry = False
        self.result: Optional[Receipt] = None
        self.error: Optional[BaseException] = None
        self.began = False  # a tensor has begun to arrive
        self.failed: Optional[Error] = None
        self._memory, self._asked, self._main = memory, asked, threading.main_thread()

    def over(self) -> bool:
        return self.closed or not self._main.is_alive() or (self._asked is not None and self._asked())

    def wait_for(self, true: Callable[[], bool]) -> None:
        with self.changed:
            while not true():
                if self.closed:
                    raise _Closed
                if self.over():
                    raise Error("cancelled", "the stream was ended by abort")
                self.changed.wait(0.05)

    def room_for(self, nbytes: int) -> None:
        self.began = True
        self.wait_for(lambda: self.held == 0 or self.held + nbytes <= self._memory)
        with self.changed:
            self.held += nbytes

    def give(self, names: List[str], tensor: Any, nbytes: int) -> None:
        with self.changed:
            self.ready.append((names, tensor, nbytes))
            self.changed.notify_all()

    def give_empty(self) -> None:
        """Tensors without bytes, of which nobody tells that they have arrived, as far as they are next."""
        while self.order and self.order[0].one.nbytes == 0:
            at = self.order.pop(0)
            at.make()
            self.give(at.names, at.made.pop(at.one.name), 0)

    def taken(self) -> bool:
        """Whether all is right, when all has arrived: once the loop has taken it, too."""
        self.give_empty()
        self.wait_for(lambda: self.hungry and not self.ready)
        return True


class _Arriving:
    """One tensor, as the compiled half sees one of a device: it hands over bytes that have arrived."""

    def __init__(self, hand: _Hand, block: Any, one: Any, made: Dict[str, Any], make: Any, names: List[str]) -> None:
        self._hand, self._block, self.one, self.made, self._make, self.names = hand, block, one, made, make, names
        self._address = self._next = 0

    def make(self) -> None:
        self._address, nbytes = self._make(self.one.name, self.one.dtype, self.one.shape)
        if nbytes != self.one.nbytes:
            raise Error("bad_frame", "the tensor that was made has another size", self.one.name)

    def landing_block(self) -> Tuple[int, int]:
        return ctypes.addressof(self._block), len(self._block)

    def write(self, offset: int, at: int, nbytes: int) -> None:
        hand = self._hand
        if offset == 0:
            hand.give_empty()
        if not hand.order or hand.order[0] is not self or offset != self._next:
            raise Error("unsupported_request", "a stream needs bytes in order, and over this link they come in another one", self.one.name)
        if offset == 0:
            hand.room_for(self.one.nbytes)
            self.make()
        ctypes.memmove(self._address + offset, ctypes.addressof(self._block) + at, nbytes)  # the interpreter's lock is not held
        self._next += nbytes
        if self._next == self.one.nbytes:
            hand.order.pop(0)
            hand.give(self.names, self.made.pop(self.one.name), self.one.nbytes)


class TensorStream(Iterator[Tuple[str, Any]]):
    """What `stream` gives: an iterator, which may be left at any time. `receipt` is there when it has ended without an error, and means then what it means of a download."""

    def __init__(self, hand: Any, pull: Callable[[], Receipt], framework: Optional[str], dtype: Optional[str]) -> None:
        self._hand: _Hand = hand
        self._framework, self._dtype = framework, dtype
        self._names: Deque[str] = deque()
        self._tensor: Any = None
        self._thread: Optional[threading.Thread] = threading.Thread(target=_work, args=(hand, pull), name="tensorpull.stream")
        self._started = False

    @property
    def receipt(self) -> Optional[Receipt]:
        """How it came; None before the end."""
        return self._hand.result if self._thread is None and not self._hand.closed else None

    def __iter__(self) -> "TensorStream":
        return self

    def __next__(self) -> Tuple[str, Any]:
        one = self.following()
        if one is None:
            raise StopIteration
        return one

    def following(self, abort: Abort = None) -> Optional[Tuple[str, Any]]:
        """The next one, as `next` gives it, and None at the end. `abort` ends the stream."""
        asked = as_abort(abort)
        while not self._names:
            self._tensor = None
            taken = self._take(asked)
            if taken is None:
                return None
            names, tensor = taken
            self._names.extend(names)
            if names:
                self._tensor = self._converted(names[0], tensor)
        name, tensor = self._names.popleft(), self._tensor
        if not self._names:
            self._tensor = None
        return name, tensor

    def _take(self, asked: Optional[Callable[[], bool]]) -> Optional[Tuple[List[str], Any]]:
        hand = self._hand
        if self._thread is None:
            return None
        if not self._started:
            self._started = True
            self._thread.start()
        try:
            with hand.changed:
                hand.hungry = True
                hand.changed.notify_all()
                while not hand.ready and not hand.done:
                    if asked is not None and asked():
                        raise Error("cancelled", "the stream was ended by abort")
                    hand.changed.wait(None if asked is None else 0.05)
                if hand.ready and hand.error is None:  # once it is known that something is wrong nothing more is given
                    hand.hungry = False
                    names, tensor, nbytes = hand.ready.popleft()
                    hand.held -= nbytes
                    hand.changed.notify_all()
                    return names, tensor
        except BaseException:
            self.close()
            raise
        thread, self._thread = self._thread, None
        if thread is None:  # another thread has closed it meanwhile
            return None
        thread.join()
        hand.ready.clear()
        error, hand.error = hand.error, None
        try:
            if error is not None:
                raise error
            return None
        finally:
            error = None  # its traceback has this frame

    def _converted(self, name: str, tensor: Any) -> Any:
        if self._dtype is None:
            return tensor
        dtype = dtype_named(tensor.dtype)
        if dtype not in FLOATING or dtype == self._dtype:
            return tensor
        made: Dict[str, Any] = {}
        make = torch_maker(made) if self._framework == "torch" else numpy_maker(made)
        make(name, self._dtype, tuple(tensor.shape))
        convert_into(made[name], tensor)
        return made[name]

    def close(self) -> None:
        """Ends the pull, if it has not ended, and waits until it is over: the owner hears that this recipient gave up."""
        hand, thread = self._hand, self._thread
        self._thread = None
        if thread is None:
            return
        with hand.changed:
            hand.closed = True
            hand.changed.notify_all()
        if self._started and thread is not threading.current_thread():
            thread.join()
        hand.ready.clear()
        self._names.clear()
        self._tensor = hand.error = None

    def __enter__(self) -> "TensorStream":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_thread", None) is not None:
            self.close()


def _work(hand: _Hand, pull: Callable[[], Receipt]) -> None:
    result: Optional[Receipt] = None
    error: Optional[BaseException] = None
    try:
        result = pull()
    except BaseException as e:  # noqa: B902: the loop raises it
        if isinstance(e, Error) and e.code == "digest_mismatch":
            e = e.saying(f"{e.message}: the tensors that the stream has given are not what is published")
        error = e
    with hand.changed:
        hand.result, hand.error, hand.done = result, error, True
        hand.changed.notify_all()
    error = None
