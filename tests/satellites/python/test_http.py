"""URLs: pulls from web servers, and owners that answer HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import http.server
import json
import os
import re
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest
import safetensors.numpy
import processes
from test_tls import certificates, client, server  # noqa: F401

import tensorpull
from tensorpull import Downloader, Error, aio

MODEL = {"w": np.arange(400_000, dtype=np.float32), "b": np.arange(7, dtype=np.int64)}


class Web(http.server.ThreadingHTTPServer):
    """A web server whose files and misbehaviour a test chooses."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.asked = {}, []
        self.ranges, self.cut, self.cuts, self.answer, self.location = True, 0, 0, 0, ""
        self.hook = None
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def url(self, path="/model"):
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        web = self.server
        web.asked.append((self.path, self.headers.get("Range"), self.headers.get("Authorization")))
        if web.hook:
            web.hook()
        data = web.files.get(self.path)
        if self.path == "/moved" or web.answer or data is None:
            self.send_response(302 if self.path == "/moved" else web.answer or 404)
            if self.path == "/moved":
                self.send_header("Location", web.location)
            if web.answer == 503:
                self.send_header("Retry-After", "86400")  # longer than anybody waits: otherwise it is asked again
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "") if web.ranges else None
        first, last = (int(found[1]), min(int(found[2]), len(data) - 1)) if found else (0, len(data) - 1)
        self.send_response(206 if found else 200)
        if found:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("ETag", f'"{hashlib.md5(data).hexdigest()}"')
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        body = data[first : last + 1]
        if web.cuts and web.cut and last >= web.cut:
            web.cuts -= 1
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        self.wfile.write(body)


@pytest.fixture
def web(owner, tmp_path):
    made = Web()
    # the image as this library lays it out
    tensorpull.download_file(owner.address, owner.add_tensors(MODEL), tmp_path / "original.safetensors")
    made.files["/model"] = (tmp_path / "original.safetensors").read_bytes()
    yield made
    made.shutdown()
    made.server_close()


def digest_of(web, path="/model"):
    return "sha256:" + hashlib.sha256(web.files[path]).hexdigest()


def same(got):
    return got.keys() == MODEL.keys() and all(np.array_equal(got[key], MODEL[key]) for key in MODEL)


@pytest.mark.parametrize("ranges", [True, False])
def test_tensors_and_a_file_from_a_web_server(web, tmp_path, ranges):
    web.ranges = ranges
    got = tensorpull.download_tensors(web.url(), digest=digest_of(web), chunk_size=300_000)
    assert same(got) and got.receipt.outcome == "completed" and not got.receipt.confirmed
    mine = {key: np.zeros_like(value) for key, value in MODEL.items()}
    tensorpull.download_tensors(web.url(), out=mine, digest=digest_of(web))
    assert same(mine)
    seen = []
    assert tensorpull.download_file(web.url(), "", tmp_path / "copy", digest=digest_of(web), progress=seen.append).outcome == "completed"
    assert (tmp_path / "copy").read_bytes() == web.files["/model"] and seen[-1].phase == "completed"
    assert same(asyncio.run(aio.download_tensors(web.url(), digest=digest_of(web))))
    assert any(asked[1] for asked in web.asked)


def test_torch(web):
    torch = pytest.importorskip("torch")
    got = tensorpull.download_tensors(web.url(), framework="torch", digest=digest_of(web))
    assert torch.equal(got["w"], torch.from_numpy(MODEL["w"]))


def test_digests(web, tmp_path, owner):
    def code(**options):
        with pytest.raises(Error) as e:
            tensorpull.download_file(web.url(), "", tmp_path / "none", **options)
        assert not (tmp_path / "none").exists()
        return e.value.code

    assert code() == "not_verifiable"
    assert code(digest="sha256:" + 64 * "0", resume=False) == "digest_mismatch"
    assert code(digest="md5:00") == "invalid_argument"
    assert tensorpull.download_file(web.url(), "", tmp_path / "unverified", unverified=True).outcome == "completed_unverified"
    # the version of a reference is a digest, too
    ref = owner.add_tensors(MODEL)
    assert tensorpull.download_tensors(web.url(), ref).receipt.outcome == "completed"
    other = owner.add_tensors({"w": MODEL["w"] + 1, "b": MODEL["b"]})
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(web.url(), other)
    assert e.value.code == "digest_mismatch"
    assert tensorpull.download_tensors(web.url(), digest=f"xxh3:{ref.version:016x}").receipt.outcome == "completed"


