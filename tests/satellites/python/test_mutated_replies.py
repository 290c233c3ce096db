"""Replies that are changed on their way: the tensors that are returned are those that were published, or there is an Error."""

from __future__ import annotations

import random
from contextlib import contextmanager

import numpy as np
import pytest
from mutating_path import MutatingPath, flip, without_digest

import tensorpull
from tensorpull import Error

MUTATIONS = 500


@contextmanager
def mutating(owner):
    path = MutatingPath(owner.port)
    try:
        yield path
    finally:
        path.close()


def a_wrong_bit(i, frame):
    """The same, and one bit of the tensors."""
    frame = without_digest(i, frame)
    return flip(frame, 8 * (len(frame) - 8)) if i == 1 else frame


def test_an_owner_cannot_waive_the_digest(owner):
    sent = {"w": np.arange(1000, dtype="f4")}
    ref = owner.add_tensors(sent)
    with mutating(owner) as path:
        for path.mutate in (without_digest, a_wrong_bit):
            for known in (ref, ref.id):
                for options in ({}, {"out": {"w": np.zeros(1000, "f4")}}):
                    with pytest.raises(Error) as e:
                        tensorpull.download_tensors(path.address, known, retries=0, **options)
                    assert e.value.code == "not_verifiable" and e.value.landed == 0
                    assert not options or not options["out"]["w"].any()
        path.mutate = without_digest
        got = tensorpull.download_tensors(path.address, ref.id, unverified=True)
        assert got.receipt.outcome == "completed_unverified" and np.array_equal(got["w"], sent["w"])
    assert tensorpull.download_tensors(owner.address, ref, unverified=True).receipt.outcome == "completed", "a digest that is there counts"


def test_a_confirmation_that_is_lost_is_said(owner):
    sent = {"w": np.arange(1000, dtype="f4")}
    ref = owner.add_tensors(sent)
    with mutating(owner) as path:
        path.mutate = lambda i, frame: frame if i < 2 else None
        got = tensorpull.download_tensors(path.address, ref, retries=0)
    assert np.array_equal(got["w"], sent["w"])
    assert (got.receipt.outcome, got.receipt.confirmed, got.receipt.unconfirmed_because) == ("completed", False, "connection_lost")
    got = tensorpull.download_tensors(owner.address, ref)
    assert (got.receipt.outcome, got.receipt.confirmed, got.receipt.unconfirmed_because) == ("completed", True, "")


def test_no_mutation_gives_wrong_tensors(owner):
    sent = {"w": np.random.default_rng(1).integers(0, 256, 3000, dtype="u1"), "x": np.arange(64, dtype="f4")}
    ref, last, endings = owner.add_tensors(sent), 4, set()
    with mutating(owner) as path:
        for seed in range(MUTATIONS):
            kind, control = seed % 4, random.Random(seed)

            def mutate(i, frame, seed=seed, kind=kind, control=control):
                chance = random.Random(1000 * seed + i)
                if kind == 0 and i in (0, last):  # a bit of the description, and one of the last bytes
                    flip(frame, control.randrange(64, 8 * len(frame)) if i == 0 else 8 * (len(frame) - 16) + chance.randrange(64))
                elif kind == 1 and i == seed // 4 % (last + 2):  # any bit of any frame
                    flip(frame, chance.randrange(64, 8 * len(frame)))
                elif kind == 2:  # a few bits of every frame's first words
                    for _ in range(chance.randrange(3)):
                        flip(frame, chance.randrange(64, 8 * min(len(frame), 96)))
                elif kind == 3 and i >= last:  # a random word, or the end
                    if chance.randrange(4) == 0:
                        return None
                    at = 8 * chance.randrange(1, min(len(frame) // 8, 12))
                    frame[at:at + 8] = chance.randbytes(8)
                return frame

            path.mutate = mutate
            out = {name: np.zeros_like(a) for name, a in sent.items()} if seed % 3 == 0 else None
            try:
                got = tensorpull.download_tensors(path.address, ref if seed % 2 else ref.id, out=out, chunk_size=1000, per_request_timeout=0.1, retries=0, max_bytes=1 << 20)
            except Error as e:
                endings.add((kind, e.code))
                continue
            endings.add((kind, got.receipt.outcome))
            assert got.receipt.outcome == "completed" and all(np.array_equal(got[name], a) for name, a in sent.items()), (seed, kind, got.receipt)
    assert {(1, "completed"), (1, "digest_mismatch"), (3, "completed")} <= endings, endings
