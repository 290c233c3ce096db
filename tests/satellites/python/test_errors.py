"""What errors say: which tensor, address, limit or file it is, and in which way; and which built-in exceptions they are."""

from __future__ import annotations

import errno
import inspect
import os
import pickle
import pydoc
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import safetensors.numpy
import processes

import tensorpull
from tensorpull import Downloader, Error, Landing, Listener, PublishedImage, Session

MODEL = {"b": np.ones(4), "w": np.arange(12, dtype=np.float32).reshape(3, 4)}
NOBODY = "0" * 31 + "1"


def out(**changed):
    made = {name: np.zeros_like(w) for name, w in MODEL.items()}
    for name, array in changed.items():
        if array is None:
            del made[name]
        else:
            made[name] = array
    return made


#: What is landed in, the tensor that the error names, and what its sentence says.
MISFITS = {
    "shape": (out(w=np.zeros((4, 3), np.float32)), "w", "another shape: it is F32 (4, 3) here, and F32 (3, 4) is published"),
    "dtype": (out(w=np.zeros((3, 4))), "w", "another dtype: it is F64 (3, 4) here, and F32 (3, 4) is published"),
    "missing": (out(b=None), "b", "a tensor is published that out does not have"),
    "extra": (out(c=np.zeros(1)), "c", "out has a tensor that is not published"),
}


@pytest.mark.parametrize("link", ["127.0.0.1:0", "unix:@tensorpull-misfits", "udp://127.0.0.1:0", "session"])
@pytest.mark.parametrize("misfit", MISFITS)
def test_tensors_that_do_not_fit_are_told_apart(misfit, link):
    mine, name, says = MISFITS[misfit]
    if link == "session":
        with Listener() as door, Session(door.address) as client, door.accept(timeout=60) as server:
            ref, over = client.add_tensors(MODEL), threading.Event()
            serving = processes.JoinedThread(target=lambda: client.serve(until=over))
            serving.start()
            with pytest.raises(Error) as e:
                server.download_tensors(ref, out=mine)
            over.set()
            serving.join()
    else:
        with Downloader(link).start() as owner:
            ref = owner.add_tensors(MODEL)
            with pytest.raises(Error) as e:
                tensorpull.download_tensors(owner.address, ref, out=mine)
    assert (e.value.code, e.value.name, e.value.landed) == ("schema_mismatch", name, 0) and says in str(e.value), str(e.value)


def test_what_does_not_fit_over_http_is_told_apart():
    with Downloader(http="127.0.0.1:0").start() as owner:
        ref = owner.add_tensors(MODEL)
        for mine, name, says in MISFITS.values():
            with pytest.raises(Error) as e:
                tensorpull.download_tensors(owner.url(ref), ref, bearer=ref, out=mine)
            assert (e.value.code, e.value.name) == ("schema_mismatch", name) and says in str(e.value), str(e.value)


def test_a_part_that_does_not_fit_is_told_apart(owner):
    ref = owner.add_tensors(MODEL)
    for mine, code, says in (({"c": np.zeros(1)}, "bad_request", "no tensor of this name is published (c)"), ({"w": np.zeros((4, 3), np.float32)}, "schema_mismatch", "another shape")):
        with pytest.raises(Error, match=".") as e:
            tensorpull.download_tensors(owner.address, ref, out=mine, subset=True)
        assert e.value.code == code and says in str(e.value), str(e.value)


def test_ties_that_the_owner_has_not_are_said(owner):
    one = np.zeros(4)
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, owner.add_tensors({"a": np.ones(4), "b": np.ones(4)}), out={"a": one, "b": one})
    assert (e.value.code, e.value.name) == ("schema_mismatch", "b") and "what is published has not tied them" in str(e.value), str(e.value)


def test_a_landing_says_which_tensor_does_not_fit():
    image = PublishedImage(MODEL)
    for mine, name, says in (MISFITS["shape"], MISFITS["dtype"], MISFITS["missing"]):
        landing = Landing(image.nbytes, out=mine)
        with pytest.raises(Error) as e:
            landing.write(0, image.read())
        assert (e.value.code, e.value.name) == ("schema_mismatch", name) and says.split(":")[0].replace("published that", "") in str(e.value) or "out does not have" in str(e.value), str(e.value)
        for again in (lambda: landing.write(0, b"x"), lambda: landing.finish(0), lambda: landing.write(0, b"x")):
            with pytest.raises(Error, match="the landing has ended") as e:
                again()
            assert e.value.code == "invalid_argument"
    landing = Landing(image.nbytes, out=MISFITS["extra"][0])
    landing.write(0, image.read())
    with pytest.raises(Error, match="does not have") as e:
        landing.finish(0)
    assert e.value.name == "c"


