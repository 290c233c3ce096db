"""Waiting, stopping, failing, and what is left afterwards."""

from __future__ import annotations

import gc
import json
import os
import pickle
import re
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Mapping

import numpy as np
import pytest
from tqdm import tqdm
import processes
from processes import eventually

import tensorpull
from tensorpull import Error

BIG = 64 << 20


def big():
    return {f"t{i}": np.full(BIG // 64, i, "f8") for i in range(8)}


def run(program: str, *arguments: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(program), *arguments], capture_output=True, text=True, timeout=60, **options)


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def threads_at_rest() -> int:
    """Without those that have been joined, which the system lets go of a moment later."""
    count = threads()
    while True:
        processes.be_slow(0.1)
        if (now := threads()) == count:
            return count
        count = now


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class Signal:
    """As NVIDIA FLARE's."""

    triggered = False


@pytest.mark.parametrize("kind", ["event", "callable", "triggered"])
def test_T8_abort_is_heard_while_nothing_arrives(kind):
    event, flare = threading.Event(), Signal()
    set_at = []

    def set_later():
        processes.be_slow(0.3)
        set_at.append(time.monotonic())
        event.set()
        flare.triggered = True

    with tensorpull.Downloader() as silent:  # listens, and nobody serves: nothing is ever answered
        ref = silent.add_tensors({"a": np.zeros(3)})
        other = processes.JoinedThread(target=set_later)
        other.start()
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(silent.address, ref, abort={"event": event, "callable": event.is_set, "triggered": flare}[kind])
        took = time.monotonic() - set_at[0]
        other.join()
    assert (e.value.code, e.value.landed) == ("cancelled", 0)
    assert took < 30, took  # 0.06 s at most in 40 tries on a machine of two cores; here it must only not wait for a time-out of 60 s


def test_an_abort_that_raises_ends_the_download():
    with tensorpull.Downloader() as silent:
        ref = silent.add_tensors({"a": np.zeros(3)})
        with pytest.raises(ZeroDivisionError):
            tensorpull.download_tensors(silent.address, ref, abort=lambda: 1 // 0)


def test_ctrl_c_ends_a_download_and_nothing_stays():
    done = run(
        """
        import os, signal, threading, time, numpy as np, tensorpull
        silent = tensorpull.Downloader()
        ref = silent.add_tensors({"a": np.zeros(3)})
        files = len(os.listdir("/proc/self/fd"))
        sent = []
        def later():
            time.sleep(0.3)
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        killer = threading.Thread(target=later)
        killer.start()
        try:
            tensorpull.download_tensors(silent.address, ref)
        except KeyboardInterrupt:
            took = time.monotonic() - sent[0]
            killer.join()
            print(took, len(os.listdir("/proc/self/fd")) - files, threading.active_count())
        threading.Thread(target=later).start()
        try:
            silent.serve()
        except KeyboardInterrupt:
            print(time.monotonic() - sent[1])
        def settled(outcome):
            later()
            time.sleep(60)
        ref = silent.add_tensors({"a": np.zeros(3)}, recipients=1, settled=settled)
        threading.Thread(target=tensorpull.download_tensors, args=(silent.address, ref)).start()
        try:
            silent.serve()
        except KeyboardInterrupt:
            print(time.monotonic() - sent[2])
        """
    )
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    took, files, running = first.split()
    assert float(took) < 30 and float(second) < 30 and float(third) < 30 and files == "0" and running == "1"


def test_progress_never_goes_back_and_ends(owner):
    ref, events = owner.add_tensors(big()), []
    tensorpull.download_tensors(owner.address, ref, progress=events.append, progress_interval=0)
    assert [e.phase for e in (events[0], events[-1])] == ["started", "completed"]
    assert all(e.phase == "active" for e in events[1:-1]) and len(events) > 3
    assert [e.sequence for e in events] == list(range(1, len(events) + 1))
    done = [e.bytes_done for e in events]
    assert done == sorted(done) and done[-1] == events[-1].bytes_total == ref.nbytes
    assert events[-1].tensors_done == events[-1].tensors_total == 8 and events[-1].ref_id == ref.id


def test_a_bar_of_tqdm_is_progress(owner):
    ref = owner.add_tensors(big())
    with open(os.devnull, "w") as nowhere, tqdm(unit="B", unit_scale=True, file=nowhere) as bar:
        tensorpull.download_tensors(owner.address, ref, progress=bar)
        assert bar.n == bar.total == ref.nbytes


def test_an_exception_in_progress_ends_the_download_and_is_raised(owner):
    ref = owner.add_tensors(big(), recipients=1)

    def stop(event):
        if event.bytes_done:
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        tensorpull.download_tensors(owner.address, ref, progress=stop, progress_interval=0)


def test_the_owner_hears_of_an_abort(owner):
    heard = []
    ref = owner.add_tensors(big(), recipients=["site-1"], settled=heard.append)
    begun = threading.Event()

    def abort_soon(event):
        if event.bytes_done:
            begun.set()
            processes.be_slow(0.03)  # longer than from one look at `abort` to the next

    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, ref, recipient="site-1", chunk_size=65536, progress=abort_soon, progress_interval=0, abort=begun)
    assert e.value.code == "cancelled" and 0 < e.value.landed < ref.nbytes
    with pytest.raises(Error) as told:
        owner.wait(ref, 60)
    assert told.value.code == "not_delivered" and "0 of 1 recipients have it (1 cancelled)" in str(told.value)
    assert owner.outcome(ref).verdict == "failed" and owner.outcome(ref).counts.cancelled == 1 and owner.recipient_state(ref, "site-1") == "cancelled"
    assert eventually(lambda: heard)
    assert [o.verdict for o in heard] == ["failed"]


def test_errors_have_code_name_and_place(owner):
    def code(*arguments, **options):
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(*arguments, retries=0, **options)
        assert e.value.code in list(tensorpull.ErrorCode) and e.value.code in str(e.value)
        assert (lambda a: (a.code, a.name, a.landed))(pickle.loads(pickle.dumps(e.value))) == (e.value.code, e.value.name, e.value.landed)
        return e.value.code

    ref = owner.add_tensors({"a": np.zeros(3)})
    assert code(owner.address, "0" * 31 + "1") == "unknown_reference"
    assert code(owner.address, "not a reference") == "invalid_argument"
    assert code("127.0.0.1:1", ref) == "connection_failed"
    assert code("127.0.0.1", ref) == "bad_address"
    assert code(owner.address, ref, version=7) == "stale_version"
    with tensorpull.Downloader() as silent:
        assert code(silent.address, silent.add_tensors({"a": np.zeros(3)}), per_request_timeout=0.2) == "timed_out"
    owner.withdraw(ref)
    assert code(owner.address, ref) == "withdrawn"
    for arguments in ({"chunk_size": -1}, {"chunk_size": 1 << 30}, {"per_request_timeout": -1}, {"per_request_timeout": float("nan")}, {"framework": "jax"}):
        with pytest.raises(ValueError):
            tensorpull.download_tensors(owner.address, ref, **arguments)
    with pytest.raises(TypeError):
        tensorpull.download_tensors(owner.address, 7)


def test_arguments_that_make_no_sense_are_named(owner):
    tensors, unknown = {"a": np.zeros(3)}, "0" * 31 + "1"

    def refused(what, call, *arguments, **options):
        with pytest.raises((TypeError, ValueError)) as e:
            call(*arguments, **options)
        assert re.search(rf"\b{what}\b", str(e.value)) and "incompatible" not in str(e.value), (what, options, str(e.value))

    for recipients in ("site-1", b"site-1", None, -1, 2**40, 1.5, [1], [None]):
        refused("recipients", owner.add_tensors, tensors, recipients=recipients)
    assert owner.status(owner.add_tensors(tensors, recipients=np.int64(2), least=np.int64(1))).acquired == 0
    for options in ({"recipients": 1, "least": 2}, {"recipients": ["a", "b"], "least": 3}, {"least": -1}, {"least": None}, {"least": "1"}):
        refused("least", owner.add_tensors, tensors, **options)
    wrong = {"chunk_size": [-1, "x", 1.5], "metadata": [3], "ref_id": [3], "settled": [3], "progress": [3], "acquire_timeout": ["x", -1], "progress_interval": ["x"]}
    for what, values in wrong.items():
        for value in values:
            refused(what, owner.add_tensors, tensors, **{what: value})
    wrong = {"window": [-1, None, "x"], "retries": [-1, None], "max_bytes": [-1, "x"], "max_header_bytes": [-1, None], "max_tensors": [-1, None], "version": [-1, "x"],
             "recipient": [7], "per_request_timeout": ["x", -1], "chunk_size": [-1, "x"], "progress": [3], "abort": [3]}
    for what, values in wrong.items():
        for value in values:
            refused(what, tensorpull.download_tensors, owner.address, unknown, **{what: value})
    refused("address", tensorpull.download_tensors, None, unknown)
    refused("ref_id", tensorpull.download_tensors, owner.address, None)
    for call in (owner.status, owner.settled, owner.outcome, owner.withdraw, owner.wait):
        refused("ref_id", call, None)
    refused("name", tensorpull.recipient_named, None)
    refused("listen", tensorpull.Downloader, None)
    for value in (-1, 0, None, "x"):
        refused("max_connections", tensorpull.Downloader, max_connections=value)
    average = tensorpull.WeightedAverage(tensors)
    update = {"peer": "site-1", "round": 1}
    refused("weight", average.pull, owner.address, unknown, None, **update)
    for what, values in {"peer": [None, 7, ""], "round": [None, "1", 0, 2]}.items():
        for value in values:
            refused(what, average.pull, owner.address, unknown, 1.0, **{**update, what: value})
    refused("address", average.pull, None, unknown, 1.0, **update)

    class Twice(Mapping):  # a dict has each name once
        def __getitem__(self, name):
            return np.zeros(3)

        def __len__(self):
            return 2

        def __iter__(self):
            return iter(["w", "w"])

    for call in (owner.add_tensors, lambda twice: tensorpull.download_tensors(owner.address, unknown, out=twice), lambda twice: tensorpull.WeightedAverage(out=twice)):
        with pytest.raises(Error) as e:
            call(Twice())
        assert (e.value.code, e.value.name) == ("duplicate_name", "w")


@pytest.mark.parametrize("end", ["sys.exit(0)", "owner.close(); os._exit(0)", "del owner; gc.collect(); os._exit(0)", "refused(); os._exit(0)"])
@pytest.mark.parametrize("serving", [True, False])
def test_a_forked_child_that_ends_does_not_deafen_its_parent(end, serving):
    done = run(
        f"""
        import gc, os, sys, numpy as np, tensorpull
        owner = tensorpull.Downloader()
        ref = owner.add_tensors({{"w": np.ones(10, np.float32)}})
        def pull():
            return tensorpull.download_tensors(owner.address, ref, per_request_timeout=10, retries=0)["w"].sum()
        def refused():
            for call in (owner.serve, owner.start, lambda: owner.status(ref), lambda: owner.add_tensors({{}})):
                try:
                    call()
                    os._exit(1)
                except ValueError as e:
                    assert "fork" in str(e)
        if {serving}:
            owner.start()
            pull()
        pid = os.fork()
        if pid == 0:
            {end}
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        if not {serving}:
            owner.start()
        print(pull())
        owner.close()
        """
    )
    assert done.returncode == 0 and done.stdout == "10.0\n", done.stdout + done.stderr


def test_a_reference_is_text_and_more(owner):
    ref = owner.add_tensors({"a": np.zeros(3)}, chunk_size=4096)
    assert isinstance(ref, str) and ref == f"{ref.id}{ref.version:016x}" and len(ref.id) == 32 and json.loads(json.dumps({"ref": ref})) == {"ref": str(ref)}
    again = pickle.loads(pickle.dumps(ref))
    assert again == ref and (again.version, again.fingerprint, again.nbytes, again.chunk_size) == (ref.version, ref.fingerprint, ref.nbytes, 4096)
    assert type(str(ref)) is str
    assert tensorpull.download_tensors(owner.address, str(ref)).receipt.version == ref.version
    made = tensorpull.Reference(str(ref))
    assert made == ref and made.version == ref.version


def test_the_text_of_a_reference_says_which_bytes_are_right(owner):
    """Whoever answers may have other bytes, and say which version they are, or claim that they are the version that is asked for."""
    ref = owner.add_tensors({"a": np.zeros(3)})
    for known in (ref, str(ref), str(ref).upper()):
        assert not tensorpull.download_tensors(owner.address, known).receipt.believed
    for known, version in ((ref.id, None), (ref, 0), (str(ref), 0)):
        assert tensorpull.download_tensors(owner.address, known, version=version).receipt.believed
    assert not tensorpull.download_tensors(owner.address, ref.id, version=ref.version).receipt.believed
    for part in ({"out": {"a": np.ones(3)}, "subset": True}, {"names": ["a"]}, {"matching": ["*"]}):
        assert tensorpull.download_tensors(owner.address, ref, **part).receipt.believed
    for claimed, code in ((None, "stale_version"), (ref.version, "digest_mismatch")):
        owner.add_tensors({"a": np.ones(3)}, ref_id=ref, version=claimed)
        for known in (ref, str(ref)):
            with pytest.raises(Error) as e:
                tensorpull.download_tensors(owner.address, known, retries=0)
            assert e.value.code == code
    for wrong in (str(ref)[:-1], str(ref) + "0", str(ref)[:-1] + "x", str(ref)[:32] + " " * 16):
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(owner.address, wrong)
        assert e.value.code == "invalid_argument"


def test_C3_publishing_again_under_the_same_reference(owner):
    first = owner.add_tensors({"a": np.zeros(3)})
    second = owner.add_tensors({"a": np.ones(3)}, ref_id=first)
    assert second.id == first.id and second.version != first.version
    assert tensorpull.download_tensors(owner.address, second)["a"].tolist() == [1, 1, 1]
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, first)
    assert e.value.code == "stale_version"