@pytest.mark.parametrize("page", [b"<html>Log in first</html>" * 9, b"", "other"], ids=["a page", "nothing", "another file"])
def test_a_mirror_without_the_file_is_passed_over(web, owner, tmp_path, page):
    web.files["/mirror"] = safetensors.numpy.save({"w": MODEL["w"] + 1, "b": MODEL["b"]}) if page == "other" else page
    mirrors = [web.url("/mirror"), web.url()]
    assert same(tensorpull.download_tensors(mirrors, digest=digest_of(web)))
    assert tensorpull.download_file(mirrors, "", tmp_path / "copy", digest=digest_of(web)).outcome == "completed"
    assert (tmp_path / "copy").read_bytes() == web.files["/model"]
    ref = owner.add_tensors(MODEL)
    assert same(tensorpull.download_tensors([mirrors[0], owner.address], ref))


@pytest.mark.parametrize("page, code", [(b"<html>Log in first</html>" * 9, "too_large"), (b"", "bad_file"), (b"other", "digest_mismatch")], ids=["a page", "nothing", "another file"])
def test_an_error_about_what_a_web_server_has_names_the_url_and_no_file_here(web, tmp_path, page, code):
    web.files["/page"] = safetensors.numpy.save({"w": MODEL["w"] + 1, "b": MODEL["b"]}) if page == b"other" else page
    mine = {key: np.zeros_like(value) for key, value in MODEL.items()}
    of = {"digest": digest_of(web)}
    for call in (lambda: tensorpull.download_tensors(web.url("/page"), out=mine, **of), lambda: tensorpull.download_file(web.url("/page"), "", tmp_path / "copy", **of)):
        with pytest.raises(Error) as e:
            call()
        words = "not the file that is asked for" if code == "digest_mismatch" else "no safetensors file"
        assert (e.value.code, e.value.name) == (code, web.url("/page")) and words in str(e.value) and "owner" not in str(e.value), str(e.value)
        assert ("old and new" in str(e.value)) == any(tensor.any() for tensor in mine.values()), str(e.value)
        mine = {}


def test_arguments_that_would_not_be_heeded(owner, web):
    ref = owner.add_tensors(MODEL)
    for options in ({"digest": digest_of(web)}, {"bearer": "x"}):
        with pytest.raises(ValueError):
            tensorpull.download_tensors(owner.address, ref, **options)
    with pytest.raises(ValueError):
        tensorpull.download_tensors([owner.address, web.url()])
    with pytest.raises(ValueError):
        tensorpull.download_tensors([owner.address, web.url()], ref, digest=digest_of(web))
    with pytest.raises(TypeError):
        tensorpull.download_tensors(web.url(), digest=7)
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(web.url("/with space"), digest=digest_of(web))
    assert e.value.code == "bad_address"
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(web.url(), bearer="a\r\nb: c", unverified=True)
    assert e.value.code == "invalid_argument" and not web.asked


def test_redirects_carry_no_key_elsewhere(web):
    other = Web()
    try:
        other.files = web.files
        web.location = other.url()
        assert same(tensorpull.download_tensors(web.url("/moved"), digest=digest_of(web), bearer="key"))
        assert web.asked[0][2] == "Bearer key" and other.asked and all(asked[2] is None for asked in other.asked)
        web.location = "/moved"
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(web.url("/moved"), digest=digest_of(web))
        assert e.value.code == "not_permitted"
    finally:
        other.shutdown()
        other.server_close()


@pytest.mark.parametrize("status, code", [(404, "unknown_reference"), (403, "not_permitted"), (410, "withdrawn"), (503, "busy")])
def test_refusals(web, status, code):
    web.answer = status
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(web.url(), digest=digest_of(web), retries=0)
    assert e.value.code == code


def test_a_server_that_closes_in_between(web):
    web.cut, web.cuts = 200_000, 2
    assert same(tensorpull.download_tensors(web.url(), digest=digest_of(web), chunk_size=300_000))
    assert web.cuts == 0


def half_a_file(web, path, digest):
    """What is left of a download that was cut."""
    web.cut, web.cuts = 800_000, 1000
    with pytest.raises(Error):
        tensorpull.download_file(web.url(), "", path, digest=digest, chunk_size=100_000, retries=0)
    assert path.with_name(f".{path.name}.part").exists()
    web.cuts, web.asked = 0, []


