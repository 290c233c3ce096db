"""Several addresses of the same: which is asked, what has arrived stays, and which error is raised."""

from __future__ import annotations


import numpy as np
import pytest
import processes
from mutating_path import MutatingPath, flip

import tensorpull
from tensorpull import Error

ID = "0123456789abcdef0123456789abcdef"


def model(seed: int = 1) -> dict[str, np.ndarray]:
    return {"w": np.random.default_rng(seed).integers(0, 255, 8 << 20, np.uint8)}


NOBODY = processes.OwnPort()


def nobody() -> str:
    return NOBODY.address


@pytest.fixture
def two():
    with tensorpull.Downloader() as a, tensorpull.Downloader() as b:
        yield a.start(), b.start()


def dies(owner, seen):
    """A progress callback that ends an owner in the middle."""

    def tell(p):
        seen.append(p.bytes_done)
        if 1 << 20 <= p.bytes_done < p.bytes_total:
            owner.close()

    return tell


SLOWLY = {"chunk_size": 1 << 16, "window": 1, "progress_interval": 0}


def test_the_first_that_is_there_is_asked(two):
    a, b = two
    ref = b.add_tensors(model())
    got = tensorpull.download_tensors([nobody(), b.address], ref, retries=0)
    assert np.array_equal(got["w"], model()["w"])
    assert tensorpull.download_tensors((b.address,), ref).keys() == {"w"}


def test_an_owner_that_does_not_know_the_reference_is_passed_over(two):
    a, b = two
    ref = b.add_tensors(model())
    for addresses in ([a.address, b.address], [b.address, a.address], [a.address, a.address, b.address]):
        assert np.array_equal(tensorpull.download_tensors(addresses, ref)["w"], model()["w"])


def test_what_can_be_read_once_is_there_for_each_address(two, tmp_path):
    a, b = two
    ref = b.add_tensors(model())

    def once(*items):
        yield from items

    for choice in ({"names": once("w")}, {"matching": once("w*")}):
        assert tensorpull.download_tensors(once(a.address, b.address), ref, **choice).keys() == {"w"}
    assert tensorpull.list_tensors(once(a.address, b.address), ref).tensors.keys() == {"w"}
    tensorpull.download_file(once(a.address, b.address), ref, tmp_path / "file")


@pytest.mark.parametrize("into", ["new", "out", "file"])
def test_what_has_arrived_stays_when_an_owner_dies(two, into, tmp_path):
    a, b = two
    ref = a.add_tensors(model(), ref_id=ID)
    b.add_tensors(model(), ref_id=ID)
    seen: list[int] = []
    more = {**SLOWLY, "progress": dies(a, seen)}
    if into == "file":
        tensorpull.download_file([a.address, b.address], ID, tmp_path / "m", **more)
    else:
        out = {"w": np.zeros(8 << 20, np.uint8)} if into == "out" else None
        got = tensorpull.download_tensors([a.address, b.address], ID, out=out, **more)
        assert np.array_equal(got["w"], model()["w"]) and got.receipt.outcome == "completed"
    assert seen == sorted(seen), "bytes never go back"
    assert b.status(ID).bytes_sent < ref.nbytes - (1 << 19)


@pytest.mark.parametrize("into", ["out", "file"])
def test_between_links_of_different_kinds_it_goes_on_too(tmp_path, into):
    with tensorpull.Downloader() as a, tensorpull.Downloader(f"unix:{tmp_path}/door") as b:
        a.start(), b.start()
        ref = a.add_tensors(model(), ref_id=ID)
        b.add_tensors(model(), ref_id=ID)
        seen: list[int] = []
        more = {**SLOWLY, "progress": dies(a, seen), "retries": 0}
        if into == "file":
            tensorpull.download_file([a.address, b.address], ID, tmp_path / "m", **more)
        else:
            got = tensorpull.download_tensors([a.address, b.address], ID, out={"w": np.zeros(8 << 20, np.uint8)}, **more)
            assert np.array_equal(got["w"], model()["w"])
        assert b.status(ID).bytes_sent < ref.nbytes - (1 << 19)


