"""Why the memory of NVIDIA FLARE's server grows over rounds, in one process and without this library: upstream.py [--rounds N]. See upstream.md."""

import argparse
import ctypes
import gc
import re
import subprocess
import sys
import threading
import weakref

import numpy as np

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.shareable import Shareable

MIB = 1 << 20


def resident_mib() -> int:
    with open("/proc/self/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) >> 10


def begin_round(number: int, clients: list) -> "weakref.ref":
    """What WFCommServer does with a broadcast: a task with the model, and a ClientTask for each client, which refers to the task and is in its list."""
    model = np.ones(64 * MIB // 8)
    task = Task(name=f"train {number}", data=Shareable({"model": model}))
    for client in clients:
        sent = ClientTask(client, task)
        task.last_client_task_map[client.name] = sent
        task.client_tasks.append(sent)
    task.last_client_task_map.clear()  # as when FLARE is done with it
    return weakref.ref(model)


def tasks(rounds: int, collect: bool) -> None:
    clients = [Client(f"site-{i}", "token") for i in (1, 2)]
    alive = []
    for number in range(rounds):
        if collect:
            gc.collect()
        alive.append(begin_round(number, clients))
        print(f"  round {number}: {resident_mib()} MiB resident, {sum(model() is not None for model in alive)} models alive")


def arenas(rounds: int, own_pages: bool) -> None:
    if own_pages:
        ctypes.CDLL("libc.so.6").mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD
    small = []
    for number in range(rounds):
        # a message is taken apart in a thread of its own: it makes tensors of some MiB, and something small that lasts
        def take() -> None:
            for _ in range(4):
                blocks = [bytearray(6 * MIB) for _ in range(4)]
                small.append(bytearray(1000))
                del blocks

        all_of_them = [threading.Thread(target=take) for _ in range(16)]
        for thread in all_of_them:
            thread.start()
        for thread in all_of_them:
            thread.join()
        print(f"  round {number}: {resident_mib()} MiB resident when all tensors are freed")


PARTS = {
    "tasks": ("Tasks, as FLARE leaves them:", lambda rounds: tasks(rounds, collect=False)),
    "tasks_collected": ("Tasks, with gc.collect() at the start of a round:", lambda rounds: tasks(rounds, collect=True)),
    "arenas": ("Tensors that threads make and free, with glibc's own threshold:", lambda rounds: arenas(rounds, own_pages=False)),
    "arenas_fixed": ("The same with a fixed threshold of 1 MiB:", lambda rounds: arenas(rounds, own_pages=True)),
}


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("part", nargs="?", choices=PARTS)
    a = p.parse_args()
    if a.part:
        return PARTS[a.part][1](a.rounds)
    for part, (title, _) in PARTS.items():  # each in a process of its own
        print(title, flush=True)
        subprocess.run([sys.executable, __file__, "--rounds", str(a.rounds), part], check=True)


if __name__ == "__main__":
    main()
