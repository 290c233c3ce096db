"""What the two ends tell each other in a `ConfigRecord` of Flower's messages, and how it is checked. All of it is hostile until then."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from .._peers import DIGITS, Refused as Refused, field, is_loopback, split
from ._seam import ConfigRecord

#: The key of the record, and the action of the query that asks a node whether it knows it.
KEY = "tensorpull"
QUERY = f"query.{KEY}"
#: Another number is a version that this side does not speak.
VERSION = 1
#: The kinds of messages between a node and the server's door: a node that tries the way, an update, and the door's answer that it is well.
TRIES, UPDATE, WELL = 0x74700101, 0x74700102, 0x74700103
#: Records in one message.
MOST = 1024
_REFERENCE = re.compile(r"[0-9a-f]{48}\Z")


class Doors(NamedTuple):
    """Where the server listens: `models` are pulled from one, and a node connects to `updates`, over which its own are pulled. `token` is the secret of one node and one message."""

    token: str
    models: str
    updates: str


class Offer(NamedTuple):
    """Models in place of a message's records. `order`: the keys of all of the message's records."""

    doors: Doors
    keys: Tuple[str, ...]
    references: Tuple[str, ...]
    order: Tuple[str, ...]
    least: int  #: bytes of a record of the answer that is worth it
    signed: Tuple[str, ...] = ()  #: each of the references, if the server has a key


class Answer(NamedTuple):
    """Which records of the answer were pulled from the node."""

    token: str
    keys: Tuple[str, ...]
    order: Tuple[str, ...]


class Trust(NamedTuple):
    """Which addresses a node connects to: with TLS those of `hosts`, or any if there are none, since their certificates are checked; without it this machine only, unless plain text
    was switched on by name."""

    hosts: "frozenset[str]" = frozenset()
    plain: bool = False


def checked_address(address: str, trust: Trust) -> str:
    scheme, host, _ = split(address)
    if host == "*":
        raise Refused("its address is none")
    if trust.hosts and host not in trust.hosts:
        raise Refused(f"its address is not one of tensorpull-hosts: {host}")
    if scheme == "tcp" and not is_loopback(host) and not trust.plain:
        raise Refused("its address is on another machine, and without TLS")
    return address


def _texts(said: Mapping[str, Any], name: str) -> Tuple[str, ...]:
    values: List[Any] = field(said, name, list)
    if len(values) > MOST or any(type(value) is not str or len(value) > 4096 for value in values) or len(set(values)) != len(values):
        raise Refused(f"its {name} make no sense")
    return tuple(values)


def _envelope(said: Any, kind: str, fields: "frozenset[str]") -> Mapping[str, Any]:
    if not isinstance(said, ConfigRecord) or len(said) > 16:
        raise Refused("it is no record of tensorpull's")
    if field(said, "v", int) != VERSION:
        raise Refused("its version is not known here")
    if said.get("is") != kind or set(said) != fields | {"v", "is", "token"}:
        raise Refused(f"it is no {kind}")
    field(said, "token", str, DIGITS)
    return said


def _doors(said: Mapping[str, Any], trust: Trust) -> Doors:
    return Doors(said["token"], *(checked_address(field(said, name, str), trust) for name in ("models", "updates")))


def _record(kind: str, token: str, fields: Dict[str, Any]) -> ConfigRecord:
    return ConfigRecord({"v": VERSION, "is": kind, "token": token, **fields})


def hello(doors: Doors) -> ConfigRecord:
    return _record("hello", doors.token, {"models": doors.models, "updates": doors.updates})


def parse_hello(said: Any, trust: Trust) -> Doors:
    return _doors(_envelope(said, "hello", frozenset({"models", "updates"})), trust)


def greeting(token: str, why: str) -> ConfigRecord:
    """A node's answer to a hello: why it goes on with Flower's records; "" if it need not."""
    return _record("greeting", token, {"why": why[:500]})


def parse_greeting(said: Any, token: str) -> str:
    said = _envelope(said, "greeting", frozenset({"why"}))
    if said["token"] != token:
        raise Refused("it answers another hello")
    return printable(field(said, "why", str))[:500]


def printable(text: str) -> str:
    """For a log, in which a peer's text is one line."""
    return "".join(c if c.isprintable() else " " for c in text)


def uses(run: int, keys: Sequence[str]) -> List[str]:
    """What signatures say that references are for: each of these records of a run. Their names may be of any length."""
    names = hashlib.sha256(json.dumps(list(keys)).encode()).hexdigest()
    return [json.dumps({"run": run, "record": i, "of": names}) for i in range(len(keys))]


def offer(doors: Doors, models: Mapping[str, str], order: Sequence[str], least: int, signed: Sequence[str] = ()) -> ConfigRecord:
    return _record("offer", doors.token, {
        "models": doors.models, "updates": doors.updates, "keys": list(models), "references": list(models.values()), "order": list(order), "least": least,
        **({"signed": list(signed)} if signed else {}),
    })  # fmt: skip


def _checked_order(keys: Tuple[str, ...], order: Tuple[str, ...]) -> Tuple[str, ...]:
    if not set(keys) <= set(order) or KEY in order:
        raise Refused("its order has other keys")
    return order


def parse_offer(said: Any, trust: Trust) -> Offer:
    is_signed = isinstance(said, ConfigRecord) and "signed" in said
    said = _envelope(said, "offer", frozenset({"models", "updates", "keys", "references", "order", "least"} | ({"signed"} if is_signed else set())))
    keys, order, least = _texts(said, "keys"), _texts(said, "order"), field(said, "least", int)
    references = said["references"]  # which may be equal to each other
    if type(references) is not list or len(references) != len(keys) or not all(type(ref) is str and _REFERENCE.match(ref) for ref in references):
        raise Refused("its references make no sense")
    if least < 0:
        raise Refused("its least is no number of bytes")
    signed = _texts(said, "signed") if is_signed else ()
    if is_signed and len(signed) != len(keys):
        raise Refused("its signed references are not as many as its references")
    return Offer(_doors(said, trust), keys, tuple(references), _checked_order(keys, order), least, signed)


def answer(token: str, keys: Sequence[str], order: Sequence[str]) -> ConfigRecord:
    return _record("update", token, {"keys": list(keys), "order": list(order)})


def parse_answer(said: Any) -> Answer:
    said = _envelope(said, "update", frozenset({"keys", "order"}))
    keys, order = _texts(said, "keys"), _texts(said, "order")
    return Answer(said["token"], keys, _checked_order(keys, order))
