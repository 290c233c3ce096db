"""Devices for the job of examples/jobs/nvflare_devices: digits that are made up, a serial line between two programs, and devices that misbehave."""

from __future__ import annotations

import os
import pty
import random
import select
import socket
import struct
import threading
import tty

import numpy as np

import tensorpull

JOIN, TASK, UPDATE = 2, 3, 4  # examples/jobs/federated/network.hpp


def write_digits(path, count):
    """Noisy copies of ten patterns, which are learnt quickly."""
    rng = random.Random(1)
    patterns = [[220 if rng.random() < 0.2 else 0 for _ in range(784)] for _ in range(10)]
    with open(path, "w") as f:
        for i in range(count):
            pixels = [p if rng.random() < 0.8 else rng.randrange(200) for p in patterns[i % 10]]
            f.write(",".join(map(str, [*pixels, i % 10])) + "\n")


class Wire(threading.Thread):
    """A serial line: `near` and `far` are the names of its ends."""

    def __init__(self):
        super().__init__(daemon=True)
        self._ends = [pty.openpty() for _ in range(2)]
        for _, name in self._ends:
            tty.setraw(name)
        self.near, self.far = (os.ttyname(name) for _, name in self._ends)
        self.start()

    def run(self):
        a, b = (main for main, _ in self._ends)
        while True:
            for ready in select.select([a, b], [], [])[0]:
                data = os.read(ready, 4096)
                while data:
                    data = data[os.write(b if ready == a else a, data) :]


class CutLine(threading.Thread):
    """Passes one connection on to a port of this machine, and cuts it when so many bytes have passed to there."""

    def __init__(self, port, after):
        super().__init__(daemon=True)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address, self._port, self._left = "tls://127.0.0.1:%d" % self._door.getsockname()[1], port, after
        self.start()

    def run(self):
        with self._door.accept()[0] as near, socket.create_connection(("127.0.0.1", self._port)) as far:
            while True:
                for ready in select.select([near, far], [], [])[0]:
                    data = ready.recv(min(4096, self._left))
                    (far if ready is near else near).sendall(data)
                    if ready is near:
                        self._left -= len(data)
                    if not data or not self._left:
                        return


class Client:
    """A device that has joined a round as one of the main job's clients, and has its model. It can be anything but honest."""

    def __init__(self, address, ssl, number, client):
        self.number, self.client = number, client
        self.session = tensorpull.Session(address, ssl=ssl)
        self.session.send(JOIN, struct.pack("<II", number, client))
        task = self.session.receive(60)
        assert task.kind == TASK and struct.unpack("<II", task.body)[0] == number
        self.model = self.session.download_tensors(task.references[0])

    def says(self, update, images=400):
        """Publishes an update, which is not pulled before serve()."""
        ref = self.session.add_tensors(update, recipients=1, chunk_size=16384)
        self.session.send(UPDATE, struct.pack("<III", self.number, self.client, images), [ref])
        return ref

    def serves(self, until):
        """Until that is settled, not as taken, or the site has closed the connection."""
        try:
            self.session.serve(until, timeout=60)
        except tensorpull.Error as e:
            assert e.code in ("not_delivered", "connection_lost", "truncated"), e  # as the site was found when it went
        self.session.close()


def comes_early(address, ssl):
    """Until a round is open: it is told so by a connection that ends."""
    while True:
        try:
            return Client(address, ssl, 1, 100).session.close()
        except tensorpull.Error as e:
            assert e.code == "connection_lost", e


def misbehave(address, ssl, without_certificate):
    """In round 1, which is open as long as the honest clients have not come. Each of these devices would spoil the model if a part of its update counted."""
    large = lambda model: {name: np.full_like(t, 1e6) for name, t in model.items()}  # noqa: E731
    comes_early(address, ssl)

    shape = Client(address, ssl, 1, 101)
    update = large(shape.model)
    update["hidden_bias"] = update["hidden_bias"][:-1]
    ref = shape.says(update)
    shape.serves(ref)

    name = Client(address, ssl, 1, 102)
    update = large(name.model)
    update["hidden_bus"] = update.pop("hidden_bias")
    name.serves(name.says(update))

    line = CutLine(int(address.rpartition(":")[2]), 200_000)
    gone = Client(line.address, ssl, 1, 103)
    gone.serves(gone.says(large(gone.model)))

    boasts = Client(address, ssl, 1, 104)
    boasts.serves(boasts.says(large(boasts.model), images=1_000_000))

    try:
        Client(address, without_certificate, 1, 105)
    except tensorpull.Error as e:
        assert e.code in ("not_authenticated", "connection_lost", "connection_failed"), e
    else:
        raise AssertionError("a device without a certificate has got the model")