def test_C3_a_reference_goes_on_meaning_its_own_version(owner):
    """Who asks about an earlier round, or withdraws it, does not do so with the next one."""
    ended = []
    first = owner.add_tensors({"a": np.zeros(3)}, recipients=["x", "y"], settled=ended.append)
    tensorpull.download_tensors(owner.address, first, recipient="x")
    second = owner.add_tensors({"a": np.ones(3)}, ref_id=first, recipients=["x", "z"])
    assert eventually(lambda: ended) and owner.settled(first) and not owner.settled(second)
    assert ended[0].recipients == owner.outcome(first).recipients == {"x": "completed", "y": "absent"}
    assert owner.outcome(second).recipients == owner.outcome(second.id).recipients == {"x": "unseen", "z": "unseen"}
    for waits in (lambda: owner.wait(first), lambda: owner.serve(until=first)):
        with pytest.raises(Error) as e:
            waits()
        assert e.value.code == "withdrawn"
    owner.withdraw(first)
    for name in ("x", "z"):
        assert tensorpull.download_tensors(owner.address, second, recipient=name)["a"].tolist() == [1, 1, 1]
    assert owner.wait(second, timeout=60) and owner.recipient_state(first, "y") == "absent"


def test_serving_on_the_callers_thread_until_something_is_true():
    with tensorpull.Downloader() as owner:
        assert owner.serve(timeout=0.1) is False
        assert owner.serve(until=lambda: True) is True
        assert owner.serve(until=[]) is True
        refs = [owner.add_tensors({"a": np.zeros(i)}, recipients=1) for i in range(3)]
        before = threads_at_rest()
        other = processes.JoinedThread(target=lambda: [tensorpull.download_tensors(owner.address, ref) for ref in refs])
        other.start()
        assert owner.serve(until=refs, timeout=30) is True
        assert threads() <= before + 1
        other.join()
        assert owner.serve(until=iter(refs), timeout=30) and owner.serve(until=dict.fromkeys(refs).keys(), timeout=30)
        with pytest.raises(TypeError, match="until"):
            owner.serve(until=7)
        assert [owner.outcome(ref).verdict for ref in refs] == ["completed"] * 3
        assert owner.status(refs[0]).completed == 1
    with pytest.raises(ValueError, match="closed"):
        owner.serve()
    owner.close()


