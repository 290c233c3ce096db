"""What the tests share: an owner that serves, generated dicts, and the rule about skipping."""

from __future__ import annotations

import json
import os
import pathlib
import pty
import select
import shutil
import signal
import subprocess
import sys
import tty

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import processes  # noqa: E402
from processes import eventually  # noqa: E402

import tensorpull  # noqa: E402

#: Set where nothing may be left out (tests/run.sh): a skipped test is a failed one, unless its reason says that it is "optional: ".
NOTHING_IS_SKIPPED = os.environ.get("TENSORPULL_NOTHING_IS_SKIPPED") == "1"

# a shell without job control ignores it for what runs in the background, and so would every program that the tests interrupt
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    config.limit_to = os.fdopen(os.dup(2), "w")  # what tests write to it is captured


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    processes.limit(300, item.config.limit_to)
    yield
    processes.limit(None)


@pytest.fixture
def owner():
    with tensorpull.Downloader() as made:
        made.start()
        yield made


@pytest.fixture
def line():
    """The names of two ttys that are joined by a line."""
    (left, left_tty), (right, right_tty) = pty.openpty(), pty.openpty()
    for tty_end in (left_tty, right_tty):
        tty.setraw(tty_end)
    waker, woken = os.pipe()

    def carry():
        while True:
            ready, _, _ = select.select([left, right, waker], [], [])
            if waker in ready:
                return
            for one in ready:
                data = os.read(one, 4096)
                while data:
                    data = data[os.write(right if one == left else left, data) :]

    thread = processes.JoinedThread(target=carry)
    thread.start()
    yield os.ttyname(left_tty), os.ttyname(right_tty)
    os.write(woken, b"x")
    thread.join()
    for end in (left, left_tty, right, right_tty, waker, woken):
        os.close(end)


@pytest.fixture
def nats_server(tmp_path):
    """The URL of a NATS server of its own."""
    program = shutil.which("nats-server", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("there is no nats-server")
    child = processes.Program([program, "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", tmp_path], stderr=subprocess.DEVNULL)
    try:
        ports = tmp_path / f"nats-server_{child.pid}.ports"
        assert eventually(lambda: ports.exists() and ports.read_text().endswith("}"))
        yield json.loads(ports.read_text())["nats"][0]
    finally:
        child.kill()
        child.wait()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.skipped and NOTHING_IS_SKIPPED and "optional: " not in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped: {report.longrepr}"


def pytest_collectreport(report):
    if report.skipped and NOTHING_IS_SKIPPED and "optional: " not in str(report.longrepr):
        raise pytest.UsageError(f"{report.nodeid} was skipped: {report.longrepr}")
