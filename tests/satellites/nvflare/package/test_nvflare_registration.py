"""FLARE's own decomposers stay registered, and what they send and fetch becomes this package's; what is not exactly FLARE's own is left alone."""

from __future__ import annotations

import logging
import pathlib
import re
import sys

import numpy as np
import pytest

pytest.importorskip("nvflare")

import nvflare.fuel.utils.fobs as fobs  # noqa: E402
import nvflare.fuel.utils.fobs.dots as dots  # noqa: E402
from nvflare.app_common.decomposers.numpy_decomposers import NumpyArrayDecomposer  # noqa: E402
from nvflare.fuel.utils.class_loader import get_class_name  # noqa: E402

from tensorpull.nvflare.decomposers.array import ArrayDecomposer  # noqa: E402


@pytest.fixture(autouse=True)
def nothing_registered():
    fobs.reset()
    yield
    fobs.reset()


@pytest.fixture(autouse=True)
def heard(caplog):
    caplog.set_level(logging.INFO)


def warnings(caplog):
    return [r.message for r in caplog.records if r.levelname == "WARNING"]


def arrays():
    return fobs.get_dot_handler(dots.NUMPY_DOWNLOAD)


def is_ours(handler):
    return all(type(getattr(handler, name).__self__).__module__.startswith("tensorpull.") for name in ("to_downloadable", "download"))


@pytest.mark.parametrize("first", [True, False], ids=["flare registers first", "flare registers later"])
def test_flares_own_is_registered_and_does_what_ours_does(first, caplog):
    if first:
        fobs.register(NumpyArrayDecomposer)
    fobs.register(ArrayDecomposer)  # what FLARE's DecomposerRegister does
    fobs.register(NumpyArrayDecomposer)
    assert type(arrays()) is NumpyArrayDecomposer and is_ours(arrays()) and not warnings(caplog)
    assert "NumPy's arrays are offered and pulled" in caplog.text


def test_the_name_on_the_wire_is_flares():
    fobs.register(ArrayDecomposer)
    from nvflare.fuel.utils.fobs.datum import DatumManager

    said = fobs.serialize({"a": np.arange(3)}, DatumManager())
    assert get_class_name(NumpyArrayDecomposer).encode() in said and b"tensorpull" not in said
    assert np.array_equal(fobs.deserialize(said, DatumManager())["a"], np.arange(3))


def test_one_line_is_for_tensors_and_arrays(caplog):
    pytest.importorskip("torch")
    from nvflare.app_opt.pt.decomposers import TensorDecomposer as Flares

    from tensorpull.nvflare.decomposers.tensor import TensorDecomposer

    fobs.register(NumpyArrayDecomposer)
    fobs.register(Flares)  # as a persistor does, and a framework's own loop
    fobs.register(TensorDecomposer)
    tensors = fobs.get_dot_handler(dots.TENSOR_DOWNLOAD)
    assert type(tensors) is Flares and is_ours(tensors) and is_ours(arrays()) and not warnings(caplog)


def test_naming_it_twice_is_naming_it_once(caplog):
    for _ in range(2):
        fobs.register(ArrayDecomposer)
    first = arrays().download
    fobs.register(ArrayDecomposer)
    assert arrays().download == first and caplog.text.count("are offered and pulled") == 1 and not warnings(caplog)


class Frameworks(NumpyArrayDecomposer):
    pass


def test_a_frameworks_own_is_left_alone(caplog):
    fobs.register(Frameworks)
    fobs.register(ArrayDecomposer)
    assert type(arrays()) is Frameworks and not is_ours_or_none(arrays())
    assert warnings(caplog) == ["tensorpull: NumPy's arrays travel by FLARE's chunks in this process: what is registered for them is test_nvflare_registration.Frameworks, and not FLARE's own"]


def is_ours_or_none(handler):
    return "download" in vars(handler) or "to_downloadable" in vars(handler)


def test_a_method_that_something_else_has_replaced_is_left_alone(caplog):
    fobs.register(NumpyArrayDecomposer)
    arrays().download = print
    fobs.register(ArrayDecomposer)
    assert arrays().download is print and "to_downloadable" not in vars(arrays())
    assert "something else has replaced its download" in warnings(caplog)[0]


def test_a_version_that_calls_them_with_more_is_left_alone(caplog, monkeypatch):
    monkeypatch.setattr(NumpyArrayDecomposer, "to_downloadable", lambda self, items, max_chunk_size, fobs_ctx, compression: None)
    fobs.register(NumpyArrayDecomposer)
    fobs.register(ArrayDecomposer)
    assert not is_ours_or_none(arrays()) and "calls to_downloadable with compression" in warnings(caplog)[0]


@pytest.mark.parametrize("gone", ["get_dot_handler", "to_downloadable", "NUMPY_DOWNLOAD"])
def test_a_version_without_the_seam_goes_on_as_it_is(caplog, monkeypatch, gone):
    fobs.register(NumpyArrayDecomposer)
    there = arrays()
    if gone == "get_dot_handler":
        monkeypatch.delattr(fobs, gone)
    elif gone == "NUMPY_DOWNLOAD":
        monkeypatch.delattr(dots, gone)
    else:
        monkeypatch.delattr(NumpyArrayDecomposer, gone)
        monkeypatch.setattr(NumpyArrayDecomposer, "__abstractmethods__", frozenset())
    ArrayDecomposer()
    assert not is_ours_or_none(there) and len(warnings(caplog)) == 1 and "NumPy's arrays travel by FLARE's chunks in this process" in warnings(caplog)[0]


def test_a_version_that_has_its_arrays_elsewhere_has_its_tensors_by_tensorpull(caplog, monkeypatch):
    pytest.importorskip("torch")
    from tensorpull.nvflare.decomposers.tensor import TensorDecomposer

    monkeypatch.setitem(sys.modules, "nvflare.app_common.np.np_downloader", None)
    monkeypatch.delitem(sys.modules, "tensorpull.nvflare.decomposers.array")
    fobs.register(TensorDecomposer)
    assert is_ours(fobs.get_dot_handler(dots.TENSOR_DOWNLOAD))
    assert len(warnings(caplog)) == 1 and "NumPy's arrays travel by FLARE's chunks in this process" in warnings(caplog)[0]


def test_the_pages_table_of_recipes_is_the_table_of_the_tests(monkeypatch):
    root = pathlib.Path(__file__).resolve().parents[4]
    monkeypatch.syspath_prepend(str(root / "tests" / "satellites" / "nvflare"))
    import recipes

    page = (root / "examples/python/src/tensorpull/nvflare/reference.md").read_text()
    told = re.findall(r"^\|.*\| `recipe_(\w+)` \| (\d+) \| (\d+) \| (\d+) \|$", page, re.M)
    assert told == [(name, str(row.tasks), str(row.updates), str(row.between_sites)) for name, row in recipes.ROWS.items()]