def test_serving_in_the_background_leaves_no_thread_behind():
    before, files = threads_at_rest(), descriptors()
    for _ in range(5):
        with tensorpull.Downloader() as owner:
            owner.start()
            assert eventually(lambda: threads() == before + 1)
            with pytest.raises(RuntimeError):
                owner.start()
            tensorpull.download_tensors(owner.address, owner.add_tensors({"a": np.zeros(3)}))
            owner.stop()
            # a thread that was joined is gone for Python; the system's goes a moment later
            assert eventually(lambda: threads() == before)
            owner.start()
    assert eventually(lambda: threads() == before) and descriptors() == files


def serving():
    """The threads of owners that have one now."""
    return {thread for thread in threading.enumerate() if thread.name == "tensorpull"}


def test_of_several_threads_that_start_one_does():
    def start(owner, together, begun):
        together.wait(processes.AMPLE)
        try:
            begun.append(owner.start())
        except RuntimeError as e:
            assert "already" in str(e)

    before = serving()
    for _ in range(50):
        together, begun = threading.Barrier(3), []
        with tensorpull.Downloader() as owner:
            several = [processes.JoinedThread(target=start, args=(owner, together, begun)) for _ in range(3)]
            for thread in several:
                thread.start()
            for thread in several:
                thread.join()
            assert begun == [owner]
    assert serving() <= before


