"""Dicts of arrays from a seed: the names, shapes, dtypes and layouts that go wrong first."""

from __future__ import annotations

import random

import ml_dtypes
import numpy as np

PLAIN = ["bool", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "c8", "f8", "i8", "u8"]
EXTRA = ["bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz"]
NAME_PARTS = ["layers", "0", "weight", "Größe", "重み", "🙂", "a\"b", "back\\slash", "tab\there", "\x00", "\x7f", " ", "'", "..", "é", "e\u0301", "/", "{}", "data_offsets"]


def name(rng: random.Random) -> str:
    return ".".join(rng.choice(NAME_PARTS) for _ in range(rng.randint(1, 4))) + rng.choice(["", "", str(rng.randint(0, 99))])


def array(rng: random.Random, np_rng: np.random.Generator) -> np.ndarray:
    rank = rng.randint(0, 8)
    shape = tuple(rng.choice([0, 1, 1, 2, 2, 3, 5]) if rank > 4 else rng.choice([0, 1, 2, 3, 7, 16]) for _ in range(rank))
    kind = np.dtype(rng.choice(PLAIN)) if rng.random() < 0.75 else np.dtype(getattr(ml_dtypes, rng.choice(EXTRA)))
    count = int(np.prod(shape, dtype=np.int64))
    if kind == np.bool_:
        flat = np_rng.integers(0, 2, count).astype(bool)
    else:
        flat = np.frombuffer(np_rng.bytes(count * kind.itemsize), dtype=kind)  # any bits: signalling NaN too
    made = flat.reshape(shape)
    layout = rng.random()
    if layout < 0.15:
        made = np.asfortranarray(made)
    elif layout < 0.3:
        made = made.transpose(rng.sample(range(rank), rank))
    elif layout < 0.4 and rank:
        made = made[(slice(None, None, -1),)]
    elif layout < 0.5 and rank:
        made = np.repeat(made, 2, axis=rank - 1)[..., ::2]
    elif layout < 0.6 and kind.kind != "V" and kind.itemsize > 1:
        made = made.astype(kind.newbyteorder(">"), copy=True) if kind.kind not in "fc" else made.byteswap().view(kind.newbyteorder(">"))
    return made


def arrays(seed: int) -> dict[str, np.ndarray]:
    rng, np_rng = random.Random(seed), np.random.default_rng(seed)
    return {name(rng): array(rng, np_rng) for _ in range(rng.randint(0, 6))}


def bits(a: np.ndarray) -> bytes:
    """The elements in C's order and little-endian, as an image has them."""
    a = np.ascontiguousarray(a).reshape(a.shape)
    if a.dtype.kind != "V" and not a.dtype.isnative:
        a = a.byteswap().view(a.dtype.newbyteorder("="))
    return a.tobytes()


def assert_same(got: dict, sent: dict) -> None:
    assert got.keys() == sent.keys()
    for key, a in sent.items():
        b = got[key]
        assert b.shape == a.shape and b.dtype == a.dtype.newbyteorder("=") and b.dtype.isnative, key
        assert b.flags.c_contiguous and b.flags.writeable and bits(b) == bits(a), key
