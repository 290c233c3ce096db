"""The recipient's side: one pull into a dict of tensors."""

from __future__ import annotations

import os
import secrets
import sys
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, Union

from . import _native
from ._changed import changes, confirmed, is_the_whole, receipt_of, take_smallest
from ._difference import LEAST_BYTES, bring, in_difference
from ._errors import Error
from ._images import TensorRange
from ._listing import Listing, as_published, chosen, chunk_of_header, difference, look, look_closely, looking, tie_as_published
from ._log import logger, place, short
from ._options import PER_REQUEST_TIMEOUT, RETRIES, newest, pull_settings, whole, within
from ._proofs import SignedReference, only_for_all, over_proved
from ._route import Addresses, addresses_of, connections_to, is_url, kept, over_addresses, throughout, web_settings
from ._slices import Slice, sliced
from ._tensors import FLOATING, Tensors, convert_into, empty_like, numpy_maker, torch_maker
from ._tls import TLS
from ._trees import TREE, arrive, as_flat, own
from ._types import Abort, Downloaded, Framework, Receipt, Tell


#: What takes all tensors, under the names under which they travel, and their version, before the owner hears that they are here; its error is what the owner hears of then.
Taker = Callable[[Mapping[str, Any], int], None]


class NoDifference(Exception):
    """There is none, and nothing was taken."""


