"""The line that adds this package to a job: sites without it, or without PyTorch, go on with what they have."""

from __future__ import annotations

import json
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


@pytest.mark.parametrize("sites", [(), ("site-1", "site-2")], ids=["all alike", "each its own"])
def test_a_job_carries_the_file_names_its_class_and_keeps_what_its_clients_run(tmp_path, monkeypatch, sites):
    pytest.importorskip("torch")
    from nvflare.app_common.np.np_trainer import NPTrainer
    from nvflare.job_config.api import FedJob

    def made():
        job = FedJob(name="job", min_clients=1)
        for site in sites:
            job.to(NPTrainer(), site)
        if not sites:
            job.to_clients(NPTrainer())
        return job

    monkeypatch.setattr(sys, "path", sys.path[:])
    tensorpull.nvflare.add_to(made())
    job = made()
    tensorpull.nvflare.add_to(job)
    job.export_job(str(tmp_path))
    carried = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*tensorpull*"))
    assert carried and all(path.endswith("/custom/tensorpull_or_flare.py") for path in carried)
    of_clients, of_servers = (sorted(tmp_path.rglob(f"config_fed_{end}.json")) for end in ("client", "server"))
    assert len(of_clients) == max(len(sites), 1) and len(of_servers) == 1
    assert all("tensorpull_or_flare.Decomposer" in path.read_text() for path in [*of_clients, *of_servers])
    assert all(len(json.loads(path.read_text())["executors"]) == 1 for path in of_clients)


def test_a_job_without_clients_is_refused(monkeypatch):
    from nvflare.job_config.api import FedJob

    monkeypatch.setattr(sys, "path", sys.path[:])
    with pytest.raises(ValueError, match="comes after what the job's clients run"):
        tensorpull.nvflare.add_to(FedJob(name="job", min_clients=1))