def test_a_callback_may_stop_the_thread_that_calls_it():
    before = serving()
    with tensorpull.Downloader() as owner:
        owner.start()
        ref = owner.add_tensors({"a": np.zeros(3)}, recipients=1, settled=lambda _: owner.stop())
        tensorpull.download_tensors(owner.address, ref)
        assert eventually(lambda: serving() <= before)
        owner.start()
        tensorpull.download_tensors(owner.address, owner.add_tensors({"a": np.zeros(3)}))


def test_a_time_out_of_nothing_is_a_short_one(owner):
    for what in ("acquire_timeout", "transaction_idle_timeout"):
        for seconds in (0, 0.0009):
            with pytest.raises(Error) as nobody:
                owner.wait(owner.add_tensors({"a": np.zeros(3)}, recipients=1, **{what: seconds}), timeout=60)
            assert nobody.value.code == "not_delivered"


def test_a_wait_hears_what_is_told_between_its_looks(owner, monkeypatch):
    ref, real, looks, waits = owner.add_tensors({"a": np.zeros(3)}), owner._owner, iter([False] * 12 + [True]), []

    class Slow:
        """Says so two looks after it has been told: a wait that is woken too early, and one that begins too late."""

        def settled(self, of):
            if len(waits) == 10:
                real.withdraw(of)
            return next(looks)

        def outcome(self, of):
            return real.outcome(of)

    monkeypatch.setattr(owner, "_owner", Slow())
    monkeypatch.setattr(owner._changed, "wait", waits.append)
    with pytest.raises(Error) as ended:
        owner.wait(ref)
    assert ended.value.code == "withdrawn"
    assert waits[9] == 0.1 and sum(waits[10:]) < 0.01


