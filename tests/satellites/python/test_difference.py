"""What changed since an earlier version that both sides have, as a difference: `add_tensors(base=)` and `download_tensors(base=)`."""

from __future__ import annotations

import logging
import random
import threading
import urllib.request

import numpy as np
import pytest
from generated import array
from test_changed import bytes_of, copy, of, same
import processes
from processes import eventually

import tensorpull
from tensorpull import _difference, _publish

torch = pytest.importorskip("torch")
if not hasattr(tensorpull._native, "encode_difference"):
    pytest.skip("optional: this build has no differences", allow_module_level=True)


def fine_tuned(dtype, seed=5, elements=400_000):
    """A model and what a step of AdamW at 2e-5 makes of it."""
    g = torch.Generator().manual_seed(seed)
    old = {"w": 0.05 * torch.randn(elements // 100, 100, generator=g), "b": 0.05 * torch.randn(10, 100, generator=g)}
    new = {name: t + 2e-5 * torch.sign(torch.randn(t.shape, generator=g)) * torch.rand(t.shape, generator=g) for name, t in old.items()}
    return tuple({name: t.to(dtype) for name, t in model.items()} for model in (old, new))


def raw(model):
    return {name: t.view(torch.uint8) if isinstance(t, torch.Tensor) and t.dim() else t for name, t in model.items()}


def alike(a, b):
    return list(a) == list(b) and all(torch.equal(raw(a)[n], raw(b)[n]) for n in b)


@pytest.mark.parametrize("place", ["new", "in place"])
@pytest.mark.parametrize("dtype, most", [(torch.float32, 0.6), (torch.bfloat16, 0.2), (torch.float64, 0.85), (torch.float16, 0.6)])
def test_a_step_takes_a_part_of_the_bytes(owner, dtype, most, place):
    old, new = fine_tuned(dtype)
    ref = owner.add_tensors(new, recipients=1, base=old)
    mine = copy(old)
    got = tensorpull.download_tensors(owner.address, ref, base=mine, out=mine if place == "in place" else None)
    assert alike(got, new) and alike(mine, new if place == "in place" else old)
    assert got.receipt.outcome == "completed" and got.receipt.confirmed and not got.receipt.believed
    nbytes = sum(t.numel() * t.element_size() for t in new.values())
    assert got.receipt.bytes < most * nbytes and got.receipt.bytes + got.receipt.kept_bytes == nbytes
    assert owner.wait(ref, 10) and owner.status(ref).completed == 1


@pytest.mark.parametrize("seed", range(60))
def test_what_arrives_is_what_is_published_whatever_both_bases_are(owner, seed):
    rng, np_rng = random.Random(seed), np.random.default_rng(seed)

    def another(t):
        made = np.array(t, order="C")
        if made.size:
            flat = made.reshape(-1).view(np.uint8)
            for _ in range(rng.randrange(1, 4)):
                flat[rng.randrange(flat.size)] ^= 1 if made.dtype == bool else rng.randrange(1, 256)
        return made

    def version_of(model):
        made = {name: t if rng.randrange(3) == 0 else another(t) for name, t in model.items() if rng.randrange(12)}
        for name in [n for n in made if rng.randrange(12) == 0]:
            made[name] = array(rng, np_rng)
        return made

    first = {f"t{i}": np.frombuffer(np_rng.bytes(4 * n), np.float32) if rng.randrange(2) else array(rng, np_rng) for i in range(rng.randrange(1, 12)) for n in [rng.choice([0, 1, 70_000])]}
    published = version_of(first) or first
    owners, mine = rng.choice([first, version_of(first)]), rng.choice([first, first, version_of(first)])
    held = copy(mine)
    in_place = {name: native(mine.get(name, t) if mine.get(name, t).dtype == t.dtype and mine.get(name, t).shape == t.shape else t) for name, t in published.items()}
    ref = owner.add_tensors(published, recipients=2, base=owners)
    for base, out in ((mine, None), (in_place, in_place)):
        got = tensorpull.download_tensors(owner.address, ref, base=base, out=out, chunk_size=rng.choice([None, 1000, 4096]), framework=None if out else "numpy")
        assert list(got) == list(published)
        for name, t in published.items():
            assert got[name].shape == t.shape and bits(got[name]) == bits(t), name
        assert got.receipt.outcome == "completed" and not got.receipt.believed
    assert all(bytes_of(mine[n]) == bytes_of(held[n]) for n in held), "the base is only read"
    assert owner.wait(ref, 10) and owner.status(ref).completed == 2


def native(a):
    """What can be landed in."""
    return np.array(a, dtype=a.dtype.newbyteorder("="), order="C")


def bits(a):
    a = np.ascontiguousarray(a)
    return (a if a.dtype.isnative else a.byteswap()).tobytes()


def test_a_recipient_of_another_version_gets_the_tensors_as_they_are(owner):
    old, new = fine_tuned(torch.float32)
    other = {name: t + 1 for name, t in old.items()}
    ref = owner.add_tensors(new, recipients=3, base=old)
    got = tensorpull.download_tensors(owner.address, ref, base=other)
    assert alike(got, new) and got.receipt.kept_bytes == 0
    assert alike(tensorpull.download_tensors(owner.address, ref, base=other, out=other), new)
    assert alike(tensorpull.download_tensors(owner.address, ref, framework="torch"), new), "one without any"
    assert owner.wait(ref, 10) and owner.status(ref).completed == 3


@pytest.mark.parametrize("place", ["new", "in place"])
def test_a_recipient_that_missed_rounds_pulls_the_difference_to_the_base_that_it_has(owner, place):
    versions = [fine_tuned(torch.bfloat16)[0]]
    versions[0]["frozen"] = torch.ones(1000)
    for _ in range(3):
        versions.append(dict(copy(versions[-1])))
        at = torch.randperm(400_000)[:4000]
        versions[-1]["w"].view(torch.int16)[at] ^= 1
    versions[2]["b"].view(torch.int16)[7] ^= 1  # and back again: those of version 1 and 2 differ by other tensors
    now = versions[3]
    ref = owner.add_tensors(now, recipients=4, base=[versions[2], versions[1]])
    nbytes = sum(t.numel() * t.element_size() for t in now.values())
    came = {}
    for has in (2, 1, 0, None):
        mine = copy(versions[has]) if has is not None else {name: t + 1 for name, t in now.items()}
        got = tensorpull.download_tensors(owner.address, ref, base=mine, out=mine if place == "in place" else None)
        assert alike(got, now) and not got.receipt.believed
        came[has] = got.receipt.bytes
    assert came[2] < came[1] < 0.05 * nbytes and came[0] > 0.9 * nbytes - 5000 and came[None] >= nbytes
    assert owner.wait(ref, 10) and owner.status(ref).completed == 4
    assert owner.status(ref).bytes_sent > sum(came.values()), "those of both differences count"


def test_several_bases_are_those_of_a_dict_and_not_of_a_step(owner):
    old, new = fine_tuned(torch.float32)
    for wrong in ([], [old, 1], [list(old.values())]):
        with pytest.raises(TypeError, match="base is an earlier version"):
            owner.add_tensors(new, base=wrong)
    with pytest.raises(ValueError, match="narrow takes one base"):
        owner.add_tensors(new, base=[old, old], narrow=True)
    # a list of tensors has one base, which is a list
    as_list = list(new.values())
    ref = owner.add_tensors(as_list, base=list(old.values()))
    got = tensorpull.download_tensors(owner.address, ref, base=list(old.values()))
    assert got.receipt.bytes < 0.6 * ref.nbytes and all(torch.equal(a, b) for a, b in zip(got.values(), as_list))
    # the same twice is one, and one that is what is published is none
    ref = owner.add_tensors(new, base=[new, old, copy(old)])
    assert tensorpull.download_tensors(owner.address, ref, base=old).receipt.bytes < 0.6 * ref.nbytes


@pytest.mark.parametrize("said", ["", "x" * 48, "0" * 16 + "1" * 32, "{known}", "{known}" + "1" * 31, "{known}" + "0" * 32, "{known}{whole}", "{known}" + "f" * 32, " ".join(["0" * 48] * 2000)])
def test_what_an_owner_says_of_several_differences_costs_a_pull_of_all_at_most(owner, said):
    old, new = fine_tuned(torch.float32)
    digests = dict(tensorpull._native.tensor_digests(tensorpull._tensors.Tensors(old).described))
    ref_id = "ab" * 16
    text = said.format(known=tensorpull._difference._known_by(digests), whole=ref_id)
    about = {"tensorpull.difference": "2" * 32, "tensorpull.differences": text}
    now = dict(tensorpull._native.tensor_digests(tensorpull._tensors.Tensors(new).described))
    how = (0, 0, ref_id, None, None, None, 30.0, None, None, None)
    tensorpull._publish.publish(owner._owner.add, new, 1 << 20, *how, known={**tensorpull._changed.digests_said(now), **about})
    assert alike(tensorpull.download_tensors(owner.address, ref_id, base=old), new)


def test_tensors_that_were_not_there_or_had_another_shape_come_as_they_are(owner):
    old, new = fine_tuned(torch.float32)
    new.update(added=torch.ones(50), b=torch.ones(7))
    ref = owner.add_tensors(new, recipients=1, base={**old, "gone": torch.ones(3)})
    got = tensorpull.download_tensors(owner.address, ref, base=old)
    assert alike(got, new) and got.receipt.kept_bytes > 0.5 * ref.nbytes and owner.wait(ref, 10)


def test_a_model_of_one_tensor_has_a_difference(owner):
    old, new = ({"w": model["w"]} for model in fine_tuned(torch.bfloat16))
    ref = owner.add_tensors(new, base=old, recipients=1)
    got = tensorpull.download_tensors(owner.address, ref, base=old)
    assert alike(got, new) and got.receipt.bytes < 0.2 * ref.nbytes and owner.wait(ref, 10) and owner.status(ref).completed == 1


def test_nothing_that_changed_and_noise_and_a_model_of_a_few_bytes_have_none(owner, monkeypatch):
    published = []
    monkeypatch.setattr(_difference.logger, "debug", lambda *a: published.append(a))
    model = {"a": np.random.default_rng(1).standard_normal(5000)}
    others = model, {}, {"other": np.ones(3)}, {"a": np.random.default_rng(2).standard_normal(5000)}, {"a": np.ones(5000, np.float32)}
    for model, base in (*((model, base) for base in others), ({"a": np.ones(100)}, {"a": np.zeros(100)})):
        ref = owner.add_tensors(model, base=base)
        assert "tensorpull.difference" not in tensorpull.list_tensors(owner.address, ref).metadata and not published
        assert same(tensorpull.download_tensors(owner.address, ref, base=base or {"a": np.zeros(1)}), model)


def difference_of(owner, ref):
    """Of what is published there."""
    route = tensorpull._native.Route([f"tcp://{owner.address}"], None, None, None)
    seen = tensorpull._listing.look_closely(route, ref[:32], 1 << 20, 100, tensorpull._listing.looking(ref, 10, None, retries=0))
    return seen.metadata["tensorpull.difference"]


@pytest.mark.parametrize("how", ["settled", "withdrawn", "replaced", "refused"])
def test_a_difference_ends_with_what_it_is_beside(owner, how, monkeypatch):
    old, new = fine_tuned(torch.float32)
    if how == "refused":
        tried = []
        real = _publish.publish_coded
        monkeypatch.setattr(_publish, "publish_coded", lambda *a: tried.append(a[1]) or real(*a))
        with pytest.raises(tensorpull.Error):
            owner.add_tensors(new, base=old, metadata={"w": "a tensor's name"}, ref_id="0" * 32)
        assert not tried
        return
    else:
        ref = owner.add_tensors(new, recipients=1, base=old)
        beside = difference_of(owner, ref)
        assert not owner.settled(beside)
        if how == "settled":
            tensorpull.download_tensors(owner.address, ref, base=old)
        elif how == "withdrawn":
            owner.withdraw(ref)
        else:
            owner.add_tensors(new, ref_id=ref)
    assert eventually(lambda: owner.settled(beside))


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("feedback", [False, True])
def test_a_step_of_batch_norm_evaluates(bits, feedback):
    """A running variance below zero is a NaN there."""
    left = tensorpull.ErrorFeedback() if feedback else None
    for seed in range(20):
        torch.manual_seed(seed)
        norm = torch.nn.BatchNorm1d(512)
        base = copy(norm.state_dict())
        new = copy(base) | {"running_var": torch.exp(1.5 * torch.randn(512)), "running_mean": torch.randn(512)}
        norm.load_state_dict(dict(tensorpull.narrowed(new, base, bits=bits, feedback=left)))
        norm.eval()
        assert (norm.running_var >= 0).all() and not norm(torch.randn(2, 512)).isnan().any()


@pytest.mark.parametrize("narrow", [False, True])
def test_a_recipient_of_the_difference_is_one_of_the_whole(owner, narrow):
    """So it is not late or idle there while it pulls the difference, which is published as long as the whole is."""
    old, new = fine_tuned(torch.float32)
    ref = owner.add_tensors(new, base=old, narrow=narrow, recipients=1)
    metadata = tensorpull._listing.look_closely(tensorpull._native.Route([f"tcp://{owner.address}"], None, None, None), ref[:32], 1 << 20, 100, tensorpull._listing.looking(ref, 10, None)).metadata
    got = tensorpull.download_tensors(owner.address, ref, base=old)
    assert got.receipt.kept_bytes > 0 and owner.wait(ref, 10)
    of_both = [owner.outcome(one) for one in (ref, metadata["tensorpull.narrowed" if narrow else "tensorpull.difference"])]
    assert of_both[0] == of_both[1] and of_both[0].references == of_both[0].counts.acquired == of_both[0].counts.completed == 1
    assert of_both[0].counts.bytes_sent >= got.receipt.bytes, "those of the difference are counted"


@pytest.mark.parametrize("how", ["digests", "base", "narrow"])
def test_both_ends_have_the_same_figures(how):
    old, new = fine_tuned(torch.float32)
    options = {"digests": {"tensor_digests": True}, "base": {"base": old}, "narrow": {"base": old, "narrow": True}}[how]
    with tensorpull.Downloader("127.0.0.1:0", http="127.0.0.1:0", metrics=True) as owner:
        owner.start()
        ref = owner.add_tensors(new, recipients=1, **options)
        got = tensorpull.download_tensors(owner.address, ref, base=old)
        assert owner.wait(ref, processes.AMPLE)
        page = urllib.request.urlopen(owner.http_address + "/metrics").read().decode().splitlines()
        told = dict(line.rsplit(" ", 1) for line in page if not line.startswith("#"))
        assert told['tensorpull_recipients{state="completed"}'] == told['tensorpull_transfers_total{outcome="completed"}'] == "1"
        sent = owner.status(ref).bytes_sent
        assert int(told["tensorpull_sent_bytes_total"]) == sent
        assert got.receipt.bytes <= sent <= got.receipt.bytes + 2 * 8192, "a look at the header costs two short chunks"


def test_a_difference_that_is_gone_has_a_word(owner, caplog):
    old, new = fine_tuned(torch.float32)
    ref = owner.add_tensors(new, base=old)
    owner.withdraw(difference_of(owner, ref))
    assert alike(tensorpull.download_tensors(owner.address, ref, base=old), new)
    assert [r.levelname for r in caplog.records if "cannot be used (withdrawn)" in r.message] == ["WARNING"]


def test_a_difference_beside_nothing_stays_until_it_is_withdrawn(owner):
    old, new = fine_tuned(torch.float32)
    described = tensorpull._tensors.Tensors(new).described
    coded = _difference.code(described, dict(tensorpull._native.tensor_digests(described)), old)
    asked = []
    assert _difference.publish_coded(lambda *a: asked.append(a[-1]) or owner._owner.add(*a), "d" * 32, coded)
    assert asked[0].transaction_idle_ms == asked[0].recipient_idle_ms == 0
    assert not _difference.publish_coded(owner._owner.add, "e" * 32, coded, beside="f" * 32), "there is no such whole"


@pytest.mark.parametrize("said", ["", "00", "zz" * 16, "0" * 32, "f" * 32, "F" * 32, "itself", "the whole"])
@pytest.mark.parametrize("place", ["new", "in place"])
def test_a_difference_that_is_none_costs_a_pull_of_all(owner, monkeypatch, said, place):
    old, new = fine_tuned(torch.float32)
    if said == "the whole":
        said = owner.add_tensors(new).id
    elif said == "itself":
        said = "a" * 32
    monkeypatch.setattr(_publish, "id_beside", lambda *a: said)
    monkeypatch.setattr(_publish, "publish_coded", lambda *a: True)
    ref = owner.add_tensors(new, base=old, ref_id="a" * 32, recipients=1)
    mine = copy(old)
    got = tensorpull.download_tensors(owner.address, ref, base=mine, out=mine if place == "in place" else None)
    assert alike(got, new) and got.receipt.kept_bytes == 0 and owner.wait(ref, 10)


@pytest.mark.parametrize("place", ["new", "in place"])
def test_a_difference_to_something_else_is_pulled_anew(owner, monkeypatch, place):
    """The owner's program says that it leads to `new`, and it does not."""
    old, new = fine_tuned(torch.float32)
    lie = {name: t + 3e-5 for name, t in old.items()}
    real = _publish.code
    digests = dict(tensorpull._native.tensor_digests(tensorpull._tensors.Tensors(lie).described))
    monkeypatch.setattr(_publish, "code", lambda described, _, base: real(tensorpull._tensors.Tensors(lie).described, digests, base))
    nbytes = sum(t.numel() * t.element_size() for t in new.values())
    ref = owner.add_tensors(new, base=old, recipients=1)
    mine = copy(old)
    got = tensorpull.download_tensors(owner.address, ref, base=mine, out=mine if place == "in place" else None)
    assert alike(got, new) and got.receipt.kept_bytes == 0 and owner.wait(ref, 10) and owner.status(ref).completed == 1
    assert got.receipt.bytes > 1.2 * nbytes, "what came in vain came as well"


def test_a_difference_that_makes_a_bool_two_costs_a_pull_of_all(owner, monkeypatch):
    rng = np.random.default_rng(3)
    old = {"b": rng.integers(0, 2, 300_000).astype(bool), "s": np.ones(1)}
    new = {"b": old["b"] ^ (rng.random(300_000) < 0.1), "s": np.ones(1)}
    real = tensorpull._native.encode_difference

    def twos(before, now, worth):
        two = {"b": old["b"].view(np.uint8) + (new["b"] != old["b"]).astype(np.uint8) * 2}
        as_bytes = {"b": old["b"].view(np.uint8)}
        return real(*(tensorpull._tensors.Tensors(one).described for one in (as_bytes, two)), worth)

    monkeypatch.setattr(tensorpull._native, "encode_difference", twos)
    ref = owner.add_tensors(new, recipients=1, base=old)
    got = tensorpull.download_tensors(owner.address, ref, base=old)
    assert all(np.array_equal(got[n], new[n]) for n in new) and owner.wait(ref, 10)


def test_the_same_version_again_under_its_reference_keeps_its_difference(owner):
    """The difference has the same ID then, and the first whole's end withdrew that of the second."""
    old, new = fine_tuned(torch.float32)
    ref = owner.add_tensors(new, base=old)
    for _ in range(3):
        ref = owner.add_tensors(new, recipients=1, base=old, ref_id=ref)
    beside = difference_of(owner, ref)
    got = tensorpull.download_tensors(owner.address, ref, base=old)
    assert alike(got, new) and got.receipt.kept_bytes > 0
    assert owner.wait(ref, 10) and eventually(lambda: owner.settled(beside))


def test_max_bytes_is_of_what_a_difference_has_brought_and_of_the_rest(owner):
    old, new = fine_tuned(torch.float32)
    nbytes = {name: t.numel() * t.element_size() for name, t in new.items()}
    new["more"] = torch.ones(300_000)  # is pulled as it is
    ref = owner.add_tensors(new, recipients=1, base=old)
    least = sum(nbytes.values()) + 1_200_000
    with pytest.raises(tensorpull.Error) as e:
        tensorpull.download_tensors(owner.address, ref, base=old, max_bytes=least - 1)
    assert e.value.code == "too_large"
    assert alike(tensorpull.download_tensors(owner.address, ref, base=old, max_bytes=least), new)


def test_over_a_session_both_ways(owner):
    old, new = fine_tuned(torch.bfloat16)
    with tensorpull.Listener() as door, tensorpull.Session(door.address) as there, door.accept(10) as here:
        for own, other in ((there, here), (here, there)):
            ref = own.add_tensors(new, recipients=1, base=old)
            thread = processes.JoinedThread(target=own.serve, args=(ref,))
            thread.start()
            got = other.download_tensors(ref, base=old)
            thread.join()
            assert alike(got, new) and got.receipt.bytes < 0.2 * ref.nbytes


@pytest.mark.parametrize("link", ["unix:", "shm:", "udp://127.0.0.1:0"])
def test_over_other_links(tmp_path, link):
    old, new = fine_tuned(torch.bfloat16, elements=100_000)
    with tensorpull.Downloader(link if "udp" in link else f"{link}{tmp_path}/s") as owner:
        owner.start()
        ref = owner.add_tensors(new, base=old)
        for more in ({}, {"chunk_size": 1000}):
            got = tensorpull.download_tensors(owner.address, ref, base=old, **more)
            assert alike(got, new) and got.receipt.bytes < 0.3 * ref.nbytes


def test_progress_and_abort_are_heard_while_the_difference_comes(owner):
    old, new = fine_tuned(torch.float32)
    ref = owner.add_tensors(new, base=old)
    seen = []
    tensorpull.download_tensors(owner.address, ref, base=old, chunk_size=4096, progress=seen.append, progress_interval=0)
    assert len(seen) > 20 and [p.phase for p in seen if p.phase not in ("started", "active")] == ["completed"] and seen[-1].ref_id == ref.id, "it is over once"
    for place in ("new", "in place"):
        stop, mine = threading.Event(), copy(old)
        seen.clear()
        with pytest.raises(tensorpull.Error) as e:
            tensorpull.download_tensors(
                owner.address, ref, base=mine, out=mine if place == "in place" else None, chunk_size=4096, abort=stop, progress_interval=0,
                progress=lambda p: (seen.append(p.phase), stop.set() if p.bytes_done > 100_000 else None),
            )  # fmt: skip
        assert e.value.code == "cancelled" and seen[-1] == "aborted" and (place == "in place" or alike(mine, old))
        # what is left of it is no reason to fail: it is another version
        assert alike(tensorpull.download_tensors(owner.address, ref, base=mine, out=mine if place == "in place" else None), new)


def test_one_after_another(owner, caplog):
    """Each round's difference is to the round before, and a recipient that missed one gets the tensors as they are."""
    caplog.set_level(logging.INFO, "tensorpull")
    g = torch.Generator().manual_seed(1)
    model = {"w": 0.05 * torch.randn(100_000, generator=g), "b": torch.ones(8)}
    mine, late = copy(model), copy(model)
    for i in range(5):
        new = {"w": model["w"] + 1e-5 * torch.randn(100_000, generator=g), "b": torch.ones(8)}
        ref = owner.add_tensors(new, recipients=1 + (i % 2), base=model)
        model = new
        got = tensorpull.download_tensors(owner.address, ref, base=mine, out=mine)
        assert got.receipt.bytes < 0.7 * ref.nbytes and alike(mine, new)
        if i % 2:
            assert alike(tensorpull.download_tensors(owner.address, ref, base=late, out=late), new)
        assert owner.wait(ref, 10)


def test_two_owners_of_one_version_have_one_difference():
    old, new = fine_tuned(torch.float32)
    with tensorpull.Downloader() as first, tensorpull.Downloader() as second:
        second.start()
        refs = [one.add_tensors(new, base=old, ref_id="b" * 32) for one in (first, second)]
        assert refs[0] == refs[1]
        got = tensorpull.download_tensors(["127.0.0.1:1", second.address], refs[0], base=old)
        assert alike(got, new) and got.receipt.bytes < 0.6 * refs[0].nbytes


def test_an_owner_whose_table_is_full_publishes_the_tensors_alone():
    old, new = fine_tuned(torch.float32)
    with tensorpull.Downloader(max_references=1) as owner:
        owner.start()
        ref = owner.add_tensors(new, base=old)
        assert alike(tensorpull.download_tensors(owner.address, ref, base=old), new)