def test_a_limit_is_the_callers_and_is_named(owner, tmp_path):
    ref = owner.add_tensors(MODEL)
    pull = tensorpull.download_tensors
    for call, says in (
        (lambda: pull(owner.address, ref, max_bytes=10), "the bytes of the tensors that are published are 80, and max_bytes is 10"),
        (lambda: pull(owner.address, ref, max_tensors=1), "the tensors that are published are 2, and max_tensors is 1"),
        (lambda: pull(owner.address, ref, max_header_bytes=16), "max_header_bytes is 16"),
        (lambda: pull(owner.address, ref, names=["w"], max_bytes=10), "the bytes of the tensors that are asked for are 48, and max_bytes is 10"),
        (lambda: tensorpull.list_tensors(owner.address, ref, max_tensors=1), "the tensors that are published are 2, and max_tensors is 1"),
        (lambda: tensorpull.download_file(owner.address, ref, tmp_path / "x", max_bytes=10), "and max_bytes is 10"),
    ):
        with pytest.raises(Error) as e:
            call()
        assert e.value.code == "too_large" and says in str(e.value) and "other side" not in str(e.value), str(e.value)


def test_an_address_or_a_reference_that_is_none_says_what_is_wanted(owner):
    ref = owner.add_tensors(MODEL)
    for address in ("localhost", "htp://localhost:9", ""):
        for call in (lambda: tensorpull.download_tensors(address, ref), lambda: Session(address), lambda: Listener(address), lambda: Downloader(address)):
            with pytest.raises(Error, match="host:port is wanted") as e:
                call()
            assert e.value.code == "bad_address"
    for call in (lambda: tensorpull.download_tensors(owner.address, "hello"), lambda: owner.withdraw("hello"), lambda: owner.add_tensors(MODEL, ref_id="hello")):
        with pytest.raises(Error, match="32 hexadecimal digits are wanted") as e:
            call()
        assert (e.value.code, e.value.name) == ("invalid_argument", "hello")
    with pytest.raises(Error, match="shm:path"):
        tensorpull.view_tensors(owner.address, ref)
    with pytest.raises(Error, match="listen"):
        Downloader("pipe:true")


def test_a_port_in_use_is_an_oserror():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for call in (lambda: Downloader(address), lambda: Listener(address), lambda: Downloader(http=address)):
            with pytest.raises(OSError, match="cannot be listened on.*Address already in use") as e:
                call()
            assert isinstance(e.value, Error) and (e.value.code, e.value.errno, e.value.name) == ("connection_failed", errno.EADDRINUSE, address)


def test_http_without_a_key_says_so():
    with Downloader(http="127.0.0.1:0").start() as owner:
        ref = owner.add_tensors(MODEL)
        for more, says in (({}, "bearer=... is sent to it"), ({"bearer": NOBODY}, None)):
            with pytest.raises(Error) as e:
                tensorpull.download_tensors(owner.url(ref), ref, **more)
            assert e.value.code in ("not_permitted", "unknown_reference")
            if says:
                assert e.value.code == "not_permitted" and says in str(e.value) and e.value.name == owner.url(ref), str(e.value)


def test_files_raise_oserrors_with_their_paths(owner, tmp_path):
    ref = owner.add_tensors(MODEL)
    there = tmp_path / ("a folder with a name that is longer than an error of the compiled half has room for" * 2)
    with pytest.raises(FileNotFoundError) as e:
        tensorpull.download_file(owner.address, ref, there / "x")
    assert isinstance(e.value, Error) and e.value.code == "io" and e.value.filename == e.value.name == str(there / "x") and e.value.errno == errno.ENOENT
    assert str(there / "x") in str(e.value) and "No such file" in str(e.value)
    (tmp_path / "x").write_text("other")
    with pytest.raises(FileExistsError) as e:
        tensorpull.download_file(owner.address, ref, tmp_path / "x")
    assert e.value.filename == str(tmp_path / "x")
    with pytest.raises(IsADirectoryError):
        tensorpull.download_file(owner.address, ref, tmp_path, overwrite=True)