def download_tensors(
    address: Addresses,
    ref_id: Union[str, SignedReference] = "",
    per_request_timeout: Optional[float] = PER_REQUEST_TIMEOUT,
    chunk_size: Optional[int] = None,
    progress: Tell = None,
    abort: Abort = None,
    *,
    framework: Optional[Framework] = None,
    out: Any = None,
    subset: bool = False,
    names: Optional[Iterable[str]] = None,
    matching: Optional[Iterable[str]] = None,
    max_bytes: Optional[int] = None,
    max_header_bytes: int = 16 << 20,
    max_tensors: int = 1_000_000,
    progress_interval: float = 0.1,
    version: Optional[int] = None,
    recipient: Optional[str] = None,
    window: int = 0,
    retries: int = RETRIES,
    unverified: bool = False,
    believe: bool = False,
    ssl: Optional[TLS] = None,
    digest: Optional[str] = None,
    bearer: Optional[str] = None,
    connections: int = 1,
    base: Optional[Mapping[str, Any]] = None,
    timeout: Optional[float] = None,
    wait: Optional[float] = None,
    atomic: bool = False,
    cursor: Optional[_native.Cursor] = None,
    adapt: bool = False,
) -> Downloaded:
    """Pulls what is published under `ref_id` at `address` and returns it as a dict of tensors.

    `address` is "host:port" or "tcp://host:port"; "tls://host:port" is TLS, as `ssl` says (the system's
    authorities without it); "unix:path" or "unix:@name" is a program of this user on this machine, and
    "shm:path" or "shm:@name" is one that shares its memory, so that nothing is sent: one copy.
    "pipe:command" starts a command that talks over its standard input and output ("pipe:ssh host send model.safetensors --stdio"); no shell reads it.
    "udp://host:port", "serial:/dev/ttyUSB0?speed=115200" and "nats://user:password@host:port?inbox=_INBOX_me&credentials=FILE" (if libnats was there when this was built) carry datagrams: chunks are what fits one,
    whatever `chunk_size` says.
    "http://host/model.safetensors" and "https://..." name a file of any web server, or of an owner that answers HTTP; `ref_id` may be left out there. If it is a
    `Reference`, the file's digest has to be its version. `digest` says it, too: "sha256:" and 64 digits, or "xxh3:" and 16. Without any, the server has to state one, or the
    error is "not_verifiable". `bearer` is sent as authorisation to the URLs' own hosts; an owner wants the reference's digits there. `ssl` is for https, without `check_hostname`.
    Into tensors a file lands that is laid out as this library writes it; any other into a file. `subset`, `names` and `matching` are not for URLs.
    A list of addresses: owners of the same, that is of one version under one reference. The first is asked that can be reached, and the next one when it
    is lost, does not answer, or gives something else than the reference. Between neighbours of one kind ("host:port", "tls://", "unix:") a download goes on with what has
    arrived, unless `retries` is 0; between all others with `out`, and new tensors begin anew.

    The bytes go from the socket into the tensors' memory; nothing is copied on the way, and the interpreter's lock is not held. Tensors
    are returned only if the digest of what arrived is the published one. Whether the owner has heard of that is `receipt.confirmed`.

    Where the tensors come from:
      framework  "numpy" (the default) or "torch": new tensors are made as the owner describes them, in the CPU's memory, once the
                 description has been checked, and within `max_bytes` (all tensors together; default: this machine's memory; say what you
                 expect), `max_header_bytes` (names and shapes) and `max_tensors`. Above a limit: "too_large", nothing allocated.
      out        a dict of tensors that exist, NumPy's or torch's, or a tree of them (see `flatten`; its numbers stay as they are): they are landed in,
                 and returned under their dotted names. They are writable and apart from each other ("unsupported_layout" otherwise); any strides,
                 and torch's on any device: what is not contiguous in the CPU's memory is landed in by slices of at most 2 MiB. Tensors of `out` that are
                 one memory have to be tied at the owner's too, or be published under one of their names alone; names that only the owner has tied may be missing here. Names, dtypes and shapes are those of the owner, or the error is
                 "schema_mismatch" before anything is touched. Of torch's, `requires_grad` and `grad` stay.
                 A download that ends with an error after bytes have landed leaves old and new tensors in it: `landed` of the error is above 0, and its text says so
      atomic     with `out`: lands in new memory of the CPU first, and changes `out` once all has come and its digest was compared. Cost: that memory, and one more pass
      cursor     with `out`: a `Cursor`, which knows afterwards where the download stands, also after an error. Given to another call with the same `out`, it goes on there, if
                 that is still what had landed and the same version is published. Cost: one pass over what had landed
      adapt      with `out`: its tensors may be called as those that are published but for "module." and "_orig_mod.", which torch's DistributedDataParallel and `torch.compile` put
                 into names, and floating ones may have another floating dtype: they are landed in new memory and converted once all has come. Cost: that memory, a look at what is
                 published, and one more pass. "schema_mismatch" otherwise, in which case nothing has changed
      subset     with `out`: its tensors are only some of those that are published.
      names, matching  without `out`: new tensors are made of these alone, `names=["head.weight"]`, and of those that a pattern fits, `matching=["encoder.*"]`: "*" is any
                 characters, "?" is one. "invalid_argument" with the name or pattern that chooses nothing. What is published is looked at first (`list_tensors`).
                 A dict asks for slices: `names={"w": slice(0, 1024), "v": numpy.s_[:, 256:512], "bias": ...}`, where ... is all of it. Their bytes alone travel, with a digest of their own
                 (`receipt.digest`). With `out` it says which slices of what is published those tensors of `out` are; its others are whole, as with `subset`. "invalid_argument": a slice is
                 empty, or of a scalar; "out_of_range"; "unsupported_request": two dimensions of one tensor, a step, or an owner of an earlier version. Not for URLs, `base`, `adapt` and `cursor`
      base       a dict of an earlier version, which this recipient has: only the tensors that have changed since are pulled, if the owner's metadata has their digests
                 (`tensor_digests`), and otherwise all of them. Tensors that have not changed are those of `base`, not copies. With `out`, `base` is the same tensors (two
                 state dicts of one module are): what has changed is landed in place. New tensors are of the kind of those of `base`, unless `framework` says otherwise, and `max_bytes` is of those that are pulled.
                 Tensors of `base` that are not published any more are left out. `receipt.kept_bytes` says how much was not pulled.
                 "completed" means what it always does: the digest of the whole was compared, over what was there and what came, before the owner hears of it. If it is another
                 one, all is pulled, and the owner counts that alone. If nothing has changed, one byte is pulled, so that the owner counts this recipient (over several addresses and connections, the smallest tensor). Cost: two
                 passes over the bytes of `base`. Not for URLs.
    Tied tensors (one tensor under several names) are tied again. New tensors come in the order in which they were published; of a tree, under dotted names, and
    `unflatten` makes the tree of them. "bad_frame": the owner's metadata of order, ties or tree contradicts its tensors.

    Whom to believe: nobody, if `ref_id` is a `SignedReference` (`verify_reference`). Each group of bytes is proved as it lands. Up to eight addresses of one kind of
    link (host:port, tls:// or unix:) give it at once, over a connection each or as many as `connections`; all others, one after the other. One that lies is named in the log, and the
    others go on. ValueError for arguments that ask for less than all of it.

    How long it takes:
      timeout              seconds for all of it, whatever happens meanwhile; then "timed_out", and the owner is told; None: no limit. A name that is resolved is waited for
      wait                 seconds without anything that comes: for an owner that is not there yet, is started again, or has fallen silent; then "timed_out". It is tried every 2 s at
                           least, whatever `retries` is (of a list of addresses, each so often); None: as often as `retries` is
      per_request_timeout  seconds without progress (an answer, or 1/64 of a chunk) before it is asked again, on a new connection if that is
                           needed; None: for ever
      retries              how often to try again in a row without progress, also if the owner cannot be reached yet; the pauses grow from 0.25 s, eight take about a minute
      abort                a threading.Event, anything with `is_set()` or `triggered`, or a callable that returns true; heard within
                           0.1 s. The error is "cancelled", and the owner is told. Ctrl-C is heard as soon.
      progress             a callable that takes a `Progress`, or a bar: `tqdm(unit="B", unit_scale=True)`. At most once in
                           `progress_interval` seconds, and at the end. With `base` a difference is told first, under its own `ref_id`. An exception from it ends the download and is raised here.
    How it is asked for:
      chunk_size  bytes asked for at a time: the recipient's choice. 0: everything in one frame ("does_not_fit" above 536,870,904 bytes).
                  Default: what the reference suggests, or 2 MiB.
      connections over host:port, tls:// and unix:, at a time, at most 8. Where packets are lost on a long way, several carry more than one. With a list of
                  addresses of one kind these are to all of them: each owner sends a part, each as fast as it is, and the download goes on as long as one does.
                  All are believed until the digest of the whole is compared. If it is wrong, nobody is named, and one after the other is asked for all of it. What the
                  first owner says of names, dtypes and shapes ends the download if it cannot be. One outcome, and no thread
      window      requests in flight at most; 0: as many as are usual, over datagrams as many as the path allows
      version     only this version ("stale_version" otherwise, or "digest_mismatch" if somebody only says that it is this one); default: the reference's, which is the
                  last 16 of its 48 digits; 0, and the default of 32 digits: whatever is there, as whoever answers says
      recipient   this recipient's name, if the owner expects recipients by name
      unverified  take what is published without a digest, too ("not_verifiable" otherwise): nobody can say whether its bytes are right
      believe     over nats://, where anybody who is let in can answer first, take what the first answer describes, without a version or of a subset
                  ("version_required" otherwise)

    Raises `Error`; what `abort` or `progress` raises; TypeError and ValueError for arguments that make no sense.
    """
    address, names, matching = kept(address), kept(names), kept(matching)
    if isinstance(ref_id, SignedReference):
        only_for_all(
            address, subset=(subset, False), names=(names, None), matching=(matching, None), version=(version, None), unverified=(unverified, False), believe=(believe, False), digest=(digest, None),
            bearer=(bearer, None), base=(base, None), cursor=(cursor, None), adapt=(adapt, False), chunk_size=(chunk_size == 0, False),
        )  # fmt: skip
        signed, told, at_a_time = ref_id, throughout(progress, [*addresses_of(address)]), connections_to(address, connections, chunk_size)
        with within(timeout, wait, abort, address) as heard:
            got, source = over_proved(address, ssl, signed, lambda proved: pull(
                proved, signed.reference, per_request_timeout, chunk_size, told, heard, framework=framework, out=out, max_bytes=max_bytes, max_header_bytes=max_header_bytes, max_tensors=max_tensors,
                progress_interval=progress_interval, recipient=recipient, window=window, retries=retries, atomic=atomic,
            ), told, at_a_time)  # fmt: skip
        logger.info("%s downloaded from %s and proved: %d bytes", short(signed.reference), place(source), got.receipt.bytes)
        return got
    if base is not None and any(map(is_url, addresses_of(address))):
        raise ValueError("base is not for URLs: a web server is asked for a whole file")
    if cursor is None and not isinstance(address, str) and out is not None and not subset and names is None and base is None and not atomic and not adapt:
        cursor = _native.Cursor()
    web = web_settings(address, ref_id, digest, bearer, recipient)
    web.max_header_bytes = whole(max_header_bytes, "max_header_bytes", 2**63 - 1)
    told = throughout(progress, address)
    at_a_time = connections_to(address, connections, chunk_size)
    limit = within(timeout, wait, abort, address)
    with limit as heard:
        got, source = over_addresses(address, ssl, lambda route: pull(
            route, ref_id, per_request_timeout, chunk_size, told, heard, framework=framework, out=out, subset=subset, names=names, matching=matching, max_bytes=max_bytes,
            max_header_bytes=max_header_bytes, max_tensors=max_tensors, progress_interval=progress_interval, version=version, recipient=recipient, window=window,
            retries=retries, unverified=unverified, believe=believe, base=base, atomic=atomic, cursor=cursor, adapt=adapt,
        ), web, told, at_a_time)  # fmt: skip
    logger.info("%s downloaded from %s: %d bytes, %s", short(ref_id), place(source), got.receipt.bytes, got.receipt.outcome)
    return got


