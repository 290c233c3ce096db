"""Signatures of PyPI's model-signing, whose manifests name the BLAKE3 of each file, over files that have arrived; and the SHA-256 of each tensor in them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys

import numpy as np
import processes
import pytest

from tensorpull import Downloader, _native, download_directory, download_file

model_signing = pytest.importorskip("model_signing")
import model_signing.hashing  # noqa: E402
import model_signing.signing  # noqa: E402
import model_signing.verifying  # noqa: E402

MODEL = {"w": np.arange(300_000, dtype=np.float32), "b": np.ones((7, 2)), "n": np.zeros(0, np.int64)}


@pytest.fixture
def key(tmp_path):
    """The public key; the private one lies beside."""
    for words in (["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "ec.pem"], ["ec", "-in", "ec.pem", "-pubout", "-out", "ec.pub"]):
        processes.run(["openssl", *words], check=True, capture_output=True, cwd=tmp_path)
    return tmp_path / "ec.pub"


def sign(folder, signature, key):
    hashing = model_signing.hashing.Config().use_file_serialization(hashing_algorithm="blake3").set_ignored_paths(paths=[signature], ignore_git_paths=False)
    model_signing.signing.Config().use_elliptic_key_signer(private_key=key.parent / "ec.pem").set_hashing_config(hashing).sign(folder, signature)


def entries(signature):
    """The digests in the manifest, by the names of the files."""
    statement = json.loads(base64.b64decode(json.loads(signature.read_text())["dsseEnvelope"]["payload"]))
    assert statement["predicate"]["serialization"]["method"] == "files" and statement["predicate"]["serialization"]["hash_type"] == "blake3"
    return {one["name"]: one["digest"] for one in statement["predicate"]["resources"]}


def verified(folder, signature, key):
    try:
        model_signing.verifying.Config().use_elliptic_key_verifier(public_key=key).verify(folder, signature)
        return True
    except ValueError as e:
        assert "mismatch" in str(e).lower() or "hash" in str(e).lower(), e
        return False


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_directory_that_has_arrived_is_what_was_signed(owner, key, tmp_path):
    given, got = tmp_path / "given", tmp_path / "got"
    (given / "tokenizer").mkdir(parents=True)
    (given / "tokenizer" / "vocabulary.txt").write_text("a b c\n" * 10_000)
    with Downloader() as first:
        download_file(first.start().address, first.add_tensors(MODEL), given / "model.safetensors")
    sign(given, given / "model.sig", key)
    download_directory(owner.address, owner.add_directory(given), got)
    assert verified(got, got / "model.sig", key)
    assert set(entries(got / "model.sig")) == {"model.safetensors", "tokenizer/vocabulary.txt"}
    for name, at in (("model.safetensors", -1), ("model.safetensors", 0), ("tokenizer/vocabulary.txt", 5)):
        flip(got / name, at)
        assert not verified(got, got / "model.sig", key), name
        flip(got / name, at)
    assert verified(got, got / "model.sig", key)
    os.rename(got / "model.safetensors", got / "other.safetensors")
    assert not verified(got, got / "model.sig", key)


@pytest.mark.skipif(not _native.has_proofs, reason="optional: this build has no proofs")
def test_its_blake3_of_a_file_is_the_root_that_proofs_have(owner, key, tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    ref = owner.add_tensors(MODEL, proofs=True)
    download_file(owner.address, ref, there / "model.safetensors")
    sign(there, tmp_path / "model.sig", key)
    assert entries(tmp_path / "model.sig") == {"model.safetensors": ref.root}


def test_the_sha256_of_each_tensor(owner, tmp_path):
    download_file(owner.address, owner.add_tensors(MODEL), tmp_path / "model.safetensors")
    said = json.loads(processes.run([sys.executable, "-m", "tensorpull", "inspect", "--json", str(tmp_path / "model.safetensors")], check=True, capture_output=True, text=True).stdout)
    assert {one["name"]: one["sha256"] for one in said["tensors"]} == {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in MODEL.items()}
