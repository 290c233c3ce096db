"""The owner's side: publishes dicts of tensors and answers who pulls them."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any, Callable, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from . import _native
from ._options import DEFAULT_CHUNK_BYTES, as_abort, milliseconds, recipient_named, reference_id, text, whole
from ._tensors import Tensors
from ._types import Outcome, Progress, Reference, Status


def _outcome(values: Sequence[Any]) -> Outcome:
    verdict, references, expected, counts, lasted = values
    return Outcome(verdict, references, expected, Status._make(counts), lasted)


class Downloader:
    """Publishes models and serves any number of recipients.

    Who serves is the caller's choice, since this package starts no thread unless it is told to:
      - `serve(...)` on the caller's own thread, until something is true;
      - `start()`: one `threading.Thread` in this process, until `stop()`. It ends by itself when the main thread ends.
    Tensors may be published, withdrawn and asked about from any thread, also while another serves. As a context manager it closes itself.
    It belongs to the process that made it: in a child of `fork` its calls raise an error, and the child's end does not disturb it.

        with tensorpull.Downloader("127.0.0.1:0") as owner:
            ref = owner.add_tensors(model.state_dict(), recipients=2)
            tell_the_others(owner.address, ref)
            owner.serve(until=ref)
    """

    def __init__(
        self,
        listen: str = "127.0.0.1:0",
        *,
        max_connections: int = 4096,
        accept_timeout: Optional[float] = 10.0,
        stall_timeout: Optional[float] = 60.0,
        idle_timeout: Optional[float] = 600.0,
    ) -> None:
        """Listens on "host:port"; port 0: one that is free. The time-outs, in seconds, end connections: those that have asked for nothing
        that is published within `accept_timeout`, that take less than 64 bytes a second for `stall_timeout`, that are silent for `idle_timeout`."""
        self._owner = _native.Owner(
            text(listen, "listen", "host:port"),
            whole(max_connections, "max_connections", 2**31 - 1, least=1),
            milliseconds(accept_timeout, "accept_timeout"),
            milliseconds(stall_timeout, "stall_timeout"),
            milliseconds(idle_timeout, "idle_timeout"),
        )
        self._host = listen.rpartition(":")[0] if ":" in listen else listen
        self._thread: Optional[threading.Thread] = None
        self._stopping = threading.Event()
        self._changed = threading.Condition()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._owner.port

    @property
    def address(self) -> str:
        """"host:port" as `listen` had the host; of an owner that listens on all addresses, say one that others reach."""
        return f"{self._host}:{self.port}"

    @property
    def connections(self) -> int:
        """How many there are now."""
        return self._owner.connections

    def add_tensors(
        self,
        tensors: Mapping[str, Any],
        chunk_size: int = DEFAULT_CHUNK_BYTES,
        *,
        recipients: Union[int, Iterable[str]] = 0,
        least: int = 0,
        ref_id: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        settled: Optional[Callable[[Outcome], None]] = None,
        progress: Optional[Callable[[Progress], None]] = None,
        progress_interval: float = 30.0,
        acquire_timeout: Optional[float] = None,
        recipient_idle_timeout: Optional[float] = 600.0,
        transaction_idle_timeout: Optional[float] = 600.0,
    ) -> Reference:
        """Publishes a dict of torch's and NumPy's tensors and returns its reference.

        Nothing is copied: the tensors' memory is read when a recipient asks, so it must not change until the reference is settled or
        withdrawn (recipients of what has changed get "digest_mismatch"). The tensors are kept alive until then. Any strides, either byte
        order. Cost: one pass over the bytes, for the digest. Tied tensors of torch are sent once, and the metadata says so as
        `safetensors.torch.save_model` does.

          chunk_size   what the reference suggests to recipients; each decides for itself
          recipients   how many have to confirm before the reference is settled, or their names; 0: not known, it stays until withdrawn or idle
          least        how many are enough, if not all; more than there are is an error
          ref_id       publish under an ID chosen before, in the place of what is published there
          settled      called once with the `Outcome`, on the thread that serves, or by `close()`; the tensors are let go of afterwards
          progress     called with `Progress` of each recipient, every `progress_interval` seconds at most, on the same thread
          acquire_timeout, recipient_idle_timeout, transaction_idle_timeout
                       seconds until a recipient has asked at all; in which it takes less than 64 bytes a second; in which nobody asks for or takes
                       anything, after which it settles; None: no limit

        What the callbacks raise goes to `sys.unraisablehook`. Refused with the tensor's name: "unsupported_dtype" (objects, strings, dates,
        structures, longdouble, complex128), "unsupported_layout" (sparse, quantised, nested, meta, on another device, masked arrays).
        """
        chunk_size = whole(chunk_size, "chunk_size", _native.max_chunk_bytes)
        if metadata is not None and not isinstance(metadata, Mapping):
            raise TypeError(f"metadata is a dict of str; not {metadata!r}")
        for what, heard in (("settled", settled), ("progress", progress)):
            if heard is not None and not callable(heard):
                raise TypeError(f"{what} is a callable; not {heard!r}")
        described = Tensors(tensors)
        pairs = {**described.ties, **{str(key): str(value) for key, value in (metadata or {}).items()}}
        how = _native.PublishSettings()
        how.id = reference_id(ref_id) if ref_id is not None else ""
        how.recipients, how.named = _expected(recipients)
        how.least = whole(least, "least", 2**32 - 1)
        expected = how.recipients or len(how.named)
        if expected and how.least > expected:
            raise ValueError(f"least is at most the number of recipients, which is {expected}; not {how.least}")
        how.acquire_ms = milliseconds(acquire_timeout, "acquire_timeout", never=0)
        how.recipient_idle_ms = milliseconds(recipient_idle_timeout, "recipient_idle_timeout", never=0)
        how.transaction_idle_ms = milliseconds(transaction_idle_timeout, "transaction_idle_timeout", never=0)
        how.progress_interval_ms = milliseconds(progress_interval, "progress_interval")
        how.settled = _teller(self, settled)
        if progress is not None:
            how.progress = lambda event: progress(Progress._make(event))
        digits, version, fingerprint, nbytes = self._owner.add(described.described, list(pairs.items()), described.keep, how)
        return Reference(digits, version, fingerprint, nbytes, chunk_size)

    def serve(self, until: Any = None, timeout: Optional[float] = None) -> bool:
        """Serves on this thread, without the interpreter's lock, until `until`: a reference or several (all settled), a threading.Event, or
        a callable that returns true; None: for ever. False: `timeout` seconds were over before. Ctrl-C and `until` are heard within 0.1 s."""
        limit = milliseconds(timeout, "timeout", never=-1)
        if until is None or isinstance(until, str):
            return self._owner.serve([] if until is None else [reference_id(until)], None, limit)
        if isinstance(until, (list, tuple, set, frozenset)):
            refs = [reference_id(ref) for ref in until]
            return self._owner.serve(refs, None, limit) if refs else True
        return self._owner.serve([], as_abort(until), limit)

    def start(self) -> "Downloader":
        """Serves in the background: starts one thread, named "tensorpull", which `stop()` ends, and the end of the main thread too."""
        if self._thread is not None and self._thread.is_alive():
            raise RuntimeError("it is serving already")
        self._stopping.clear()
        stopping, main, owner = self._stopping, threading.main_thread(), self._owner
        self._thread = threading.Thread(
            target=lambda: owner.serve([], lambda: stopping.is_set() or not main.is_alive(), -1), name="tensorpull", daemon=False
        )
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ends the thread that `start()` has started, within 0.1 s; does nothing without one. What is published stays so."""
        self._stopping.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
            self._thread = None

    def wait(self, refs: Any, timeout: Optional[float] = None) -> bool:
        """Waits until a reference, or each of several, is settled, while another thread serves. False: not within `timeout` seconds."""
        wanted = [reference_id(ref) for ref in ([refs] if refs is None or isinstance(refs, str) else refs)]
        end = None if timeout is None else time.monotonic() + milliseconds(timeout, "timeout") / 1000
        with self._changed:
            while not all(self._owner.settled(ref) for ref in wanted):
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                # settled() is told before the owner says so: look again soon
                self._changed.wait(0.1 if left is None else min(left, 0.1))
        return True

    def withdraw(self, ref_id: str) -> None:
        """Ends a publication: after this returns nothing reads its tensors, and recipients get "withdrawn"."""
        self._owner.withdraw(reference_id(ref_id))

    def status(self, ref_id: str) -> Status:
        """Counts of the recipients so far. An owner remembers what has ended for a while: later "unknown_reference"."""
        return Status._make(self._owner.status(reference_id(ref_id)))

    def settled(self, ref_id: str) -> bool:
        """Whether every expected recipient has confirmed or given up, or it was withdrawn, or is not known."""
        return self._owner.settled(reference_id(ref_id))

    def outcome(self, ref_id: str) -> Outcome:
        """How a publication ended; its verdict is "open" before."""
        return _outcome(self._owner.outcome(reference_id(ref_id)))

    def recipient_state(self, ref_id: str, recipient: Union[str, int]) -> str:
        """How one recipient fares: "unseen", "acquired", "provisional", "completed", "failed", "cancelled", "vanished", ..."""
        who = whole(recipient, "recipient", 2**64 - 1) if isinstance(recipient, int) else recipient_named(recipient)
        return self._owner.recipient_state(reference_id(ref_id), who)

    def close(self) -> None:
        """Stops, ends all connections, settles what is open with what there was, and lets go of what was published. Again: does nothing."""
        self.stop()
        if not self._owner.closed:
            self._owner.close()

    def __enter__(self) -> "Downloader":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _expected(recipients: Any) -> Tuple[int, List[int]]:
    """How many recipients, or the numbers of their names. A str alone would be one recipient for each of its letters."""
    if isinstance(recipients, int):
        return whole(recipients, "recipients", 2**32 - 1), []
    if isinstance(recipients, (str, bytes)) or not isinstance(recipients, Iterable):
        raise TypeError(f"recipients is a number, or the recipients' names as in ['site-1', 'site-2']; not {recipients!r}")
    return 0, [_native.recipient_named(text(name, "each of recipients", "a name")) for name in recipients]


def _teller(downloader: Downloader, settled: Optional[Callable[[Outcome], None]]) -> Callable[[Any], None]:
    """Tells the caller and who waits. Knows the downloader by a weak reference: the downloader has this, in the compiled half."""
    known = weakref.ref(downloader)

    def tell(values: Any) -> None:
        try:
            if settled is not None:
                settled(_outcome(values))
        finally:
            alive = known()
            if alive is not None:
                with alive._changed:
                    alive._changed.notify_all()

    return tell
