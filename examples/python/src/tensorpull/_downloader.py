"""The owner's side: publishes dicts of tensors and answers the recipients that pull them."""

from __future__ import annotations

import atexit
import logging
import os
import re
import secrets
import threading
import time
import weakref
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _native
from ._directory import OpenDirectory
from ._errors import Error
from ._log import log_outcome, logger, recipient_progress, short
from ._options import DEFAULT_CHUNK_BYTES, as_authoriser, as_until, listening, milliseconds, recipient_named, reference_id, several, text, whole, with_port
from ._proofs import need_proofs, publish_tree
from ._publish import as_outcome, heard, names_in, publish, status_of
from ._tls import TLS, native
from ._transaction import publish_together
from ._types import Access, OfOneProcess, Outcome, Progress, Reference, Status, Until


class Downloader(OfOneProcess):
    """Publishes models and serves any number of recipients.

    The caller chooses the thread that serves, since this package starts none unless it is told to:
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
        bytes_per_second: Optional[int] = None,
        recipient_bytes_per_second: Optional[int] = None,
        max_references: int = 512,
        max_recipients: Optional[int] = None,
        ssl: Optional[TLS] = None,
        http: Optional[str] = None,
        metrics: bool = False,
        allow_origin: Optional[str] = None,
        status_password: Optional[str] = None,
        authorise: Optional[Callable[[Access], bool]] = None,
    ) -> None:
        """Listens on "host:port" (port 0: one that is free), or on another address, as `download_tensors` takes it, but not "pipe:"; one of TLS wants `ssl` with a certificate. In any second it sends at
        most `bytes_per_second` in all and `recipient_bytes_per_second` to each connection; None: no limit. The time-outs, in seconds, end connections: those that have asked for nothing
        that is published within `accept_timeout`, that take less than 64 bytes a second for `stall_timeout`, that are silent for `idle_timeout`.

        Over datagrams ("udp://", "serial:", "nats://") there are no connections, but recipients that are remembered: at most 1024, and one at a serial line. One thread at a time uses the
        owner: a call waits 0.05 s at most while another thread serves, and as long as a callback runs. So hold no lock that a callback takes.

        At most `max_references` are published at a time, and `max_recipients` remembered, each once for each reference that it pulls (None: 2048, or four for each reference).
        Memory for all of them is taken here: "out_of_memory" if there is not so much. Over NATS there are 512 references at most.

        http     "host:port" of a second port, on which HTTP is answered over the same references (`url`), beside TCP, "tls://" (then it is HTTPS) or "unix:". ValueError
                 for other links. The limits of connections and bytes hold for it separately
        metrics  it answers GET /metrics, for Prometheus, to everybody who can connect
        status_password  16 to 128 characters, such as `secrets.token_hex(16)`: with them a browser shows at `http_address` what is published and how each recipient fares, under
                 the names that were given as `recipients` and to `label`; /status.json is the same as JSON, and /metrics is answered with them, too. No page has a reference
        allow_origin  web pages of this origin, as "https://host", may read the answers in a browser; "*": those of every origin. They need the reference like anybody else
        authorise  called with `Access` before anything of a reference is told: false, or an exception, is the answer to an unknown reference. Once it is true it is asked again by another
                 connection, under another name, or when something else is published there. On the thread that serves. None: everybody who has the reference may pull.
                 With `require_client_certificates` a recipient that is expected by name (`recipients=["site-1"]`) has in any case to have that name in its certificate, as the common or
                 an alternative one; others may pull, and settle nothing by it
        """
        if http is None and (metrics or allow_origin is not None or status_password is not None):
            raise ValueError("metrics, allow_origin and status_password are about the port of http")
        password = "" if status_password is None else text(status_password, "status_password", "16 to 128 characters")
        if status_password is not None and not (16 <= len(password.encode(errors="replace")) <= 128 and password.isprintable()):
            raise ValueError("status_password is 16 to 128 characters, such as secrets.token_hex(16)")
        if allow_origin == "":
            raise ValueError("allow_origin is an origin, \"*\" or None")
        references = whole(max_references, "max_references", 2**63 - 1, least=1)
        remembered = max(2048, 4 * references) if max_recipients is None else whole(max_recipients, "max_recipients", 2**63 - 1, least=1)
        if references * _native.reference_bytes + remembered * _native.recipient_bytes > _memory() // 2:
            raise Error("out_of_memory", "there is no memory for so many references or recipients", at=references)
        self._owner = listening(lambda: _native.Owner(
            text(listen, "listen", "host:port"),
            whole(max_connections, "max_connections", 2**31 - 1, least=1),
            milliseconds(accept_timeout, "accept_timeout"),
            milliseconds(stall_timeout, "stall_timeout"),
            milliseconds(idle_timeout, "idle_timeout"),
            0 if bytes_per_second is None else whole(bytes_per_second, "bytes_per_second", 2**63 - 1, least=1),
            0 if recipient_bytes_per_second is None else whole(recipient_bytes_per_second, "recipient_bytes_per_second", 2**63 - 1, least=1),
            native(ssl),
            references,
            remembered,
            as_authoriser(authorise),
        ))  # fmt: skip
        self._http, self._shows_status = "", status_password is not None
        if http is not None:
            second, origin = text(http, "http", "host:port"), "" if allow_origin is None else text(allow_origin, "allow_origin", "an origin")
            door = listening(lambda: self._owner.open_door(second, bool(metrics), origin, password))
            self._http = ("https://" if listen.startswith("tls://") else "http://") + with_port(http, door)
        self._about: Dict[str, _About] = {}  # by IDs, of the last that was published under each, and by all digits
        self._most_about = 4 * references
        self._noting = threading.Lock()
        self._listen = listen
        self._thread: Optional[threading.Thread] = None
        self._at_exit: Optional[Callable[[], None]] = None
        self._stopping = threading.Event()
        self._starting = threading.RLock()  # of the three above; not held while a thread is waited for, whose callbacks may stop it
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._changes = 0  # how many publications have been told to have settled

    @property
    def port(self) -> int:
        """The port that it listens on; 0 if the transport has none."""
        return self._owner.port

    @property
    def address(self) -> str:
        """The address as `listen` had it, with the port; of an owner that listens on all addresses, say one that others reach."""
        return with_port(self._listen, self.port)

    @property
    def http_address(self) -> str:
        """Where HTTP is answered, as "http://host:port"; "" if it is not."""
        return self._http

    def url(self, ref: Reference, name: str = "model") -> str:
        """The URL of what is published there. A request for it has to show the reference's digits: `download_tensors(url, ref, bearer=ref)`. `name` is for people: 1 to 64 letters, digits, "-", "." and "_"."""
        if not self._http:
            raise ValueError("this owner does not answer HTTP: Downloader(http=...)")
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name) or not name.strip("."):
            raise ValueError(f"name is 1 to 64 letters, digits, '-', '.' and '_', and not dots alone; not {name!r}")
        version = reference_id(ref)[32:].lower() or "latest"
        return f"{self._http}/v1/{name}/{version}"

    @property
    def connections(self) -> int:
        """How many there are now."""
        return self._owner.connections

    def add_tensors(
        self,
        tensors: Any,
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
        keep_order: bool = True,
        version: Optional[int] = None,
        tensor_digests: bool = False,
        base: Any = None,
        narrow: bool = False,
        copy: bool = False,
        proofs: bool = False,
    ) -> Reference:
        """Publishes a dict of torch's and NumPy's tensors, or nested dicts, lists and tuples of them with numbers and text (see `flatten`), and returns its reference.

        Nothing is copied: the tensors' memory is read when a recipient asks, so it must not change until the reference is settled or
        withdrawn (recipients of what has changed get "digest_mismatch", those of a part of it what is there then). The tensors are kept alive until then. Any strides, either byte
        order. Cost: one pass over the bytes, for the digest. Tensors that are the same memory, seen the same way, are sent once, and the metadata
        says so as `safetensors.torch.save_model` does. Tensors on a device are copied through 2 MiB of host memory, a slice at a time: finish what
        writes to them on other streams first.

          chunk_size   what the reference suggests to recipients; each decides for itself
          recipients   how many have to confirm before the reference is settled, or their names; 0: not known, it stays until withdrawn or idle
          least        how many are enough, if not all; more than there are is an error
          ref_id       publish under an ID chosen before, in the place of what is published there; of a reference with a version the ID
                       counts, and the version is that of these tensors. All 48 digits of the earlier one go on meaning it, in `wait` and `withdraw` too. Recipients that have
                       begun with the earlier one get it to its end, and its tensors are read until then: one version stays so at a time, and recipients of any other begin anew with
                       the newest
          settled      called once with the `Outcome`, on the thread that serves, or by `close()`; the tensors are let go of afterwards
          progress     called with `Progress` of each recipient, every `progress_interval` seconds at most, on the same thread
          acquire_timeout, recipient_idle_timeout, transaction_idle_timeout
                       seconds until a recipient has asked at all; in which it takes less than 64 bytes a second; in which nobody asks for or takes
                       anything, after which it settles; None: no limit; 0 is a millisecond
          copy         publish a copy in the CPU's memory: that of a `state_dict()` is the module's own, which the next step of training changes. Cost: the memory, and one more pass
          version      that of a `Reference` to the same tensors with the same metadata, if there is one: the pass over the bytes is saved. It is not checked here. If it is of other
                       bytes, downloads of all tensors get "digest_mismatch"; one of a `subset` has a digest of its own, and takes them
          keep_order   recipients have the tensors in the order of the dict: the metadata carries it ("too_large" above 1,000,000 tensors). False: in that of the image
          tensor_digests
                       the metadata has 16 digits for each tensor, so that a recipient that has an earlier version (`base`) pulls only the tensors that have changed.
                       Cost: one more pass over the bytes
          base         an earlier version, as it was published: recipients that have it (their `base`) pull what has changed since as a difference, without loss. It is coded here, once for
                       all of them, and published beside the tensors until they settle or are withdrawn, and who pulls it counts as pulling them; if that is not worth it, there is no room for it, or the recipient has another version, the tensors are
                       pulled as they are. Implies `tensor_digests`. It is read by this call alone. Cost: 6 to 7 s for each GiB that has changed. Memory: the coded bytes, about half
                       of F32 tensors after a small step, a tenth of BF16 ones. Worth it on lines below about 1 Gbit/s.
                       For recipients that missed rounds, of a dict a list of earlier versions, the last first: each is coded and published, in its own memory and entry of the table
          narrow       publish `narrowed(tensors, base)`, and beside it the step in 8 or 4 bits, as `narrowed` made it, for recipients that have `base`. All have the same bits
                       afterwards, and the next round's `base` is these tensors: so make them with `narrowed`, give that (a copy has no step) as `tensors`, and leave `base` out. ValueError without
                       either: weights are not narrowed. Errors of `narrowed`

          proofs       publish the tree of BLAKE3 of these tensors beside them, a thousandth of their bytes, for `sign_reference`; `root` of the reference is what `b3sum` prints for them
                       as a safetensors file. Cost: one more pass over the bytes. "unsupported_request" in a build without OpenSSL

        What the callbacks raise goes to `sys.unraisablehook`, but KeyboardInterrupt to the main thread, as Ctrl-C. Refused with the tensor's name: "unsupported_dtype" (objects, strings, dates,
        structures, longdouble, complex128, elements of 1 to 7 bits but packed F4), "unsupported_layout" (sparse, quantised, nested, meta, masked arrays, subclasses other than
        nn.Parameter and memmap).
        """
        trees: Optional[List[Any]] = None
        if proofs:
            need_proofs()
            trees = []
        made = self._add(
            self._owner.add, tensors, chunk_size, recipients, least, ref_id, metadata, settled, progress, progress_interval, acquire_timeout, recipient_idle_timeout,
            transaction_idle_timeout, keep_order, version, tensor_digests, base, None, narrow, copy, trees,
        )  # fmt: skip
        if trees:
            try:
                publish_tree(self._owner, made, trees[0])
            except BaseException:
                self.withdraw(made)
                raise
        return made

    def add_directory(
        self,
        path: Union[str, bytes, "os.PathLike[str]"],
        *,
        include: Union[str, Iterable[str]] = (),
        exclude: Union[str, Iterable[str]] = (),
        follow_links: bool = False,
        chunk_size: int = DEFAULT_CHUNK_BYTES,
        recipients: Union[int, Iterable[str]] = 0,
        least: int = 0,
        ref_id: Optional[str] = None,
        settled: Optional[Callable[[Outcome], None]] = None,
        progress: Optional[Callable[[Progress], None]] = None,
        progress_interval: float = 30.0,
        acquire_timeout: Optional[float] = None,
        recipient_idle_timeout: Optional[float] = 600.0,
        transaction_idle_timeout: Optional[float] = 600.0,
    ) -> Reference:
        """Publishes all files below a directory as one, such as a checkpoint with its shards, index and tokenizer, and returns its reference. `download_directory` makes it again.

          include, exclude  patterns of paths below it, as `download_directory` has them
          follow_links      send the files to which symbolic links lead, as caches of models have them; otherwise a link is an error, "io" with `errno.ELOOP`. Links to
                            directories are one in any case

        The files are read while they are sent, so they may be larger than memory. They must not change meanwhile: it is withdrawn then, for those who do not have it yet. Cost: each is
        read twice, for its digest and that of the whole. Errors, with the path: "io" (also a pipe or a device, and a file that changes), "invalid_argument" (a name that could not be a
        file's everywhere; no file at all), "duplicate_name" (two names that differ in case alone). The others are as in `add_tensors`.
        """
        files = OpenDirectory(self._owner.add_held, path, include, exclude, follow_links)
        return self._add(
            files.add, {}, chunk_size, recipients, least, ref_id, None, settled, progress, progress_interval, acquire_timeout, recipient_idle_timeout, transaction_idle_timeout
        )  # fmt: skip

    def _add(
        self, add: Callable[..., Tuple[str, int, int, int]], tensors: Any, chunk_size: int, recipients: Any, least: int, ref_id: Optional[str], metadata: Any,
        settled: Optional[Callable[[Outcome], None]], progress: Optional[Callable[[Progress], None]], progress_interval: float, *more: Any,
    ) -> Reference:  # fmt: skip
        """Publishes one image through `add`; `more` as `publish` takes it."""
        about: List[str] = []
        reasons: Dict[str, str] = {}
        published: List[Reference] = []
        told, progress_interval = _recipients_too(progress, progress_interval, reasons, self._noter(published, reasons))
        recipients, names = names_in(recipients)
        if names and ref_id is None:
            ref_id = secrets.token_hex(16)  # known before it settles
        ids = [ref_id]
        made = publish(
            add, tensors, chunk_size, recipients, least, ref_id, metadata, _teller(self, settled, about, names, ids, reasons), told, progress_interval, *more
        )  # fmt: skip
        about.append(short(made))
        ids[:] = [made]  # with its version, which what replaces it has not
        published.append(made)
        self._remember(published, names, reasons)
        logger.info("published %s: %d bytes", about[0], made.nbytes)
        return made

    def add_transaction(
        self,
        models: Sequence[Mapping[str, Any]],
        chunk_size: int = DEFAULT_CHUNK_BYTES,
        *,
        recipients: Union[int, Iterable[str]] = 0,
        least: int = 0,
        ref_ids: Optional[Sequence[Optional[str]]] = None,
        metadata: Optional[Sequence[Optional[Mapping[str, str]]]] = None,
        settled: Optional[Callable[[Outcome], None]] = None,
        progress: Optional[Callable[[Progress], None]] = None,
        progress_interval: float = 30.0,
        acquire_timeout: Optional[float] = None,
        recipient_idle_timeout: Optional[float] = 600.0,
        transaction_idle_timeout: Optional[float] = 600.0,
        keep_order: bool = True,
        tensor_digests: bool = False,
        copy: bool = False,
    ) -> List[Reference]:
        """Publishes several dicts that settle together, and returns their references: all of them, or none.

        A recipient counts once, when it has all references. `settled` is called once. `ref_ids` and `metadata` have an entry for each dict, or None. An error leaves everything
        as it was, also what is published under `ref_ids`: that is replaced only when all of the new ones can be published, which each needs a free
        place ("table_full"). Not over NATS ("unsupported_request"). The rest is as in `add_tensors`.
        """
        about: List[str] = []
        reasons: Dict[str, str] = {}
        published: List[Reference] = []
        told, progress_interval = _recipients_too(progress, progress_interval, reasons, self._noter(published, reasons))
        recipients, names = names_in(recipients)
        ids: List[Optional[str]] = []
        made = publish_together(
            self._owner.add_all, models, chunk_size, ref_ids, metadata, recipients, least, _teller(self, settled, about, names, ids, reasons), told, progress_interval, acquire_timeout,
            recipient_idle_timeout, transaction_idle_timeout, keep_order, None, tensor_digests, None, None, False, copy,
        )  # fmt: skip
        about.append(f"the transaction of {', '.join(short(ref) for ref in made)}")
        ids.extend(made)
        published.extend(made)
        self._remember(published, names, reasons)
        logger.info("published %s: %d bytes", about[0], sum(ref.nbytes for ref in made))
        return made

    def serve(self, until: Until = None, timeout: Optional[float] = None) -> bool:
        """Serves on this thread, without the interpreter's lock, until `until`: a reference or several (all settled), a threading.Event, or
        a callable that returns true; None: for ever. False: `timeout` seconds were over before. Ctrl-C and `until` are heard within 0.1 s. True of references: all were
        delivered. An error otherwise: "not_delivered" (fewer recipients than were expected have it; if their number is not known, none), "withdrawn", "unknown_reference"."""
        limit = milliseconds(timeout, "timeout", never=-1)
        refs = [reference_id(until)] if isinstance(until, str) else None if until is None else several(until)
        if refs is None:
            return self._owner.serve([], None if until is None else as_until(until), limit)
        return not refs or (self._owner.serve(refs, None, limit) and self._delivered(refs))

    def start(self, daemon: bool = False) -> "Downloader":
        """Serves in the background: starts one thread, named "tensorpull", which `stop()` ends, and the end of the main thread too.

          daemon  False: the interpreter's exit waits for the thread, and so for a callback that it is in. True: the exit waits one second for it at most; a
                  callback that takes longer never ends. In neither case an exit waits for recipients.
        """
        if self._owner.closed:
            raise ValueError("the downloader is closed")
        if os.getpid() != self._process:
            raise ValueError("the downloader belongs to the process that made it; this one is a child of fork()")
        stopping, main, owner = threading.Event(), threading.main_thread(), self._owner

        def work() -> None:
            try:
                owner.serve([], lambda: stopping.is_set() or not main.is_alive(), -1)
            except ValueError:
                if not owner.closed:  # by another thread, before this one began
                    raise

        with self._starting:
            if self._thread is not None and self._thread.is_alive():
                raise RuntimeError("it is serving already")
            thread = threading.Thread(target=work, name="tensorpull", daemon=bool(daemon))
            thread.start()
            self._thread, self._stopping = thread, stopping
            if daemon:  # a thread that is in the compiled half when the interpreter ends would take a lock that is not there any more
                self._at_exit = _ender(stopping, thread)
                atexit.register(self._at_exit)
        logger.debug("serving in the background")  # not the address, which may have a password
        return self

    def stop(self) -> None:
        """Ends the thread that `start()` has started, within 0.1 s; does nothing without one. What is published stays so."""
        if os.getpid() != self._process:  # where it has no thread, and a lock may be held by none
            return
        with self._starting:
            thread = self._thread
            self._stopping.set()
            if self._at_exit is not None:
                atexit.unregister(self._at_exit)
                self._at_exit = None
        if thread is not None and thread is not threading.current_thread():
            thread.join()
            with self._starting:
                if self._thread is thread:
                    self._thread = None

    def wait(self, refs: Union[str, Iterable[str]], timeout: Optional[float] = None) -> bool:
        """Waits until a reference, or each of several, is settled, while another thread serves. False: not within `timeout` seconds. True, and errors: as of `serve`."""
        wanted = [reference_id(ref) for ref in ([refs] if refs is None or isinstance(refs, str) else refs)]
        end = None if timeout is None else time.monotonic() + milliseconds(timeout, "timeout") / 1000
        seen, soon = -1, 0.1
        while not all(self._owner.settled(ref) for ref in wanted):  # without the lock, which a callback may be waiting for
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return False
            with self._changed:
                # What has been told since the last look may be what is waited for. It is told before the owner says so: look again soon.
                soon = 0.001 if seen != self._changes else min(2 * soon, 0.1)
                seen = self._changes
                self._changed.wait(soon if left is None else min(left, soon))
        return self._delivered(wanted)

    def _delivered(self, refs: List[str]) -> bool:
        """Whether those who were waited for have each of these, which have settled: true, or an error."""
        for ref in refs:
            how = self.outcome(ref)
            have = how.counts.completed + how.counts.completed_unverified
            if how.verdict in ("completed", "completed_unverified", "quorum") or (how.verdict == "uncertified" and have):
                continue
            why = {"withdrawn": "it was withdrawn", "owner_lost": "the owner that coordinates it is gone"}.get(how.verdict, "it has ended")
            code = how.verdict if how.verdict in ("withdrawn", "owner_lost") else "not_delivered"
            raise Error(code, f"{why}, and {have} of {how.expected or 'an unknown number of'} recipients have it ({_others(how)}){_why(how)}", short(ref), at=have)
        return True

    def withdraw(self, ref_id: str) -> None:
        """Ends a publication: after this returns nothing reads its tensors, and recipients get "withdrawn". By the ID alone, of the first 32 digits: also what it has replaced."""
        self._owner.withdraw(reference_id(ref_id))

    def status(self, ref_id: str) -> Status:
        """Counts of the recipients so far, and of the bytes that they were sent, those of a difference beside it among them. An owner remembers what has ended for a while: later "unknown_reference"."""
        return status_of(self._owner, ref_id, self._said_of(ref_id).beside)

    def settled(self, ref_id: str) -> bool:
        """Whether every expected recipient has confirmed or given up, or it was withdrawn, or is not known."""
        return self._owner.settled(reference_id(ref_id))

    def outcome(self, ref_id: str) -> Outcome:
        """How a publication ended; its verdict is "open" before."""
        about = self._said_of(ref_id)
        return as_outcome(self._owner.outcome(reference_id(ref_id)), self._states(about.names, about.refs), about.reasons)

    def label(self, ref_id: str, title: str) -> None:
        """Gives what is published there a title on the status page (`status_password`), such as "round 7"; text of others is shown as text. Without such a page it does nothing."""
        self._owner.name_publication(reference_id(ref_id), text(title, "title", "what it is called"))

    def _remember(self, refs: Sequence[Reference], names: Tuple[str, ...], reasons: Dict[str, str]) -> None:
        for name in names if self._shows_status else ():
            self._owner.name_recipient(recipient_named(name), name)
        with self._noting:
            for ref in refs:
                for key in (ref.lower(), ref.id.lower()):
                    self._about.pop(key, None)
                    if names or ref._beside or reasons:
                        self._about[key] = _About(names, refs, ref._beside, reasons)
            while len(self._about) > self._most_about:
                self._about.pop(next(iter(self._about)), None)

    def _noter(self, published: List[Reference], reasons: Dict[str, str]) -> Callable[[], None]:
        """Called when the first reason is there: a publication of which there is nothing to say is not remembered. Knows this by a weak reference."""
        known = weakref.ref(self)

        def note() -> None:
            alive = known()
            if alive is not None:
                with alive._noting:
                    for ref in published:  # and not under its ID alone, which may be another's by now
                        alive._about.setdefault(ref.lower(), _About((), (), "", reasons))

        return note

    def _said_of(self, ref_id: str) -> "_About":
        return self._about.get(reference_id(ref_id).lower(), _NOTHING)

    def _states(self, names: Sequence[str], refs: Sequence[Optional[str]]) -> Dict[str, str]:
        """Of each name how it fares over all of the references, as far as the owner remembers."""
        found: Dict[str, str] = {}
        for name in names if names and refs and not self._owner.closed else ():
            try:
                found[name] = _over_all([self._owner.recipient_state(reference_id(ref), recipient_named(name)) for ref in refs])
            except Error:
                continue
        return found

    def recipient_state(self, ref_id: str, recipient: Union[str, int]) -> str:
        """How one recipient fares: "unseen", "acquired", "provisional", "completed", "failed", "cancelled", "vanished", ... It is as it says that it is called: only a name that
        was given as one of `recipients` is looked for in certificates."""
        who = recipient_named(recipient) if isinstance(recipient, str) else whole(recipient, "recipient", 2**64 - 1)
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