def asked_again(web):
    """Of the bytes that had arrived."""
    ranges = [asked[1].removeprefix("bytes=").partition("-") for asked in web.asked if asked[1]]
    return [begin for begin, _, end in ranges if int(begin) < 300_000 and (not end or int(end) >= 100_000)]


def test_a_file_is_gone_on_with(web, tmp_path):
    half_a_file(web, tmp_path / "m", digest_of(web))
    assert tensorpull.download_file(web.url(), "", tmp_path / "m", digest=digest_of(web), chunk_size=100_000).outcome == "completed"
    assert (tmp_path / "m").read_bytes() == web.files["/model"] and not (tmp_path / ".m.part").exists()
    assert not asked_again(web)


def test_a_file_of_another_url_is_not_gone_on_with(web, tmp_path):
    half_a_file(web, tmp_path / "m", digest_of(web))
    web.files["/other"] = web.files["/model"]
    assert tensorpull.download_file(web.url("/other"), "", tmp_path / "m", digest=digest_of(web), chunk_size=100_000).outcome == "completed"
    assert (tmp_path / "m").read_bytes() == web.files["/model"] and asked_again(web)


def test_a_digest_is_of_what_was_there_before_too(web, tmp_path):
    right = web.files["/model"]
    damaged = bytearray(right)
    damaged[250_000] ^= 1
    web.files["/model"] = bytes(damaged)
    half_a_file(web, tmp_path / "m", "sha256:" + hashlib.sha256(right).hexdigest())
    web.files["/model"] = right
    with pytest.raises(Error) as e:
        tensorpull.download_file(web.url(), "", tmp_path / "m", digest=digest_of(web), chunk_size=100_000)
    assert e.value.code == "digest_mismatch" and not asked_again(web)
    assert not (tmp_path / "m").exists() and not (tmp_path / ".m.part").exists()
    tensorpull.download_file(web.url(), "", tmp_path / "m", digest=digest_of(web), chunk_size=100_000)
    assert (tmp_path / "m").read_bytes() == right


def test_tensors_that_exist_come_from_the_next_address(web):
    other = Web()
    try:
        other.files = web.files
        web.cut, web.cuts = 800_000, 1000
        mine = {key: np.zeros_like(value) for key, value in MODEL.items()}
        tensorpull.download_tensors([web.url(), other.url()], out=mine, digest=digest_of(web), chunk_size=100_000, retries=0)
        assert same(mine) and other.asked
    finally:
        other.shutdown()
        other.server_close()


def test_abort_and_limits(web, tmp_path):
    stop = threading.Event()
    web.hook = lambda: len(web.asked) > 2 and stop.set()
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(web.url(), digest=digest_of(web), chunk_size=20_000, window=1, abort=lambda: stop.is_set())
    assert e.value.code == "cancelled"
    web.hook = None
    for options in ({"max_bytes": 1000}, {"max_header_bytes": 10}, {"max_tensors": 1}):
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(web.url(), digest=digest_of(web), **options)
        assert e.value.code == "too_large", options


def test_the_next_address(web, owner):
    ref = owner.add_tensors(MODEL)
    assert same(tensorpull.download_tensors([web.url("/none"), web.url()], digest=digest_of(web)))
    assert same(tensorpull.download_tensors([web.url("/none"), owner.address], ref))
    owner.withdraw(ref)
    assert same(tensorpull.download_tensors([owner.address, web.url()], ref))


def test_an_owner_that_answers_http():
    with Downloader(http="127.0.0.1:0", metrics=True) as owner:
        owner.start()
        ref = owner.add_tensors(MODEL, recipients=1)
        assert owner.http_address.startswith("http://127.0.0.1:")
        url = owner.url(ref)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url, timeout=20)
        assert refused.value.code == 401

        def ask(first, last):
            asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {ref}", "Range": f"bytes={first}-{last}"})
            with urllib.request.urlopen(asked, timeout=20) as answer:
                assert answer.status == 206
                return answer.read()

        # one tensor alone, as programs that know the format read it
        length = struct.unpack("<Q", ask(0, 7))[0]
        begin, end = json.loads(ask(8, 7 + length))["b"]["data_offsets"]
        assert ask(8 + length + begin, 7 + length + end) == MODEL["b"].tobytes()

        got = tensorpull.download_tensors(url, ref, bearer=ref, recipient="site-1")
        assert same(got) and got.receipt.confirmed and owner.wait(ref, timeout=60)
        assert owner.recipient_state(ref, "site-1") == "completed"
        with urllib.request.urlopen(owner.http_address + "/metrics", timeout=20) as answer:
            assert b"tensorpull" in answer.read()
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(url, bearer=32 * "1", retries=0)
        assert e.value.code == "unknown_reference"