def pull(
    source: Any,
    ref_id: str,
    per_request_timeout: Optional[float] = PER_REQUEST_TIMEOUT,
    chunk_size: Optional[int] = None,
    progress: Any = None,
    abort: Any = None,
    *,
    out: Any = None,
    base: Optional[Mapping[str, Any]] = None,
    timeout: Optional[float] = None,
    wait: Optional[float] = None,
    atomic: bool = False,
    cursor: Any = None,
    adapt: bool = False,
    **options: Any,
) -> Downloaded:
    """The same from a source of the compiled half: a route, or a session."""
    if cursor is not None and not isinstance(cursor, _native.Cursor):
        raise TypeError(f"cursor is a tensorpull.Cursor; not {cursor!r}")
    if cursor is not None and (out is None or options.get("subset") or options.get("names") is not None or base is not None or atomic or adapt):
        raise ValueError("cursor is for out alone: what has landed there is gone on with")
    if atomic and out is None:
        raise ValueError("atomic is for out: new tensors are returned only if all of them have come")
    if adapt and (out is None or base is not None or options.get("names") is not None):
        raise ValueError("adapt is for out, without base and names: names and dtypes of these are those that are published")
    with within(timeout, wait, abort) as heard:
        if adapt:
            return newest(ref_id, options.get("version"), options.get("retries", RETRIES), progress, lambda told: _adapted(
                source, ref_id, per_request_timeout, chunk_size, told, heard, out, atomic, **options
            ))  # fmt: skip
        if not atomic:
            try:
                return newest(ref_id, options.get("version"), options.get("retries", RETRIES), progress, lambda told: _pull(source, ref_id, per_request_timeout, chunk_size, told, heard, out=out, base=base, cursor=cursor, **options))
            except Error as e:
                raise _afterwards(e, out is not None, not source.reference_of("", 0)) from None  # a URL has a reference of its own
        flat = as_flat(out)
        tensors = writable(flat)
        _native.check_landing(tensors.described)  # before the owner hears that all of it is here
        staged = empty_like(flat)
        if base is not None:
            _same_memory(flat, as_flat(base))
            _native.copy_tensors(tensors.described, Tensors(staged).described)
        got = newest(ref_id, options.get("version"), options.get("retries", RETRIES), progress, lambda told: _pull(
            source, ref_id, per_request_timeout, chunk_size, told, heard, out=staged, base=staged if base is not None else None, **options
        ))  # fmt: skip
    tensors.mark_changed()
    _native.copy_tensors(Tensors(staged).described, tensors.described, whole=True)  # Ctrl-C leaves it as it was, or new
    result = Downloaded(flat)
    result.metadata, result.structure, result.receipt, result._published = got.metadata, getattr(flat, "structure", None), got.receipt, got._published
    return result


