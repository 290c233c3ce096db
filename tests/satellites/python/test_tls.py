"""TLS: which peers are accepted at either end, and that no others are."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

import numpy as np
import pytest
import processes

import tensorpull
from tensorpull import TLS, Downloader, Error, Listener, Session

MODEL = {"w": np.arange(50_000, dtype=np.float32)}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """An authority, what it has signed, and another authority: made when the tests run, so no key lies in the tree."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments):
        processes.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    for name in ("ca", "other"):
        openssl("req", "-x509", *key, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    for name, names in (("server", "IP:127.0.0.1,DNS:localhost"), ("client", "DNS:site-1")):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / "names").write_text(f"subjectAltName={names}\n")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.pem", "-extfile", "names")
    return folder


@pytest.fixture
def server(certificates):
    return TLS(cert_file=certificates / "server.pem", key_file=certificates / "server.key")


@pytest.fixture
def client(certificates):
    return TLS(ca_file=certificates / "ca.pem")


def test_others_run_while_a_file_is_read(certificates):
    program = """
        import os, sys, tensorpull, threading
        os.mkfifo("pipe")
        made = []
        reader = threading.Thread(target=lambda: made.append(tensorpull.TLS(cert_file=sys.argv[1], key_file="pipe")))
        reader.start()
        with open("pipe", "wb") as pipe:  # waits for the reader, which waits for what is written
            pipe.write(open(sys.argv[2], "rb").read())
        reader.join()
        assert made
    """
    folder = tempfile.mkdtemp(dir=certificates)
    arguments = [str(certificates / name) for name in ("server.pem", "server.key")]
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program), *arguments], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_an_owner_and_a_download(server, client):
    with Downloader("tls://127.0.0.1:0", ssl=server) as owner:
        owner.start()
        assert owner.address.startswith("tls://127.0.0.1:")
        ref = owner.add_tensors(MODEL, recipients=1)
        got = tensorpull.download_tensors(owner.address, ref, ssl=client)
        assert np.array_equal(got["w"], MODEL["w"])
        assert owner.wait(ref, timeout=60)
        mean = tensorpull.weighted_average([(owner.address, owner.add_tensors(MODEL), 1.0)], like=MODEL, ssl=client)
        assert np.array_equal(mean["w"], MODEL["w"])


def test_several_connections(server, client, certificates):
    with Downloader("tls://127.0.0.1:0", ssl=server) as a, Downloader("tls://127.0.0.1:0", ssl=server) as b:
        ref = a.start().add_tensors(MODEL, recipients=1)
        b.start().add_tensors(MODEL, ref_id=ref.id)
        got = tensorpull.download_tensors([a.address, b.address], ref, ssl=client, connections=4, chunk_size=4096)
        assert np.array_equal(got["w"], MODEL["w"]) and got.receipt.confirmed
        with pytest.raises(Error) as e:  # each owner has to be one that this end trusts
            tensorpull.download_tensors([a.address, b.address], ref, ssl=TLS(ca_file=certificates / "other.pem"), connections=4, retries=0)
        assert e.value.code == "not_authenticated"


def test_a_key_that_does_not_fit_its_certificate_is_named(certificates, tmp_path):
    key = str(certificates / "client.key")
    with pytest.raises(Error, match="the key is not that of the certificate") as e:
        TLS(cert_file=certificates / "server.pem", key_file=key)
    assert (e.value.code, e.value.name) == ("bad_file", key)
    good = TLS(cert_file=certificates / "server.pem", key_file=certificates / "server.key")
    assert good.reload() is None
    # names are any bytes
    odd = os.fsencode(tmp_path) + b"/\xff" + b"n" * 60
    for name in (odd, os.fsdecode(odd)):
        with pytest.raises(FileNotFoundError):
            TLS(ca_file=name)
    os.symlink(certificates / "ca.pem", odd)
    assert TLS(ca_file=odd).reload() is None and TLS(ca_file=os.fsdecode(odd)).reload() is None
    nowhere = str(tmp_path / ("a long name " * 10) / "ca.pem")
    with pytest.raises(FileNotFoundError) as e:
        TLS(ca_file=nowhere)
    assert e.value.filename == nowhere and isinstance(e.value, Error)


def test_sessions_in_both_directions(server, client):
    with Listener("tls://127.0.0.1:0", ssl=server) as door:
        made = []
        dial = processes.JoinedThread(target=lambda: made.append(Session(door.address, ssl=client)))
        dial.start()
        with door.accept(timeout=60) as inside:
            dial.join()
            with made[0] as site:

                def pull():
                    message = inside.receive(timeout=60)
                    made.append(inside.download_tensors(message.references[0]))

                other = processes.JoinedThread(target=pull)
                other.start()
                ref = site.add_tensors(MODEL, recipients=1)
                site.send(1, references=[ref])
                assert site.serve(until=ref, timeout=60)
                other.join()
        assert np.array_equal(made[1]["w"], MODEL["w"])


@pytest.mark.parametrize("how", ["another authority", "the system's authorities", "another name"])
def test_a_server_that_is_not_trusted_is_refused(certificates, server, how):
    with Downloader("tls://127.0.0.1:0", ssl=server) as owner:
        owner.start()
        ref = owner.add_tensors(MODEL)
        ssl = {
            "another authority": lambda: TLS(ca_file=certificates / "other.pem"),
            "the system's authorities": lambda: None,
            "another name": lambda: TLS(ca_file=certificates / "ca.pem", check_hostname="elsewhere"),
        }[how]()
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(owner.address, ref, ssl=ssl, retries=0)
        assert (e.value.code, e.value.landed) == ("not_authenticated", 0)
        good = TLS(ca_text=(certificates / "ca.pem").read_text(), check_hostname="localhost")
        assert len(tensorpull.download_tensors(owner.address, ref, ssl=good)) == 1


