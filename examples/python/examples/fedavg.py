"""Federated averaging: a server, and four clients that dial out, since nobody can reach them. One of them dies in the middle of its update, and the round goes on.

`python fedavg.py` runs all five on this machine; apart they are `python fedavg.py 0.0.0.0:8003` and `python fedavg.py client server:8003 1`, 2, 3 and 4.
"""

import functools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Union

import numpy as np
import tensorpull

CLIENTS, ROUNDS, SIZE = 4, 8, 512


def client(address: str, number: int) -> None:
    samples = 600 + 100 * number
    x = np.random.default_rng(number).standard_normal((samples, SIZE)).astype(np.float32)
    y = x @ np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32)  # what all of them are to learn
    with tensorpull.Session(address) as server:
        server.send(1, f"client-{number}".encode())
        while (task := server.receive()).references:
            w = server.download_tensors(task.references[0])["w"]
            loss = np.square(x @ w - y).mean()
            for _ in range(5):
                w -= 0.5 / samples * x.T @ (x @ w - y)
            ref = server.add_tensors({"w": w}, recipients=1)
            server.send(2, f"{samples} {loss}".encode(), [ref])
            server.serve(until=ref)  # the server pulls the update over this connection


def serve(door: tensorpull.Listener, watch: Callable[[int, str, tensorpull.Progress], None]) -> None:
    model = {"w": np.zeros((SIZE, SIZE), np.float32)}
    mean = tensorpull.WeightedAverage(base=model, out=model, partial="staged", chunk_size=1 << 14)
    clients = {session.receive().body.decode(): session for session in (door.accept() for _ in range(CLIENTS))}

    def one_round(name: str) -> Union[float, tensorpull.Error]:
        try:
            clients[name].send(1, references=[clients[name].add_tensors(model, recipients=1)])
            update = clients[name].receive()  # meanwhile the client pulls the model
            samples, loss = map(float, update.body.split())
            told = functools.partial(watch, mean.round, name)
            mean.pull(clients[name], update.references[0], samples, peer=name, round=mean.round, progress=told, progress_interval=0)
            return loss
        except tensorpull.Error as error:
            return error

    with ThreadPoolExecutor(CLIENTS) as pool:
        for _ in range(ROUNDS):
            for name, how in zip(tuple(clients), pool.map(one_round, tuple(clients))):
                print(f"{mean.round}  {name}  {how if isinstance(how, tensorpull.Error) else f'loss {how:.2f}'}", flush=True)
                if isinstance(how, tensorpull.Error):
                    clients.pop(name).close()
            mean.result()  # into the model
            mean.reset()
    for session in clients.values():
        session.send(1)  # without a reference: it was the last round


if __name__ == "__main__":
    def watch(round: int, name: str, now: tensorpull.Progress) -> None:
        if (round, name) == (3, "client-4") and now.bytes_done > now.bytes_total // 3:
            started[-1].kill()
            started[-1].wait()  # eight chunks of 64 are under way at most, so its update cannot be whole

    if sys.argv[1:2] == ["client"]:
        client(sys.argv[2], int(sys.argv[3]))
    else:
        with tensorpull.Listener(*sys.argv[1:]) as door:
            started = [subprocess.Popen([sys.executable, __file__, "client", door.address, str(n)]) for n in range(1, CLIENTS + 1 if len(sys.argv) == 1 else 1)]
            serve(door, watch)
        print([process.wait() for process in started])
