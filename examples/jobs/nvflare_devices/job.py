"""A job of NVIDIA FLARE with one site, behind which there are devices: job.py --workspace FOLDER [--rounds N] [options of device_site.py]. Its last round trains nothing: it
measures what all have learned, and hands it out."""

import argparse
import os
import sys

import tensorpull.nvflare
from model import Networks

from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe import SimEnv


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--workspace", required=True)
    p.add_argument("--rounds", type=int, default=4)
    a, of_site = p.parse_known_args()
    sys.argv = sys.argv[:1]  # recipes read it, too
    if any(c.isspace() for word in of_site for c in word):
        p.error("FLARE takes a script's arguments apart at spaces, so no file may have one in its name")
    recipe = FedAvgRecipe(
        name="devices", min_clients=1, num_rounds=a.rounds + 1, model=Networks(), train_script="device_site.py", train_args=" ".join(of_site),
        server_expected_format="pytorch", key_metric="client_accuracy",
    )  # fmt: skip
    tensorpull.nvflare.add_to(recipe)
    recipe.execute(SimEnv(num_clients=1, workspace_root=a.workspace))


if __name__ == "__main__":
    main()
