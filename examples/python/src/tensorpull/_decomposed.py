"""The body of a message struct, as include/tensorpull/messages/decomposed.capnp says: one Cap'n Proto message of one segment, which C++ programs write and read
with Cap'n Proto's library. What arrives is not believed: every pointer is checked, and what may be read of a body is bounded by twice its length."""

from __future__ import annotations

import struct as _struct
from typing import Any, List, NamedTuple, Optional, Tuple

from ._errors import Error

BOOLEAN, SIGNED, UNSIGNED, FLOATING, TEXT, NUMBERS, TENSORS, LOCATOR, NOTHING, ITEMS, ENTRIES = range(11)
KINDS = 11
NO_REFERENCE = 0xFFFF
DEEPEST = 60


class Numbers(NamedTuple):
    dtype: str  #: as safetensors spells it
    elements: bytes  #: little-endian


class Tensors(NamedTuple):
    fingerprint: int
    inline_up_to: int
    digest: int
    reference: int
    inlined: bytes
    addresses: Tuple[str, ...]


class Locator(NamedTuple):
    reference: int
    addresses: Tuple[str, ...]


class Field(NamedTuple):
    """`kind`: one of the numbers above, or a higher one, which a newer program wrote; then `value` is None."""

    name: str
    kind: int
    value: Any


def broken() -> Error:
    return Error("bad_frame", "the message's body is no message struct")


def read(body: bytes) -> List[Field]:
    """All fields of a body. "bad_frame": it is no valid one."""
    try:
        reader = _Reader(body)
        root = reader.struct(0)
        return reader.fields(reader.pointer(root, 0), 0)
    except (ValueError, IndexError, OverflowError):  # what is not UTF-8, too
        raise broken() from None


