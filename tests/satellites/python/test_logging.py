"""What is logged, what is never in a log, and how the serving thread and the interpreter end."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import processes
from processes import eventually

import tensorpull
from tensorpull import Error


def test_events_are_logged_without_anything_that_one_could_pull_with(owner, caplog):
    with caplog.at_level(logging.DEBUG, logger="tensorpull"):
        ref = owner.add_tensors({"w": np.zeros(1000)}, recipients=["ada"])
        tensorpull.download_tensors(owner.address, ref, recipient="ada")
        assert eventually(lambda: "ended: completed" in caplog.text)
        other = owner.add_transaction([{"w": np.zeros(3)}, {"w": np.zeros(4)}])
        owner.withdraw(other[0])
        with pytest.raises(Error):
            tensorpull.download_tensors("nats://user:password@127.0.0.1:1" if tensorpull._native.has_nats else "127.0.0.1:1", ref, retries=0)
    text = caplog.text
    assert f"published {ref[:8]}...:" in text and "the transaction of" in text
    assert f"{ref[:8]}...: recipient " in text and "completed" in text
    assert f"{ref[:8]}... downloaded from {owner.address}" in text
    assert ref not in text and not any(each in text for each in other) and "password" not in text
    assert "%016x" % tensorpull.recipient_named("ada") not in text
    assert all(record.name == "tensorpull" for record in caplog.records)


def test_retries_are_logged(caplog):
    dead = processes.OwnPort().address
    with caplog.at_level(logging.WARNING, logger="tensorpull"), pytest.raises(Error):
        tensorpull.download_tensors(dead, "0" * 31 + "1", retries=1)
    assert caplog.text.count(f"no connection to {dead}: connection_failed") == 2


def test_nothing_is_printed_unless_logging_is_configured():
    done = run("""
        import tensorpull
        try:
            tensorpull.download_tensors("127.0.0.1:1", "0" * 31 + "1", retries=0)
        except tensorpull.Error:
            pass
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_callback_of_the_caller_is_called_as_before(owner, caplog):
    seen: list[str] = []
    with caplog.at_level(logging.INFO, logger="tensorpull"):
        ref = owner.add_tensors({"w": np.zeros(1000)}, recipients=1, progress=lambda p: seen.append(p.phase), settled=lambda how: seen.append(how.verdict))
        tensorpull.download_tensors(owner.address, ref)
        assert eventually(lambda: seen[-1:] == ["completed"] and len(seen) >= 3)
    assert seen[0] == "started"


def run(program: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("daemon", [False, True])
@pytest.mark.parametrize("end", ["", "sys.exit(0)", "raise SystemExit", "owner.close()", "owner.stop()", "del owner"])
def test_the_interpreter_ends_while_a_thread_serves(daemon, end):
    done = run(f"""
        import sys, numpy, tensorpull
        owner = tensorpull.Downloader().start(daemon={daemon})
        ref = owner.add_tensors({{"w": numpy.zeros(1000)}}, progress=lambda p: None, settled=lambda how: None)
        tensorpull.download_tensors(owner.address, ref)
        print("served", flush=True)
        {end}
    """)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["served"], "")


def test_a_daemon_in_a_callback_that_never_returns_does_not_hold_the_exit_up():
    done = run("""
        import threading, time, numpy, tensorpull
        inside = threading.Event()
        def for_ever(p):
            inside.set()
            while True:
                time.sleep(0.01)
        owner = tensorpull.Downloader().start(daemon=True)
        ref = owner.add_tensors({"w": numpy.zeros(1000)}, progress=for_ever)
        other = threading.Thread(target=lambda: tensorpull.download_tensors(owner.address, ref, retries=0, abort=inside.is_set), daemon=False)
        other.start()
        inside.wait()
        other.join()
        print("inside", flush=True)
    """)
    assert (done.returncode, done.stdout.split()) == (0, ["inside"]), done.stderr


def test_the_exit_waits_for_a_callback_of_a_thread_that_is_no_daemon():
    done = run("""
        import threading, time, numpy, tensorpull
        inside = threading.Event()
        def a_while(p):
            inside.set()
            time.sleep(0.5)
            print("returned", flush=True)
        owner = tensorpull.Downloader().start()
        ref = owner.add_tensors({"w": numpy.zeros(1000)}, progress=a_while)
        other = threading.Thread(target=lambda: tensorpull.download_tensors(owner.address, ref), daemon=False)
        other.start()
        inside.wait()
    """)
    assert done.returncode == 0 and done.stdout.split()[:1] == ["returned"], done.stderr