def _adapted(
    source: Any, ref_id: str, per_request_timeout: Optional[float], chunk_size: Optional[int], progress: Any, abort: Any, out: Any, atomic: bool, **options: Any
) -> Downloaded:  # fmt: skip
    """Lands in tensors whose names or dtypes are others than those that are published."""
    flat = as_flat(out)
    mine = writable(flat)
    _native.check_landing(mine.described)
    settings = pull_settings(
        ref_id, per_request_timeout, chunk_size, None, 0.1, abort, options.get("version"), options.get("recipient"), 1, options.get("retries", RETRIES), options.get("unverified", False)
    )  # fmt: skip
    there = look(
        source, source.reference_of(ref_id, settings.version), options.get("max_header_bytes", 16 << 20), options.get("max_tensors", 1_000_000),
        looking(ref_id, per_request_timeout, abort, options.get("version"), options.get("recipient"), options.get("retries", RETRIES)),
    )  # fmt: skip
    called = as_published(flat, there)
    like: Dict[str, Any] = {}
    convert: Dict[str, Any] = {}  # by the names of out
    places: Dict[Any, Tuple[Any, bool]] = {}  # tensors of out that are one memory land in one, whichever of them is converted
    described = {one[0]: one for one in Tensors(flat, apart=True).described}
    for name, tensor in flat.items():
        theirs, its = there.tensors.get(called[name]), described[name]
        other = theirs is not None and theirs.dtype != its[1] and {theirs.dtype, its[1]} <= FLOATING and tuple(theirs.shape) == tuple(its[2])
        place = (*its[1:6], *its[7:]) if 0 not in its[2] else name
        if place not in places:
            made: Dict[str, Any] = {}
            if theirs is not None and other:
                (torch_maker if hasattr(tensor, "requires_grad") else numpy_maker)(made)(name, theirs.dtype, theirs.shape)
            places[place] = made.get(name, tensor), bool(made)
        like[called[name]], converted = places[place]
        if converted:
            convert[name] = like[called[name]]
    if atomic:
        staged = empty_like(flat)
        like.update({called[name]: tensor for name, tensor in staged.items() if name not in convert})
    got = _pull(source, ref_id, per_request_timeout, chunk_size, progress, abort, out=like, **{**options, "version": there.version if there.verifiable else settings.version})
    mine.mark_changed()
    for name, new in convert.items():
        convert_into((staged if atomic else flat)[name], new)
    if atomic:
        _native.copy_tensors(Tensors(staged).described, mine.described, whole=True)
    result = Downloaded(flat)
    result.metadata, result.structure, result._published = got.metadata, getattr(flat, "structure", None), got._published
    result.receipt = got.receipt._replace(believed=got.receipt.believed or not settings.version)
    return result