def test_time_outs_are_timeouterrors_and_lost_connections_connectionerrors(owner):
    ref = owner.add_tensors(MODEL)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(TimeoutError) as e:
            tensorpull.download_tensors(f"127.0.0.1:{silent.getsockname()[1]}", ref, per_request_timeout=0.05, retries=0)
        assert isinstance(e.value, Error) and e.value.code == "timed_out" and isinstance(e.value, OSError)
    with processes.OwnPort() as nobody, pytest.raises(ConnectionRefusedError) as e:
        tensorpull.download_tensors(nobody.address, ref, per_request_timeout=1, retries=0)
    assert e.value.code == "connection_failed" and e.value.errno == errno.ECONNREFUSED
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, NOBODY)
    assert not isinstance(e.value, OSError)


@pytest.mark.parametrize("arguments", [("timed_out", "m"), ("io", "m", "/x", 0, errno.EACCES), ("cancelled", "m", "", 3), ("withdrawn", "m", "", 0, 2), ("connection_lost", "m", "", 0, -3)])
def test_an_error_travels_between_processes(arguments):
    sent = Error(*arguments)
    got = pickle.loads(pickle.dumps(sent))
    assert type(got) is type(sent) and got.args == sent.args and str(got) == str(sent) and got.code == sent.code
    assert isinstance(got, OSError) == (arguments[0] in ("timed_out", "io", "connection_lost"))


def test_every_code_makes_an_error():
    for code in tensorpull.ErrorCode:
        for system in (0, errno.ENOENT, errno.ECONNRESET, errno.EADDRINUSE, 9999, -1):
            error = Error(code, "m", "n", 0, system)
            assert isinstance(error, Error) and error.code == code and error.system == system and str(error).startswith("m (n)")


def test_each_code_has_a_cause_and_a_remedy():
    compiled, known = tensorpull._native.error_codes, tensorpull._codes._KNOWN
    assert sorted(known) == sorted(code.value for code in tensorpull.ErrorCode) and len(set(known.values())) == len(known)
    assert [code for code in compiled if code not in list(tensorpull.ErrorCode)] == [] and [code for code in tensorpull.ErrorCode if code not in compiled] == []
    page = " ".join(pydoc.plain(pydoc.render_doc(tensorpull.ErrorCode)).replace("|", " ").split())
    for code in tensorpull.ErrorCode:
        assert code == code.name == str(code) == f"{code}" and tensorpull.ErrorCode(code.value) is code and pickle.loads(pickle.dumps(code)) is code
        assert code.sentence == compiled[code] and f" {code} {code.cause} {code.remedy} " in page
        assert code.cause.rstrip(".").lower() != code.sentence and all(text[0].isupper() or text[0] == "`" for text in (code.cause, code.remedy)), code
    for texts in ([code.cause for code in tensorpull.ErrorCode], [code.sentence for code in tensorpull.ErrorCode]):
        assert len(set(texts)) == len(texts)
    assert "tensorpull.ErrorCode" in tensorpull.Error.__doc__ and Error("timed_out", "m").code == tensorpull.ErrorCode.timed_out


def test_what_a_remedy_names_is_there():
    """Arguments and calls in code's letters are of this package."""
    calls = [tensorpull.Downloader, tensorpull.download_tensors, tensorpull.download_file, tensorpull.list_tensors, tensorpull.TLS, tensorpull.Session, tensorpull.WeightedAverage, tensorpull.Weighing]
    calls += [tensorpull.Downloader.add_tensors, tensorpull.Weighing.result, tensorpull.Downloader.serve, tensorpull.PublishedImage.read]
    known = {parameter for call in calls for parameter in inspect.signature(call).parameters} | {name for kind in (tensorpull, *calls, tensorpull.Session, tensorpull.Outcome, tensorpull.Status, Error) for name in dir(kind)}
    known |= {"message", "name", "system", "filename", "nbytes", "https_proxy", "no_proxy", "to_dense", "contiguous", "__metadata__", "counts", "landed"}
    for code in tensorpull.ErrorCode:
        for quoted in re.findall(r"`([^`]+)`", f"{code.cause} {code.remedy}"):
            named = re.match(r"\.?(\w+)(?=$|[(=.])", quoted)
            assert named is None and re.match(r"\w+:|--shm", quoted) or named and named[1] in known, (code, quoted)


