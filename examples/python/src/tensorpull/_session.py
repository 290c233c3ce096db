"""Both directions over one connection: a client dials out, and is pulled from."""

from __future__ import annotations

import os
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional, Tuple, Union, overload

from . import _native
from ._decomposed import references_of_sets
from ._download import download_tensors, pull
from ._errors import Error
from ._file import download_file, pull_into_file
from ._listing import Listing, list_tensors, look, looking
from ._options import DEFAULT_CHUNK_BYTES, PER_REQUEST_TIMEOUT, RETRIES, as_abort, as_authoriser, as_until, listening, milliseconds, reference_id, several, takes_what, text, whole, with_port, within
from ._publish import publish, status_of
from ._tls import TLS, native
from ._types import Abort, Access, Downloaded, FileOptions, Framework as Framework, LookOptions, OfOneProcess, Outcome, PartReference, Progress, PullOptions, Receipt, Reference, Status, Tell, Unpack, Until  # the annotations that takes_what copies are looked up here


class Message(NamedTuple):
    """What one program says to another: a number that the two have agreed on, any bytes, and references to what was published. If the bytes are a message struct
    (`tensorpull.messages`, and `tensor_decomposer` in C++), what belongs to its sets of tensors is pulled by way of the struct alone."""

    kind: int
    body: bytes
    references: Tuple[Reference, ...]


class Relayed(NamedTuple):
    """What passed through a relay."""

    bytes: int  #: of payload that the recipient was sent
    chunks: int
    completed: int  #: confirmations with a digest that the owner has accepted
    completed_unverified: int  #: confirmations without one


class Tunnelled(NamedTuple):
    """Bytes that passed through a tunnel."""

    forth: int  #: to the other session
    back: int  #: from there


