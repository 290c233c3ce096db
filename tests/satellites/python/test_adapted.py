"""Tensors of other libraries, and tensors to land in that have other names or dtypes than those that are published."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tensorpull
from tensorpull import Error


class Lent:
    """A tensor of another library, over the memory of one of NumPy's or torch's. `legacy`: an exporter that does not know of versions."""

    def __init__(self, of, legacy=False):
        self._of, self._legacy = of, legacy

    def __dlpack__(self, **options):
        if self._legacy:
            if options.keys() - {"stream"}:
                raise TypeError("unexpected arguments")
            return self._of.__dlpack__()
        return self._of.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._of.__dlpack_device__()


class Keeps(Lent):
    """It is on a device that nobody here knows."""

    def __dlpack__(self, **options):
        raise BufferError("no")

    def __dlpack_device__(self):
        return 2, 0


@pytest.mark.parametrize("legacy", [False, True])
def test_a_tensor_of_another_library_is_published_without_a_copy(owner, legacy):
    values = np.arange(5000, dtype=np.float32)
    ref = owner.add_tensors({"w": Lent(values, legacy), "t": Lent(torch.arange(7), legacy), "s": Lent(values[::2], legacy)})
    got = tensorpull.download_tensors(owner.address, ref)
    assert (got["w"] == values).all() and (got["t"] == np.arange(7)).all() and (got["s"] == values[::2]).all()
    values[0] = 7  # the same memory: what is sent is no longer what was published
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, ref)
    assert e.value.code == "digest_mismatch"


def test_a_copy_of_one_a_tree_of_them_and_elements_that_numpy_has_not(owner):
    values = torch.arange(9, dtype=torch.bfloat16)
    tree = {"a": [Lent(values), 3], "b": {"c": Lent(np.ones(2))}}
    ref = owner.add_tensors(tree, copy=True)
    values += 1
    got = tensorpull.unflatten(tensorpull.download_tensors(owner.address, ref, framework="torch"))
    assert torch.equal(got["a"][0], values - 1) and got["a"][1] == 3 and torch.equal(got["b"]["c"], torch.ones(2, dtype=torch.float64))
    assert tensorpull.flatten(tree)["a.0"] is tree["a"][0]


def test_landing_in_one_that_may_be_written_to(owner):
    ref = owner.add_tensors({"w": np.arange(9.0)})
    mine = np.zeros(9)
    given = Lent(mine)
    if np.from_dlpack(given).flags.writeable:  # NumPy 2.1 asks for it
        got = tensorpull.download_tensors(owner.address, ref, out={"w": given})
        assert (mine == np.arange(9)).all() and got["w"] is given
    for other in (Lent(mine, legacy=True), Lent(torch.zeros(9, dtype=torch.bfloat16))):  # which do not say that they may be
        with pytest.raises(Error, match="may not be written to") as e:
            tensorpull.download_tensors(owner.address, ref, out={"w": other})
        assert (e.value.code, e.value.name) == ("unsupported_layout", "w")


def test_one_that_lends_a_copy_is_published_and_not_landed_in(owner):
    class Copies(Lent):
        def __dlpack__(self, **options):
            if options.get("copy") is False:
                raise BufferError("it has to be copied")
            return self._of.copy().__dlpack__(**options)

    mine = np.zeros(4)
    ref = owner.add_tensors({"w": Copies(np.arange(4.0))})
    assert (tensorpull.download_tensors(owner.address, ref)["w"] == np.arange(4)).all()
    for options in ({}, {"atomic": True}, {"adapt": True}):
        with pytest.raises(Error, match="may not be written to") as e:
            tensorpull.download_tensors(owner.address, ref, out={"w": Copies(mine)}, **options)
        assert (e.value.code, e.value.name) == ("unsupported_layout", "w")


def test_what_lends_nothing_is_refused_by_name(owner):
    with pytest.raises(Error, match="Keeps does not lend its memory: ") as e:
        owner.add_tensors({"layer.w": Keeps(np.zeros(3))})
    assert (e.value.code, e.value.name) == ("unsupported_layout", "layer.w")
    with pytest.raises(TypeError, match="'w' is no tensor"):
        owner.add_tensors({"w": torch.Tensor})


def test_averages_differences_and_images_take_them(owner):
    base, new = np.zeros((50, 100), np.float32), np.full((50, 100), 1, np.float32)
    ref = owner.add_tensors(tensorpull.narrowed({"w": Lent(new)}, {"w": Lent(base)}), narrow=True)
    got = tensorpull.download_tensors(owner.address, ref, base={"w": Lent(base)})
    assert got.receipt.kept_bytes > 0 and (got["w"] == 1).all()
    mean = tensorpull.weighted_average([(owner.address, ref, 1)], base={"w": Lent(base)})
    assert (mean["w"] == 1).all()
    image = tensorpull.PublishedImage({"w": Lent(new)})
    assert bytes(image.read(image.nbytes - 4, 4)) == new[-1, -1:].tobytes()


def test_what_came_is_lent_to_others(owner):
    got = tensorpull.download_tensors(owner.address, owner.add_tensors({"w": np.arange(4.0)}))
    assert torch.from_dlpack(got["w"]).data_ptr() == got["w"].__array_interface__["data"][0]


@pytest.mark.parametrize("wrapped", ["module.", "_orig_mod.", "module._orig_mod.", "encoder._orig_mod."])
@pytest.mark.parametrize("here", [False, True])
def test_names_that_wrappers_have_changed(owner, wrapped, here):
    outer = wrapped.split("_orig")[0] if wrapped.startswith("encoder") else ""
    plain, changed = f"{outer}layer.w", f"{wrapped}layer.w"
    published, mine = (plain, changed) if here else (changed, plain)
    out = {mine: torch.zeros(3), "b": torch.zeros(2)}
    ref = owner.add_tensors({published: torch.arange(3.0), "b": torch.ones(2)}, recipients=1)
    with pytest.raises(Error, match="adapt=True takes names") as e:
        tensorpull.download_tensors(owner.address, ref, out=out)
    assert e.value.code == "schema_mismatch" and not out["b"].any()
    got = tensorpull.download_tensors(owner.address, ref, out=out, adapt=True)
    assert got[mine] is out[mine] and torch.equal(out[mine], torch.arange(3.0)) and out["b"].all() and list(got) == [mine, "b"] and got.receipt.confirmed
    assert owner.wait(ref, 60)


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("published", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("mine", [torch.bfloat16, torch.float32, torch.float64, np.float32, np.float64])
def test_floating_numbers_are_converted_where_the_program_asks(owner, published, mine, atomic):
    values = {"w": torch.linspace(-3, 3, 501).to(published).reshape(3, 167), "n": torch.arange(5)}
    ref = owner.add_tensors(values, chunk_size=256)
    if isinstance(mine, torch.dtype):
        w = torch.zeros(167, 3, dtype=mine).t()
        out = {"n": torch.zeros(5, dtype=torch.int64), "w": w}
        if mine != published:
            with pytest.raises(Error, match=r"\(adapt=True converts\)"):
                tensorpull.download_tensors(owner.address, ref, out=out)
        tensorpull.download_tensors(owner.address, ref, out=out, adapt=True, atomic=atomic)
        assert torch.equal(w, values["w"].to(mine)) and w.dtype == mine and torch.equal(out["n"], torch.arange(5))
    else:
        pytest.importorskip("ml_dtypes", reason="optional: NumPy has no bfloat16 without ml_dtypes") if published == torch.bfloat16 else None
        out = {"n": np.zeros(5, np.int64), "w": np.zeros((3, 167), mine)}
        tensorpull.download_tensors(owner.address, ref, out=out, adapt=True, atomic=atomic)
        assert (out["w"] == values["w"].double().numpy().astype(mine)).all() and (out["n"] == np.arange(5)).all()


def test_a_live_module_in_another_dtype_with_tied_weights(owner):
    class Tied(torch.nn.Module):
        def __init__(self, value, kind):
            super().__init__()
            self.embed, self.head = torch.nn.Embedding(50, 8, dtype=kind), torch.nn.Linear(8, 50, bias=False, dtype=kind)
            self.head.weight = self.embed.weight
            torch.nn.init.constant_(self.embed.weight, value)

    ref = owner.add_tensors(Tied(0.3, torch.bfloat16).state_dict())
    live = torch.nn.Sequential()
    live.module = Tied(0.0, torch.float32)
    got = tensorpull.download_tensors(owner.address, ref, out=live.state_dict(), adapt=True)
    assert (live.module.head.weight == torch.tensor(0.3, dtype=torch.bfloat16)).all() and list(got) == ["module.embed.weight", "module.head.weight"]
    assert live.module.head.weight.requires_grad and live.module.head.weight is live.module.embed.weight


def test_what_does_not_fit_nevertheless_changes_nothing(owner):
    ref = owner.add_tensors({"w": np.ones(3, np.float32), "n": np.ones(3, np.int64)}, recipients=1)
    for out in (
        {"w": np.zeros(4), "n": np.zeros(3, np.int64)},  # another shape
        {"w": np.zeros(3), "n": np.zeros(3, np.int32)},  # whole numbers are not converted
        {"w": np.zeros(3), "n": np.zeros(3)},
        {"w": np.zeros(3), "n": np.zeros(3, np.int64), "c": np.zeros(1)},
        {"module.w": np.zeros(3), "_orig_mod.w": np.zeros(3), "n": np.zeros(3, np.int64)},  # two that are one
    ):
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(owner.address, ref, out=out, adapt=True)
        assert e.value.code == "schema_mismatch" and not any(t.any() for t in out.values())
    assert tensorpull.download_tensors(owner.address, ref, out={"w": np.zeros(3)}, subset=True, adapt=True)["w"].all()
    # one memory, for two that are published apart: one of them as it is, the other to be converted
    apart = owner.add_tensors({"a": np.full(3, 1, np.float32), "b": np.full(3, 2, np.float64)})
    for one in (np.zeros(3, np.float32), np.zeros(3), torch.zeros(3), torch.zeros(3, dtype=torch.float64), np.zeros(3, np.float16)):
        for atomic in (False, True):
            for names in ("ab", "ba"):
                with pytest.raises(Error) as e:
                    tensorpull.download_tensors(owner.address, apart, out={name: one for name in names}, adapt=True, atomic=atomic)
                assert e.value.code == "schema_mismatch" and not one.any()
    for wrong in ({"adapt": True}, {"adapt": True, "out": {}, "base": {}}):
        with pytest.raises(ValueError, match="adapt is for out"):
            tensorpull.download_tensors(owner.address, ref, **wrong)


def test_who_was_believed_is_told_as_ever(owner):
    ref = owner.add_tensors({"w": np.ones(3)})
    assert not tensorpull.download_tensors(owner.address, ref, out={"w": np.zeros(3, np.float32)}, adapt=True).receipt.believed
    assert tensorpull.download_tensors(owner.address, ref.id, out={"w": np.zeros(3, np.float32)}, adapt=True).receipt.believed
