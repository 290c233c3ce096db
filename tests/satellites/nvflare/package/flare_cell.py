"""What stands for a process of FLARE in tests that need no job."""

from __future__ import annotations

import types


class Cell:
    def __init__(self, fqcn):
        self._fqcn = fqcn
        self.core_cell = types.SimpleNamespace(root_url="tcp://localhost:8002", secure=False, get_fobs_context=dict)

    def get_fqcn(self):
        return self._fqcn
