"""Message structs: what C++ programs send with `tensor_decomposer` (include/tensorpull/messages), as dicts.

    from tensorpull import messages

    # one end
    sent = messages.send(session, 1, {"round": 7, "site": "b", "model": messages.TensorsOf(model.state_dict())})
    session.serve(until=sent)                               # until the other end has pulled what was not in the message

    # the other end, in Python or in C++
    kind, task = messages.receive(session)
    state = task["model"].download_tensors(session, framework="torch")

The fields are those of the struct at a C++ end, all of them and in its order; a nested struct's members are fields of their own, "outer.inner". A value is

    bool, int, float, str              a bool, an integer or an enumeration, a float or a double, text
    an array of NumPy's or torch's     an array or a std::vector of numbers. What arrives has one dimension, since its shape is the struct's
    bytes                              the same, of numbers of 8 bits
    a dict with keys of type str       a std::map<std::string, ...>; in a list, a dict or an optional also a struct
    a list or a tuple                  a std::vector of anything but numbers
    None                               a std::optional that holds nothing
    `TensorsOf`, `TensorSet`           tensors_of<Model>: to send, and as it arrives
    `Locator`                          where a third party may pull from
"""

from __future__ import annotations

import numbers
import sys
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union, overload

from . import _decomposed as body
from . import _native
from ._download import download_tensors as download
from ._download import writable
from ._errors import Error
from ._images import Landing, PublishedImage
from ._options import whole
from ._session import Message, Session
from ._tensors import Tensors, empty_like, numpy_dtype
from ._trees import as_flat
from ._types import Abort, Framework, Reference, SetOptions, TensorDict, Unpack

__all__ = ["INLINE_UP_TO", "Locator", "Received", "TensorSet", "TensorsOf", "receive", "recompose", "send"]

#: Tensors of at most so many bytes travel in the message itself, unless `send` is told otherwise.
INLINE_UP_TO = 16 * 1024
_MOST_ADDRESSES = 4


class Locator(NamedTuple):
    """A reference, and the addresses of owners that have it. Addresses come from whoever made it: look at them before you connect."""

    reference: Optional[Reference]
    addresses: Tuple[str, ...] = ()


class TensorsOf:
    """A dict of tensors to send, contiguous or not, on any device. They must not change until what was published of them has settled."""

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self.tensors = tensors