def test_what_happened_is_said_in_the_callers_words(owner):
    """One row for each mistake: what is called, what it raises, and what helps."""
    file = safetensors.numpy.save(MODEL)
    plain, web = processes.Answers(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(file) + file), processes.Answers(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    ref = owner.add_tensors(MODEL)
    whole = {"w": np.zeros(3, np.float32)}
    average = tensorpull.WeightedAverage(whole)
    once = {"retries": 0}
    rows = [
        (lambda: tensorpull.download_tensors("owner.invalid:1", NOBODY, **once), socket.gaierror, "not known here.*owner.invalid:1"),
        (lambda: tensorpull.download_tensors("udp://owner.invalid:1", NOBODY, **once), socket.gaierror, "not known here"),
        (lambda: tensorpull.Session("owner.invalid:1", **once), socket.gaierror, "not known here"),
        (lambda: tensorpull.download_tensors("a..b:1", NOBODY), Exception, "address is not valid"),
        (lambda: average.pull(owner.address, ref, 0, peer="site-1", round=1), Exception, "a weight is a finite number above 0, and not 0.*site-1"),
        (lambda: tensorpull.Weighing(whole).add("site-1", float("nan"), whole), Exception, "a weight is a finite number above 0, and not nan.*site-1"),
        (lambda: tensorpull.WeightedAverage({"yes": np.zeros(3, bool)}), Exception, "no mean: leave the tensor out.*yes"),
        (lambda: tensorpull.Weighing({"yes": np.zeros(3, bool)}), Exception, "no mean: leave the tensor out.*yes"),
        (lambda: tensorpull.download_tensors("http://owner.invalid/m", **once), socket.gaierror, "not known here"),
        (lambda: tensorpull.download_tensors(f"http://{plain.at}/m"), Exception, "digest=.*unverified=True"),
        (lambda: tensorpull.download_tensors(f"http://{plain.at}/m", digest="sha256:"), Exception, "64 hexadecimal digits"),
    ]
    if tensorpull._native.has_tls:
        rows.append((lambda: tensorpull.download_tensors(f"tls://{web.at}", NOBODY), ConnectionError, "could not agree on TLS.*wrong version number"))
    for call, kind, wanted in rows:
        with pytest.raises(Error, match=wanted) as e:
            call()
        assert isinstance(e.value, kind) and "the owner" not in str(e.value), e.value
    assert web.came <= 1, "what is final is not tried again"


@pytest.mark.parametrize("system", [2**31, 2**40, -(2**31) - 1])
def test_a_number_of_the_system_is_one(system):
    with pytest.raises(ValueError, match="system is a number of 32 bits"):
        Error("io", "m", system=system)


def test_a_subset_that_is_a_list_says_what_it_is(owner):
    with pytest.raises(TypeError, match="subset is True or False.*names"):
        tensorpull.download_tensors(owner.address, NOBODY, out=out(), subset=["w"])


def test_without_numpy_the_error_says_what_to_do(owner, tmp_path):
    ref = owner.add_tensors(MODEL)
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError(\"No module named 'numpy'\", name='numpy')\n")
    program = f"""
        import tensorpull
        for call in (tensorpull.download_tensors, tensorpull.view_tensors):
            try: call({owner.address!r}, {str(ref)!r})
            except ModuleNotFoundError as e: print(e)
    """
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60)
    assert done.stdout.count('framework="torch"') == 2 and done.stdout.count("pip install numpy") == 2, done


def test_framework_is_one_of_two_for_type_checkers_too():
    hints = [tensorpull.download_tensors, tensorpull.view_tensors, tensorpull.Session.download_tensors, tensorpull.Landing.__init__]
    assert all("Framework" in call.__annotations__["framework"] for call in hints)
    assert tensorpull._types.Framework.__args__ == ("numpy", "torch")


@pytest.mark.parametrize("call", ["owner.add_tensors(big)", "owner.add_transaction([small, big])", "tensorpull.PublishedImage(big)"])
def test_ctrl_c_is_heard_while_a_digest_is_computed(call):
    """A terabyte, all of it one byte: the digest would take minutes."""
    program = f"""
        import numpy as np, tensorpull
        big, small = {{"a": np.broadcast_to(np.int8(1), (1 << 40,))}}, {{"b": np.ones(3)}}
        owner = tensorpull.Downloader()
        print("begins", flush=True)
        try: {call}
        except KeyboardInterrupt: print("heard", owner.connections, owner.settled("0" * 31 + "1"))
    """
    with processes.Program([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begins\n"
        processes.be_slow(0.3)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[0] == "heard 0 True\n"
    assert process.returncode == 0


def test_a_downloader_that_is_closed_does_not_start():
    owner = Downloader()
    owner.close()
    with pytest.raises(ValueError, match="closed"):
        owner.start()
