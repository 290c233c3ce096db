"""What the two ends say to each other in the state of FLARE's download, and how it is checked. All of it is hostile until then."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, FrozenSet, NamedTuple, Optional, Tuple

from .._peers import DIGITS, Refused as Refused, field, is_loopback, split as split

#: The key in FLARE's state. A peer that does not know it sends it back or drops it; both mean FLARE's own chunks.
KEY = "tensorpull"
#: Another number is a version that this side does not speak.
VERSION = 3
_TEXT = re.compile(r"[\x20-\x7e]{1,255}\Z")
_SIGNED = re.compile(r"[\n\x20-\x7e]{1,4096}\Z")


class Offer(NamedTuple):
    """A model that can be pulled: from `address`, or, if that is None, over a connection which its owner makes."""

    address: Optional[str]
    ref: str
    version: int
    nbytes: int
    chunk: int  #: bytes to ask for at a time, as FLARE's setting at the owner has them
    of: str = ""  #: which of FLARE's references it is
    model: str = ""  #: the word that the publication carries
    signed: str = ""  #: the same reference, if the server has a key


class Call(NamedTuple):
    """The address that an owner that cannot be reached is asked to connect to, and the word that it says there."""

    address: str
    token: str


class Through(NamedTuple):
    """Where a site waits that has a model: at the server's door, to which both connect; and the word that opens it."""

    address: str
    token: str


class Trust(NamedTuple):
    """Which addresses this site connects to: `server`, where FLARE's server is, and `hosts`; without TLS this machine only, unless plain text was switched on by name."""

    tls: bool
    server: str
    hosts: FrozenSet[str] = frozenset()
    plain: bool = False


def checked_address(address: Any, trust: Trust) -> str:
    """The address with its host. "*" is FLARE's server: a site knows its name, and the server may not. Refuses what this site does not connect to, whatever a peer says."""
    scheme, host, port = split(address)
    host = trust.server if host == "*" else host
    if trust.tls and scheme != "tls":
        raise Refused("its address has no TLS, and this site has certificates")
    if not trust.tls and scheme == "tls":
        raise Refused("its address has TLS, and this process has no certificates")
    if host != trust.server and host not in trust.hosts and not (is_loopback(host) and is_loopback(trust.server)):
        raise Refused(f"its address is not the FLARE server's: {host}")
    if not trust.tls and not is_loopback(host) and not trust.plain:
        raise Refused("its address is on another machine, and without TLS")
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _envelope(said: Any, job: str, site: str, fields: FrozenSet[str]) -> Dict[str, Any]:
    if type(said) is not dict or len(said) > 16:
        raise Refused("it is no offer")
    if field(said, "v", int) != VERSION:
        raise Refused("its version is not known here")
    if set(said) != fields | {"v", "is", "job", "site"}:
        raise Refused("its fields are others")
    if field(said, "job", str, _TEXT) != job:
        raise Refused("it is of another job")
    if field(said, "site", str, _TEXT) != site:
        raise Refused("it is for another site")
    return said


def _bytes(said: Dict[str, Any], most: int) -> int:
    nbytes: int = field(said, "bytes", int)
    if not 0 <= nbytes <= most:
        raise Refused(f"its size is {nbytes} bytes, and at most {most} are taken here")
    return nbytes


def _chunk(said: Dict[str, Any]) -> int:
    chunk: int = field(said, "chunk", int)
    if not 0 < chunk < 2**31:
        raise Refused("the size of its chunks makes no sense")
    return chunk


def _version(said: Dict[str, Any]) -> int:
    version: int = field(said, "version", int)
    if not 0 <= version < 2**64:
        raise Refused("its version of the model makes no sense")
    return version


def what(said: Any) -> str:
    """What kind of word it is; "" if it is none of ours."""
    kind = said.get("is") if type(said) is dict else None
    return kind if type(kind) is str else ""


def use(job: str, site: str, of: str) -> str:
    """What a signature says that a reference is for: one of FLARE's references, of one site in one job."""
    return json.dumps({"job": job, "site": site, "of": of}, ensure_ascii=True)


def offer(job: str, site: str, address: Optional[str], ref: str, version: int, nbytes: int, chunk: int, of: str = "", model: str = "", signed: str = "") -> Dict[str, Any]:
    """An offer for one site of one job. Without an address there is no reference yet: it comes over the connection."""
    made = {"v": VERSION, "is": "offer" if address else "offer to call", "job": job, "site": site, "bytes": nbytes, "chunk": chunk}
    if not address:
        return made
    return {**made, "address": address, "ref": ref, "version": version, "of": of, "model": model, **({"signed": signed} if signed else {})}


