"""What stands for a process of FLARE in tests that need no job, and for a firewall."""

from __future__ import annotations

import socket
import types

import pytest


class Cell:
    def __init__(self, fqcn):
        self._fqcn = fqcn
        self.core_cell = types.SimpleNamespace(root_url="tcp://localhost:8002", secure=False, get_fobs_context=dict)

    def get_fqcn(self):
        return self._fqcn


class Silence:
    """An address whose packets are dropped, as by a firewall: its queue of connections is full, and nobody accepts one."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.port = self._listener.getsockname()[1]
        self._waiting = [socket.socket() for _ in range(4)]
        for one in self._waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", self.port))
        with pytest.raises(TimeoutError):
            socket.create_connection(("127.0.0.1", self.port), timeout=0.5)

    def close(self):
        for one in (*self._waiting, self._listener):
            one.close()
