"""The trainer of client.py in several processes of one machine, as FLARE's example multi-gpu/pt has it: torchrun starts them, and only the first talks to FLARE.

TENSORPULL_FIGURES: a file that each rank adds a line to when all have the model and before any has changed it: its number, its memory, and a digest of where the model's pages
are in the machine's memory, if the kernel shows it. TENSORPULL_WAIT: a file; as long as it is there, nobody goes on. TENSORPULL_STOCK: the model goes to the ranks as FLARE's users send it, pickled."""

import json
import os
import time

import torch
import torch.distributed as dist

import nvflare.client as flare
from tensorpull.nvflare import for_ranks

if os.environ.get("TENSORPULL_STOCK"):
    for_ranks = dict  # noqa: F811


def pages(tensor):
    """The kernel's number of each page of a tensor; 0 without the right to see it."""
    begin, end = tensor.data_ptr() // 4096, (tensor.data_ptr() + tensor.nbytes) // 4096
    touched = float(tensor.flatten()[::1024].float().sum())
    with open("/proc/self/pagemap", "rb") as f:
        f.seek(8 * begin)
        data = f.read(8 * (end - begin))
    return touched, [int.from_bytes(data[i : i + 8], "little") & (1 << 55) - 1 for i in range(0, len(data), 8)]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    flare.init(rank=rank)
    number = int(flare.get_site_name().rpartition("-")[2])
    while True:
        running = [flare.is_running() if rank == 0 else None]
        dist.broadcast_object_list(running, src=0)
        if not running[0]:
            break
        model = flare.receive()
        assert (model is None) == (rank != 0)
        box = [for_ranks(model.params) if rank == 0 else None]
        dist.broadcast_object_list(box, src=0)
        params = box[0]
        if os.environ.get("TENSORPULL_FIGURES"):
            held = [pages(t)[1] for t in params.values()]
            dist.barrier()
            with open("/proc/self/smaps_rollup") as f:
                pss = next(int(line.split()[1]) for line in f if line.startswith("Pss:"))
            line = {"site": number, "rank": rank, "pss": pss, "pages": hash(tuple(map(tuple, held))), "seen": any(map(any, held)), "pid": os.getpid()}
            with open(os.environ["TENSORPULL_FIGURES"], "a") as f:
                f.write(json.dumps(line) + "\n")
            dist.barrier()
            wait_for = os.environ.get("TENSORPULL_WAIT")
            while wait_for and os.path.exists(wait_for):
                time.sleep(0.05)
            dist.barrier()
        # each rank trains a part, and the parts are gathered
        mine = {name: params[name] + 1e-3 * number for i, name in enumerate(params) if i % dist.get_world_size() == rank}
        all_ = [None] * dist.get_world_size()
        dist.all_gather_object(all_, mine)
        if rank == 0:
            grown = {name: next(part[name] for part in all_ if name in part) for name in params}
            flare.send(flare.FLModel(params=grown, params_type="FULL", metrics={"accuracy": 0.5}, meta={"NUM_STEPS_CURRENT_ROUND": 1}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