def _afterwards(e: Error, into_out: bool, owner: bool) -> Error:
    """Says of a download that has ended in the middle, or with other bytes, what is there now, or why that may be."""
    if e.code == "digest_mismatch" and owner:
        e = e.saying(f"{e.message}: the owner's tensors may have changed since they were published, as those of a state_dict() do in a step of training (add_tensors(copy=True))")
    if e.landed and into_out and e.code != "schema_mismatch":
        e = e.saying(f"{e.message}; the tensors of out are old and new by now (cursor= goes on from there; with atomic=True none changes before all have come)")
    return e


def _same_memory(out: Mapping[str, Any], base: Mapping[str, Any]) -> None:
    """ValueError if these are not the same tensors: two state dicts of one module are."""
    if out is base:
        return
    mine, other = ({one[0]: one[1:6] for one in Tensors(tensors, apart=True).described} for tensors in (out, base))
    for name in sorted({*mine, *other}):
        if mine.get(name) != other.get(name):
            raise ValueError(f"with out, base is the same tensors, since what has changed is landed in place: {name!r} is another one, or in one of them alone")


def _pull(
    source: Any,
    ref_id: str,
    per_request_timeout: Optional[float],
    chunk_size: Optional[int],
    progress: Any,
    abort: Any,
    *,
    framework: Optional[str] = None,
    out: Any = None,
    subset: bool = False,
    names: Optional[Iterable[str]] = None,
    matching: Optional[Iterable[str]] = None,
    max_bytes: Optional[int] = None,
    max_header_bytes: int = 16 << 20,
    max_tensors: int = 1_000_000,
    progress_interval: float = 0.1,
    version: Optional[int] = None,
    recipient: Optional[str] = None,
    window: int = 0,
    retries: int = RETRIES,
    unverified: bool = False,
    believe: bool = False,
    base: Optional[Mapping[str, Any]] = None,
    cursor: Any = None,
    take: Optional[Taker] = None,
) -> Downloaded:
    if not isinstance(subset, bool):
        raise TypeError(f"subset is True or False: whether out has only some of the tensors that are published (names says which, without out); not {subset!r}")
    if subset and out is None:
        raise ValueError("subset wants out: which of the tensors, and where they go; without out names=[...] says which")
    slices_of_out = out is not None and isinstance(names, Mapping)
    if out is not None and (matching is not None or not (names is None or slices_of_out)):
        raise ValueError("names and matching say which new tensors are made; out has its own: with subset=True only those are pulled")
    if out is not None and framework is not None:
        raise ValueError("framework says what new tensors are; out has its own")
    if framework not in (None, "numpy", "torch"):
        raise ValueError(f'framework is "numpy" or "torch", not {framework!r}')
    if base is not None:
        if subset or names is not None or matching is not None or unverified:
            raise ValueError("base is for all that is published, with its digest")
    settings = pull_settings(ref_id, per_request_timeout, chunk_size, progress, progress_interval, abort, version, recipient, window, retries, unverified, believe)
    settings.cursor = cursor
    ref_id = source.reference_of(ref_id, settings.version)
    max_header_bytes = whole(max_header_bytes, "max_header_bytes", 2**63 - 1)
    max_tensors = whole(max_tensors, "max_tensors", 2**63 - 1)
    limit = physical_memory() if max_bytes is None else whole(max_bytes, "max_bytes", 2**63 - 1)

    spent = 0  # bytes of a difference that was of no use
    if base is not None:
        base = as_flat(base)
        if out is not None and out is not base:
            flat = as_flat(out)
            _same_memory(flat, base)
            base = flat
        if out is None and framework is None and base:  # whatever has changed, and also if all has
            framework = "torch" if all(type(t).__module__.partition(".")[0] == "torch" for t in base.values()) else "numpy"
        about = looking(ref_id, per_request_timeout, abort, version, recipient, retries, chunk_of_header(base))
        if not settings.recipient:  # the owner counts one recipient, whatever is pulled on the way
            settings.recipient = about.recipient = secrets.randbits(64) or 1
        told: Any = settings.progress
        last: List[Any] = []

        def heard(event: Any) -> None:
            last[:] = event
            told(event)

        settings.progress = heard if told is not None else None
        try:
            changed, spent = _changed(source, ref_id, base, out is not None, framework, limit, max_header_bytes, max_tensors, about, settings, take)
        except Error as e:
            if last and last[0] in ("started", "active"):  # it has ended between two pulls
                told(("aborted" if e.code == "cancelled" else "failed", *last[1:]))
            raise
        settings.progress = told
        if changed is not None:
            return changed
        if take is not None:
            raise NoDifference
    if out is not None:
        flat = as_flat(out)
        tensors = writable(flat)
        subset = subset or slices_of_out
        slices: List[Slice] = []
        if slices_of_out:
            about = looking(ref_id, per_request_timeout, abort, version, recipient, retries)
            there = look(source, ref_id, max_header_bytes, max_tensors, about)
            slices = _slices_of(flat, there, names)
            settings.version = there.version
        if subset and tensors.ties:
            # the owner's metadata alone says whether it has tied them, and a part of its tensors is asked for without it
            raise Error("unsupported_layout", "with subset, tensors that are one memory are not landed in", next(iter(tensors.ties)))
        if tensors.ties:
            about = looking(ref_id, per_request_timeout, abort, version, recipient, retries)
            tie_as_published(tensors, look(source, ref_id, max_header_bytes, max_tensors, about))
        tensors.mark_changed()
        try:
            receipt, metadata = _native.download_into(source, ref_id, tensors.described, subset, tensors.ties, max_header_bytes, settings, slices)
        except Error as e:
            about = looking(ref_id, per_request_timeout, abort, version, recipient, 0)

            def differs() -> Optional[Tuple[str, str]]:
                now = look(source, ref_id, max_header_bytes, max_tensors, about)
                return difference(tensors, now._replace(tensors=sliced(now.tensors, names)[0]) if slices_of_out else now, subset, e.name)

            raise _in_words(e, differs) from None
        result = Downloaded(flat)
        result.metadata, result.structure, result._published = own(metadata), getattr(flat, "structure", None), metadata.get(TREE)
    elif names is not None or matching is not None:
        there = look(source, ref_id, max_header_bytes, max_tensors, looking(ref_id, per_request_timeout, abort, version, recipient, retries))
        wanted, slices = sliced(chosen(there, names, matching), names)
        tensors, made = _made(wanted, framework, limit)
        settings.version = there.version
        receipt, _ = _native.download_into(source, ref_id, tensors.described, True, {}, max_header_bytes, settings, slices)
        result = Downloaded({name: made[one.name] for name, one in wanted.items()})
        result.metadata = there.metadata
    else:
        made = {}
        make = torch_maker(made) if framework == "torch" else numpy_maker(made)
        receipt, metadata = _native.download_new(source, ref_id, make, made.clear, limit, max_header_bytes, max_tensors, settings)
        arrived = arrive(made, metadata)
        result = Downloaded(arrived.tensors)
        result.metadata, result.structure, result._published = arrived.metadata, arrived.structure, arrived.structure
    result.receipt = Receipt(*receipt)
    if spent:
        result.receipt = result.receipt._replace(bytes=result.receipt.bytes + spent)
    return result