@pytest.mark.parametrize("seconds", [0, 0.5])
def test_a_keyboard_interrupt_of_a_callback_is_ctrl_c_in_a_call_that_waits_too(seconds):
    done = run(
        """
        import threading, time, numpy, tensorpull
        def settled(_):
            raise KeyboardInterrupt
        owner = tensorpull.Downloader().start()
        ref = owner.add_tensors({"a": numpy.zeros(3)}, recipients=1, settled=settled)
        try:
            threading.Timer(%s, tensorpull.download_tensors, (owner.address, ref)).start()
            time.sleep(600)
        except KeyboardInterrupt:
            print("heard", owner.wait(ref, 60))
        """
        % seconds
    )
    assert (done.returncode, done.stdout) == (0, "heard True\n"), done.stdout + done.stderr


def test_a_program_that_forgets_to_stop_ends_all_the_same():
    done = run("import tensorpull, numpy; owner = tensorpull.Downloader().start(); ref = owner.add_tensors({'a': numpy.zeros(3)}); print(ref)")
    assert done.returncode == 0 and len(done.stdout.strip()) == 48 and not done.stderr, done.stderr


def test_C6_a_callback_that_raises_is_reported_and_changes_nothing(owner, monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda info: reported.append(info.exc_type))

    def bad(*_):
        raise LookupError

    ref = owner.add_tensors({"a": np.zeros(3)}, recipients=1, settled=bad, progress=bad, progress_interval=0)
    tensorpull.download_tensors(owner.address, ref)
    assert owner.wait(ref, 60) and owner.outcome(ref).verdict == "completed"
    assert eventually(lambda: LookupError in reported)
    assert set(reported) == {LookupError}


