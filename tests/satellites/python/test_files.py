"""A download to a file: what is kept when it fails or the process is killed, and what goes on from there."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from safetensors.numpy import load_file
import processes
from processes import eventually

import tensorpull
from tensorpull import Error

ID = "0123456789abcdef0123456789abcdef"


def model(seed: int = 1, megabytes: int = 8) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"w": rng.integers(0, 255, megabytes << 20, np.uint8), "b": rng.standard_normal(100).astype("f4")}


def same(path, sent) -> bool:
    got = load_file(path)
    return got.keys() == sent.keys() and all(np.array_equal(got[k], sent[k]) for k in sent)


def stop_at(limit: int, seen: list):
    """A progress callback that ends the download with an exception, once so much has arrived."""

    def tell(p):
        seen.append(p.bytes_done)
        if limit <= p.bytes_done < p.bytes_total:
            raise InterruptedError("enough")

    return tell


def begin(owner, ref, path, limit=3 << 20, **more):
    seen: list[int] = []
    with pytest.raises(InterruptedError):
        tensorpull.download_file(owner.address, ref, path, chunk_size=1 << 16, progress=stop_at(limit, seen), progress_interval=0, **more)
    return seen


def test_a_file_appears_when_it_is_complete(owner, tmp_path):
    sent = model()
    ref = owner.add_tensors(sent, recipients=1, metadata={"format": "np"})
    receipt = tensorpull.download_file(owner.address, ref, tmp_path / "m.safetensors")
    assert receipt.outcome == "completed" and receipt.confirmed and receipt.bytes == ref.nbytes == os.path.getsize(tmp_path / "m.safetensors")
    assert receipt.digest == ref.version
    assert same(tmp_path / "m.safetensors", sent)
    assert os.listdir(tmp_path) == ["m.safetensors"]


def test_a_download_that_fails_leaves_a_part_and_the_next_one_goes_on(owner, tmp_path):
    sent = model()
    ref = owner.add_tensors(sent)
    path = tmp_path / "m.safetensors"
    begin(owner, ref, path)
    assert os.listdir(tmp_path) == [".m.safetensors.part"]
    seen: list[int] = []
    before = owner.status(ref).bytes_sent
    tensorpull.download_file(owner.address, ref, path, progress=lambda p: seen.append(p.bytes_done), progress_interval=0)
    assert seen[1] >= 3 << 20, "it begins behind what was there"
    assert owner.status(ref).bytes_sent - before < ref.nbytes - (2 << 20)
    assert same(path, sent) and os.listdir(tmp_path) == ["m.safetensors"]


def test_a_process_that_was_killed_has_left_what_the_next_goes_on_with(tmp_path):
    sent = model(megabytes=32)
    path = tmp_path / "m.safetensors"
    with tensorpull.Downloader(bytes_per_second=16 << 20) as owner:
        owner.start()
        ref = owner.add_tensors(sent)
        program = textwrap.dedent("""
            import sys, tensorpull
            tensorpull.download_file(sys.argv[1], sys.argv[2], sys.argv[3], chunk_size=1 << 16, progress=lambda p: print(p.bytes_done, flush=True), progress_interval=0.01)
        """)
        child = processes.Program([sys.executable, "-c", program, owner.address, ref, str(path)], stdout=subprocess.PIPE, text=True)
        for line in child.stdout:
            if int(line) > 6 << 20:
                break
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    assert not path.exists()
    with tensorpull.Downloader() as owner:  # another owner of the same
        owner.start()
        again = owner.add_tensors(sent, ref_id=ref)
        seen: list[int] = []
        tensorpull.download_file(owner.address, again, path, progress=lambda p: seen.append(p.bytes_done), progress_interval=0)
        assert seen[1] >= 4 << 20, "a cursor is saved for each MiB"
    assert same(path, sent)


def test_bytes_of_a_part_that_were_changed_are_not_believed(owner, tmp_path):
    sent = model()
    ref = owner.add_tensors(sent)
    path, part = tmp_path / "m.safetensors", tmp_path / ".m.safetensors.part"
    begin(owner, ref, path)
    with open(part, "r+b") as f:
        f.seek(1 << 20)
        byte = f.read(1)
        f.seek(1 << 20)
        f.write(bytes([byte[0] ^ 1]))
    seen: list[int] = []
    tensorpull.download_file(owner.address, ref, path, progress=lambda p: seen.append(p.bytes_done), progress_interval=0)
    assert seen[1] < 1 << 20 and same(path, sent)


def test_another_version_begins_anew_unless_the_old_one_was_asked_for(owner, tmp_path):
    path = tmp_path / "m.safetensors"
    old = owner.add_tensors(model(1), ref_id=ID)
    begin(owner, ID, path)
    new = owner.add_tensors(model(2), ref_id=ID)
    with pytest.raises(Error) as e:
        tensorpull.download_file(owner.address, old, path)  # this Reference knows its version
    assert e.value.code == "stale_version" and os.listdir(tmp_path) == [".m.safetensors.part"]
    receipt = tensorpull.download_file(owner.address, ID, path)
    assert receipt.version == new.version and same(path, model(2))


def test_the_wanted_version_does_not_go_on_with_another_ones_part(owner, tmp_path):
    path = tmp_path / "m.safetensors"
    owner.add_tensors(model(1), ref_id=ID)
    begin(owner, ID, path)
    new = owner.add_tensors(model(2), ref_id=ID)
    tensorpull.download_file(owner.address, new, path)
    assert same(path, model(2))


def test_a_file_that_is_there_is_compared_and_left_as_it_is(owner, tmp_path):
    sent = model()
    path = tmp_path / "m.safetensors"
    ref = owner.add_tensors(sent)
    tensorpull.download_file(owner.address, ref, path)
    about, before = os.stat(path), owner.status(ref).bytes_sent
    again = tensorpull.download_file(owner.address, ref, path)
    assert again.outcome == "completed" and again.confirmed
    assert os.stat(path).st_ino == about.st_ino and os.stat(path).st_mtime_ns == about.st_mtime_ns
    assert owner.status(ref).bytes_sent - before == 1
    other = owner.add_tensors(model(2))
    with pytest.raises(Error) as e:
        tensorpull.download_file(owner.address, other, path)
    assert (e.value.code, e.value.system) == ("io", errno.EEXIST) and same(path, sent)
    tensorpull.download_file(owner.address, other, path, overwrite=True)
    assert same(path, model(2))


def test_without_resume_nothing_is_left(owner, tmp_path):
    path = tmp_path / "m.safetensors"
    ref = owner.add_tensors(model())
    begin(owner, ref, path, resume=False)
    assert os.listdir(tmp_path) == []
    tensorpull.download_file(owner.address, ref, path, resume=False)
    assert same(path, model())


def test_what_a_path_may_not_be(owner, tmp_path):
    ref = owner.add_tensors({"a": np.zeros(10)})
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    for path, code in ((tmp_path, errno.EISDIR), (tmp_path / "none" / "m", errno.ENOENT), (link, errno.ELOOP)):
        with pytest.raises(Error) as e:
            tensorpull.download_file(owner.address, ref, path, overwrite=True)
        assert e.value.system == code
    with pytest.raises(Error) as e:
        tensorpull.download_file(owner.address, ref, tmp_path / "m", max_bytes=8)
    assert e.value.code == "too_large" and os.listdir(tmp_path) == ["link"]
    tensorpull.download_file(owner.address, ref, os.fsencode(tmp_path / "ünï"))
    assert (tmp_path / "ünï").exists()


def test_abort_leaves_a_part(owner, tmp_path):
    path = tmp_path / "m.safetensors"
    ref = owner.add_tensors(model())
    enough: list[bool] = []
    with pytest.raises(Error) as e:
        tensorpull.download_file(owner.address, ref, path, chunk_size=1 << 12, window=1, progress=lambda p: enough.append(p.bytes_done > 1 << 20), progress_interval=0,
                                 abort=lambda: bool(enough and enough[-1]))  # fmt: skip
    assert e.value.code == "cancelled" and os.listdir(tmp_path) == [".m.safetensors.part"]
    assert eventually(lambda: owner.status(ref).cancelled == 1)


@pytest.mark.parametrize("scheme", ["unix", "shm", "udp"])
def test_over_other_links(scheme, tmp_path):
    listen = "udp://127.0.0.1:0" if scheme == "udp" else f"{scheme}:{tmp_path}/door"
    with tensorpull.Downloader(listen) as owner:
        owner.start()
        sent = {"a": np.arange(100_000, dtype="u4")}
        ref = owner.add_tensors(sent)
        tensorpull.download_file(owner.address, ref, tmp_path / "m")
        assert same(tmp_path / "m", sent)