def test_tensors_of_out_that_have_metadata_go_on_at_a_link_of_another_kind(tmp_path):
    """The metadata is kept that they came with: with it what has arrived is proved to be what is published."""
    with tensorpull.Downloader() as a, tensorpull.Downloader(f"unix:{tmp_path}/door") as b:
        a.start(), b.start()
        ref = a.add_tensors(model(), ref_id=ID, metadata={"a": "b"})
        b.add_tensors(model(), ref_id=ID, metadata={"a": "b"})
        got = tensorpull.download_tensors([a.address, b.address], ID, out={"w": np.zeros(8 << 20, np.uint8)}, **SLOWLY, progress=dies(a, []), retries=0)
        assert np.array_equal(got["w"], model()["w"]) and got.metadata == {"a": "b"}
        assert 0 < b.status(ID).bytes_sent < ref.nbytes


def test_new_tensors_begin_anew_at_a_link_of_another_kind(tmp_path):
    with tensorpull.Downloader() as a, tensorpull.Downloader(f"unix:{tmp_path}/door") as b:
        a.start(), b.start()
        a.add_tensors(model(), ref_id=ID)
        b.add_tensors(model(), ref_id=ID)
        got = tensorpull.download_tensors([a.address, b.address], ID, **SLOWLY, progress=dies(a, []), retries=0)
        assert np.array_equal(got["w"], model()["w"])


@pytest.mark.parametrize("into", ["new", "out", "file"])
@pytest.mark.parametrize("kind", ["127.0.0.1:0", "unix:{}/door"])
def test_progress_is_one_whoever_is_asked(tmp_path, kind, into):
    with tensorpull.Downloader() as a, tensorpull.Downloader(kind.format(tmp_path)) as b:
        ref = a.start().add_tensors(model(), ref_id=ID, metadata={"a": "b"})
        b.start().add_tensors(model(), ref_id=ID, metadata={"a": "b"})
        seen: list = []

        class Bar:
            total, n = None, 0

            def update(self, more):
                assert more >= 0
                self.n += more

        bar, ends = Bar(), dies(a, [])

        def both(p):
            seen.append(p)
            ends(p)

        def pull(addresses, progress):
            more = {**SLOWLY, "progress": progress, "retries": 0}
            if into == "file":
                tensorpull.download_file(addresses, ref, tmp_path / f"m{len(seen)}", **more)
            else:
                tensorpull.download_tensors(addresses, ref, out={"w": np.zeros(8 << 20, np.uint8)} if into == "out" else None, **more)

        pull([a.address, b.address], both)
        assert [p.phase for p in seen if p.phase != "active"] == ["started", "completed"]
        for numbers in ([p.bytes_done for p in seen], [p.sequence for p in seen]):
            assert numbers == sorted(numbers)
        pull([nobody(), b.address], bar)
        assert bar.n == bar.total and 0 <= seen[-1].bytes_total - bar.total < 64  # out has no metadata before it has come


def test_a_bar_ends_where_its_total_is(tmp_path):
    class Bar:
        total, n = None, 0

        def update(self, more):
            self.n += more
            if 1 << 20 <= self.n < self.total:
                a.close()

    bar = Bar()
    with tensorpull.Downloader() as a, tensorpull.Downloader(f"unix:{tmp_path}/door") as b:
        ref = a.start().add_tensors(model(), ref_id=ID)
        b.start().add_tensors(model(), ref_id=ID)
        tensorpull.download_tensors([a.address, b.address], ref, **SLOWLY, progress=bar, retries=0)
    assert bar.n == bar.total == ref.nbytes