def test_recipients_by_name_and_the_owners_progress(owner):
    events, ended = [], []
    ref = owner.add_tensors(big(), recipients=["a", "b"], settled=ended.append, progress=events.append, progress_interval=0)
    assert owner.recipient_state(ref, np.uint64(tensorpull.recipient_named("a"))) == "unseen"
    for who in ("a", "stranger", "b"):
        tensorpull.download_tensors(owner.address, ref, recipient=who)
    assert owner.wait(ref, 60)
    outcome = owner.outcome(ref)
    assert outcome.verdict == "completed" and outcome.expected == 2 and outcome.counts.completed == 2 and outcome.counts.unlisted == 1
    assert eventually(lambda: ended)
    assert ended == [outcome]
    assert {e.recipient for e in events if e.phase == "completed"} >= {tensorpull.recipient_named("a"), tensorpull.recipient_named("b")}


def test_more_that_are_enough_than_there_are_is_refused(owner):
    for recipients in (1, ["a"]):
        with pytest.raises(ValueError, match="least is at most the number of recipients, which is 1; not 2"):
            owner.add_tensors({"a": np.zeros(3)}, recipients=recipients, least=2)
    assert owner.add_tensors({"a": np.zeros(3)}, least=2)


def test_closing_settles_what_is_open_once():
    ended = []
    with tensorpull.Downloader() as owner:
        owner.add_tensors({"a": np.zeros(3)}, recipients=2, settled=ended.append)
        assert not ended
    owner.close()
    assert [(o.verdict, o.counts.absent) for o in ended] == [("withdrawn", 2)]


def test_sixteen_recipients_at_once(owner):
    sent = big()
    ref, failed = owner.add_tensors(sent, recipients=16), []

    def pull(i):
        got = tensorpull.download_tensors(owner.address, ref, chunk_size=65536 + 8 * i)
        if not all(np.array_equal(got[key], a) for key, a in sent.items()):
            failed.append(i)

    crowd = [processes.JoinedThread(target=pull, args=(i,)) for i in range(16)]
    for t in crowd:
        t.start()
    for t in crowd:
        t.join()
    assert not failed and owner.wait(ref, 60) and owner.outcome(ref).counts.completed == 16


def test_C7_memory_is_flat_over_45_rounds(owner):
    model = {"w": np.ones(1 << 20, "f4"), **{f"b{i}": np.ones(100, "f4") for i in range(200)}}

    def resident():
        gc.collect()
        with open("/proc/self/smaps_rollup") as f:  # exact, where the counters in statm lag
            return next(int(line.split()[1]) for line in f if line.startswith("Rss:")) << 10

    def a_round(i):
        ref = owner.add_tensors(model, recipients=2)
        for who in range(2):
            tensorpull.download_tensors(owner.address, ref, recipient=f"{i} {who}")
        gone = owner.add_tensors(model)
        with pytest.raises(Error):
            tensorpull.download_tensors(owner.address, gone, abort=lambda: True)
        owner.withdraw(gone)
        assert owner.wait(ref, 60)

    for i in range(30):
        a_round(i)
    before, files, running, blocks = resident(), descriptors(), threads_at_rest(), sys.getallocatedblocks()
    for i in range(30, 75):
        a_round(i)
    assert resident() - before < 2 << 20 and threads_at_rest() == running
    assert sys.getallocatedblocks() - blocks < 500
    assert eventually(lambda: descriptors() <= files)  # connections end a moment after their recipients


