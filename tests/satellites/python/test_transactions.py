"""Several references that are published together; and as many references as the program states."""

from __future__ import annotations

import logging
import re
import weakref

import numpy as np
import pytest
from processes import eventually

import tensorpull
from tensorpull import Error

IDS = ["%032x" % i for i in range(1, 6)]


def models(n: int, seed: int = 1) -> list[dict[str, np.ndarray]]:
    return [{"w": np.random.default_rng(seed + i).standard_normal(1000)} for i in range(n)]


def test_a_transaction_settles_once_for_all_its_references(owner):
    told = []
    sent = models(3)
    refs = owner.add_transaction(sent, recipients=1, settled=told.append, metadata=[None, {"a": "b"}, None])
    assert len(refs) == 3 and len(set(refs)) == 3 and all(ref.version and ref.nbytes for ref in refs)
    for i, ref in enumerate(refs):
        assert owner.outcome(ref).verdict == "open" and not told
        got = tensorpull.download_tensors(owner.address, ref, recipient="one")
        assert np.array_equal(got["w"], sent[i]["w"])
        assert got.metadata == ({"a": "b"} if i == 1 else {})
    assert eventually(lambda: len(told) == 1)
    assert (told[0].verdict, told[0].references, told[0].counts.completed) == ("completed", 3, 1)
    assert owner.wait(refs, 60)


def test_names_are_of_the_whole_transaction(owner):
    refs = owner.add_transaction(models(2), recipients=(name for name in ["ada", "bob"]))
    for who in ("ada", "bob"):
        for ref in refs:
            tensorpull.download_tensors(owner.address, ref, recipient=who)
    assert owner.wait(refs, 60) and owner.outcome(refs[1]).verdict == "completed"


def test_five_thousand_recipients_by_name_have_room_if_that_is_stated():
    names = [f"site-{i}" for i in range(5000)]
    with tensorpull.Downloader() as small, pytest.raises(Error) as e:
        small.add_transaction(models(2), recipients=names)
    assert e.value.code == "table_full"
    with tensorpull.Downloader(max_recipients=10_000) as owner:
        owner.start()
        refs = owner.add_transaction(models(2), recipients=names, least=2)
        for who in (names[0], names[-1]):
            for ref in refs:
                tensorpull.download_tensors(owner.address, ref, recipient=who)
        assert owner.status(refs[0]).completed == 2
        for ref in refs:
            owner.withdraw(ref)
        assert owner.wait(refs, 60) and owner.outcome(refs[0]).counts.completed == 2


def test_the_order_of_a_transaction_is_kept_or_not(owner):
    sent = {"z": np.zeros(2, "f4"), "a": np.zeros(3), "m": np.zeros(4)}
    for keep, names in ((True, ["z", "a", "m"]), (False, ["a", "m", "z"])):
        for ref in owner.add_transaction([sent, sent], keep_order=keep):
            assert list(tensorpull.download_tensors(owner.address, ref)) == names


@pytest.mark.parametrize("wrong", ["twice", "dtype", "full", "id"])
def test_all_or_none(wrong):
    with tensorpull.Downloader(max_references=4) as owner:
        owner.start()
        before = models(1, 50)[0]
        owner.add_tensors(before, ref_id=IDS[0])
        parts, ids = models(3), IDS[:3]
        if wrong == "twice":
            ids = [IDS[0], IDS[1], IDS[0]]
        elif wrong == "dtype":
            parts[2] = {"w": np.array(["text"])}
        elif wrong == "full":
            parts, ids = models(4), IDS[:4]
        elif wrong == "id":
            ids = [IDS[0], IDS[1], "no digits"]
        with pytest.raises(Error) as e:
            owner.add_transaction(parts, ref_ids=ids)
        assert e.value.code == {"twice": "invalid_argument", "dtype": "unsupported_dtype", "full": "table_full", "id": "invalid_argument"}[wrong]
        assert np.array_equal(tensorpull.download_tensors(owner.address, IDS[0])["w"], before["w"])
        for ref in IDS[1:4]:
            with pytest.raises(Error) as e:
                tensorpull.download_tensors(owner.address, ref)
            assert e.value.code == "unknown_reference"
        refs = owner.add_transaction(models(3, 7), ref_ids=IDS[:3])  # what was refused has taken no place
        assert [ref.id for ref in refs] == IDS[:3]
        assert np.array_equal(tensorpull.download_tensors(owner.address, refs[0])["w"], models(3, 7)[0]["w"])


