"""The server of FedAvg, whose models travel by tensorpull unless `stock` is true."""

import hashlib
import json
import pathlib
import time

import flwr.serverapp.strategy
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

import tensorpull.flower
from fedavg.task import accuracy, model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    nodes, rounds, listen = int(config["nodes"]), int(config["rounds"]), str(config["listen"])
    strategy = getattr(flwr.serverapp.strategy, str(config["strategy"]))(min_train_nodes=nodes, min_evaluate_nodes=nodes, min_available_nodes=nodes)
    initial = ArrayRecord({name: Array(array) for name, array in model(float(config["megabytes"])).items()})
    began = time.monotonic()
    if config["stock"]:
        result = strategy.start(grid=grid, initial_arrays=initial, num_rounds=rounds)
    else:
        key = {"key": pathlib.Path(str(config["key"])), "federation": "digits"} if config["key"] else {}
        with tensorpull.flower.Grid(grid, listen, **key) as grid:
            result = strategy.start(grid=grid, initial_arrays=initial, num_rounds=rounds)
    report(config, result, time.monotonic() - began)


def report(config, result, seconds) -> None:
    hasher = hashlib.sha256()
    for name in sorted(result.arrays):
        hasher.update(result.arrays[name].numpy())
    right, digest = accuracy({name: result.arrays[name].numpy() for name in ("weight", "bias")}), hasher.hexdigest()
    print(f"{'stock' if config['stock'] else 'tensorpull'}: accuracy {right:.3f}, {seconds:.1f} s, sha256 {digest[:16]}", flush=True)
    if config["result"]:
        with open(str(config["result"]), "w") as f:
            json.dump({"accuracy": right, "seconds": seconds, "sha256": digest, "rounds": len(result.train_metrics_clientapp)}, f)
