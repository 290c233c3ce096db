"""The line that adds this package to a job: sites without it, or without PyTorch, go on with what they have."""

from __future__ import annotations

import runpy
import sys

import pytest

pytest.importorskip("nvflare")

from nvflare.app_common.decomposers.numpy_decomposers import NumpyArrayDecomposer  # noqa: E402

import tensorpull.nvflare  # noqa: E402
from tensorpull.nvflare.decomposers.array import ArrayDecomposer  # noqa: E402


def decomposer():
    return runpy.run_path(tensorpull.nvflare.JOBS_FILE)["Decomposer"]


def test_the_decomposer_is_the_best_that_a_site_can_import(caplog, monkeypatch):
    pytest.importorskip("torch")
    from nvflare.app_opt.pt.decomposers import TensorDecomposer as Flares

    from tensorpull.nvflare.decomposers.tensor import TensorDecomposer

    assert decomposer() is TensorDecomposer
    monkeypatch.setitem(sys.modules, "tensorpull.nvflare.decomposers.tensor", None)
    assert decomposer() is ArrayDecomposer and not caplog.records
    monkeypatch.setitem(sys.modules, "tensorpull.nvflare.decomposers.array", None)
    assert decomposer() is Flares and "cannot import tensorpull.nvflare" in caplog.text
    monkeypatch.setitem(sys.modules, "nvflare.app_opt.pt.decomposers", None)
    assert decomposer() is NumpyArrayDecomposer


def test_a_job_carries_the_file_and_names_its_class(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from nvflare.job_config.api import FedJob

    monkeypatch.setattr(sys, "path", sys.path[:])
    job = FedJob(name="job", min_clients=1)
    tensorpull.nvflare.add_to(job)
    tensorpull.nvflare.add_to(FedJob(name="another", min_clients=1))
    job.export_job(str(tmp_path))
    carried = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*tensorpull*"))
    assert carried and all(path.endswith("/custom/tensorpull_or_flare.py") for path in carried)
    named = [path.name for path in tmp_path.rglob("*.json") if "tensorpull_or_flare.Decomposer" in path.read_text()]
    assert sorted(named) == ["config_fed_client.json", "config_fed_server.json"]
