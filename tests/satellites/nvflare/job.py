"""One job of NVIDIA FLARE, in its simulator or with the processes and certificates of its POC mode. jobs.py starts this and looks at what it leaves."""

import argparse
import json
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import model as models
import recipes
import tensorpull.nvflare

OURS = "tensorpull.nvflare.decomposers.tensor.TensorDecomposer"


def fedavg(a, name):
    from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe

    more = {"enable_tensor_disk_offload": True} if a.disk else {}
    if a.readers:
        import readers

        more["aggregator"] = readers.ReadingTwice()
    if a.differences:
        from tensorpull.nvflare import DifferenceAggregator

        more["aggregator"] = DifferenceAggregator()
    if a.weighing:
        import readers
        import tensorpull
        from tensorpull.nvflare import WeighingAggregator

        kinds = {"clip_norms": {}, "longest": {"weights": tensorpull.clip_norms(1e9)}, "trimmed": {"trimmed": 1}, "nearest": {"weights": readers.Nearest(keep=a.clients - 1)}, "wrong": {"weights": readers.Nearest(keep=-1)}}
        more["aggregator"] = WeighingAggregator(**kinds[a.weighing])
    if a.helper:
        import readers

        more["aggregator"] = readers.OwnHelper()
    if a.digits:
        import digits

        model, program = digits.Digits(), "digits.py"
    else:
        model, program = models.Model(**(models.of(a.megabytes) if a.megabytes else models.LARGE if a.large else models.SMALL)), "client.py"
    if a.ranks:
        program = "ranks.py"
        more["command"] = f"{sys.executable} -m torch.distributed.run --nproc_per_node={a.ranks} --master_addr=127.0.0.1 --master_port=0 --rdzv_backend=c10d --rdzv_endpoint=127.0.0.1:0"
    recipe = FedAvgRecipe(
        name=name, min_clients=a.min_clients or a.clients, num_rounds=a.rounds, model=model, train_script=program, server_expected_format=a.format,
        launch_external_process=a.external or a.ranks > 0, **more,
    )  # fmt: skip
    if a.readers:
        recipe.add_server_input_filter(readers.Doubling(), ["train"])
    return recipe


def recipe_of(a, name):
    from nvflare.app_common.widgets.decomposer_reg import DecomposerRegister

    recipe = recipes.ROWS[a.recipe].make(a.folder) if a.recipe else fedavg(a, name)
    if a.site == "wherever it is":
        tensorpull.nvflare.add_to(recipe)
    elif a.server == a.site != "none":
        recipe.add_decomposers([a.server])
    else:
        if a.server != "none":
            recipe._job.to_server(DecomposerRegister([a.server]), id="decomposer_reg")
        if a.site != "none":
            recipe._add_to_client_apps(DecomposerRegister([a.site]), id="decomposer_reg")
    if a.memory:
        from tensorpull.nvflare import Memory

        recipe.add_server_output_filter(Memory())
    if a.varying:
        from varying import VaryingFedAvg

        for workflow in recipe._job._deploy_map["server"].app_config.workflows:
            workflow.controller.__class__ = VaryingFedAvg
    settings = json.loads(a.settings)
    if settings or a.server_settings:
        recipe.add_server_config({**settings, **json.loads(a.server_settings or "{}")})
    if settings:
        recipe.add_client_config(settings)
    return recipe


def written_by_hand(folder):
    """The job of json/, with the programs that it names: what a user without a recipe has."""
    here = os.path.dirname(os.path.abspath(__file__))
    job = os.path.join(folder, "written")
    shutil.copytree(os.path.join(here, "json"), job)
    os.mkdir(os.path.join(job, "app", "custom"))
    for name in ("client.py", "model.py"):
        shutil.copy(os.path.join(here, name), os.path.join(job, "app", "custom"))
    shutil.copy(tensorpull.nvflare.JOBS_FILE, os.path.join(job, "app", "custom"))
    return job


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--folder", required=True)
    p.add_argument("--poc", default="", help="project.yml; without it the simulator")
    p.add_argument("--clients", type=int, default=2)
    p.add_argument("--min-clients", type=int, default=0, help="of them, so many take part in a round")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--server", default=OURS)
    p.add_argument("--site", default=OURS)
    p.add_argument("--settings", default="{}")
    p.add_argument("--server-settings", default="", help="of the server alone")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--large", action="store_true")
    p.add_argument("--format", default="pytorch", help="what the server gets: FLARE's own default is numpy")
    p.add_argument("--recipe", default="", help="one of recipes.py, in the simulator")
    p.add_argument("--external", action="store_true")
    p.add_argument("--ranks", type=int, default=0, help="an external trainer of so many processes")
    p.add_argument("--megabytes", type=int, default=0, help="of a model of its own")
    p.add_argument("--memory", action="store_true", help="with the component that keeps the server's memory flat")
    p.add_argument("--varying", action="store_true", help="each round has another number of participants")
    p.add_argument("--disk", action="store_true")
    p.add_argument("--readers", action="store_true", help="a filter and an aggregator of readers.py")
    p.add_argument("--differences", action="store_true", help="with the aggregator that keeps what did not change")
    p.add_argument("--weighing", default="", help="with the aggregator that looks at all updates first: clip_norms, trimmed, or one of readers.py")
    p.add_argument("--helper", action="store_true", help="with an aggregator of readers.py that has a WeightedAggregationHelper of its own")
    p.add_argument("--digits", action="store_true", help="the model and the program of digits.py")
    p.add_argument("--json", action="store_true", help="the job of json/")
    a = p.parse_args()
    sys.argv = sys.argv[:1]  # recipes read it, too
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    if a.json:
        from nvflare.private.fed.app.simulator.simulator_runner import SimulatorRunner

        status = SimulatorRunner(job_folder=written_by_hand(a.folder), workspace=os.path.join(a.folder, "ran"), n_clients=a.clients, threads=a.clients).run()
        print("FAILED" if status else "ENDED", flush=True)
        return
    if not a.poc:
        from nvflare.recipe import SimEnv

        recipe_of(a, "job").execute(SimEnv(num_clients=a.clients, workspace_root=a.folder))
        print("ENDED", flush=True)
        return
    from nvflare.recipe import PocEnv

    env = PocEnv(num_clients=a.clients, project_conf_path=a.poc)
    runs = [recipe_of(a, "job").execute(env)]
    for _ in range(1, a.jobs):
        again = recipe_of(a, "job")
        runs.append(env._get_session_manager().submit_job(again._job))
    ids = [run if isinstance(run, str) else run.get_job_id() for run in runs]
    print("JOBS", json.dumps(ids), flush=True)
    for line in sys.stdin:  # what the driver wants
        word = line.split()
        if word == ["results"]:
            print("RESULTS", json.dumps([env.get_job_result(i, timeout=240.0) for i in ids]), flush=True)
        elif word == ["status"]:
            print("STATUS", json.dumps([env.get_job_status(i) for i in ids]), flush=True)
        elif word == ["abort"]:
            env.abort_job(ids[0])
            print("ABORTED", flush=True)
        elif word == ["stop"]:
            env.stop()
            print("STOPPED", flush=True)
            return


if __name__ == "__main__":
    main()