def _ender(stopping: threading.Event, thread: threading.Thread) -> Callable[[], None]:
    def end() -> None:
        stopping.set()
        thread.join(1.0)

    return end


def _others(how: Outcome) -> str:
    """How those have ended that do not have it."""
    counts = how.counts._asdict()
    return ", ".join(f"{counts[state]} {state}" for state in ("failed", "cancelled", "vanished", "absent", "unfinished") if counts[state]) or "nobody else has asked"


def _why(how: Outcome) -> str:
    return "; " + ", ".join(f"{name or 'one without a name'}: {why}" for name, why in how.reasons.items()) if how.reasons else ""


def _memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 2**63


def _recipients_too(progress: Optional[Callable[[Progress], None]], interval: float, reasons: Dict[str, str], noted: Callable[[], None]) -> Any:
    """The callback for progress, which logs too, and notes why recipients have not completed it; if it does nothing else it wants to know only of ends."""
    heard(progress, "progress")
    milliseconds(interval, "progress_interval")
    return recipient_progress(progress, reasons, noted), interval if progress is not None else 86_400.0


class _About(NamedTuple):
    """What the caller has said of a publication."""

    names: Sequence[str]  #: of its recipients
    refs: Sequence[Optional[str]]  #: the IDs that settle with it
    beside: str  #: the IDs of differences
    reasons: Dict[str, str]  #: why recipients have not completed it


