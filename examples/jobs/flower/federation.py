"""Flower's own processes on this machine: a SuperLink, SuperNodes, and the programs that they start for an app, with the most memory that each has had."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

#: Seconds in which a busy machine starts or ends Flower's processes.
AMPLE = 120.0
PROGRAMS = os.path.dirname(sys.executable)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


class Federation:
    """`nodes` SuperNodes, whose partition-id is 0, 1, ... `configs`: more of each node's configuration, as TOML. `environments`: more of each node's environment. `host`: where nodes reach the server."""

    def __init__(
        self, nodes: int, configs: "dict[int, str] | None" = None, environments: "dict[int, dict[str, str]] | None" = None, host: str = "127.0.0.1"
    ) -> None:
        self.host = host
        self.nodes, self.configs, self.environments = nodes, configs or {}, environments or {}
        self.folder = tempfile.mkdtemp(prefix="tensorpull-flower-job-")
        self.port = free_port()
        self.peaks: "dict[str, float]" = {}  # MiB, by the program
        self._programs: "list[subprocess.Popen[bytes]]" = []
        self._over = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)
        os.makedirs(f"{self.folder}/home")
        os.makedirs(f"{self.folder}/tmp")
        with open(f"{self.folder}/home/config.toml", "w") as f:
            f.write(f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n')
        self.environment = {
            **os.environ, "PATH": PROGRAMS + os.pathsep + os.environ["PATH"], "HOME": self.folder, "FLWR_HOME": f"{self.folder}/home", "TMPDIR": f"{self.folder}/tmp",
            "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "COLUMNS": "200",
        }  # fmt: skip

    def __enter__(self) -> "Federation":
        self._start("superlink", ["flower-superlink", "--insecure", "--host", "127.0.0.1" if self.host == "127.0.0.1" else "0.0.0.0", "--port", str(self.port), "--disable-runtime-dependency-installation"])
        self._until(lambda: listens(self.port), "the SuperLink does not listen")
        for i in range(self.nodes):
            self.start_node(i)
        self._looking.start()
        return self

    def start_node(self, i: int, superlink: "int | None" = None) -> None:
        config = f"partition-id={i} {self.configs.get(i, '')}".strip()
        self._start(
            f"supernode-{i}", ["flower-supernode", "--insecure", "--superlink", f"{self.host}:{superlink or self.port}", "--port", str(free_port()), "--node-config", config],
            self.environments.get(i, {}),
        )  # fmt: skip

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for sig in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.processes():
                try:
                    os.kill(pid, sig)
                except ProcessLookupError:
                    pass
            end = time.monotonic() + (20.0 if sig == signal.SIGTERM else 5.0)
            while self.processes() and time.monotonic() < end:
                time.sleep(0.1)
        for program in self._programs:
            program.wait(AMPLE)
        if self._looking.is_alive():
            self._looking.join()
        if not os.environ.get("TENSORPULL_KEEP"):
            shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, app: str, config: str = "", seconds: float = 900.0) -> str:
        """Runs an app to its end, and returns what it printed."""
        command = ["flwr", "run", app, "here", "--stream", *(["--run-config", config] if config else [])]
        done = subprocess.run(command, env=self.environment, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=seconds)
        return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)

    def said(self, name: str) -> str:
        with open(f"{self.folder}/{name}.log", errors="replace") as f:
            return re.sub(r"\x1b\[[0-9;]*m", "", f.read())

    def processes(self) -> "list[int]":
        """Those of this federation, and nobody else's: the name of its folder is in their environment."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as e, open(f"/proc/{pid}/stat") as s:
                    if s.read().rpartition(")")[2].split()[0] != "Z" and self.folder.encode() in e.read() and int(pid) != os.getpid():
                        found.append(int(pid))
            except OSError:
                continue
        return found

    def _start(self, name: str, command: "list[str]", environment: "dict[str, str]" = {}) -> None:  # noqa: B006: it is only read
        with open(f"{self.folder}/{name}.log", "wb") as log:
            self._programs.append(
                subprocess.Popen(command, env={**self.environment, **environment}, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
            )

    def _until(self, true: "object", why: str) -> None:
        end = time.monotonic() + AMPLE
        while not true():  # type: ignore[operator]
            if time.monotonic() > end or any(program.poll() is not None for program in self._programs):
                raise RuntimeError(f"{why}\n{self.said('superlink')[-2000:]}")
            time.sleep(0.05)

    def _look(self) -> None:
        while not self._over.wait(0.1):
            for pid in self.processes():
                try:
                    with open(f"/proc/{pid}/cmdline", "rb") as c, open(f"/proc/{pid}/status") as s:
                        program = re.search(rb"/(flower-superlink|flwr-serverapp|flwr-clientapp|flower-supernode)\0", c.read())
                        peak = re.search(r"VmHWM:\s+(\d+)", s.read())
                except OSError:
                    continue
                if program and peak:
                    name = program[1].decode()
                    self.peaks[name] = max(self.peaks.get(name, 0.0), int(peak[1]) / 1024)
