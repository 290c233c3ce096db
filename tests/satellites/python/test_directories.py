"""A directory arrives as it was published, or not at all."""

from __future__ import annotations

import asyncio
import errno
import os

import numpy as np
import pytest
from imitated_hub import ImitatedHub

import tensorpull
from tensorpull import Error, aio

if not hasattr(tensorpull._native, "Directory"):
    pytest.skip("optional: this build has no directories", allow_module_level=True)


def checkpoint(at, size: int = 3 << 20, seed: int = 1) -> dict[str, bytes]:
    rng = np.random.default_rng(seed)
    files = {"config.json": b"{}", "empty": b"", "tokenizer/merges.txt": rng.bytes(5000), "model-00001-of-00002.safetensors": rng.bytes(size), "model-00002-of-00002.safetensors": rng.bytes(size)}
    for name, data in files.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_bytes(data)
    return files


def below(at) -> dict[str, bytes]:
    return {str(path.relative_to(at)): path.read_bytes() for path in at.rglob("*") if path.is_file()}


def test_a_directory_arrives_as_it_is(owner, tmp_path):
    files = checkpoint(tmp_path / "there")
    ref = owner.add_directory(f"{tmp_path}/there/", recipients=1)
    receipt = tensorpull.download_directory(owner.address, ref, tmp_path / "here")
    assert receipt.outcome == "completed" and receipt.confirmed and not receipt.believed and receipt.version == ref.version and receipt.kept_bytes == 0
    assert below(tmp_path / "here") == files and sorted(os.listdir(tmp_path)) == ["here", "there"]
    assert owner.wait(ref, timeout=60) and owner.outcome(ref).verdict == "completed"


@pytest.mark.parametrize("connections", [1, 2])
def test_only_files_that_changed_are_fetched(owner, tmp_path, connections):
    files = checkpoint(tmp_path / "there")
    tensorpull.download_directory(owner.address, owner.add_directory(tmp_path / "there"), tmp_path / "here", connections=connections)
    (tmp_path / "there/config.json").write_bytes(b'{"layers": 3}')
    (tmp_path / "there/empty").unlink()
    ref = owner.add_directory(tmp_path / "there", recipients=["site-1"])
    with pytest.raises(FileExistsError):
        tensorpull.download_directory(owner.address, ref, tmp_path / "here", base=tmp_path / "here")
    assert below(tmp_path / "here") == files
    receipt = tensorpull.download_directory(owner.address, ref, tmp_path / "here", base=tmp_path / "here", overwrite=True, recipient="site-1", connections=connections)
    assert below(tmp_path / "here") == below(tmp_path / "there") and "empty" not in below(tmp_path / "here")
    assert receipt.bytes < 1000 and receipt.kept_bytes > 6 << 20 and receipt.outcome == "completed"
    assert owner.wait(ref, timeout=60) and owner.outcome(ref).recipients == {"site-1": "completed"}


@pytest.mark.parametrize("connections", [1, 2])
def test_files_are_chosen_by_patterns(owner, tmp_path, connections):
    files = checkpoint(tmp_path / "there")
    ref = owner.add_directory(tmp_path / "there", exclude=["*00002-of*"])
    receipt = tensorpull.download_directory(owner.address, ref, tmp_path / "here", include=("*.json", "*.txt"), exclude="config*", connections=connections)
    assert below(tmp_path / "here") == {"tokenizer/merges.txt": files["tokenizer/merges.txt"]} and receipt.believed and receipt.bytes == 5000
    tensorpull.download_directory(owner.address, ref, tmp_path / "all")
    assert below(tmp_path / "all").keys() == files.keys() - {"model-00002-of-00002.safetensors"}
    with pytest.raises(Error, match="no file is chosen"):
        tensorpull.download_directory(owner.address, ref, tmp_path / "none", include="nothing")
    assert sorted(os.listdir(tmp_path)) == ["all", "here", "there"]


def test_what_was_begun_is_gone_on_with(owner, tmp_path):
    files = checkpoint(tmp_path / "there")
    ref = owner.add_directory(tmp_path / "there")

    def tell(p):
        if p.bytes_done > 4 << 20:
            raise InterruptedError("enough")

    with pytest.raises(InterruptedError):
        tensorpull.download_directory(owner.address, ref, tmp_path / "here", progress=tell, progress_interval=0, chunk_size=1 << 16)
    assert sorted(os.listdir(tmp_path)) == [".here.part", "there"]
    receipt = tensorpull.download_directory(owner.address, ref, tmp_path / "here", chunk_size=1 << 16)
    assert below(tmp_path / "here") == files and receipt.kept_bytes > 3 << 20 and receipt.bytes + receipt.kept_bytes < (6 << 20) + 100_000
    assert sorted(os.listdir(tmp_path)) == ["here", "there"]


def test_several_owners_give_one_directory(owner, tmp_path):
    files = checkpoint(tmp_path / "there")
    ref = owner.add_directory(tmp_path / "there")
    with tensorpull.Downloader() as other:
        other.start()
        other.add_directory(tmp_path / "there", ref_id=ref)
        tensorpull.download_directory([owner.address, other.address], ref, tmp_path / "here", connections=2, chunk_size=1 << 16)
    assert below(tmp_path / "here") == files