def test_what_is_replaced_is_gone_on_with_over_http_too():
    with Downloader(http="127.0.0.1:0") as owner:
        owner.start()
        first = owner.add_tensors({"w": np.arange(9.0)}, ref_id=32 * "1")

        def ask(recipient, path="", body=None, **more):
            fields = {"Authorization": f"Bearer {first}", "Tensorpull-Recipient": recipient, **more}
            with urllib.request.urlopen(urllib.request.Request(owner.url(first) + path, body, fields), timeout=20) as answer:
                return answer.read()

        begun = ask("site-1", Range="bytes=0-9")
        owner.add_tensors({"w": np.ones(9)}, ref_id=first)
        whole = begun + ask("site-1", Range="bytes=10-")  # over another connection
        assert len(whole) == first.nbytes and whole.endswith(np.arange(9.0).tobytes())
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask("site-2")
        assert refused.value.code == 404 and not owner.settled(first)
        assert ask("site-1", "/cancel", b"") == b"cancelled\n"
        assert owner.settled(first) and owner.outcome(first).counts.cancelled == 1


def test_web_pages_of_another_origin():
    with Downloader(http="127.0.0.1:0", allow_origin="https://app.example") as owner:
        owner.start()
        ref = owner.add_tensors(MODEL)
        before = urllib.request.Request(owner.url(ref), method="OPTIONS", headers={"Origin": "https://app.example", "Access-Control-Request-Method": "GET"})
        with urllib.request.urlopen(before, timeout=20) as answer:
            assert answer.status == 204 and answer.headers["Access-Control-Allow-Origin"] == "https://app.example"
        asked = urllib.request.Request(owner.url(ref), headers={"Authorization": f"Bearer {ref}", "Origin": "https://evil.example"})
        with urllib.request.urlopen(asked, timeout=20) as answer:
            assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example" and answer.read()
    for wrong in ("", "null", "app.example", "https://app.example/", "https://a\r\nX: y"):
        with pytest.raises(ValueError):
            Downloader(http="127.0.0.1:0", allow_origin=wrong).close()


def test_doors_that_cannot_be(tmp_path):
    with pytest.raises(ValueError):
        Downloader(metrics=True)
    with pytest.raises(ValueError):
        Downloader(allow_origin="*")
    for listen in ("udp://127.0.0.1:0", f"shm:{tmp_path}/m"):
        with pytest.raises(ValueError):
            Downloader(listen, http="127.0.0.1:0")
    with pytest.raises(Error) as e:
        Downloader(http="nowhere")
    assert e.value.code == "bad_address"
    with Downloader() as owner, pytest.raises(ValueError):
        assert owner.http_address == ""
        owner.url(owner.add_tensors(MODEL))


def test_a_door_beside_a_unix_socket(tmp_path):
    with Downloader(f"unix:{tmp_path}/s", http="127.0.0.1:0") as owner:
        owner.start()
        ref = owner.add_tensors(MODEL)
        assert same(tensorpull.download_tensors(owner.url(ref), bearer=ref))


def test_https(server, client):  # noqa: F811
    with Downloader("tls://127.0.0.1:0", ssl=server, http="127.0.0.1:0") as owner:
        owner.start()
        ref = owner.add_tensors(MODEL)
        assert owner.url(ref).startswith("https://")
        assert same(tensorpull.download_tensors(owner.url(ref), bearer=ref, ssl=client))
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(owner.url(ref), bearer=ref, retries=0)
        assert e.value.code == "not_authenticated"


def test_a_name_to_check_is_refused(certificates):  # noqa: F811
    with pytest.raises(Error) as e:
        tensorpull.download_tensors("https://127.0.0.1:1/m", ssl=tensorpull.TLS(ca_file=certificates / "ca.pem", check_hostname="other"), unverified=True)
    assert e.value.code == "invalid_argument"