def test_progress_of_what_fails_everywhere_ends_once(two):
    a, b = two
    a.add_tensors(model(), ref_id=ID)
    seen: list = []
    ends = dies(a, [])

    def both(p):
        seen.append(p)
        ends(p)

    with pytest.raises(Error):
        tensorpull.download_tensors([a.address, nobody()], ID, **SLOWLY, progress=both, retries=0)
    assert [p.phase for p in seen if p.phase != "active"] == ["started", "failed"] and seen[-1].code
    assert [p.bytes_done for p in seen] == sorted(p.bytes_done for p in seen)


def test_each_address_is_asked_that_was_not(two):
    """Also without retries: one that is lost takes only itself out."""
    a, b = two
    with tensorpull.Downloader() as silent:
        for each in (a, b, silent):
            each.add_tensors(model(), ref_id=ID)
        got = tensorpull.download_tensors([nobody(), silent.address, a.address, b.address], ID, **SLOWLY, progress=dies(a, []), per_request_timeout=0.3, retries=0)
        assert np.array_equal(got["w"], model()["w"])
        assert tensorpull.list_tensors([silent.address, b.address], ID, per_request_timeout=0.3, retries=0).tensors.keys() == {"w"}


def test_another_version_is_never_mixed_in(two):
    a, b = two
    first = a.add_tensors(model(1), ref_id=ID)
    b.add_tensors(model(2), ref_id=ID)
    with pytest.raises(Error) as e:
        tensorpull.download_tensors([a.address, b.address], first, **SLOWLY, progress=dies(a, []), retries=1)
    assert e.value.code in ("stale_version", "connection_failed")


@pytest.mark.parametrize("kinds", ["neighbours", "two links", "three"])
@pytest.mark.parametrize("frames", [0, 7], ids=["to the end", "cut"])
@pytest.mark.parametrize("into", ["new", "out", "file"])
def test_wrong_bytes_of_one_address_end_no_download_that_another_has(two, tmp_path, kinds, frames, into):
    a, b = two
    tensors = {"w": np.arange(1 << 18, dtype=np.float32)}

    def wrong(i, frame):
        if len(frame) > 10_000:
            flip(frame, 40_000)
        return None if frames and i >= frames else frame

    liar = MutatingPath(a.port, wrong)
    try:
        with tensorpull.Downloader(f"unix:{tmp_path}/socket") as c:
            c.start()
            refs = {owner.add_tensors(tensors, ref_id=ID) for owner in (a, b, c)}
            addresses = {"neighbours": [liar.address, b.address], "two links": [liar.address, c.address], "three": [liar.address, nobody(), c.address]}[kinds]
            how = {"chunk_size": 1 << 16, "window": 1, "retries": 0}
            if into == "file":
                done = tensorpull.download_file(addresses, refs.pop(), tmp_path / "copy", **how)
                assert done.outcome == "completed"
                return
            out = {"out": {"w": np.zeros_like(tensors["w"])}} if into == "out" else {}
            assert np.array_equal(tensorpull.download_tensors(addresses, refs.pop(), **how, **out)["w"], tensors["w"])
    finally:
        liar.close()


def test_the_errors_when_nobody_has_it(two):
    a, b = two
    with pytest.raises(Error) as e:
        tensorpull.download_tensors([a.address, b.address], ID)
    assert e.value.code == "unknown_reference"
    with pytest.raises(Error) as e:
        tensorpull.download_tensors([nobody(), nobody()], ID, retries=0)
    assert e.value.code == "connection_failed"
    with pytest.raises(ValueError):
        tensorpull.download_tensors([], ID)
    with pytest.raises(TypeError):
        tensorpull.download_tensors([1], ID)
    with pytest.raises(TypeError):
        tensorpull.download_tensors(7, ID)


def test_an_error_of_the_caller_is_not_tried_at_the_next_address(two):
    a, b = two
    ref = a.add_tensors(model(), ref_id=ID)
    b.add_tensors(model(), ref_id=ID)
    with pytest.raises(Error) as e:
        tensorpull.download_tensors([a.address, b.address], ref, out={"other": np.zeros(3)})
    assert e.value.code == "schema_mismatch"
    assert b.status(ID).acquired == 0