class TensorSet:
    """A set of tensors that has arrived: the small ones are here, the large ones are still at their owner. It can be sent on as it is.

    `reference` is what the large ones are published under, None if there are none; `addresses` where, empty if it is whoever sent the message."""

    def __init__(self, arrived: body.Tensors, reference: Optional[Reference]) -> None:
        self._arrived = arrived
        self.reference = reference
        self.addresses: Tuple[str, ...] = arrived.addresses

    def owner_at(self, address: str) -> None:
        """Says where its owner can be reached, for somebody else to whom the set is sent on."""
        if self.reference is not None:
            self.addresses = checked((*self.addresses, address), "")

    def download_tensors(self, through: Union[None, Session, str, Sequence[str]] = None, *, framework: Optional[Framework] = None, out: Any = None, **how: Unpack[SetOptions]) -> TensorDict:
        """All tensors. `through`: the session that the message came by; or an address or several, for a set of a third party's (`addresses`, once you have looked at
        them); not needed if there is no `reference`. `framework`, `out` and the rest are those of `tensorpull.download_tensors`.

        What came in the message is checked before anything is pulled, so an owner does not hear that its tensors have arrived if it was damaged. The receipt is that
        of the pull; there is none if all tensors came in the message, since their sender does not hear of it. Errors: those of a download, "schema_mismatch",
        "digest_mismatch"."""
        if self.reference is not None and through is None:
            raise Error("invalid_argument", "the large tensors have to be pulled: through the session that the message came by, or from an address")
        if out is not None:
            return self._into(through, as_flat(out), framework, how)
        small = self._small(framework, None)
        large = self._pull(through, how, framework=framework) if self.reference is not None else TensorDict()
        got = TensorDict({**small, **large})
        if len(got) != len(small) + len(large) or _native.fingerprint(Tensors(got).described) != self._arrived.fingerprint:
            raise self._another()
        self._expect_split(small, large)
        got.receipt, got.metadata = large.receipt, large.metadata
        return got

    def _into(self, through: Any, out: Mapping[str, Any], framework: Optional[Framework], how: SetOptions) -> TensorDict:
        if framework is not None:
            raise ValueError("framework says what new tensors are; out has its own")
        described = writable(out)
        _no_ties(described)
        if _native.fingerprint(described.described) != self._arrived.fingerprint:
            raise self._another()
        small, large = _split(out, described, self._arrived.inline_up_to)
        if bool(large) != (self.reference is not None) or bool(small) != bool(self._arrived.inlined):
            raise self._another()
        arrived = self._small(None, empty_like(small))
        receipt = self._pull(through, how, out=large).receipt if large else None
        for name, tensor in small.items():
            _copy(arrived[name], tensor)
        got = TensorDict(out)
        got.receipt = receipt
        return got

    def _small(self, framework: Optional[Framework], out: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
        inlined = self._arrived.inlined
        if not inlined:
            return {}
        if self._arrived.digest == 0:  # which would mean that nobody knows it
            raise Error("digest_mismatch", "the tensors in the message are not those that were sent")
        landing = Landing(len(inlined), framework, out=out, max_bytes=len(inlined))
        at = 0
        while landing.header_left:
            n = landing.header_left
            landing.write(at, inlined[at : at + n])
            at += n
        if at < len(inlined):
            landing.write(at, inlined[at:])
        return dict(landing.finish(self._arrived.digest))

    def _pull(self, through: Any, how: Any, **what: Any) -> TensorDict:
        if isinstance(through, Session):
            return through.download_tensors(self.reference or "", **what, **how)
        return download(through, self.reference or "", **what, **how)

    def _expect_split(self, small: Mapping[str, Any], large: Mapping[str, Any]) -> None:
        for tensors, are_small in ((small, True), (large, False)):
            for name, _, nbytes in _sizes(Tensors(tensors)):
                if (nbytes <= self._arrived.inline_up_to) != are_small:
                    raise Error("schema_mismatch", "the set is not split as its sender says", name)

    def _another(self) -> Error:
        return Error("schema_mismatch", "names, dtypes and shapes are not those of the set that was sent")


class Received(NamedTuple):
    """A message struct: its number, and its fields by name."""

    kind: int
    fields: Dict[str, Any]


def send(
    session: Session,
    kind: int,
    fields: Mapping[str, Any],
    *,
    inline_up_to: int = INLINE_UP_TO,
    recipients: int = 1,
    timeout: Optional[float] = 600.0,
    abort: Abort = None,
) -> Tuple[Reference, ...]:
    """Sends a message struct, and publishes its large tensors with the session. Returns what it has published, for `session.serve(until=...)` and
    `session.withdraw(...)`. After an error nothing stays published. "does_not_fit": the body is above 64 KiB, or there are too many references."""
    made = _Decomposing(whole(inline_up_to, "inline_up_to", 2**64 - 1))
    content = body.write(made.fields(fields, ""))
    references: List[str] = []
    published: List[Reference] = []
    try:
        for entry in made.references:
            if isinstance(entry, str):
                references.append(entry)
            else:
                published.append(session.add_tensors(entry, recipients=recipients, keep_order=False))
                references.append(published[-1])
        session.send(kind, content, references, timeout, abort)
    except BaseException:
        for ref in published:
            if not session.closed:
                session.withdraw(ref)
        raise
    return tuple(published)


@overload
def receive(session: Session, timeout: None = None, abort: Abort = None) -> Received: ...


@overload
def receive(session: Session, timeout: Optional[float], abort: Abort = None) -> Optional[Received]: ...


def receive(session: Session, timeout: Optional[float] = None, abort: Abort = None) -> Optional[Received]:
    """The next message, which has to be a message struct ("bad_frame" otherwise; `session.receive()` takes any). None: not within `timeout` seconds. Nothing is pulled."""
    message = session.receive(timeout, abort)
    return None if message is None else Received(message.kind, recompose(message))


def recompose(message: Message) -> Dict[str, Any]:
    """The fields of a message that has been received, if its body is a message struct. Errors name the field."""
    return _members(body.read(message.body), message.references, "")


def checked(addresses: Sequence[str], name: str) -> Tuple[str, ...]:
    """Addresses that may be handed on, as `locator::add` of C++ takes them: of any link that a third party can use, without passwords."""
    if len(addresses) > _MOST_ADDRESSES:
        raise Error("table_full", f"at most {_MOST_ADDRESSES} addresses", name)
    for address in addresses:
        if not _native.may_be_handed_on(address):
            raise Error("bad_address", "no address that may be handed on", name)
    return tuple(addresses)


def _members(fields: List[body.Field], references: Sequence[Reference], path: str) -> Dict[str, Any]:
    got: Dict[str, Any] = {}
    for field in fields:
        where = f"{path}.{field.name}" if path else field.name
        if field.name in got:
            raise Error("duplicate_name", "a name is there twice", where)
        got[field.name] = _value(field, references, where)
    return got


def _value(field: body.Field, references: Sequence[Reference], where: str) -> Any:
    kind, value = field.kind, field.value
    if kind >= body.KINDS:
        raise Error("wrong_kind", "a newer program has sent a kind of value that this version does not know", where)
    if kind == body.NUMBERS:
        dtype = numpy_dtype(where, value.dtype)
        if len(value.elements) % dtype.itemsize:
            raise Error("value_out_of_range", "half an element", where)
        return sys.modules["numpy"].frombuffer(bytearray(value.elements), dtype)
    if kind == body.ITEMS:
        return [_value(item, references, f"{where}.{i}") for i, item in enumerate(value)]
    if kind == body.ENTRIES:
        return _members(value, references, where)
    if kind in (body.TENSORS, body.LOCATOR):
        reference = None
        if value.reference != body.NO_REFERENCE:
            if value.reference >= len(references) or not references[value.reference].strip("0"):
                raise Error("bad_frame", "a field names a reference that did not come with the message", where)
            known = references[value.reference]
            reference = Reference(str(known), known.version, known.fingerprint)
        elif value.addresses:
            raise Error("bad_frame", "addresses without a reference", where)
        checked(value.addresses, where)
        return TensorSet(value, reference) if kind == body.TENSORS else Locator(reference, value.addresses)
    return value


class _Decomposing:
    """Fields of values; and what the message's list of references will have: those of others, or tensors that are to be published."""

    def __init__(self, inline_up_to: int) -> None:
        self._limit = inline_up_to
        self.references: List[Union[Reference, Dict[str, Any]]] = []

    def fields(self, values: Mapping[str, Any], path: str, depth: int = 0) -> List[body.Field]:
        if depth > body.DEEPEST:
            raise Error("does_not_fit", f"values are nested at most {body.DEEPEST} deep", path)
        made = []
        for name, value in values.items():
            if not isinstance(name, str):
                raise TypeError(f"fields have names of type str, not {type(name).__name__}")
            where = f"{path}.{name}" if path else name
            made.append(body.Field(_unicode(name, ascii(where)), *self._value(value, where, depth)))
        return made

    def _value(self, value: Any, where: str, depth: int) -> Tuple[int, Any]:
        if hasattr(value, "item") and getattr(value, "shape", None) == ():
            if getattr(value.dtype, "kind", "") in ("M", "m"):  # in some units its item is a number
                raise Error("wrong_kind", f"a {type(value).__name__} is no value of a message struct", where)
            value = value.item()  # a number of NumPy's or torch's
        if value is None:
            return body.NOTHING, None
        if isinstance(value, bool):
            return body.BOOLEAN, value
        if isinstance(value, numbers.Integral):
            number = int(value)
            if not -(2**63) <= number < 2**64:
                raise Error("value_out_of_range", "an integer of more than 64 bits", where)
            return (body.SIGNED if number < 2**63 else body.UNSIGNED), number
        if isinstance(value, numbers.Real):
            try:
                return body.FLOATING, float(value)
            except OverflowError:
                raise Error("value_out_of_range", "a number above the largest float", where) from None
        if isinstance(value, str):
            return body.TEXT, _unicode(value, where)
        if isinstance(value, (bytes, bytearray)):
            return body.NUMBERS, body.Numbers("U8", bytes(value))
        if isinstance(value, TensorsOf):
            return body.TENSORS, self._set(value, where)
        if isinstance(value, TensorSet):
            if value.reference is not None and not value.addresses:
                raise Error("invalid_argument", "a set that is sent on says where its owner is: owner_at(address)", where)
            return body.TENSORS, value._arrived._replace(reference=self._named(value.reference), addresses=value.addresses)
        if isinstance(value, Locator):
            if value.reference is None and value.addresses:
                raise Error("invalid_argument", "addresses without a reference", where)
            return body.LOCATOR, body.Locator(self._named(value.reference), checked(value.addresses, where))
        if isinstance(value, Mapping):
            return body.ENTRIES, self.fields(value, where, depth + 1)
        if isinstance(value, (list, tuple)):
            if depth >= body.DEEPEST:
                raise Error("does_not_fit", f"values are nested at most {body.DEEPEST} deep", where)
            return body.ITEMS, [body.Field("", *self._value(item, f"{where}.{i}", depth + 1)) for i, item in enumerate(value)]
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            try:
                image = PublishedImage({"x": value}, keep_order=False)
            except Error as e:
                raise e.saying(e.message, where) from None
            return body.NUMBERS, body.Numbers(image.tensors[0].dtype, image.read(image.header_bytes))
        raise Error("wrong_kind", f"a {type(value).__name__} is no value of a message struct", where)

    def _named(self, reference: Optional[str]) -> int:
        if reference is None:
            return body.NO_REFERENCE
        self.references.append(reference if isinstance(reference, Reference) else Reference(reference))
        return len(self.references) - 1

    def _set(self, value: TensorsOf, where: str) -> body.Tensors:
        tensors = as_flat(value.tensors)
        described = Tensors(tensors)
        _no_ties(described)
        small, large = _split(tensors, described, self._limit)
        inlined = PublishedImage(small, keep_order=False) if small else None
        if large:
            self.references.append(large)
        return body.Tensors(
            _native.fingerprint(described.described), self._limit, inlined.version if inlined else 0, len(self.references) - 1 if large else body.NO_REFERENCE,
            inlined.read() if inlined else b"", (),
        )  # fmt: skip


def _unicode(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Error("value_out_of_range", "half of a character, which has no UTF-8", where) from None
    return text


def _no_ties(described: Tensors) -> None:
    for alias in described.ties:
        raise Error("unsupported_layout", "tensors of a message are not tied: leave out all of its names but one", alias)


def _sizes(described: Tensors) -> List[Tuple[str, str, int]]:
    return [(one[0], one[1], _native.tensor_bytes(one[1], one[2])) for one in described.described]


def _split(tensors: Mapping[str, Any], described: Tensors, limit: int) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    small = {name for name, _, nbytes in _sizes(described) if nbytes <= limit}
    return {n: t for n, t in tensors.items() if n in small}, {n: t for n, t in tensors.items() if n not in small}


def _copy(arrived: Any, to: Any) -> None:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(to, torch.Tensor):
        with torch.no_grad():
            to.copy_(arrived)
    else:
        to[...] = arrived