_NOTHING = _About((), (), "", {})


def _over_all(states: List[str]) -> str:
    """How a recipient fares that has these states of the references of a transaction: it counts once."""
    for worst in ("failed", "cancelled", "vanished"):
        if worst in states:
            return worst
    for all_of in ("unseen", "absent", "completed"):
        if all(state == all_of for state in states):
            return all_of
    if all(state.startswith("completed") for state in states):
        return "completed_unverified"
    return states[0] if len(states) == 1 else "unfinished" if "unfinished" in states or "absent" in states else "acquired"


def _teller(
    downloader: Downloader, settled: Optional[Callable[[Outcome], None]], about: List[str], names: Sequence[str], refs: Sequence[Optional[str]],
    reasons: Dict[str, str],
) -> Callable[[Outcome], None]:  # fmt: skip
    """Tells the log, the caller and the threads that wait. `about`: what it is called, once that is known; `refs`: its references, likewise. Knows the downloader by a weak reference: the downloader has this, in the compiled half."""
    heard(settled, "settled")
    known = weakref.ref(downloader)
    if logger.isEnabledFor(logging.INFO):
        settled = log_outcome(settled, lambda: about[0] if about else "a publication")

    def tell(how: Outcome) -> None:
        alive = known()
        try:
            if settled is not None:
                settled(how._replace(recipients=alive._states(names, refs) if alive is not None and names else {}, reasons=dict(reasons)))
        finally:
            if alive is not None:
                with alive._changed:
                    alive._changes += 1
                    alive._changed.notify_all()

    return tell
