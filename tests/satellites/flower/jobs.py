"""Runs of Flower with its own processes, a SuperLink, SuperNodes and `flwr run`, whose models travel by tensorpull: jobs.py [CASE...].

The app is that of examples/jobs/flower. A case looks at how the run ends, at the final model, at what the log tells of the way of each round, and at what is left. Without flwr it ends with
77, which ctest takes for skipped.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLE = os.path.join(HERE, "..", "..", "..", "examples", "jobs", "flower")
sys.path[:0] = [os.path.join(HERE, "..", "..", "support"), os.path.join(HERE, "..", "python"), EXAMPLE]

import processes  # noqa: E402
from federation import Federation  # noqa: E402

CASES = {}
WAY = re.compile(r"tensorpull: models by tensorpull to (\d+) of (\d+) nodes, updates from (\d+) of (\d+)")


def case(f):
    CASES[f.__name__] = f
    return f


def run(there, **config):
    """The run's result, and what was printed."""
    result = os.path.join(there.folder, "result.json")
    values = {"result": result, "megabytes": 10.0, **config}
    said = there.run(os.path.join(EXAMPLE, "app"), " ".join(f"{name}={json.dumps(value)}" for name, value in values.items()))
    try:
        with open(result) as f:
            found = json.load(f)
        os.unlink(result)
    except OSError:
        raise AssertionError(f"the run has no result\n{said[-6000:]}\n{there.said('supernode-0')[-3000:]}") from None
    return found, said


def ways(said):
    """Of each exchange: nodes with a reference, nodes, updates that were pulled, replies."""
    return [tuple(map(int, way)) for way in WAY.findall(said)]


def nothing_is_left(there):
    folder = os.path.join(there.folder, "tmp")
    assert not [name for name in os.listdir(folder) if name.startswith("tensorpull-flower.")], os.listdir(folder)
    for pid in there.processes():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                command = f.read()
        except OSError:
            continue
        if b"flwr-serverapp" in command:
            assert processes.eventually(lambda pid=pid: pid not in there.processes()), "the ServerApp does not end"


@case
def the_same_bits_as_stock():
    """Two nodes, whose sums are the same in any order."""
    with Federation(2) as there:
        stock, _ = run(there, stock=True)
        ours, said = run(there)
        assert ways(said) == [(2, 2, 2, 2), (2, 2, 0, 2)] * 3, ways(said)
        assert ours["sha256"] == stock["sha256"] and ours["rounds"] == 3 and ours["accuracy"] > 0.9, (ours, stock)
        nothing_is_left(there)


@case
def krum_keeps_the_update_that_stock_keeps():
    """Krum compares the updates in pairs and keeps one: of one node's bytes, in whatever order they arrive."""
    with Federation(4) as there:
        stock, _ = run(there, stock=True, nodes=4, rounds=2, strategy="Krum")
        ours, said = run(there, nodes=4, rounds=2, strategy="Krum")
        assert ways(said) == [(4, 4, 4, 4), (4, 4, 0, 4)] * 2, ways(said)
        assert ours["sha256"] == stock["sha256"] and ours["rounds"] == 2 and ours["accuracy"] > 0.9, (ours, stock)
        nothing_is_left(there)


@case
def a_node_that_has_a_folder_keeps_its_model_there():
    """A round begins with the model that was evaluated at the end of the last one."""
    with tempfile.TemporaryDirectory() as folder, Federation(1, configs={0: f'tensorpull-folder="{folder}"'}) as there:
        began = time.time()
        result, said = run(there, nodes=1, rounds=2)
        assert ways(said) == [(1, 1, 1, 1), (1, 1, 0, 1)] * 2 and result["accuracy"] > 0.5, (ways(said), result)
        assert os.listdir(folder) == ["last.safetensors"] and os.path.getmtime(f"{folder}/last.safetensors") > began and "is not kept" not in there.said("supernode-0")
        nothing_is_left(there)


@case
def a_node_with_keys_takes_models_that_one_of_them_has_signed_alone():
    """Nodes 0 and 1 have keys, of which only node 0's is that of the server; node 2 has none. The second run is of a server without a key."""
    from authority import signing_keys

    from tensorpull import _native

    if not _native.has_proofs:
        return print("left out: this build has no proofs")
    with tempfile.TemporaryDirectory() as folder:
        keys = signing_keys(pathlib.Path(folder), "ours", "other", federation="digits")
        with Federation(3, configs={i: f'tensorpull-keys="{keys / name}.line"' for i, name in enumerate(("ours", "other"))}) as there:
            result, said = run(there, nodes=3, rounds=2, key=str(keys / "ours.pem"))
            assert ways(said) == [(3, 3, 2, 3), (3, 3, 0, 3)] * 2 and result["accuracy"] > 0.5, (ways(said), result)
            assert said.count("Received 2 results and 1 failures") == 4
            assert "no trusted key has signed" in there.said("supernode-1") and "no signed model" not in there.said("supernode-0")
            result, said = run(there, nodes=3, rounds=2)
            assert said.count("Received 1 results and 2 failures") == 4 and result["rounds"] == 2, (ways(said), result)
            assert "it is not signed" in there.said("supernode-0") and "it is not signed" in there.said("supernode-1") and "no signed model" not in there.said("supernode-2")
            nothing_is_left(there)


@case
def a_node_that_cannot_import_it():
    """It gets Flower's own records; no round fails, and one warning names it."""
    with Federation(3, environments={1: {"PYTHONPATH": os.pathsep.join([os.path.join(HERE, "missing"), os.environ.get("PYTHONPATH", "")])}}) as there:
        result, said = run(there, nodes=3, rounds=2)
        assert ways(said) == [(2, 3, 2, 3), (2, 3, 0, 3)] * 2, ways(said)
        assert said.count("Flower's own records go to node") == 1 and "has no tensorpull" in said
        assert said.count("Received 3 results and 0 failures") == 4 and result["accuracy"] > 0.9
        nothing_is_left(there)


def main():
    for module in ("flwr", "numpy", "tensorpull"):
        if importlib.util.find_spec(module) is None:
            print(f"skipped: there is no {module}")
            return 77
    for name in sys.argv[1:] or CASES:
        began = time.monotonic()
        CASES[name]()
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    processes.limit(3500)
    sys.exit(main())