def test_what_cannot_be_published_is_named(owner, tmp_path):
    (tmp_path / "d").mkdir()
    with pytest.raises(Error, match="no file is chosen") as caught:
        owner.add_directory(tmp_path / "d")
    assert caught.value.code == "invalid_argument"
    os.symlink("/etc/passwd", tmp_path / "d/link")
    with pytest.raises(Error, match="d/link") as caught:
        owner.add_directory(tmp_path / "d")
    assert caught.value.errno == errno.ELOOP
    (tmp_path / "d/link").unlink()
    (tmp_path / "d/A").write_bytes(b"1"), (tmp_path / "d/a").write_bytes(b"2")
    with pytest.raises(Error, match="d/a|d/A") as caught:
        owner.add_directory(tmp_path / "d")
    assert caught.value.code == "duplicate_name"
    with pytest.raises(FileNotFoundError):
        owner.add_directory(tmp_path / "nothing")


def test_a_name_that_leads_elsewhere_is_refused(owner, tmp_path, monkeypatch):
    monkeypatch.setattr(tensorpull._trees, "RESERVED", "no key begins so")  # this package would not publish what lies
    for name in ("../up", "/tmp/tensorpull-up", "a/../../up", "a\\b"):
        evil = owner.add_tensors({name: np.zeros(3, np.uint8)}, metadata={"tensorpull.files": "1"}, keep_order=False, tensor_digests=True)
        with pytest.raises(Error) as caught:
            tensorpull.download_directory(owner.address, evil, tmp_path / "here")
        assert caught.value.code == "invalid_argument" and name in str(caught.value)
        assert os.listdir(tmp_path) == []
    with pytest.raises(Error, match="no directory"):
        tensorpull.download_directory(owner.address, owner.add_tensors({"w": np.zeros(3)}), tmp_path / "here")
    with pytest.raises(ValueError, match="URL"):
        tensorpull.download_directory("http://127.0.0.1:1/x", "", tmp_path / "here")
    for nameless in ("", ".", "a/..", "/"):
        with pytest.raises(ValueError, match="no name"):
            tensorpull.download_directory(owner.address, "", nameless)


def test_it_is_awaited(owner, tmp_path):
    files = checkpoint(tmp_path / "there", 1000)
    ref = owner.add_directory(tmp_path / "there")
    asyncio.run(aio.download_directory(owner.address, ref, tmp_path / "here"))
    assert below(tmp_path / "here") == files


@pytest.fixture
def hub(tmp_path, monkeypatch):
    if not tensorpull._native.has_hubs:
        pytest.skip("optional: this build has no hubs")
    for name in ("HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    with ImitatedHub(checkpoint(tmp_path / "there"), token="secret") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub


def test_a_model_of_a_hub_arrives_as_one(hub, tmp_path, monkeypatch):
    events = []
    receipt = tensorpull.download_directory("hf://org/model", "", tmp_path / "here", bearer="secret", progress=events.append, progress_interval=0)
    total = sum(map(len, hub.files.values()))
    assert below(tmp_path / "here") == hub.files and receipt.outcome == "completed" and receipt.believed and receipt.bytes == total and receipt.kept_bytes == 0
    assert [events[0].phase, events[-1].phase] == ["started", "completed"] and events[-1].bytes_done == total == events[-1].bytes_total
    assert all(before.bytes_done <= after.bytes_done and before.sequence < after.sequence for before, after in zip(events, events[1:]))
    assert {fields.get("authorization") for host, _, _, fields in hub.asked if host == "cdn"} == {None}
    # the token of the environment; what has changed; some of the files
    monkeypatch.setenv("HF_TOKEN", "secret")
    hub.files["config.json"] = b"[]"
    receipt = asyncio.run(aio.download_directory("hf://org/model@main", "", tmp_path / "here", base=tmp_path / "here", overwrite=True))
    assert below(tmp_path / "here") == hub.files and receipt.bytes == 2 and receipt.kept_bytes == total - 2
    tensorpull.download_directory("hf://org/model", "", tmp_path / "some", include="*.json")
    assert below(tmp_path / "some") == {"config.json": b"[]"}


def test_a_hub_that_lies_or_refuses(hub, tmp_path):
    def refused(code, **more):
        with pytest.raises(Error) as e:
            tensorpull.download_directory("hf://org/model", "", tmp_path / "here", **{"bearer": "secret", "retries": 0, **more})
        assert e.value.code == code and "secret" not in str(e.value), e.value
        assert not (tmp_path / "here").exists()
        return str(e.value)

    refused("not_permitted", bearer="another")
    events = []
    hub.states = lambda about: about | {"sha": "e" * 40}
    refused("unknown_reference")
    hub.states = lambda about: about | {"siblings": [{"rfilename": "../evil", "size": 1, "blobId": "0" * 40}]}
    assert "../evil" in refused("invalid_argument")
    hub.states = lambda about: b"no JSON"
    refused("bad_file")
    hub.states = lambda about: about
    hub.instead = lambda request, host, path: host == "cdn" and (request.say(200, {}, bytes(3 << 20)), True)[1]
    assert "model-0000" in refused("digest_mismatch", progress=events.append)
    assert events[-1].phase == "failed"
    hub.instead = lambda request, host, path: False
    with pytest.raises(Error) as e:
        tensorpull.download_directory("hf://org/model", "", tmp_path / "here", bearer="secret", abort=lambda: True)
    assert e.value.code == "cancelled"
    for more in ({"ref_id": "0" * 32}, {"version": 1}, {"recipient": "x"}, {"believe": True}, {"connections": 2}):
        with pytest.raises(ValueError):
            tensorpull.download_directory("hf://org/model", more.pop("ref_id", ""), tmp_path / "here", **more)
    for address in ("hf://", "hf://org/model/x.bin", "hf://org/../x"):
        with pytest.raises(Error) as e:
            tensorpull.download_directory(address, "", tmp_path / "here")
        assert e.value.code == "bad_address"
    with pytest.raises(ValueError):
        tensorpull.download_directory("127.0.0.1:1", "0" * 32, tmp_path / "here", bearer="secret")
