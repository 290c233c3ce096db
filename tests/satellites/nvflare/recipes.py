"""Every recipe of FLARE 2.9 that has tensors or arrays, small: what the recipe is made of, and how many models travel in it. jobs.py has a case for each."""

import os
from typing import Any, Callable, Dict, NamedTuple

ROUNDS, SITES = 2, 2
#: The client program that answers whatever a workflow asks for.
CLIENT = "anything.py"


class Row(NamedTuple):
    make: Callable[[str], Any]  # with a folder for files
    tasks: int  # models from the server to the sites by tensorpull
    updates: int  # from the sites to the server by tensorpull
    between_sites: int = 0  # from one site to another by tensorpull
    needs: str = ""  # a package
    decomposer: str = "tensor.TensorDecomposer"
    chunks: bool = False  # others go by FLARE's chunks


ROWS: Dict[str, Row] = {}


def row(*counts: int, **more: Any) -> Callable[[Callable[[str], Any]], Callable[[str], Any]]:
    def put(make: Callable[[str], Any]) -> Callable[[str], Any]:
        ROWS[make.__name__] = Row(make, *counts, **more)
        return make

    return put


def models():
    import model

    return model


def module():
    return models().Model(**models().SMALL)


def common(name, **more):
    return {"name": name, "min_clients": SITES, "train_script": CLIENT, **more}


#: A trainer in a process of its own.
EXTERNAL = {"launch_external_process": True}


@row(4, 4)
def fedavg(_):
    from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe

    return FedAvgRecipe(**common("fedavg"), num_rounds=ROUNDS, model=module())


@row(4, 4)
def fedavg_with_tensors(_):
    from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe

    return FedAvgRecipe(**common("fedavg_with_tensors"), num_rounds=ROUNDS, model=module(), server_expected_format="pytorch")


@row(4, 4)
def external_fedavg(_):
    from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe

    return FedAvgRecipe(**common("external_fedavg", **EXTERNAL), num_rounds=ROUNDS, model=module())


@row(4, 4)
def external_fedavg_with_tensors(_):
    from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe

    return FedAvgRecipe(**common("external_fedavg_with_tensors", **EXTERNAL), num_rounds=ROUNDS, model=module(), server_expected_format="pytorch", launch_once=False)


class ByJobApi:
    """What the other rows' recipes do, with FLARE's Job API."""

    def __init__(self):
        from nvflare.app_opt.pt.job_config.fed_avg import FedAvgJob
        from nvflare.job_config.script_runner import ScriptRunner

        self._job = FedAvgJob(initial_model=module(), n_clients=SITES, num_rounds=ROUNDS, name="job_api", min_clients=SITES)
        self._job.to_clients(ScriptRunner(script=CLIENT))

    def add_decomposers(self, classes):
        from nvflare.app_common.widgets.decomposer_reg import DecomposerRegister

        self._job.to_server(DecomposerRegister(classes), id="decomposer_reg")
        self._job.to_clients(DecomposerRegister(classes), id="decomposer_reg")

    def execute(self, env):
        self._job.simulator_run(os.path.join(env.workspace_root, "ran"), n_clients=SITES)  # it clears that folder


@row(4, 4)
def fedavg_by_job_api(_):
    return ByJobApi()


@row(4, 4)
def fedopt(_):
    from nvflare.app_opt.pt.recipes.fedopt import FedOptRecipe

    optimizer = {"path": "torch.optim.SGD", "args": {"lr": 1.0}, "config_type": "dict"}
    return FedOptRecipe(**common("fedopt"), num_rounds=ROUNDS, model=module(), optimizer_args=optimizer)


@row(4, 4)
def fedprox(_):
    from nvflare.app_opt.pt.recipes.fedprox import FedProxRecipe

    return FedProxRecipe(**common("fedprox"), num_rounds=ROUNDS, model=module())


@row(4, 4)
def scaffold(_):
    from nvflare.app_opt.pt.recipes.scaffold import ScaffoldRecipe

    return ScaffoldRecipe(**common("scaffold"), num_rounds=ROUNDS, model=module())


@row(4, 4)
def cyclic(_):
    from nvflare.app_opt.pt.recipes.cyclic import CyclicRecipe

    return CyclicRecipe(**common("cyclic"), num_rounds=ROUNDS, model=module())


@row(4, 4)
def fedce(_):
    from nvflare.app_opt.pt.recipes.fedce import FedCERecipe

    return FedCERecipe(**common("fedce"), num_rounds=ROUNDS, model=module())


@row(12, 6)
def fedavg_with_cross_site_evaluation(_):
    from nvflare.recipe.utils import add_cross_site_evaluation

    recipe = fedavg(_)
    add_cross_site_evaluation(recipe)
    return recipe