class Job:
    """Has what it has given its callback to, in one of the ways in which a program comes to that."""

    def __init__(self, kind: str, owner, listener) -> None:
        self.model = {"x": np.zeros(3)}
        getattr(self, kind)(owner, listener)

    def hear(self, _=None) -> bool:
        return False

    def failed(self, call, *arguments, **options):
        with pytest.raises(Error) as e:
            call(*arguments, **options)
        self.error = e.value  # whose traceback has the frames of the call

    def an_owner(self, *_):
        self.owner = tensorpull.Downloader()
        self.owner.add_tensors(self.model, settled=self.hear)

    def an_owner_of_transactions(self, *_):
        self.owner = tensorpull.Downloader()
        self.owner.add_transaction([self.model, self.model], progress=self.hear)

    def a_session(self, _, listener):
        self.session = tensorpull.Session(listener.address)
        self.session.add_tensors(self.model, settled=self.hear)

    def a_download_that_failed(self, *_):
        self.failed(tensorpull.download_tensors, "127.0.0.1:1", "ab" * 16, out=self.model, progress=self.hear, abort=self.hear, retries=0)

    def an_update_that_failed(self, *_):
        self.average = tensorpull.WeightedAverage(self.model)
        self.failed(self.average.pull, "127.0.0.1:1", "ab" * 16, 1, peer="a", round=1, progress=self.hear, retries=0)

    def a_publication_that_failed(self, owner, _):
        self.failed(owner.add_tensors, self.model, ref_id="0" * 32, settled=self.hear)


@pytest.mark.parametrize("kind", [name for name in vars(Job) if name.startswith("a")])
def test_what_refers_to_itself_through_a_callback_is_collected(kind):
    with tensorpull.Downloader() as owner, tensorpull.Listener() as listener:
        gc.collect()
        files = descriptors()
        job = Job(kind, owner, listener)
        known = weakref.ref(job)
        del job
        gc.collect()
        assert known() is None and descriptors() == files


def test_an_owner_that_is_collected_says_how_it_ended():
    class Server:
        def __init__(self):
            self.owner, self.heard = tensorpull.Downloader(), heard
            self.owner.add_tensors({"x": np.zeros(3)}, settled=self.hear)

        def hear(self, how):
            self.heard.append((how.verdict, self.owner.port != 0))

    heard: list = []
    Server()
    gc.collect()
    assert heard == [("withdrawn", True)]


def test_a_reference_that_nobody_knows_has_settled():
    with tensorpull.Downloader() as owner:
        unknown = "0" * 31 + "1"
        assert owner.settled(unknown)
        for call in (lambda: owner.serve(until=unknown, timeout=20), lambda: owner.wait(unknown, timeout=20)):
            with pytest.raises(Error) as error:
                call()
            assert error.value.code == "unknown_reference"


@pytest.mark.parametrize("waits", ["serve", "wait"])
def test_who_waits_for_a_reference_hears_that_not_everybody_has_it(owner, waits):
    def until(*refs):
        return getattr(owner, waits)(list(refs), timeout=60)

    taken = owner.add_tensors({"a": np.zeros(3)}, recipients=1)
    tensorpull.download_tensors(owner.address, taken)
    missed = owner.add_tensors({"a": np.zeros(3)}, recipients=["a", "b"], acquire_timeout=0)
    assert until(taken)
    with pytest.raises(Error) as error:
        until(taken, missed)
    assert error.value.code == "not_delivered" and "0 of 2 recipients have it (2 absent)" in str(error.value)
    gone = owner.add_tensors({"a": np.zeros(3)})
    owner.withdraw(gone)
    with pytest.raises(Error) as error:
        until(gone)
    assert error.value.code == "withdrawn"