def test_a_transaction_lets_go_of_its_tensors(owner):
    parts = [{"w": np.zeros(100)} for _ in range(2)]
    kept = [weakref.ref(part["w"]) for part in parts]
    refs = owner.add_transaction(parts)
    del parts
    assert all(alive() is not None for alive in kept)
    for ref in refs:
        owner.withdraw(ref)
    assert eventually(lambda: all(alive() is None for alive in kept))
    parts = [{"w": np.zeros(100)} for _ in range(2)]
    kept = [weakref.ref(part["w"]) for part in parts]
    with pytest.raises(Error):
        owner.add_transaction(parts, ref_ids=[IDS[0], IDS[0]])
    del parts
    assert eventually(lambda: all(alive() is None for alive in kept))


def test_arguments_that_make_no_sense(owner):
    for wrong in ([], {}):
        with pytest.raises((ValueError, TypeError)):
            owner.add_transaction(wrong)
    with pytest.raises(ValueError):
        owner.add_transaction(models(2), ref_ids=IDS[:1])
    with pytest.raises(ValueError):
        owner.add_transaction(models(2), ref_ids=IDS[0])
    with pytest.raises(TypeError):
        owner.add_transaction(models(2), settled=7)


def test_over_datagrams():
    with tensorpull.Downloader("udp://127.0.0.1:0") as owner:
        owner.start()
        refs = owner.add_transaction(models(2), recipients=1)
        for ref in refs:
            tensorpull.download_tensors(owner.address, ref, recipient="one")
        assert owner.wait(refs, 60)


def test_as_many_references_as_are_stated():
    many = {"w": np.zeros(4)}
    for wanted in (3, 700):
        with tensorpull.Downloader(max_references=wanted) as owner:
            owner.start()
            refs = [owner.add_tensors(many) for _ in range(wanted)]
            with pytest.raises(Error) as e:
                owner.add_tensors(many)
            assert (e.value.code, e.value.at) == ("table_full", wanted)
            for ref in (refs[0], refs[-1]):
                assert tensorpull.download_tensors(owner.address, ref).keys() == {"w"}
            owner.withdraw(refs[0])
            owner.add_tensors(many)


@pytest.mark.parametrize("many", [2**40, 2**62])
@pytest.mark.parametrize("listen", ["127.0.0.1:0", "udp://127.0.0.1:0"])
def test_numbers_for_which_there_is_no_memory(many, listen):
    for what in ("max_references", "max_recipients"):
        with pytest.raises(Error) as e:
            tensorpull.Downloader(listen, **{what: many})
        assert e.value.code == "out_of_memory"


def test_numbers_that_are_none():
    for wrong in (0, -1, 2**64):
        with pytest.raises(ValueError):
            tensorpull.Downloader(max_references=wrong)
    with pytest.raises(TypeError):
        tensorpull.Downloader(max_references="many")


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("mistake", ["shape", "limit", "dtype"])
def test_what_a_recipient_cannot_take_ends_nothing_and_the_owners_log_says_why(owner, caplog, named, mistake):
    caplog.set_level(logging.INFO, logger="tensorpull")
    sent = {"w": np.ones(4, "f4")}
    ref = owner.add_tensors(sent, recipients=["site-1"] if named else 1)
    how = {"recipient": "site-1"} if named else {}
    wrong = {"shape": {"out": {"w": np.zeros(5, "f4")}}, "dtype": {"out": {"w": np.zeros(4, "f8")}}, "limit": {"max_bytes": 1}}[mistake]
    with pytest.raises(Error) as refused:
        tensorpull.download_tensors(owner.address, ref, **wrong, **how)
    assert refused.value.code == ("too_large" if mistake == "limit" else "schema_mismatch")
    got = tensorpull.download_tensors(owner.address, ref, **how)
    assert np.array_equal(got["w"], sent["w"]) and owner.wait(ref, timeout=60) and owner.outcome(ref).verdict == "completed"
    why = "unsupported_request" if mistake == "limit" else "schema_mismatch"
    says = re.compile(rf"{ref[:8]}...: recipient {'site-1' if named else '[0-9a-f]{8}...'} cannot take it [(]{why}[)], and may come again")
    assert eventually(lambda: [r.levelname for r in caplog.records if says.fullmatch(r.getMessage())] == ["WARNING"])
    with pytest.raises(Error, match="this publication has ended") as late:
        tensorpull.download_tensors(owner.address, ref)
    assert late.value.code == "ended"


@pytest.mark.parametrize("listen", ["unix:@declined", "shm:@declined-too", "udp://127.0.0.1:0"])
def test_what_a_recipient_cannot_take_ends_nothing_over_any_link(listen):
    with tensorpull.Downloader(listen).start() as owner:
        ref = owner.add_tensors({"w": np.ones(4, "f4")}, recipients=1)
        for wrong in ({"out": {"w": np.zeros(5, "f4")}}, {"max_bytes": 1}):
            with pytest.raises(Error):
                tensorpull.download_tensors(owner.address, ref, **wrong)
        assert tensorpull.download_tensors(owner.address, ref)["w"].all()
        assert owner.wait(ref, timeout=60) and owner.outcome(ref).verdict == "completed"