@row(12, 6)
def external_fedavg_with_cross_site_evaluation(_):
    from nvflare.recipe.utils import add_cross_site_evaluation

    recipe = external_fedavg(_)
    add_cross_site_evaluation(recipe)
    return recipe


@row(2, 0)
def fedeval(folder):
    import torch
    from nvflare.app_opt.pt.recipes.fedeval import FedEvalRecipe

    path = os.path.join(folder, "given.pt")
    torch.save(module().state_dict(), path)
    return FedEvalRecipe(name="fedeval", min_clients=SITES, model=module(), eval_ckpt=path, eval_script=CLIENT)


def swarming(name, **more):
    """FLARE encrypts what its sites say to each other, if it has certificates, unless a job says that this is not wanted."""
    from nvflare.app_opt.pt.recipes.swarm import SwarmLearningRecipe

    if os.environ.get("TENSORPULL_LARGE"):
        more["model"] = models().Model(**models().LARGE)
    if os.environ.get("TENSORPULL_NOT_PRIVATE"):
        more["server_config_overrides"] = {"private_p2p": False}
    sites, rounds = (int(os.environ.get(f"TENSORPULL_{what}", number)) for what, number in (("SITES", SITES), ("ROUNDS", ROUNDS)))
    return SwarmLearningRecipe(**{**common(name), "model": module(), **more, "min_clients": sites, "num_rounds": rounds})


@row(0, 0, between_sites=6)
def swarm(_):
    return swarming("swarm")


@row(0, 0, between_sites=10)
def swarm_with_cross_site_evaluation(_):
    return swarming("swarm_with_cross_site_evaluation", do_cross_site_eval=True)


@row(0, 0, between_sites=6, chunks=True)
def external_swarm(_):
    return swarming("external_swarm", **EXTERNAL)


def numbers():
    import numpy as np

    return np.arange(400, dtype=np.float32).reshape(20, 20)


@row(4, 4, decomposer="array.ArrayDecomposer")
def numpy_fedavg(_):
    from nvflare.app_common.np.recipes.fedavg import NumpyFedAvgRecipe

    return NumpyFedAvgRecipe(**common("numpy_fedavg"), num_rounds=ROUNDS, model=numbers().tolist())


@row(4, 4, decomposer="array.ArrayDecomposer")
def external_numpy_fedavg(_):
    from nvflare.app_common.np.recipes.fedavg import NumpyFedAvgRecipe

    return NumpyFedAvgRecipe(**common("external_numpy_fedavg", **EXTERNAL), num_rounds=ROUNDS, model=numbers().tolist())


def logistic_regression(name, **more):
    from nvflare.app_common.np.recipes.lr.fedavg import FedAvgLrRecipe

    return FedAvgLrRecipe(**common(name, **more), num_rounds=ROUNDS)


@row(4, 4, decomposer="array.ArrayDecomposer")
def numpy_logistic_regression(_):
    return logistic_regression("numpy_logistic_regression")


@row(4, 4, decomposer="array.ArrayDecomposer")
def external_numpy_logistic_regression(_):
    return logistic_regression("external_numpy_logistic_regression", **EXTERNAL)


@row(2, 0, decomposer="array.ArrayDecomposer")
def numpy_cross_site_evaluation(folder):
    import numpy as np
    from nvflare.app_common.np.recipes.cross_site_eval import NumpyCrossSiteEvalRecipe

    path = os.path.join(folder, "given.npy")
    np.save(path, numbers())
    return NumpyCrossSiteEvalRecipe(name="numpy_cross_site_evaluation", min_clients=SITES, initial_ckpt=path, eval_script=CLIENT)


@row(2, 4, needs="sklearn", decomposer="array.ArrayDecomposer")
def sklearn_linear(_):
    from nvflare.app_opt.sklearn.recipes import SklearnFedAvgRecipe

    return SklearnFedAvgRecipe(**common("sklearn_linear"), num_rounds=ROUNDS, model_params={"loss": "log_loss"})


@row(2, 4, needs="sklearn", decomposer="array.ArrayDecomposer")
def sklearn_kmeans(_):
    from nvflare.app_opt.sklearn.recipes import KMeansFedAvgRecipe

    return KMeansFedAvgRecipe(**common("sklearn_kmeans"), num_rounds=ROUNDS, n_clusters=2)


@row(2, 4, needs="sklearn", decomposer="array.ArrayDecomposer")
def sklearn_svm(_):
    from nvflare.app_opt.sklearn.recipes import SVMFedAvgRecipe

    return SVMFedAvgRecipe(**common("sklearn_svm"))
