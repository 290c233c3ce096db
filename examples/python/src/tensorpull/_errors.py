"""The one exception of this package."""

from __future__ import annotations

import os


class Error(Exception):
    """What went wrong, as a value that programs can look at.

    `code`    one of `ERROR_CODES`, for example "unknown_reference", "timed_out", "cancelled", "schema_mismatch"
    `message` one sentence for people
    `name`    the tensor, address or client that it is about, or ""; cut after 55 bytes
    `landed`  of a download: how many bytes had arrived. 0: the tensors in `out` are as they were; otherwise they are unspecified
    `system`  errno if the operating system gave one, otherwise 0
    `at`      a number that says where, if it is no download; its meaning is the code's
    """

    def __init__(self, code: str, message: str, name: str = "", landed: int = 0, system: int = 0, at: int = 0) -> None:
        super().__init__(code, message, name, landed, system, at)
        self.code = code
        self.message = message
        self.name = name
        self.landed = landed
        self.system = system
        self.at = at

    def __str__(self) -> str:
        about = f" ({self.name})" if self.name else ""
        system = f": {os.strerror(self.system)}" if self.system > 0 else f": exit status {-self.system}" if self.system < 0 else ""
        landed = f", after {self.landed} bytes" if self.landed else ""
        return f"{self.message}{about}{system}{landed} [{self.code}]"
