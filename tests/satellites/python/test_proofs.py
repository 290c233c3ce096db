"""References that a key has signed, and downloads whose bytes are proved: whoever sends them."""

from __future__ import annotations

import copy
import datetime
import logging
import os
import pathlib
import pickle
import random

import numpy as np
import pytest
import processes
from authority import signing_keys
from mutating_path import LyingPath, held_until

import tensorpull
from tensorpull import Downloader, Error, SignedReference, download_file, download_tensors, sign_reference, verify_reference
from tensorpull import _native

if not _native.has_proofs:
    with pytest.raises(Error) as refused_here:
        verify_reference("", "")
    assert refused_here.value.code == "unsupported_request"
    pytest.skip("optional: this build has no proofs", allow_module_level=True)

MODEL = {"w": np.arange(300_000, dtype=np.float32), "b": np.ones(7, dtype=np.float64)}


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """A folder with private keys, and `trusted`: the line of each."""
    return signing_keys(tmp_path_factory.mktemp("keys"), "ours", "other")


@pytest.fixture
def owner():
    with Downloader() as made:
        yield made.start()


@pytest.fixture
def signed(owner, keys):
    return sign_reference(owner.add_tensors(MODEL, proofs=True), keys / "ours.pem", federation="hospitals", expires=600, round=3, note="0.93")


def mirror_of(model, ref):
    """Another owner that has this under the same reference, with its proofs."""
    other = Downloader()
    other.add_tensors(model, ref_id=ref, proofs=True)
    return other.start()