def _changed(
    source: Any, ref_id: str, base: Mapping[str, Any], in_place: bool, framework: Optional[str], limit: int, max_header_bytes: int, max_tensors: int,
    about: Any, settings: Any, take: Optional[Taker],
) -> Tuple[Optional[Downloaded], int]:  # fmt: skip
    """Pulls what has changed since `base`. None, and how many bytes have come: all is to be pulled; of `base`, if it is landed in, some tensors may have been changed then."""
    seen = look_closely(source, ref_id, max_header_bytes, max_tensors, about)
    if in_place:
        if difference(writable(base), seen.listing, False, "") is not None:
            return None, 0  # landing in all of it says what does not fit
    brought_bytes, brought_names = 0, frozenset[str]()

    def brought(changed: Dict[str, Any]) -> Dict[str, Any]:
        nonlocal brought_bytes, brought_names
        kinds = {one.name: one for one in seen.in_image}
        changed = in_difference(changed, seen.in_image, seen.metadata)
        if sum(kinds[name].nbytes for name in changed) < LEAST_BYTES:
            return {}
        if in_place:
            these = changed
            tensors = writable(these)
            tensors.mark_changed()
        else:
            tensors, these = _made({name: kinds[name] for name in changed}, framework, limit)
            old = Tensors(changed, apart=True)
            _native.copy_tensors(old.described, tensors.described)
        brought_bytes, applied = bring(source, ref_id, seen.metadata, these, tensors.described, settings)
        if not applied:
            return {}
        brought_names = frozenset(these)
        return these

    todo = changes(base, seen, settings.abort, brought)
    if todo is None:
        return None, brought_bytes
    given, believe = settings.version, settings.believe
    settings.version = seen.listing.version
    settings.believe = believe or bool(given)  # whoever answers: the digest of the whole is compared with it
    agreed = True
    receipt: Optional[Tuple[Any, ...]] = None
    whole_model: Dict[str, Any] = {}

    def agrees() -> bool:
        nonlocal agreed
        agreed = is_the_whole(whole_model, seen, settings.abort)
        return agreed and taken()

    def taken() -> bool:
        if take is not None:
            take(whole_model, seen.listing.version)
        return True

    try:
        if not todo.wanted:
            whole_model.update({one.name: todo.have[one.name] for one in seen.in_image})
            settings.agrees = taken if take is not None else None  # the digest of the whole is compared before
            receipt = confirmed(source, ref_id, whole_model, seen, settings)
            if receipt is None:
                take_smallest(seen, todo)
        if receipt is None:
            if in_place:
                tensors = writable({name: base[name] for name in todo.wanted})
                made = dict(base)
                tensors.mark_changed()
            else:
                already = sum(one.nbytes for one in seen.in_image if one.name in brought_names and one.name in todo.have)
                tensors, made = _made(todo.wanted, framework, limit, already)
            whole_model.update({one.name: todo.have[one.name] if one.name in todo.have else made[one.name] for one in seen.in_image})
            settings.agrees = agrees  # before the owner hears that this recipient has all
            receipt, _ = _native.download_into(source, ref_id, tensors.described, True, {}, max_header_bytes, settings)
    except Error:
        if agreed:
            raise
        logger.warning("%s: what was there and what came are not what is published, whatever its digests of tensors say; all of it is pulled", short(ref_id))
        return None, brought_bytes
    finally:
        settings.version, settings.believe, settings.agrees = given, believe, None
    if in_place:
        result = Downloaded(base)
        result.metadata, result.structure = own(seen.metadata), getattr(base, "structure", None)
    else:
        arrived = arrive(whole_model, seen.metadata)
        result = Downloaded(arrived.tensors)
        result.metadata, result.structure = arrived.metadata, arrived.structure
    result._published = seen.metadata.get(TREE)
    result.receipt = receipt_of(receipt, seen, brought_bytes, not given)
    return result, brought_bytes