def references_of_sets(body: bytes) -> List[int]:
    """Which of the message's references are parts of sets of tensors; none if the body is no message struct."""
    if len(body) < 32 or len(body) % 8 or int.from_bytes(body[:8], "little") != (len(body) // 8 - 1) << 32:
        return []
    try:
        return list(_sets_in(read(body)))
    except Error:
        return []


def _sets_in(fields: List[Field]) -> Any:
    for field in fields:
        if field.kind == TENSORS:
            yield field.value.reference
        elif field.kind in (ITEMS, ENTRIES):
            yield from _sets_in(field.value)


class _Struct(NamedTuple):
    data: int
    data_words: int
    pointers: int
    pointer_count: int


class _Reader:
    """Numbers of words count from the segment's beginning. A null pointer is 0 or an empty list, as Cap'n Proto has it."""

    def __init__(self, body: bytes) -> None:
        self._words = len(body) // 8 - 1
        if self._words < 1 or len(body) % 8 or int.from_bytes(body[:8], "little") != self._words << 32:
            raise ValueError
        self._segment = memoryview(body)[8:]
        self._left = 2 * self._words + 64

    def _word(self, at: int) -> int:
        return int.from_bytes(self._segment[8 * at : 8 * at + 8], "little")

    def _spend(self, words: int) -> None:
        self._left -= words
        if self._left < 0:
            raise ValueError

    def _target(self, at: int, word: int, words: int) -> int:
        """Where the object begins that the pointer at `at` points to; it lies in the segment."""
        offset = word >> 2 & 0x3FFFFFFF
        target = at + 1 + offset - (0x40000000 if offset >= 0x20000000 else 0)
        if target < 0 or words > self._words - target:
            raise ValueError
        self._spend(words)
        return target

    def struct(self, at: Optional[int]) -> _Struct:
        word = 0 if at is None else self._word(at)
        if at is None or word == 0:
            return _Struct(0, 0, 0, 0)
        if word & 3 != 0:
            raise ValueError
        data, pointers = word >> 32 & 0xFFFF, word >> 48
        target = self._target(at, word, data + pointers)
        return _Struct(target, data, target + data, pointers)

    def pointer(self, of: _Struct, index: int) -> Optional[int]:
        return of.pointers + index if index < of.pointer_count else None

    def number(self, of: _Struct, byte: int, size: int, signed: bool = False) -> int:
        if byte + size > 8 * of.data_words:
            return 0
        at = 8 * of.data + byte
        return int.from_bytes(self._segment[at : at + size], "little", signed=signed)

    def _list(self, at: Optional[int], code: int) -> Tuple[int, int]:
        """Where a list of elements of this size begins, and how many it has; words in place of elements if they are structs."""
        word = 0 if at is None else self._word(at)
        if at is None or word == 0:
            return 0, 0
        if word & 3 != 1 or word >> 32 & 7 != code:
            raise ValueError
        count = word >> 35
        words = {2: (count + 7) // 8, 6: count, 7: count + 1}[code]
        return self._target(at, word, words), count

    def bytes(self, at: Optional[int]) -> bytes:
        target, count = self._list(at, 2)
        return bytes(self._segment[8 * target : 8 * target + count])

    def text(self, at: Optional[int]) -> str:
        data = self.bytes(at)
        if at is not None and self._word(at) != 0 and data[-1:] != b"\0":
            raise ValueError
        return data[:-1].decode()

    def texts(self, at: Optional[int]) -> Tuple[str, ...]:
        target, count = self._list(at, 6)
        return tuple(self.text(target + i) for i in range(count))

    def fields(self, at: Optional[int], depth: int) -> List[Field]:
        if depth > DEEPEST:
            raise ValueError
        target, words = self._list(at, 7)
        if at is None or self._word(at) == 0:
            return []
        tag = self._word(target)
        count, data, pointers = tag >> 2 & 0x3FFFFFFF, tag >> 32 & 0xFFFF, tag >> 48
        if tag & 3 != 0 or count * (data + pointers) > words:
            raise ValueError
        self._spend(count if data + pointers == 0 else 0)  # elements of no words cost their sender nothing
        at = target + 1
        return [self._field(_Struct(at + i * (data + pointers), data, at + i * (data + pointers) + data, pointers), depth) for i in range(count)]

    def _field(self, f: _Struct, depth: int) -> Field:
        kind, inner, value = self.number(f, 2, 2), self.pointer(f, 1), None  # type: Tuple[int, Optional[int], Any]
        if kind == BOOLEAN:
            value = bool(self.number(f, 0, 1) & 1)
        elif kind == SIGNED:
            value = self.number(f, 8, 8, signed=True)
        elif kind == UNSIGNED:
            value = self.number(f, 8, 8)
        elif kind == FLOATING:
            value = _float_of(self.number(f, 8, 8))
        elif kind == TEXT:
            value = self.text(inner)
        elif kind == NUMBERS:
            n = self.struct(inner)
            value = Numbers(self.text(self.pointer(n, 0)), self.bytes(self.pointer(n, 1)))
        elif kind == TENSORS:
            t = self.struct(inner)
            value = Tensors(self.number(t, 0, 8), self.number(t, 8, 8), self.number(t, 16, 8), self.number(t, 24, 2), self.bytes(self.pointer(t, 0)), self.texts(self.pointer(t, 1)))
        elif kind == LOCATOR:
            where = self.struct(inner)
            value = Locator(self.number(where, 0, 2), self.texts(self.pointer(where, 0)))
        elif kind in (ITEMS, ENTRIES):
            value = self.fields(inner, depth + 1)
        return Field(self.text(self.pointer(f, 0)), kind, value)


def _float_of(bits: int) -> float:
    return float(_struct.unpack("<d", bits.to_bytes(8, "little"))[0])


def write(fields: List[Field]) -> bytes:
    """A body with these fields."""
    w = _Writer()
    root = w.struct(w.take(1), 0, 1)
    w.fields(root, fields)
    return (len(w.segment) // 8 << 32).to_bytes(8, "little") + bytes(w.segment)


class _Writer:
    """Objects lie behind each other in the order in which they are made."""

    def __init__(self) -> None:
        self.segment = bytearray()

    def take(self, words: int) -> int:
        at = len(self.segment) // 8
        self.segment += bytes(8 * words)
        return at

    def put(self, word: int, byte: int, size: int, value: int) -> None:
        at = 8 * word + byte
        self.segment[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")

    def struct(self, at: int, data: int, pointers: int) -> int:
        made = self.take(data + pointers)
        self.put(at, 0, 8, (made - at - 1) << 2 | data << 32 | pointers << 48)
        return made

    def _list(self, at: int, code: int, count: int, words: int) -> int:
        made = self.take(words)
        self.put(at, 0, 8, (made - at - 1) << 2 | 1 | code << 32 | count << 35)
        return made

    def bytes(self, at: int, data: bytes) -> None:
        made = self._list(at, 2, len(data), (len(data) + 7) // 8)
        self.segment[8 * made : 8 * made + len(data)] = data

    def text(self, at: int, text: str) -> None:
        self.bytes(at, text.encode() + b"\0")

    def texts(self, at: int, texts: Tuple[str, ...]) -> None:
        if texts:
            made = self._list(at, 6, len(texts), len(texts))
            for i, text in enumerate(texts):
                self.text(made + i, text)

    def fields(self, at: int, fields: List[Field]) -> None:
        made = self._list(at, 7, 4 * len(fields), 1 + 4 * len(fields))
        self.put(made, 0, 8, len(fields) << 2 | 2 << 32 | 2 << 48)
        for i, field in enumerate(fields):
            self._field(made + 1 + 4 * i, field)

    def _field(self, at: int, field: Field) -> None:
        name, kind, value = field
        if name:
            self.text(at + 2, name)
        self.put(at, 2, 2, kind)
        if kind == BOOLEAN:
            self.put(at, 0, 1, int(value))
        elif kind in (SIGNED, UNSIGNED):
            self.put(at, 8, 8, value)
        elif kind == FLOATING:
            self.segment[8 * at + 8 : 8 * at + 16] = _struct.pack("<d", value)
        elif kind == TEXT:
            self.text(at + 3, value)
        elif kind == NUMBERS:
            n = self.struct(at + 3, 0, 2)
            self.text(n, value.dtype)
            self.bytes(n + 1, value.elements)
        elif kind == TENSORS:
            t = self.struct(at + 3, 4, 2)
            for i, number in enumerate(value[:3]):
                self.put(t + i, 0, 8, number)
            self.put(t + 3, 0, 2, value.reference)
            if value.inlined:
                self.bytes(t + 4, value.inlined)
            self.texts(t + 5, value.addresses)
        elif kind == LOCATOR:
            where = self.struct(at + 3, 1, 1)
            self.put(where, 0, 2, value.reference)
            self.texts(where + 1, value.addresses)
        elif kind in (ITEMS, ENTRIES):
            self.fields(at + 3, value)