def test_a_model_is_proved_by_what_a_key_has_signed(owner, signed, keys, tmp_path):
    known = verify_reference(signed, keys / "ours.line", federation="hospitals", least_round=3)
    assert (known.federation, known.round, known.note) == ("hospitals", 3, "0.93") and isinstance(known, SignedReference)
    for how in ({}, {"framework": "numpy"}, {"out": {name: np.zeros_like(one) for name, one in MODEL.items()}}, {"out": {name: np.zeros_like(one) for name, one in MODEL.items()}, "atomic": True}):
        got = download_tensors(owner.address, known, **how)
        assert all(np.array_equal(got[name], MODEL[name]) for name in MODEL) and got.receipt.outcome == "completed" and not got.receipt.believed
    assert owner.status(known.reference).completed == 4
    receipt = download_file(owner.address, known, tmp_path / "m.safetensors")
    assert receipt.outcome == "completed"
    assert download_file(owner.address, known, tmp_path / "m.safetensors").outcome == "completed", "it is there"
    data = bytearray((tmp_path / "m.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "m.safetensors").write_bytes(data)
    with pytest.raises(FileExistsError):
        download_file(owner.address, known, tmp_path / "m.safetensors")
    download_file([owner.address], known, tmp_path / "m.safetensors", overwrite=True)
    data[-1] ^= 1
    assert (tmp_path / "m.safetensors").read_bytes() == data


def test_the_root_is_what_others_print_for_the_file(owner, keys, tmp_path):
    blake3 = pytest.importorskip("blake3")
    for model in (MODEL, {"a": np.arange(5)}, {"a": np.zeros(0, np.float32)}, {"a": np.zeros((1 << 16) - 200, np.uint8)}):
        ref = owner.add_tensors(model, proofs=True)
        known = verify_reference(sign_reference(ref, keys / "ours.pem", federation="hospitals", expires=600), (keys / "ours.line").read_text())
        path = tmp_path / ref.id
        download_file(owner.address, known, path)
        assert known.root == ref.root == blake3.blake3(path.read_bytes()).hexdigest()
        if processes.found("b3sum"):
            assert processes.run(["b3sum", "--no-names", str(path)], check=True, capture_output=True, text=True).stdout.strip() == ref.root


def test_refusals_have_names(owner, signed, keys):
    line, other = (keys / "ours.line").read_text(), (keys / "other.line").read_text()

    def refusal(text=signed, trusted=line, **how):
        with pytest.raises(Error) as refused:
            verify_reference(text, trusted, **how)
        return refused.value.code, refused.value.name

    assert refusal(trusted=other) == refusal(trusted="") == ("not_authenticated", "signature")
    assert refusal(trusted=line.replace("hospitals", "banks")) == ("not_authenticated", "signature")
    assert refusal(trusted=line.rstrip() + " revoked") == ("not_authenticated", "revoked")
    assert refusal(federation="banks") == ("not_permitted", "federation")
    assert refusal(least_round=4) == ("not_permitted", "round")
    ref = owner.add_tensors(MODEL, proofs=True)
    past = sign_reference(ref, keys / "ours.pem", federation="hospitals", expires=datetime.datetime(2001, 2, 3, tzinfo=datetime.timezone.utc))
    assert refusal(past) == ("not_permitted", "expires")
    assert refusal(trusted="hospitals abc")[0] == "bad_file" and refusal("")[0] == "bad_file"
    with pytest.raises(FileNotFoundError):
        verify_reference(signed, keys / "none")
    verify_reference(signed, f"# keys\r\n{other}\n{line}")
    rng = random.Random(1)
    for _ in range(200):
        at, end = sorted(rng.randrange(len(signed) + 1) for _ in range(2))
        hostile = signed[:at] + rng.choice(["", "0", "\n", "\0", "é", signed, " "]) + signed[rng.choice([at, end]) :]
        assert hostile == signed or refusal(hostile) in (("bad_file", ""), ("not_authenticated", "signature")) or refusal(hostile)[0] == "bad_file", hostile
    assert refusal("a" * 1_000_000)[0] == "bad_file"


def test_a_key_takes_the_place_of_another_as_the_page_has_it(owner, tmp_path):
    script = pathlib.Path(__file__).resolve().parents[1] / "proofs" / "keys.sh"
    ref, keys = owner.add_tensors(MODEL, proofs=True), tmp_path / "hospitals.keys"

    def step(name):
        processes.run(["bash", str(script), name], check=True, capture_output=True, cwd=tmp_path)

    def refusal(key, trusted=keys):
        try:
            verify_reference(sign_reference(ref, tmp_path / key, federation="hospitals", expires=600), trusted)
        except Error as e:
            return e.name
        return ""

    step("first")
    offline = keys.read_text()
    assert refusal("key.pem") == ""
    step("next")
    assert refusal("key.pem") == refusal("next.pem") == ""
    step("revoke")
    assert refusal("key.pem") == "revoked" and refusal("next.pem") == ""
    keys.write_text(keys.read_text() + offline)  # the same key once more, without the word
    assert refusal("key.pem") == "revoked"
    assert refusal("key.pem", offline) == "" and refusal("next.pem", offline) == "signature"


def test_what_cannot_be_signed(owner, keys):
    ref, plain = owner.add_tensors(MODEL, proofs=True), owner.add_tensors(MODEL)
    right = {"federation": "hospitals", "expires": 60}
    with pytest.raises(ValueError):
        sign_reference(plain, keys / "ours.pem", **right)
    for wrong in ({"federation": ""}, {"federation": "a b"}, {"federation": "ä"}, {"federation": "a" * 256}, {"expires": 0}, {"expires": float("nan")}, {"expires": datetime.datetime(2100, 1, 1)}, {"note": "a\nround 9"}, {"round": -1}, {"round": 2**64}):
        with pytest.raises(ValueError):
            sign_reference(ref, keys / "ours.pem", **{**right, **wrong})
    for key in ("nothing", keys / "ours.line"):
        with pytest.raises(Error) as refused:
            sign_reference(ref, key, **right)
        assert refused.value.code == "bad_file"
    with pytest.raises(FileNotFoundError):
        sign_reference(ref, keys / "none.pem", **right)
    text = sign_reference(ref, (keys / "ours.pem").read_text(), **right)
    again = pickle.loads(pickle.dumps(ref))
    assert again == ref and again.root == ref.root and copy.copy(ref).root == ref.root
    assert verify_reference(sign_reference(again, keys / "ours.pem", **right), keys / "ours.line").root == verify_reference(text, keys / "ours.line").root


def test_a_password_is_not_asked_for_at_the_terminal(owner, keys):
    processes.run(["openssl", "pkey", "-in", "ours.pem", "-aes256", "-passout", "pass:secret", "-out", "locked.pem"], check=True, capture_output=True, cwd=keys)
    with pytest.raises(Error) as refused:
        sign_reference(owner.add_tensors(MODEL, proofs=True), keys / "locked.pem", federation="hospitals", expires=60)
    assert refused.value.code == "bad_file"


def test_one_that_lies_is_named_and_the_next_goes_on(owner, signed, keys, caplog):
    known = verify_reference(signed, keys / "ours.line")
    with mirror_of(MODEL, known.reference) as mirror, caplog.at_level(logging.WARNING, "tensorpull"):
        for how in ({}, {"out": {name: np.zeros_like(one) for name, one in MODEL.items()}}):
            caplog.clear()
            heard, liar = [], LyingPath(owner.port)
            late = held_until(mirror.port, liar.dropped)
            got = download_tensors([liar.address, late.address], known, chunk_size=64 << 10, progress=heard.append, progress_interval=0, retries=0, **how)
            assert all(np.array_equal(got[name], MODEL[name]) for name in MODEL)
            assert [liar.address in line for line in caplog.messages] == [True], caplog.messages
            assert [e.phase for e in heard].count("completed") == 1 and "failed" not in [e.phase for e in heard]
        caplog.clear()
        with pytest.raises(Error) as refused:
            download_tensors([liar.address, liar.address], known, chunk_size=64 << 10, retries=0)
        assert refused.value.code == "digest_mismatch" and len(caplog.messages) == 2
        # one that has other tensors under that reference, and one that is gone
        caplog.clear()
        with mirror_of({**MODEL, "w": MODEL["w"] + 1}, known.reference[:32]) as other:
            got = download_tensors([other.address, mirror.address], known, retries=0)
            gone = other.address
        assert np.array_equal(got["w"], MODEL["w"]) and caplog.messages == []
        download_tensors([gone, mirror.address], known, retries=0)


def test_files_go_on_from_the_next_address(owner, signed, keys, tmp_path):
    known = verify_reference(signed, keys / "ours.line")
    download_file([LyingPath(owner.port).address, owner.address], known, tmp_path / "m", chunk_size=64 << 10, retries=0)
    assert os.path.getsize(tmp_path / "m") == known.nbytes
    with pytest.raises(Error):
        download_file(LyingPath(owner.port).address, known, tmp_path / "n", chunk_size=64 << 10, retries=0)
    assert not (tmp_path / "n").exists()
    download_file(owner.address, known, tmp_path / "n")
    assert (tmp_path / "n").read_bytes() == (tmp_path / "m").read_bytes()
    # what is there and right is not replaced by what an owner has now
    with mirror_of({**MODEL, "w": MODEL["w"] + 1}, known.reference[:32]) as other, pytest.raises(FileExistsError):
        download_file(other.address, known, tmp_path / "n", overwrite=True, retries=0)
    assert (tmp_path / "n").read_bytes() == (tmp_path / "m").read_bytes()


def test_arguments_that_would_not_be_heeded_are_refused(owner, signed, keys, tmp_path):
    known = verify_reference(signed, keys / "ours.line")
    for wrong in ({"subset": True}, {"names": ["w"]}, {"matching": ["w"]}, {"version": 3}, {"unverified": True}, {"believe": True}, {"base": MODEL}, {"adapt": True}, {"chunk_size": 0}, {"cursor": tensorpull.Cursor()}, {"digest": "xxh3:0"}):
        with pytest.raises(ValueError):
            download_tensors(owner.address, known, **wrong)
    for wrong in ({"version": 3}, {"unverified": True}, {"chunk_size": 0}, {"connections": 9}):
        with pytest.raises(ValueError):
            download_file(owner.address, known, tmp_path / "x", **wrong)
    with pytest.raises(ValueError):
        download_tensors("http://127.0.0.1:1/m", known)
    for call in (lambda: tensorpull.list_tensors(owner.address, known), lambda: list(tensorpull.stream(owner.address, known)), lambda: tensorpull.weighted_average([(owner.address, known, 1.0)])):
        with pytest.raises((TypeError, ValueError)):
            call()  # nothing takes it for a reference that is believed
    for wrong in (known._replace(root="00" * 32), known._replace(nbytes=known.nbytes + 1)):
        with pytest.raises(Error) as refused:
            download_tensors(owner.address, wrong, retries=0)
        assert refused.value.code == "digest_mismatch"
    # the root stands for the bytes of a model, and the fingerprint for the names in out
    with pytest.raises(Error) as refused:
        download_tensors(owner.address, known, out={"v": np.zeros_like(MODEL["w"]), "b": np.zeros(7)}, retries=0)
    assert refused.value.code == "schema_mismatch" and refused.value.landed == 0 and known.fingerprint != 0
    for wrong in (known._replace(root="zz" * 32), known._replace(reference=known.reference[:32]), known._replace(tree="x")):
        with pytest.raises(Error) as refused:
            download_tensors(owner.address, wrong, retries=0)
        assert refused.value.code == "invalid_argument"


def test_tensors_that_are_tied_and_trees(owner, keys):
    w = np.arange(100_000, dtype=np.float32)
    ref = owner.add_tensors({"a": {"w": w, "again": w}, "n": 3}, proofs=True)
    known = verify_reference(sign_reference(ref, keys / "ours.pem", federation="hospitals", expires=60), keys / "ours.line")
    got = download_tensors(owner.address, known)
    assert np.array_equal(got["a.w"], w) and got["a.w"] is got["a.again"]
    into = np.zeros_like(w)
    download_tensors(owner.address, known, out={"a": {"w": into, "again": into}})
    assert np.array_equal(into, w)


def test_the_table_of_an_owner_is_full(keys):
    with Downloader(max_references=1) as owner:
        with pytest.raises(Error) as refused:
            owner.add_tensors(MODEL, proofs=True)
        assert refused.value.code == "table_full"
        owner.add_tensors(MODEL)  # nothing of it has stayed


def test_rounds_under_one_id_leave_no_trees_behind(keys):
    with Downloader(max_references=4) as owner:
        owner.start()
        ref = None
        for i in range(12):
            ref = owner.add_tensors({"w": MODEL["w"] + i}, ref_id=ref, proofs=True)
            known = verify_reference(sign_reference(ref, keys / "ours.pem", federation="hospitals", expires=60, round=i), keys / "ours.line", least_round=i)
            assert np.array_equal(download_tensors(owner.address, known)["w"], MODEL["w"] + i)
