"""One address or several: which is asked, and when the next is."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, Optional, Sequence, Set, Tuple, TypeVar, Union

from . import _native
from ._errors import Error
from ._log import attempts, logger, place
from ._options import Throughout, text, whole
from ._tls import TLS, native
from ._types import Reference

Addresses = Union[str, Sequence[str]]
Result = TypeVar("Result")

#: Connections of one download, and addresses that are asked at once.
MOST_AT_ONCE = 8

# No connection could be had, to any of the addresses of a route.
_OUT_OF_REACH = ("connection_failed", "connection_lost", "timed_out", "truncated", "busy", "unknown_host")
# This one address is of no use; another may be.
_REFUSED = ("unknown_reference", "withdrawn", "ended", "unreadable", "stale_version", "not_authenticated", "handshake_failed", "proxy_refused", "bad_address", "owner_lost", "already_final", "not_permitted")
# What this one sends is no answer, or another file's bytes; another address may have the right ones. Of URLs more errors say so: what answers there may be any page.
_WRONG = ("digest_mismatch", "wrong_payload", "bad_frame", "unexpected_frame")
_WRONG_OF_URLS = ("too_large", "bad_file", "unsupported_request", "not_verifiable")


def kept(given: Any) -> Any:
    """What is read more than once: the items of a generator, and anything else as it is."""
    return tuple(given) if isinstance(given, Iterator) else given


def addresses_of(address: Addresses) -> List[str]:
    """The addresses as a list, each a str."""
    if isinstance(address, str):
        return [text(address, "address", "host:port")]
    if isinstance(address, (bytes, dict)) or not hasattr(address, "__iter__"):
        raise TypeError(f"address is host:port, a str, or a list of such; not {address!r}")
    listed = [text(each, "each address", "host:port") for each in address]
    if not listed:
        raise ValueError("there is no address in the list")
    return listed


def _routes(listed: List[str]) -> List[List[str]]:
    """Neighbours between which one pull can change are one route."""
    made: List[List[str]] = []
    for each in listed:
        if made and _native.one_route(made[-1] + [each]):
            made[-1].append(each)
        else:
            made.append([each])
    return made


def is_url(address: str) -> bool:
    """Whether a web server is asked."""
    return address.startswith(("http://", "https://"))


class HttpSettings:
    """What URLs take besides. Texts are empty if they were not given."""

    digest = bearer = recipient = ""
    max_header_bytes = 16 << 20


def web_settings(address: Addresses, ref_id: str, digest: Optional[str], bearer: Optional[str], recipient: Optional[str]) -> Any:
    """What URLs take besides. ValueError for what would not be heeded: without a URL there is nobody to show a bearer to, and all but URLs want a reference."""
    listed = addresses_of(address)
    if not any(map(is_url, listed)):
        for what, given in (("digest", digest), ("bearer", bearer)):
            if given is not None:
                raise ValueError(f"{what} is for URLs, http:// or https://, and there is none")
    elif digest is not None and not all(map(is_url, listed)):
        raise ValueError("digest is for URLs, and others in the list are none: what they sent would not be compared with it")
    if ref_id == "" and not all(map(is_url, listed)):
        raise ValueError("ref_id may be empty for URLs alone, http:// or https://")
    made = HttpSettings()
    for what, given, means in (("digest", digest, '"sha256:..." or "xxh3:..."'), ("bearer", bearer, "what is sent as authorisation"), ("recipient", recipient, "a name")):
        if given is not None:
            if given == "" and what != "recipient":
                raise ValueError(f"{what} is empty")
            setattr(made, what, text(given.id if isinstance(given, Reference) else given, what, means))
    return made


def _in_words(e: Error, address: str, web: Any) -> Error:
    """What some errors mean here, and what helps."""
    if e.code == "not_verifiable":
        more = "digest=... names the one that it has, and " if is_url(address) else ""
        return e.saying(f"no digest of this is published: {more}unverified=True takes it without", place(address))
    if e.code == "invalid_argument" and e.name == "digest":
        return e.saying('a digest is "sha256:" and 64 hexadecimal digits, or "xxh3:" and 16', e.name)
    if not is_url(address):
        strange = e.code == "bad_frame" or (e.code in ("too_large", "unexpected_frame") and e.message.startswith("the other side sent a frame"))
        if strange and e.landed == 0 and not e.name and address.split("://", 1)[0] in (address, "tcp", "tls"):
            return e.saying(f"{e.message}: something else than tensorpull may listen there (a web server's address begins with http://)", place(address))
        return e
    if e.code == "bad_file" or (e.code == "too_large" and e.message.startswith("the other side sent a frame")):
        return e.saying(f"what is there is no safetensors file, or has more in front of it than is taken ({e.name})", place(address))
    if e.code == "digest_mismatch":
        _, semicolon, more = e.message.partition("; ")  # about out
        return e.saying(f"what came is not the file that is asked for: its digest differs{semicolon}{more}", place(address))
    if e.code == "connection_lost" and e.landed == 0:
        return e.saying(f"{e.message} before an answer: an owner's own port is not for http://, and its address is host:port alone", place(address))
    if e.code != "not_permitted" or not e.name.startswith(("401", "403")):
        return e
    if web.bearer:
        return e.saying("the web server does not take what bearer says, or gives the file to nobody", place(address))
    return e.saying("the web server wants to know who asks: bearer=... is sent to it, and an owner wants the reference there", place(address))


def throughout(progress: Any, address: Addresses) -> Any:
    """What is told of a download from all of the addresses: one `Throughout`, if there are several."""
    return progress if progress is None or isinstance(address, str) else Throughout(progress)


def connections_to(address: Addresses, connections: Any, chunk_size: Optional[int]) -> int:
    """How many connections a download has at a time. ValueError for links that have one alone."""
    wanted = whole(connections, "connections", MOST_AT_ONCE, 1)
    if wanted == 1:
        return wanted
    if chunk_size == 0:
        raise ValueError("connections is for downloads in several chunks, and chunk_size=0 asks for all of it at once")
    for each in addresses_of(address):
        if not _native.one_route([each, each]):  # what may change between two may have both
            raise ValueError(f"connections is for host:port, tls:// and unix:, and {place(each)} is none of these")
    return wanted


def over_addresses(
    address: Addresses, ssl: Optional[TLS], call: Callable[[Any], Result], web: Any = None, progress: Any = None, connections: int = 1
) -> Tuple[Result, str]:
    """Calls `call(route)` until one succeeds. Returns its result, and the address that it came from. `progress`: what `throughout` gave, which hears of the end."""
    try:
        return _over_addresses(address, ssl, call, web, connections)
    except BaseException:
        if isinstance(progress, Throughout):
            progress.fail()
        raise


def _over_addresses(address: Addresses, ssl: Optional[TLS], call: Callable[[Any], Result], web: Any, connections: int) -> Tuple[Result, str]:
    listed = addresses_of(address)
    tls = native(ssl)
    web = HttpSettings() if web is None else web
    secure = [each for each in listed if each.startswith(("tls://", "https://"))]
    e: Optional[Error] = None
    todo = _routes(listed)
    mixed = False  # what has landed may be of several
    try:
        while todo:
            members = todo.pop(0)
            tried: Set[int] = set()
            # settings of TLS are for the addresses that have it; if none has, the compiled half refuses them
            route = _native.Route(members, tls if not secure or members[0] in secure else None, _noting(tried, attempts(members)), web)
            route.use_connections(connections)
            try:
                return call(route), members[route.current]
            except Error as refused:
                e = _in_words(refused, members[route.current], web)
                wrong = e.code in _WRONG + (_WRONG_OF_URLS if is_url(members[route.current]) else ())
                if len(listed) == 1 or not (wrong or e.code in _OUT_OF_REACH + _REFUSED):
                    raise e from None
                logger.warning("%s: %s; on to the next address, if there is one", place(members[route.current]), e.code)
                # with few retries one may be lost before the others were asked
                over = {route.current} if wrong or e.code in _REFUSED else {route.current, *tried}
                left = [[one for i, one in enumerate(members) if i not in over]]
                unknown = e.code == "digest_mismatch" and (mixed or len(tried) > 1)  # whose bytes were wrong
                if unknown:  # each is asked for all of it
                    left = [[one] for one in members]
                mixed = not unknown and (mixed or (e.landed > 0 and not wrong))
                todo[:0] = [some for some in left if some]
        assert e is not None
        raise e
    finally:
        e = None  # its traceback has this frame, and so all that the caller gave


def _noting(tried: Set[int], tell: Callable[[int, int, str, int], None]) -> Callable[[int, int, str, int], None]:
    """A callback that is told of each attempt to connect, and notes to which of the addresses."""

    def note(index: int, before: int, code: str, system: int) -> None:
        tried.add(index)
        tell(index, before, code, system)

    return note