def command(*words, **more):
    return subprocess.run([sys.executable, "-m", "tensorpull", *map(str, words)], capture_output=True, text=True, timeout=60, env={**os.environ}, **more)


def test_the_commands(web, tmp_path):
    done = command("recv", web.url(), "-o", tmp_path / "copy", "--digest", digest_of(web), "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["outcome"] == "completed", done.stderr
    assert (tmp_path / "copy").read_bytes() == web.files["/model"]
    done = command("recv", web.url() + "?signed=secret", "-o", tmp_path / "none", "--retries", "0")
    assert done.returncode == 1 and "nothing at" in done.stderr and "secret" not in done.stderr
    done = command("recv", web.url(), "-o", tmp_path / "none")
    assert done.returncode == 1 and "--digest" in done.stderr
    assert command("recv", web.url(), "-o", tmp_path / "none", "--unverified").returncode == 0
    assert command("recv", web.url(), 32 * "1", "-o", tmp_path / "more").returncode == 2
    assert command("recv", "127.0.0.1:1", 32 * "1", "-o", tmp_path / "more", "--digest", "x").returncode == 2
    assert command("send", tmp_path / "copy", "--metrics").returncode == 2
    assert command("send", tmp_path / "copy", "--allow-origin", "*").returncode == 2
    assert command("send", tmp_path / "copy", "--http", "0", "--allow-origin", "app.example").returncode == 2
    assert command("send", tmp_path / "copy", "--http", "0", "--listen", "udp://127.0.0.1:0").returncode == 2


def test_send_answers_http(web, tmp_path):
    (tmp_path / "m.safetensors").write_bytes(web.files["/model"])
    sender = processes.Program(
        [sys.executable, "-m", "tensorpull", "send", str(tmp_path / "m.safetensors"), "--http", "127.0.0.1:0", "--recipients", "1", "--json"], stdout=subprocess.PIPE, text=True
    )
    try:
        said = json.loads(sender.stdout.readline())
        (tmp_path / "key").write_text(said["ref"] + "\n")
        done = command("recv", said["url"], "-o", tmp_path / "copy", "--bearer-file", tmp_path / "key", "--name", "site-1")
        assert done.returncode == 0 and (tmp_path / "copy").read_bytes() == web.files["/model"], done.stderr
        assert sender.wait(timeout=60) == 0
    finally:
        sender.kill()
        sender.wait()
        sender.stdout.close()


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "tcp://127.0.0.1:0", "unix:{}/socket"])
def test_recipients_without_names_count_and_the_port_is_as_public_as_the_link(tmp_path, listen):
    safetensors.numpy.save_file({"w": np.arange(3 << 20, dtype="f4")}, tmp_path / "m.safetensors")  # several chunks
    sender = processes.Program(
        [sys.executable, "-m", "tensorpull", "send", str(tmp_path / "m.safetensors"), "--listen", listen.format(tmp_path), "--http", "0", "--recipients", "2", "--json"], stdout=subprocess.PIPE, text=True
    )
    try:
        said = json.loads(sender.stdout.readline())
        assert said["url"].startswith("http://127.0.0.1:"), said
        (tmp_path / "key").write_text(said["ref"] + "\n")
        for k in range(2):
            assert sender.poll() is None
            done = command("recv", said["url"], "-o", tmp_path / f"copy{k}", "--bearer-file", tmp_path / "key")
            assert done.returncode == 0, done.stderr
        assert sender.wait(timeout=60) == 0
    finally:
        sender.kill()
        sender.wait()
        sender.stdout.close()


def test_what_a_recipient_cannot_take_and_a_look_end_nothing():
    with tensorpull.Downloader(http="127.0.0.1:0").start() as owner:
        ref = owner.add_tensors({"w": np.ones(4, "f4")}, recipients=1)
        for wrong in ({"out": {"w": np.zeros(5, "f4")}}, {"max_bytes": 1}):
            with pytest.raises(Error):
                tensorpull.download_tensors(owner.url(ref), ref, bearer=ref, **wrong)
        assert tensorpull.list_tensors(owner.url(ref), ref, bearer=ref).tensors["w"].shape == (4,)
        assert tensorpull.download_tensors(owner.url(ref), ref, bearer=ref)["w"].all()
        assert owner.wait(ref, timeout=60) and owner.outcome(ref).verdict == "completed"