def _made(wanted: Mapping[str, TensorRange], framework: Optional[str], limit: int, already: int = 0) -> Tuple[Tensors, Dict[str, Any]]:
    """New tensors for what is wanted, one for each that is published, within the limit, of which `already` bytes were made; described, and by the names under which they travel."""
    published = {one.name: one for one in wanted.values()}
    nbytes = already + sum(one.nbytes for one in published.values())
    if nbytes > limit:
        raise Error("too_large", f"the bytes of the tensors that are asked for are {nbytes}, and max_bytes is {limit}")
    made: Dict[str, Any] = {}
    make = torch_maker(made) if framework == "torch" else numpy_maker(made)
    for one in published.values():
        make(one.name, one.dtype, one.shape)
    return Tensors(made), made


def _slices_of(out: Mapping[str, Any], there: Listing, names: Any) -> List[Slice]:
    """The slices of what is published that tensors of `out` are."""
    for name in names:
        if name not in out:
            raise Error("invalid_argument", "names has a slice for a tensor that out does not have", name)
    wanted = chosen(there, names, None)
    for name in names:
        if wanted[name].name not in out:
            raise Error("invalid_argument", f"this tensor travels as {wanted[name].name!r}, the name that out and names have for a slice of it", name)
    return sliced(wanted, names)[1]


def _in_words(e: Error, difference_of: Callable[[], Optional[Tuple[str, str]]]) -> Error:
    """Of an error of landing in tensors that are there: which of them is not as it is published, and in which way."""
    if e.code == "bad_request" and e.name:
        return e.saying("no tensor of this name is published")
    if e.code != "schema_mismatch":
        return e
    try:
        said = difference_of()
    except Error:  # the owner is gone, or does not say
        said = None
    return e.saying(*said) if said is not None else e.saying(f"{e.message}: the names, dtypes, shapes and ties of out have to be those of what is published")


def writable(out: Mapping[str, Any]) -> Tensors:
    """The tensors to land in, described."""
    tensors = Tensors(out)
    if tensors.read_only:
        raise Error("unsupported_layout", "this array may not be written to", tensors.read_only[0])
    return tensors


def physical_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return sys.maxsize
