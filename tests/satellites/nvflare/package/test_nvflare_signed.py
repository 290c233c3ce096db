"""Models of FLARE's server that its key vouches for: a site that has the federation's public keys takes no others, by whatever way they come."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import types

import numpy as np
import pytest
from authority import resign, signing_keys
from flare_cell import Cell

pytest.importorskip("nvflare")

import nvflare.fuel.utils.fobs as fobs  # noqa: E402
from nvflare.fuel.f3.streaming.download_service import ProduceRC  # noqa: E402
from test_nvflare_transfer import MODEL, ends, offer_from, same, transfer  # noqa: E402

import tensorpull  # noqa: E402
import tensorpull.nvflare  # noqa: E402
from tensorpull import _native  # noqa: E402
from tensorpull.nvflare import _offer, _process, _registration, _transfer  # noqa: E402
from tensorpull.nvflare._offer import KEY, Refused  # noqa: E402

if not _native.has_proofs:
    pytest.skip("optional: this build has no proofs", allow_module_level=True)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return signing_keys(tmp_path_factory.mktemp("keys"), "ours", "other")


@pytest.fixture
def site(keys, monkeypatch):
    """A site with keys, and a function that makes the server's process and the site's, with a key or without."""
    monkeypatch.setenv("NVFLARE_TENSORPULL_KEYS", str(keys / "ours.line"))
    monkeypatch.setenv("NVFLARE_TENSORPULL_FEDERATION", "hospitals")
    made = []

    def cells(key="ours"):
        if key:
            monkeypatch.setenv("NVFLARE_TENSORPULL_KEY", str(keys / f"{key}.pem"))
        else:
            monkeypatch.delenv("NVFLARE_TENSORPULL_KEY", raising=False)
        made.extend((Cell("server.4d5f"), Cell("site-1.4d5f")))
        return tuple(made[-2:])

    yield cells
    for cell in made:
        place = _process._places.pop(id(cell), None)
        for door in (place._owner, place._door) if place else ():
            if door is not None:
                door.close()


def model(seed):
    return {"T0": np.random.default_rng(seed).standard_normal(300_000).astype(np.float32), "T1": np.full(5, seed)}


def refusal(offered, pulled, who, change=lambda state: None):
    """Why the site refuses; nothing has landed."""
    with pytest.raises(Refused) as refused:
        transfer(offered, pulled, who, change)
    assert pulled.result is None and str(refused.value).startswith(_process.ONLY_SIGNED)
    offered.release()
    return str(refused.value)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_rounds_that_a_key_has_signed_are_proved_whatever_their_size(site, kind, monkeypatch):
    cells, rounds = site(), []
    for seed in range(3):
        given = model(seed) if seed else {"T0": np.ones(3, np.float32)}  # less than tensorpull_least_bytes
        if kind == "torch":
            torch = pytest.importorskip("torch")
            given = {name: torch.from_numpy(array) for name, array in given.items()}
        a, b, who = ends(cells, given, False)
        transfer(a, b, who)
        assert b.way == "tensorpull" and same(b.result, given) and isinstance(b._signed, tensorpull.SignedReference)
        rounds.append(b._signed.round)
        a.release()
    assert rounds == sorted(set(rounds)) and _process.place_of(cells[1]).round == rounds[-1]
    offer_from(monkeypatch, 0)  # an update is the site's, which has no key
    a, b, who = ends(cells, MODEL, True)
    transfer(a, b, who)
    assert b.way == "tensorpull" and same(b.result, MODEL)
    a.release()


def test_a_server_that_signs_serves_sites_without_keys(site, monkeypatch):
    cells = site()
    monkeypatch.delenv("NVFLARE_TENSORPULL_KEYS")
    a, b, who = ends(cells, model(1), False)
    transfer(a, b, who)
    assert b.way == "tensorpull" and b._signed is None and same(b.result, model(1))
    a.release()


def test_a_server_without_a_key_is_refused(site, monkeypatch):
    cells = site(key="")
    offer_from(monkeypatch, 0)
    assert "it is not signed" in refusal(*ends(cells, model(1), False))
    offer_from(monkeypatch, 1 << 30)  # then it offers nothing
    assert "FLARE's chunks are not signed" in refusal(*ends(cells, model(1), False))


@pytest.mark.parametrize("key", ["", "not there", "no federation"])
def test_a_server_that_cannot_sign_is_refused(key, site, keys, monkeypatch):
    cells = site()
    if key == "not there":
        monkeypatch.setenv("NVFLARE_TENSORPULL_KEY", str(keys / "none.pem"))
    elif key == "no federation":
        monkeypatch.delenv("NVFLARE_TENSORPULL_FEDERATION")
    else:
        monkeypatch.setenv("NVFLARE_TENSORPULL_KEY", str(keys / "ours.line"))
    assert "FLARE's chunks are not signed" in refusal(*ends(cells, model(1), False))


def test_a_replay_of_an_earlier_round_is_refused(site):
    cells, kept = site(), []
    first, b, who = ends(cells, model(0), False)
    transfer(first, b, who, lambda state: kept.append(dict(state)))
    a, b, who = ends(cells, model(1), False)
    transfer(a, b, who)
    a.release()
    a, b, who = ends(cells, model(2), False)
    assert "of an earlier round" in refusal(a, b, who, lambda state: state.update(kept[0]))  # which is still published
    first.release()


def test_an_offer_that_is_on_its_way_while_the_next_one_arrives_is_no_replay(site):
    cells = site()
    (a, b, who), (later, d, _) = ends(cells, model(1), False), ends(cells, model(2), False)
    on_its_way = a.produce(None, who)
    transfer(later, d, who)
    place = _process.place_of(cells[1])
    newest, state = place.round, b.consume("R1", on_its_way[2], on_its_way[1])
    while state[KEY]["is"] != "pulled":
        assert state[KEY]["is"] == "pulling", state
        rc, data, new = a.produce(state, who)
        assert rc == ProduceRC.OK
        state = b.consume("R1", new, data)
    assert b._signed.round < newest == place.round and same(b.result, model(1))
    for one in (a, later):
        one.release()


@pytest.mark.parametrize("claims, key, why", [
    ({"expires": 1}, "ours", "has expired"),
    ({"federation": "banks"}, "ours", "no trusted key has signed"),
    ({}, "other", "no trusted key has signed"),
    ({"note": _offer.use("another", "site-1.4d5f", "R1")}, "ours", "for another use"),
    ({"note": _offer.use("4d5f", "site-2.4d5f", "R1")}, "ours", "for another use"),
    ({"note": _offer.use("4d5f", "site-1.4d5f", "R2")}, "ours", "for another use"),
    ({"model": "0" * 47 + "1"}, "ours", "another reference is signed"),
    ({"root": "0" * 64}, "ours", "no address has the bytes that were signed"),
])  # fmt: skip
def test_what_is_signed_otherwise_is_refused_by_name(claims, key, why, site, keys):
    def change(state):
        if "signed" in state.get(KEY, {}):
            state[KEY] = {**state[KEY], "signed": resign(state[KEY]["signed"], keys / f"{key}.pem", **claims)}

    assert why in refusal(*ends(site(), model(1), False), change)


@pytest.mark.parametrize("signed", ["", "nonsense", 7, None, "x" * 100_000])
def test_an_offer_whose_signature_is_anything_is_refused(signed, site):
    def change(state):
        if "signed" in state.get(KEY, {}):
            state[KEY] = {**state[KEY], "signed": signed}

    refusal(*ends(site(), model(1), False), change)


def test_a_revoked_key_is_refused_by_that_name(site, keys, tmp_path, monkeypatch):
    (tmp_path / "trusted").write_text((keys / "ours.line").read_text().rstrip() + " revoked\n")
    monkeypatch.setenv("NVFLARE_TENSORPULL_KEYS", str(tmp_path / "trusted"))
    assert "is revoked" in refusal(*ends(site(), model(1), False))


def test_what_is_signed_for_another_federation_is_refused(site, keys, tmp_path, monkeypatch):
    (tmp_path / "trusted").write_text((keys / "ours.line").read_text() + (keys / "other.line").read_text().replace("hospitals", "banks"))
    monkeypatch.setenv("NVFLARE_TENSORPULL_KEYS", str(tmp_path / "trusted"))

    def change(state):
        if "signed" in state.get(KEY, {}):
            state[KEY] = {**state[KEY], "signed": resign(state[KEY]["signed"], keys / "other.pem", federation="banks")}

    assert "is for another federation" in refusal(*ends(site(), model(1), False), change)


def test_bytes_that_are_not_those_that_were_signed_are_refused(site):
    cells, given = site(), model(1)
    a, b, who = ends(cells, given, False)

    def change(state):
        if "signed" in state.get(KEY, {}):
            given["T0"][200_000] += 1

    assert "no address has the bytes that were signed" in refusal(a, b, who, change)


def test_a_change_that_nobody_has_told_of_is_proved(site):
    cells, given = site(), model(1)
    a, b, who = ends(cells, given, False)
    transfer(a, b, who)
    given["T0"][123_457] += 1  # none of the elements that are looked at
    c, d, who = ends(cells, given, False)
    transfer(c, d, who)
    assert d.way == "tensorpull" and same(d.result, given) and d._signed.root != b._signed.root
    for one in (a, c):
        one.release()


def test_a_model_of_another_site_is_refused(site, monkeypatch):
    offer_from(monkeypatch, 0)
    another = Cell("site-2.4d5f")
    try:
        assert "models of other sites are not signed" in refusal(*ends((another, site()[1]), model(1), False))
    finally:
        _process._places.pop(id(another), None)


def test_a_model_of_another_job_of_the_server_is_refused(site, monkeypatch):
    """A message of one job, as of another site's in swarm learning, may name the server's process of another one, which signs for whoever asks."""
    another = Cell("server.other")
    a, b, who = ends((another, site()[1]), model(1), False)
    try:
        assert "it is of another job" in refusal(a, b, who)
    finally:
        place = _process._places.pop(id(another), None)
        place._owner.close()


def test_what_a_job_switches_off_is_refused(site, monkeypatch):
    monkeypatch.setenv("NVFLARE_TENSORPULL_ENABLED", "0")
    cells = site()
    a, b, who = ends(cells, model(1), False)
    monkeypatch.setattr(_transfer, "place_of", lambda cell: (_ for _ in ()).throw(_process.Off("it is switched off")))
    assert "FLARE's chunks are not signed" in refusal(a, b, who)


@pytest.mark.parametrize("process, source, alone", [
    ("site-1.4d5f", "server.4d5f", True), ("site-1.4d5f", "site-2.4d5f", True), ("site-1.4d5f", "site-1", True), ("site-1.4d5f", "site-1.other", True),
    ("site-1.4d5f", "site-1.4d5f", False), ("site-1.4d5f", "site-1.4d5f.0", False), ("site-1.4d5f.0", "site-1.4d5f", False), ("site-1.4d5f.0", "server.4d5f", True),
    ("site-1", "server", True), ("site-1", "site-2", True), ("server.4d5f", "site-1.4d5f", False), ("server", "site-1", False),
])  # fmt: skip
def test_only_what_stays_within_a_site_needs_no_signature(process, source, alone, site, monkeypatch):
    assert _process.takes_signed_alone(process, source) is alone
    monkeypatch.delenv("NVFLARE_TENSORPULL_KEYS")
    assert not _process.takes_signed_alone(process, source)


def test_what_a_message_itself_carries_is_refused(site, monkeypatch):
    from nvflare.app_common.decomposers.numpy_decomposers import NumpyArrayDecomposer

    there = NumpyArrayDecomposer()
    _registration._refuse_what_is_inline(there)
    inline = there.native_decompose(np.ones(3))

    def read(cell, message=object()):
        return there.native_recompose(inline, types.SimpleNamespace(fobs_ctx={fobs.FOBSContextKey.CELL: cell, fobs.FOBSContextKey.MESSAGE: message}))

    for cell in (Cell("site-1.4d5f"), None):
        with pytest.raises(Refused, match="a message carries it"):
            read(cell)
    assert (read(Cell("server.4d5f")) == 1).all() and (read(Cell("site-1.4d5f"), None) == 1).all()  # a file of its own
    monkeypatch.delenv("NVFLARE_TENSORPULL_KEYS")
    assert (read(Cell("site-1.4d5f")) == 1).all()


def test_a_trainer_whose_job_process_cannot_be_called_takes_no_chunks_of_flares(site, monkeypatch):
    from tensorpull.nvflare import _trainer
    from tensorpull.nvflare.decomposers.array import OfferedArrays

    class Own:
        logger, get_download_dot = logging.getLogger("test"), lambda self: 1

        def download(self, **how):
            return None, how["from_fqcn"]

    trainer = type("Taken", (_trainer.Taking, Own), {"offering": OfferedArrays})()
    monkeypatch.setenv(_trainer.VARIABLE, "nobody is there")
    error, got = trainer.download("server.4d5f", "R1", 60.0, Cell("site-1.4d5f.0"))
    assert str(error).startswith(_process.ONLY_SIGNED) and got is None
    assert trainer.download("site-1.4d5f", "R1", 60.0, Cell("site-1.4d5f.0")) == (None, "site-1.4d5f")
    monkeypatch.delenv("NVFLARE_TENSORPULL_KEYS")
    assert trainer.download("server.4d5f", "R1", 60.0, Cell("site-1.4d5f.0")) == (None, "server.4d5f")


def test_a_trainer_of_a_site_with_keys_does_not_begin_without_this_package(site, monkeypatch):
    path = os.path.join(os.path.dirname(tensorpull.nvflare.__file__), "for_trainers", "sitecustomize.py")
    described = importlib.util.spec_from_file_location("sitecustomize_of_trainers", path)
    found = importlib.util.module_from_spec(described)
    monkeypatch.setitem(sys.modules, "sitecustomize", None)  # which it would look for
    described.loader.exec_module(found)
    monkeypatch.setitem(sys.modules, "tensorpull.nvflare._trainer", None)
    monkeypatch.delattr(tensorpull.nvflare, "_trainer", raising=False)
    with pytest.raises(ImportError):
        found._join()
    monkeypatch.delenv("NVFLARE_TENSORPULL_KEYS")
    found._join()


def test_a_site_with_keys_does_not_go_on_without_this_package(site, monkeypatch):
    def first():
        described = importlib.util.spec_from_file_location("tensorpull_or_flare_again", tensorpull.nvflare.JOBS_FILE)
        described.loader.exec_module(importlib.util.module_from_spec(described))

    first()
    for name in ("tensor", "array"):
        monkeypatch.setitem(sys.modules, f"tensorpull.nvflare.decomposers.{name}", None)
    with pytest.raises(ImportError, match="takes signed models alone"):
        first()
    ours = types.SimpleNamespace(get_download_dot=lambda: 1 / 0)  # another version of FLARE
    with pytest.raises(Refused, match="travel by FLARE's chunks in this process"):
        _registration.take_over(ours, "models")
