"""FedAvg on handwritten digits in FLARE's simulator: job.py [--stock] --workspace FOLDER. The one line that tensorpull takes is the one with add_to, and the one with
add_server_output_filter keeps the server's memory flat."""

import argparse
import os
import sys

from model import Digits

from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe import SimEnv


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--stock", action="store_true", help="without tensorpull")
    p.add_argument("--flat", action="store_true", help="keeps the server's memory flat")
    p.add_argument("--format", choices=("numpy", "pytorch"), default="pytorch", help="what the server computes with; numpy is FLARE's default")
    p.add_argument("--workspace", required=True)
    p.add_argument("--clients", type=int, default=4)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--width", type=int, default=1024)
    p.add_argument("--steps", type=int, default=16)
    a = p.parse_args()
    sys.argv = sys.argv[:1]  # recipes read it, too
    os.environ.update(SITES=str(a.clients), WIDTH=str(a.width), STEPS=str(a.steps))

    recipe = FedAvgRecipe(
        name="digits", min_clients=a.clients, num_rounds=a.rounds, model=Digits(a.width), train_script="client.py", server_expected_format=a.format
    )  # fmt: skip
    if not a.stock:
        import tensorpull.nvflare

        tensorpull.nvflare.add_to(recipe)
    if a.flat:
        from tensorpull.nvflare import Memory

        recipe.add_server_output_filter(Memory())
    recipe.execute(SimEnv(num_clients=a.clients, workspace_root=a.workspace))


if __name__ == "__main__":
    main()