def parse_offer(said: Any, job: str, site: str, trust: Trust, max_bytes: int) -> Offer:
    """The offer that `said` is, or Refused with the reason."""
    calls = what(said) == "offer to call"
    if not calls and what(said) != "offer":
        raise Refused("it is no offer")
    also = {"signed"} if not calls and "signed" in said else set()
    said = _envelope(said, job, site, frozenset({"bytes", "chunk"} if calls else {"bytes", "chunk", "address", "ref", "version", "of", "model", *also}))
    nbytes, chunk = _bytes(said, max_bytes), _chunk(said)
    if calls:
        return Offer(None, "", 0, nbytes, chunk)
    version = _version(said)
    ref = field(said, "ref", str, DIGITS)
    of, model = field(said, "of", str, _TEXT), field(said, "model", str, DIGITS)
    return Offer(checked_address(field(said, "address", str), trust), ref, version, nbytes, chunk, of, model, field(said, "signed", str, _SIGNED) if also else "")


def offer_between(job: str, site: str, nbytes: int, chunk: int) -> Dict[str, Any]:
    """An offer to another site: if it wants the model, the server's process passes it on."""
    return {"v": VERSION, "is": "offer between sites", "job": job, "site": site, "bytes": nbytes, "chunk": chunk}


def parse_offer_between(said: Any, job: str, site: str, max_bytes: int) -> Tuple[int, int]:
    """The bytes of the model that is offered and of its chunks, or Refused."""
    if what(said) != "offer between sites":
        raise Refused("it is no offer")
    said = _envelope(said, job, site, frozenset({"bytes", "chunk"}))
    return _bytes(said, max_bytes), _chunk(said)


def wanted(job: str, site: str) -> Dict[str, Any]:
    """The answer to such an offer, for the site that made it: the model is to wait at the door."""
    return {"v": VERSION, "is": "wanted", "job": job, "site": site}


def parse_wanted(said: Any, job: str, site: str) -> None:
    """Refused, if it is no such answer."""
    _envelope(said, job, site, frozenset())


def through(job: str, site: str, address: str, token: str) -> Dict[str, Any]:
    """This site waits at the door."""
    return {"v": VERSION, "is": "at the door", "job": job, "site": site, "address": address, "token": token}


def parse_through(said: Any, job: str, site: str, trust: Trust) -> Through:
    """Where it waits, or Refused."""
    said = _envelope(said, job, site, frozenset({"address", "token"}))
    return Through(checked_address(field(said, "address", str), trust), field(said, "token", str, DIGITS))


def ask_for_a_place(job: str, owner: str, recipient: str) -> Dict[str, Any]:
    """What a site asks the server: a place at its door for itself and another site."""
    return {"v": VERSION, "is": "place", "job": job, "site": owner, "recipient": recipient}


def parse_ask_for_a_place(said: Any, job: str, owner: str) -> str:
    """The cell of the other site, or Refused. `owner`: the cell that FLARE says has asked."""
    return field(_envelope(said, job, owner, frozenset({"recipient"})), "recipient", str, _TEXT)


def call(job: str, site: str, address: str, token: str) -> Dict[str, Any]:
    """A request to connect to `address` and to say `token` there."""
    return {"v": VERSION, "is": "call", "job": job, "site": site, "address": address, "token": token}


def parse_call(said: Any, job: str, site: str, trust: Trust) -> Call:
    """The request that `said` is, or Refused."""
    said = _envelope(said, job, site, frozenset({"address", "token"}))
    return Call(checked_address(field(said, "address", str), trust), field(said, "token", str, DIGITS))


def word(kind: str) -> Dict[str, Any]:
    """A word without anything else: "pulling", "pulled", "wait", "failed", "soon", "asks"."""
    return {"v": VERSION, "is": kind}


def pulled(keeps: bool) -> Dict[str, Any]:
    """The last word of a pull: whether the site keeps the model, so that the next one may be told as what has changed since."""
    return {**word("pulled"), "keeps": True} if keeps else word("pulled")


def keeps(said: Dict[str, Any]) -> bool:
    return said.get("keeps") is True