def test_X6_clients_need_certificates_where_they_have_to(certificates, client):
    ssl = TLS(
        cert_file=certificates / "server.pem", key_file=certificates / "server.key", ca_file=certificates / "ca.pem", require_client_certificates=True,
    )  # fmt: skip
    with Downloader("tls://127.0.0.1:0", ssl=ssl) as owner:
        owner.start()
        ref = owner.add_tensors(MODEL)
        with pytest.raises(Error):
            tensorpull.download_tensors(owner.address, ref, ssl=client, retries=0)
        mine = TLS(ca_file=certificates / "ca.pem", cert_file=certificates / "client.pem", key_text=(certificates / "client.key").read_text())
        assert len(tensorpull.download_tensors(owner.address, ref, ssl=mine)) == 1


def test_who_does_not_shake_hands_is_nobodys_connection(server):
    with Listener("tls://127.0.0.1:0", ssl=server) as door:
        with socket.create_connection(("127.0.0.1", door.port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert door.accept(timeout=0.2) is None
        stop = threading.Event()
        with socket.create_connection(("127.0.0.1", door.port)):  # says nothing
            threading.Timer(0.3, stop.set).start()
            begun = time.monotonic()
            with pytest.raises(Error) as e:
                door.accept(abort=stop)
            assert e.value.code == "cancelled"
            assert time.monotonic() - begun < 9, "it did not wait for the stranger"


def test_those_that_say_nothing_keep_nobody_out(server, client):
    with Listener("tls://127.0.0.1:0", ssl=server) as door:
        silent = [socket.create_connection(("127.0.0.1", door.port)) for _ in range(200)]
        assert door.accept(timeout=0.1) is None
        made = []
        connecting = processes.JoinedThread(target=lambda: made.append(Session(door.address, timeout=60, ssl=client)))
        connecting.start()
        tries = (door.accept(timeout=0.5) for _ in range(100))
        assert next((session for session in tries if session is not None), None) is not None
        connecting.join()
        assert len(made) == 1
        for one in silent:
            one.close()


def test_certificates_are_read_again(certificates, client, tmp_path):
    for name in ("pem", "key"):
        (tmp_path / name).write_bytes((certificates / f"server.{name}").read_bytes())
    ssl = TLS(cert_file=tmp_path / "pem", key_file=os.fspath(tmp_path / "key"))
    with Downloader("tls://127.0.0.1:0", ssl=ssl) as owner:
        owner.start()
        ref = owner.add_tensors(MODEL)
        (tmp_path / "pem").write_text("nothing")
        with pytest.raises(Error) as e:
            ssl.reload()
        assert e.value.code == "bad_file"
        assert len(tensorpull.download_tensors(owner.address, ref, ssl=client)) == 1, "the old ones stay"
        for name in ("pem", "key"):
            (tmp_path / name).write_bytes((certificates / f"client.{name}").read_bytes())
        ssl.reload()
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(owner.address, ref, ssl=client, retries=0)
        assert e.value.code == "not_authenticated", "it shows another name now"


def test_arguments_that_make_no_sense(certificates, client, tmp_path):
    with pytest.raises(Error) as e:
        TLS(ca_file=tmp_path / "nobody")
    assert (e.value.code, e.value.system) == ("bad_file", errno.ENOENT)
    with pytest.raises(ValueError):
        TLS(ca_file="a", ca_text="b")
    with pytest.raises(ValueError):  # and not the system's authorities
        TLS(ca_text="")
    with pytest.raises(ValueError):
        TLS(ca_file=b"")
    with pytest.raises(ValueError):
        TLS(minimum_version="1.1")
    with pytest.raises(TypeError):
        TLS(check_hostname=False)
    with pytest.raises(TypeError):
        tensorpull.download_tensors("tls://127.0.0.1:1", "0" * 32, ssl=True)
    for address in ("127.0.0.1:1", "unix:/nowhere"):
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(address, "0" * 31 + "1", ssl=client)
        assert e.value.code == "invalid_argument", "without TLS the certificate would protect nothing"
    for listens in (Downloader, Listener):
        for ssl in (None, client):
            with pytest.raises(Error, match="ssl=tensorpull.TLS") as e:
                listens("tls://127.0.0.1:0", ssl=ssl)
            assert e.value.code == "invalid_argument", "an end that listens needs a certificate"


def test_several_threads_accept_while_others_say_nothing(server, client):
    """A listener remembers who shakes hands; each of these threads takes part in that."""
    with Listener("tls://127.0.0.1:0", ssl=server) as door:
        stopped, accepted = threading.Event(), []

        def accept():
            while not stopped.is_set():
                session = door.accept(timeout=0.05)
                if session is not None:
                    accepted.append(session)

        silent = [socket.create_connection(("127.0.0.1", door.port)) for _ in range(20)]
        doors = [processes.JoinedThread(target=accept) for _ in range(8)]
        for thread in doors:
            thread.start()
        callers = []
        for i in range(40):
            callers.append(Session(door.address, ssl=client, timeout=60))
            silent[i % 20].close()
            silent[i % 20] = socket.create_connection(("127.0.0.1", door.port))
        processes.eventually(lambda: len(accepted) >= 40)
        stopped.set()
        for thread in doors:
            thread.join()
        assert len(accepted) == 40
        for one in callers + accepted + silent:
            one.close()