class Session(OfOneProcess):
    """One connection in both roles, over any link but HTTP. Either end publishes, pulls what the other has published, and sends messages, whichever end has dialled.

        # a client that nobody can reach
        with tensorpull.Session("server:8002") as server:
            ref = server.add_tensors(model.state_dict(), recipients=1)
            server.send(UPDATE, b"600 images", [ref])
            server.serve(until=ref)                     # the server pulls over this connection

        # the server
        with tensorpull.Listener("0.0.0.0:8002") as door:
            client = door.accept()                      # a Session; one thread for each, if there are many
            message = client.receive()
            state = client.download_tensors(message.references[0])

    It answers the other end only while one of its calls waits: `serve`, `receive`, `send`, `download_tensors`. One thread at a time may use
    it; another one gets RuntimeError. The interpreter's lock is not held while bytes move, and no thread is started. Every wait hears Ctrl-C
    and `abort` within 0.1 s. A connection that is lost stays lost: "connection_lost" from then on. A session belongs to the process that
    made it, as a `Downloader` does.
    """

    def __init__(self, address: str, timeout: Optional[float] = 10.0, retries: int = RETRIES, abort: Abort = None, *, ssl: Optional[TLS] = None) -> None:
        """Connects to `address`, as `download_tensors` does; `timeout` in seconds for each try, `retries` if nobody is there yet. Two more forms:
        "nats://server:4222#name" meets the end that listens on the same, and "pipe:-" is this program's standard input and output. Over
        udp://, serial: and nats:// nothing is said before the first call, and nobody says goodbye: a call ends by its time. Over udp:// and
        nats:// this end speaks first, since the other one learns from that where it is."""
        self._session = _native.Session.connect(
            text(address, "address", "host:port"), milliseconds(timeout, "timeout"), whole(retries, "retries", 2**32 - 1), as_abort(abort),
            native(ssl),
        )  # fmt: skip

    @classmethod
    def _of(cls, session: Any) -> "Session":
        made = cls.__new__(cls)
        made._session = session
        return made

    @takes_what(download_tensors, "address", "ssl", "digest", "bearer", "connections")
    def download_tensors(
        self, ref_id: str, per_request_timeout: Optional[float] = PER_REQUEST_TIMEOUT, chunk_size: Optional[int] = None, progress: Tell = None, abort: Abort = None,
        **options: Unpack[PullOptions],
    ) -> Downloaded:  # fmt: skip
        """Pulls what the other end has published under `ref_id`. Arguments and errors are those of `tensorpull.download_tensors`; it asks again
        over this connection only. One more error: "unread_messages": messages are in the way; `receive()` them first."""
        return pull(self._session, ref_id, per_request_timeout, chunk_size, progress, abort, **options)

    @takes_what(download_file, "address", "ssl", "digest", "bearer", "connections")
    def download_file(self, ref_id: str, path: Union[str, bytes, "os.PathLike[str]"], **options: Unpack[FileOptions]) -> Receipt:
        """Pulls what the other end has published under `ref_id` into a safetensors file. Arguments and errors are those of `tensorpull.download_file`, and "unread_messages"."""
        return pull_into_file(self._session, ref_id, path, **options)

    @takes_what(list_tensors, "address", "ssl", "digest", "bearer")
    def list_tensors(
        self, ref_id: str, per_request_timeout: Optional[float] = PER_REQUEST_TIMEOUT, abort: Abort = None, *, max_header_bytes: int = 16 << 20, max_tensors: int = 1_000_000, timeout: Optional[float] = None,
        wait: Optional[float] = None, **options: Unpack[LookOptions]
    ) -> Listing:  # fmt: skip
        """Says what the other end has published under `ref_id`, and pulls none of it. Arguments and errors are those of `tensorpull.list_tensors`."""
        with within(timeout, wait, abort) as heard:
            return look(self._session, ref_id, max_header_bytes, max_tensors, looking(ref_id, per_request_timeout, heard, **options))

    def add_tensors(
        self,
        tensors: Any,
        chunk_size: int = DEFAULT_CHUNK_BYTES,
        *,
        recipients: int = 0,
        ref_id: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        settled: Optional[Callable[[Outcome], None]] = None,
        progress: Optional[Callable[[Progress], None]] = None,
        progress_interval: float = 30.0,
        recipient_idle_timeout: Optional[float] = 600.0,
        transaction_idle_timeout: Optional[float] = 600.0,
        keep_order: bool = True,
        tensor_digests: bool = False,
        base: Any = None,
        narrow: bool = False,
        copy: bool = False,
    ) -> Reference:
        """Publishes a dict of tensors for the other end, as `Downloader.add_tensors` does; the arguments are those. `recipients=1`: it has
        settled when the other end has confirmed. What is published ends with the session."""
        return publish(
            self._session.add, tensors, chunk_size, recipients, 0, ref_id, metadata, settled, progress, progress_interval, None, recipient_idle_timeout,
            transaction_idle_timeout, keep_order, None, tensor_digests, base, None, narrow, copy,
        )  # fmt: skip

    def send(self, kind: int, body: bytes = b"", references: Iterable[str] = (), timeout: Optional[float] = 600.0, abort: Abort = None) -> None:
        """Sends a message; returns when the system has taken it, over udp://, serial: and nats:// when the other end has. "does_not_fit":
        `body` is above 64 KiB, or there are too many references."""
        if isinstance(references, str):
            raise TypeError("references is several of them: [ref]")
        named = [(reference_id(r), _native.version_of(reference_id(r)), getattr(r, "fingerprint", 0)) for r in references]
        self._session.send(whole(kind, "kind", 2**32 - 1), bytes(memoryview(body)), named, milliseconds(timeout, "timeout"), as_abort(abort))

    @overload
    def receive(self, timeout: None = None, abort: Abort = None) -> Message: ...

    @overload
    def receive(self, timeout: Optional[float], abort: Abort = None) -> Optional[Message]: ...

    def receive(self, timeout: Optional[float] = None, abort: Abort = None) -> Optional[Message]:
        """The next message; it may have come during an earlier call. None: not within `timeout` seconds. Serves while it waits."""
        got = self._session.receive(milliseconds(timeout, "timeout"), as_abort(abort))
        if got is None:
            return None
        kind, body, references = got
        parts = references_of_sets(body) if references else ()
        return Message(kind, body, tuple((PartReference if i in parts else Reference)(*reference) for i, reference in enumerate(references)))

    def serve(self, until: Until = None, timeout: Optional[float] = None, abort: Abort = None) -> bool:
        """Serves the other end on this thread, until `until`: a reference or several (all settled), a threading.Event, or a callable that
        returns true; None: until the connection is lost. False: `timeout` seconds were over before. An error, such as "not_delivered", if a reference has settled
        and the other end does not have it; "cancelled" (`abort`)."""
        limit = milliseconds(timeout, "timeout")
        refs = [reference_id(until)] if isinstance(until, str) else None if until is None else several(until)
        over, stopped = as_until(until) if refs is None else None, as_abort(abort)
        if refs == []:
            return True
        ends = over if stopped is None else stopped if over is None else lambda: stopped() or over()
        done = self._session.serve(refs or [], ends, limit)
        if done and stopped is not None and stopped() and not (all(map(self._session.settled, refs)) if refs else over is not None and over()):
            raise Error("cancelled", "what was waited for has not happened yet")
        return done

    def relay_to(
        self, other: "Session", ref_id: str, *, chunk_size: int = DEFAULT_CHUNK_BYTES, timeout: Optional[float] = 600.0, abort: Abort = None, bytes_per_second: int = 0
    ) -> Relayed:
        """Passes what this session's peer, the owner, has published under `ref_id` on to the peer of `other`, the recipient, until that one hangs up. Neither of them can reach the other.

            owner, recipient = door.accept(), door.accept()
            ref = owner.receive().references[0]
            recipient.send(GO, b"", [ref])              # from now on it pulls
            passed = owner.relay_to(recipient, ref)

        The recipient pulls as from the owner, any number of times, and nothing but `ref_id`. Its digest and its version are the owner's, and its confirmation counts there. Memory: `chunk_size`
        bytes, which bounds the chunks; nothing else is allocated, and no thread is started. `bytes_per_second` is the most that the recipient is sent; 0: no limit. `timeout`: seconds without a byte in either
        direction. Encryption ends here: this program sees the bytes.

        `other` is closed afterwards, whatever happened. This session goes on: what its peer says meanwhile waits for `receive()`. Both are streams (tcp://, tls://, unix:, shm:). Errors leave
        both as they are if "unsupported_request" (another link) or "unread_messages" (`other` has bytes that nobody has received) says so before a byte has moved. Later ones: "connection_lost" of either side,
        before the recipient had ended; "timed_out"; "cancelled" (`abort`); "unread_messages": the owner has sent more messages than a session keeps. What the recipient is refused (no such reference, "withdrawn") it
        hears itself, and is no error here. `Error.landed`: bytes that were passed on."""
        if not isinstance(other, Session):
            raise TypeError(f"other is a Session; not {other!r}")
        return Relayed._make(
            self._session.relay_to(
                other._session, reference_id(ref_id), whole(chunk_size, "chunk_size", _native.max_chunk_bytes, 1), milliseconds(timeout, "timeout"),
                whole(bytes_per_second, "bytes_per_second", 2**63 - 1), as_abort(abort),
            )
        )  # fmt: skip

    def tunnel_to(self, other: "Session", *, memory: int = 1 << 20, timeout: Optional[float] = 600.0, abort: Any = None, bytes_per_second: int = 0) -> Tunnelled:
        """Passes all bytes of this session's peer and of the peer of `other` on to each other, until either hangs up. Both peers call `through_tunnel` when this program has told them to, and
        have a session of their own then, of which this program sees nothing but TLS. First it tells the one that accepts, and waits for an answer, since that one reads what the other one says first.

        `memory`: bytes, and the only buffer. `bytes_per_second`: the most that the peer of `other` is sent; 0: no limit. `timeout`: seconds without a byte in either direction. Both sessions are
        closed afterwards. A peer that is lost has hung up, too: only the two know what should have arrived. Errors: "timed_out", "cancelled"; before a byte has moved "unsupported_request", and
        "unread_messages": a peer has sent something that nobody has received."""
        if not isinstance(other, Session):
            raise TypeError(f"other is a Session; not {other!r}")
        return Tunnelled._make(
            self._session.tunnel_to(
                other._session, whole(memory, "memory", _native.max_chunk_bytes, 4), milliseconds(timeout, "timeout"), whole(bytes_per_second, "bytes_per_second", 2**63 - 1), as_abort(abort)
            )
        )

    def through_tunnel(self, ssl: Optional[TLS] = None, peer: str = "", *, accepts: bool = False, timeout: Optional[float] = 10.0, abort: Any = None) -> "Session":
        """A session with whoever is at the far end, once this session's peer passes all bytes on (`tunnel_to`). This session is closed.

            door.send(WANTS, word)
            door.receive()                              # the peer says that it passes bytes on from now on
            with door.through_tunnel(tls, "site-1") as site:
                site.receive()

        With `ssl`, TLS goes from end to end. `peer` is the common name that the far end's certificate has to have. One end has `accepts=True` and the part of a server: it waits for the other one,
        `timeout` seconds at most, and its `ssl` has `require_client_certificates`. The other end finds `peer` among its subjectAltNames, too. The end without `accepts` speaks first.

        Errors: those of a connection over TLS ("not_authenticated": the far end is somebody else); "unsupported_request": this is not a session over tcp:// or tls://; "unread_messages"."""
        return Session._of(self._session.through_tunnel(native(ssl), text(peer, "peer", "a name") if peer else "", bool(accepts), milliseconds(timeout, "timeout"), as_abort(abort)))

    @property
    def peer_name(self) -> str:
        """Over tls://: the common name in the certificate that the other end has shown, and whose key it has. "": it has shown none, or this is another link."""
        return self._session.peer_name

    def withdraw(self, ref_id: str) -> None:
        """Ends a publication: after this returns nothing reads its tensors, and the other end gets "withdrawn"."""
        self._session.withdraw(reference_id(ref_id))

    def status(self, ref_id: str) -> Status:
        """Counts of the recipients of what this end has published, and of the bytes that they were sent. Those of a difference beside it are among them if `ref_id` is the `Reference`
        itself, and not its text."""
        return status_of(self._session, ref_id, getattr(ref_id, "_beside", ""))

    def settled(self, ref_id: str) -> bool:
        """Whether the other end has confirmed or given up, or it was withdrawn, or is not known."""
        return self._session.settled(reference_id(ref_id))

    @property
    def closed(self) -> bool:
        """Whether `close()` was called."""
        return self._session.closed

    def close(self) -> None:
        """Closes the connection and lets go of what was published. RuntimeError while another thread uses it: end that with `abort`."""
        self._session.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Listener(OfOneProcess):
    """Accepts connections, each of which is a `Session`. `accept` may be called by several threads."""

    def __init__(self, listen: str = "127.0.0.1:0", *, ssl: Optional[TLS] = None, authorise: Optional[Callable[[Access], bool]] = None) -> None:
        """Listens on an address, as a `Downloader` does; over NATS on a name, "nats://server:4222#name". Over udp://, serial: and nats:// there is
        one session, with the first end that sends something. `authorise` is asked what the other ends may have of what the sessions publish, as a `Downloader` asks it."""
        where = text(listen, "listen", "host:port")
        self._listener = listening(lambda: _native.Listener(where, native(ssl), as_authoriser(authorise)))
        self._listen = listen

    @property
    def port(self) -> int:
        """The port that it listens on; 0 if the transport has none."""
        return self._listener.port

    @property
    def address(self) -> str:
        """The address as `listen` had it, with the port."""
        return with_port(self._listen, self.port)

    @overload
    def accept(self, timeout: None = None, abort: Abort = None) -> Session: ...

    @overload
    def accept(self, timeout: Optional[float], abort: Abort = None) -> Optional[Session]: ...

    def accept(self, timeout: Optional[float] = None, abort: Abort = None) -> Optional[Session]:
        """The next connection. None: none has come within `timeout` seconds, or `close()` was called meanwhile. Over TLS
        up to 64 clients shake hands at a time, each within 10 seconds; one that fails is dropped, and one that is not done yet goes on in the next call. Over udp://, serial: and nats:// the one
        session is given at once, and "unsupported_request" says that it was."""
        session = self._listener.accept(milliseconds(timeout, "timeout"), as_abort(abort))
        return None if session is None else Session._of(session)

    def close(self) -> None:
        """Stops listening. Sessions that were accepted stay."""
        self._listener.close()

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
