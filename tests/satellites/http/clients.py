#!/usr/bin/env python3
"""clients.py SEND: programs that are not ours read what `send --http` publishes.

Status: 0 all is well, 1 something is wrong. What is not installed (curl, nginx, haproxy, requests, safetensors) is left out, and a line says so.
"""

import base64
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import urllib.parse

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "support"))
import processes  # noqa: E402


def model(seed, tensors=4, count=150_000):
    """A safetensors file of F32 tensors, as bytes."""
    data, header, offset = b"", {}, 0
    numbers = random.Random(seed)
    for i in range(tensors):
        piece = numbers.randbytes(4 * (count + i))
        header[f"layer.{i}"] = {"dtype": "F32", "shape": [count + i], "data_offsets": [offset, offset + len(piece)]}
        offset += len(piece)
        data += piece
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


class Sender:
    """`send --http`, until the end of the scope."""

    def __init__(self, program, *arguments):
        self.process = processes.Program([program, *arguments, "--listen", "127.0.0.1:0", "--http", "0", "--json"], stdout=subprocess.PIPE, text=True)
        self.published = json.loads(self.process.stdout.readline())
        assert self.published["event"] == "published", self.published
        self.url, self.key, self.digest, self.bytes = (self.published[k] for k in ("url", "ref", "digest", "bytes"))
        self.fields = {"Authorization": "Bearer " + self.key}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(timeout=30)
        self.process.stdout.close()

    def whole(self):
        status, _, body = ask(self.url, self.fields)
        assert status == 200 and len(body) == self.bytes, (status, len(body))
        return body


def ask(url, fields=None, method="GET", body=None, connection=None):
    parts = urllib.parse.urlsplit(url)
    c = connection or http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    c.request(method, parts.path + ("?" + parts.query if parts.query else ""), body=body, headers=fields or {})
    answer = c.getresponse()
    got = answer.status, answer.headers, answer.read()
    if connection is None:
        c.close()
    return got


class LazyModel:
    """Reads a safetensors file by ranges: its header, and then what is asked for."""

    def __init__(self, url, fields):
        parts = urllib.parse.urlsplit(url)
        self.url, self.fields, self.fetched = url, fields, 0
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
        status, headers, first = ask(url, {**fields, "Range": "bytes=0-7"}, connection=self.connection)
        assert status == 206, status
        self.tag = headers["ETag"]
        length = struct.unpack("<Q", first)[0]
        self.start = 8 + length
        self.header = json.loads(self.read(8, length))

    def read(self, offset, count):
        status, headers, body = ask(self.url, {**self.fields, "Range": f"bytes={offset}-{offset + count - 1}", "If-Range": self.tag}, connection=self.connection)
        assert status == 206 and headers["ETag"] == self.tag and len(body) == count, (status, len(body))
        self.fetched += count
        return body

    def part(self, name, first, count):
        begin, end = self.header[name]["data_offsets"]
        assert begin + 4 * (first + count) <= end
        return self.read(self.start + begin + 4 * first, 4 * count)


def python_reads(sender):
    whole = sender.whole()
    parts = urllib.parse.urlsplit(sender.url)
    kept = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    status, headers, body = ask(sender.url, sender.fields, "HEAD", connection=kept)
    assert status == 200 and body == b"" and headers["Content-Length"] == str(len(whole)), (status, headers)
    socket = kept.sock
    for first, last in ((0, 0), (8, 107), (len(whole) - 3, len(whole) - 1)):
        status, headers, body = ask(sender.url, {**sender.fields, "Range": f"bytes={first}-{last}"}, connection=kept)
        assert status == 206 and body == whole[first:last + 1], (first, last, status)
    assert kept.sock is socket, "the connection was not kept"
    status, headers, body = ask(sender.url, {**sender.fields, "If-None-Match": f'"{sender.digest}"'}, connection=kept)
    assert (status, body) == (304, b"")
    kept.close()
    assert ask(sender.url)[0] == 401
    status, headers, body = ask(sender.url + "?key=" + sender.key)
    assert status == 200 and headers["Cache-Control"] == "no-store" and body == whole

    lazy = LazyModel(sender.url, sender.fields)
    begin = lazy.start + lazy.header["layer.2"]["data_offsets"][0]
    assert lazy.part("layer.2", 1000, 50) == whole[begin + 4000:begin + 4200]
    assert lazy.fetched < 4096, "a lazy reader fetches the header and what it wants, and no more"


def requests_reads(sender):
    try:
        import requests
    except ImportError:
        return "requests is not installed"
    whole = sender.whole()
    with requests.Session() as session:
        session.headers.update(sender.fields)
        with session.get(sender.url, stream=True, timeout=30) as answer:
            assert answer.status_code == 200 and b"".join(answer.iter_content(65536)) == whole
        assert session.get(sender.url, headers={"Range": "bytes=10-19"}, timeout=30).content == whole[10:20]
        assert session.head(sender.url, timeout=30).headers["ETag"] == f'"{sender.digest}"'


def safetensors_loads(sender):
    try:
        import numpy
        import safetensors.numpy
    except ImportError:
        return "safetensors or numpy is not installed"
    whole = sender.whole()
    loaded, lazy = safetensors.numpy.load(whole), LazyModel(sender.url, sender.fields)
    for name in lazy.header:
        if name != "__metadata__":
            n = lazy.header[name]["shape"][0]
            assert numpy.frombuffer(lazy.part(name, 0, n), "<f4").tobytes() == loaded[name].tobytes()


def curl_reads(sender):
    if not shutil.which("curl"):
        return "curl is not installed"
    whole = sender.whole()
    with tempfile.TemporaryDirectory() as folder:
        key = ["-H", f"Authorization: Bearer {sender.key}"]

        def curl(*arguments):
            done = subprocess.run(["curl", "-sS", "--max-time", "60", *arguments], capture_output=True, timeout=90)
            assert done.returncode == 0, done.stderr
            return done.stdout

        file = os.path.join(folder, "copy")
        assert curl(*key, sender.url) == whole
        assert curl(*key, "-r", "100-199", sender.url) == whole[100:200]
        pathlib.Path(file).write_bytes(whole[:12345])
        curl(*key, "-C", "-", "-o", file, sender.url)  # resumes
        assert pathlib.Path(file).read_bytes() == whole
        head = curl(*key, "-I", sender.url).decode()
        assert head.startswith("HTTP/1.1 200 OK\r\n") and f'ETag: "{sender.digest}"' in head, head
        both = curl(*key, "-w", "%{num_connects} ", "-o", os.devnull, "-o", os.devnull, sender.url, sender.url).decode()
        assert both == "1 0 ", both  # one connection for both


def curl_confirms(program, file):
    """A sender that waits for one recipient ends when curl has confirmed."""
    if not shutil.which("curl"):
        return "curl is not installed"
    with Sender(program, file, "--expect", "site-1") as sender:
        fields = ["-H", f"Authorization: Bearer {sender.key}", "-H", "Tensorpull-Recipient: site-1"]
        confirm = ["curl", "-sS", "--max-time", "60", *fields, "-d", f"digest={sender.digest}", sender.url + "/confirm"]
        early = subprocess.run(confirm + ["-o", os.devnull, "-w", "%{http_code}"], capture_output=True, text=True, timeout=90)
        assert early.stdout == "409", early
        half = sender.bytes // 2
        for part in (f"{half}-", f"0-{half - 1}"):  # two connections, the end first
            subprocess.run(["curl", "-sS", "--max-time", "60", *fields, "-r", part, "-o", os.devnull, sender.url], check=True, timeout=90)
        done = subprocess.run(confirm, capture_output=True, text=True, timeout=90)
        assert done.stdout == "completed\n", done
        assert sender.process.wait(timeout=60) == 0


def page_is_right(program, file):
    """The two commands of the satellite's page fetch a model and confirm, each over a connection of its own."""
    if not shutil.which("curl"):
        return "curl is not installed"
    page = pathlib.Path(__file__).resolve().parents[3] / "include/tensorpull/satellites/http/README.md"
    commands = [command for command in re.findall(r"^curl (.*)$", page.read_text(encoding="utf-8"), re.M) if "$KEY" in command]
    assert len(commands) == 2, commands
    with Sender(program, file, "--expect", "site-1") as sender, tempfile.TemporaryDirectory() as folder:
        parts = urllib.parse.urlsplit(sender.url)
        here = {**os.environ, "KEY": sender.key, "VERSION": sender.digest}
        typed = [f"curl -sS --max-time 60 {command}".replace("server:8002", parts.netloc) for command in commands]
        fetched, confirmed = (subprocess.run(line, shell=True, cwd=folder, env=here, capture_output=True, text=True, timeout=90) for line in typed)
        assert pathlib.Path(folder, "model.safetensors").read_bytes() == pathlib.Path(file).read_bytes(), fetched
        assert confirmed.stdout == "completed\n", confirmed
        assert sender.process.wait(timeout=60) == 0


def recv_pulls(program, file):
    """The library's own recipient, if it was built with HTTP."""
    recv = os.path.join(os.path.dirname(program), "recv")
    if not os.path.exists(recv) or "--bearer-file" not in processes.run([recv, "--help"], capture_output=True, text=True).stdout:
        return "there is no recv that pulls from URLs"
    with Sender(program, file, "--expect", "site-1") as sender, tempfile.TemporaryDirectory() as folder:
        key, copy = os.path.join(folder, "key"), os.path.join(folder, "copy.safetensors")
        pathlib.Path(key).write_text(sender.key + "\n")
        done = subprocess.run([recv, sender.url, "--bearer-file", key, "--name", "site-1", "-o", copy], capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done
        assert pathlib.Path(copy).read_bytes() == pathlib.Path(file).read_bytes()
        assert sender.process.wait(timeout=60) == 0, "the recipient was not counted as completed"


def nginx_caches(program, file):
    """A cache keeps an image for those who show its key, and gives it to nobody else."""
    nginx = processes.found("nginx")
    if nginx is None:
        return "nginx is not installed"
    with Sender(program, file, "--metrics") as sender, tempfile.TemporaryDirectory() as folder:
        parts = urllib.parse.urlsplit(sender.url)
        sock = os.path.join(folder, "nginx.sock")
        pathlib.Path(folder, "nginx.conf").write_text(f"""
{"user root;" if os.geteuid() == 0 else ""}
daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  proxy_cache_path {folder}/cache keys_zone=images:1m;
  server {{
    listen unix:{sock};
    location / {{
      proxy_pass http://{parts.netloc};
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host "owner";
      proxy_cache images;
      add_header Cached $upstream_cache_status;
    }}
  }}
}}
""")
        server = processes.Program([nginx, "-p", folder, "-c", os.path.join(folder, "nginx.conf"), "-e", os.path.join(folder, "error.log")])
        try:
            class Through(http.client.HTTPConnection):
                def connect(self):
                    import socket
                    self.sock = socket.socket(socket.AF_UNIX)
                    self.sock.settimeout(30)
                    self.sock.connect(sock)

            assert processes.eventually(lambda: processes.accepts(sock)), "nginx does not listen"

            def through(fields, query=""):
                c = Through("nginx")
                got = ask(sender.url + query, fields, connection=c)
                c.close()
                return got

            whole = sender.whole()
            before = sent(sender)
            for i in range(20):
                status, headers, body = through(sender.fields)
                assert status == 200 and body == whole, (status, len(body), pathlib.Path(folder, "error.log").read_text())
                assert headers["Cached"] == ("HIT" if i else "MISS"), (i, headers["Cached"])
            assert sent(sender) - before == len(whole), "one image left the owner for twenty recipients"
            assert through({})[0] == 401, "who shows no key gets nothing from the cache"
            assert through({"Authorization": "Bearer " + "0" * 31 + "1"})[0] == 404
            status, _, body = through({**sender.fields, "Range": "bytes=10-19"})
            assert status == 206 and body == whole[10:20]
            wanted = {**sender.fields, "If-Range": f'"{sender.digest}"'}
            for part, code, bytes_there in (("bytes=-5", 206, whole[-5:]), ("bytes=0-", 206, whole), (f"bytes={len(whole)}-", 416, None), ("bytes=0-0,5-9", None, None)):
                status, headers, body = through({**wanted, "Range": part})
                assert code in (None, status) and (bytes_there is None or body == bytes_there), (part, status, len(body))
            assert sent(sender) - before == len(whole), "ranges of what the cache holds come from the cache"
            other = "/v1/another-name/" + sender.digest  # the cache asks for the whole, whatever is asked first
            c = Through("nginx")
            status, headers, body = ask(urllib.parse.urljoin(sender.url, other), sender.fields, "HEAD", connection=c)
            assert status == 200 and headers["Content-Length"] == str(len(whole)) and body == b"", (status, headers)
            status, headers, body = ask(urllib.parse.urljoin(sender.url, other), sender.fields, connection=c)
            assert body == whole and headers["Cached"] == "HIT", headers
            c.close()
            for _ in range(2):
                status, headers, _ = through({}, "?key=" + sender.key)
                assert status == 200 and headers["Cached"] == "MISS", "an answer to a URL with a key in it is not kept"
        finally:
            server.terminate()  # its workers end with it
            server.wait()


def haproxy_passes(program, file):
    """A proxy that sends the requests of many over a few connections: recipients with names are told apart, and each is counted once."""
    haproxy = processes.found("haproxy")
    if haproxy is None:
        return "haproxy is not installed"
    import socket
    names = [f"site-{i}" for i in range(6)]
    with Sender(program, file, *(word for name in names for word in ("--expect", name))) as sender, tempfile.TemporaryDirectory() as folder:
        parts = urllib.parse.urlsplit(sender.url)
        sock = os.path.join(folder, "proxy.sock")
        pathlib.Path(folder, "proxy.cfg").write_text(f"""
global
  maxconn 100
defaults
  mode http
  timeout connect 30s
  timeout client 60s
  timeout server 60s
frontend all
  bind unix@{sock}
  default_backend owner
backend owner
  http-reuse always
  server one {parts.netloc} maxconn 2 pool-max-conn 2
""")
        proxy = processes.Program([haproxy, "-db", "-f", os.path.join(folder, "proxy.cfg")], stderr=subprocess.DEVNULL)
        try:
            class Through(http.client.HTTPConnection):
                def connect(self):
                    self.sock = socket.socket(socket.AF_UNIX)
                    self.sock.settimeout(60)
                    self.sock.connect(sock)

            assert processes.eventually(lambda: processes.accepts(sock)), "HAProxy does not listen"
            whole, image = sender.bytes, pathlib.Path(file).read_bytes()
            kept = {name: Through("haproxy") for name in names}
            for first, last in ((0, whole // 2), (whole // 2 + 1, whole - 1)):
                for name, c in kept.items():
                    status, _, body = ask(sender.url, {**sender.fields, "Tensorpull-Recipient": name, "Range": f"bytes={first}-{last}"}, connection=c)
                    assert status == 206 and body == image[first:last + 1], (status, len(body))
            stranger = Through("haproxy")
            assert ask(sender.url, connection=stranger)[0] == 401
            assert ask(sender.url + "/confirm", {**sender.fields, "Tensorpull-Recipient": "nobody"}, "POST", f"digest={sender.digest}", stranger)[0] == 409
            for _ in range(2):
                for name in names[:-1]:
                    status, _, body = ask(sender.url + "/confirm", {**sender.fields, "Tensorpull-Recipient": name}, "POST", f"digest={sender.digest}", kept[name])
                    assert (status, body) == (200, b"completed\n"), (status, body)
            assert sender.process.poll() is None
            ask(sender.url + "/confirm", {**sender.fields, "Tensorpull-Recipient": names[-1]}, "POST", f"digest={sender.digest}", kept[names[-1]])
            assert sender.process.wait(timeout=60) == 0
        finally:
            proxy.kill()
            proxy.wait()


def operator_looks(program, file):
    """Who knows the password of --status-file sees the file's name, each recipient's and how it fares; a stranger does not."""
    with tempfile.TemporaryDirectory() as folder:
        kept = pathlib.Path(folder, "password")
        kept.write_text("correct horse battery\nnot this line\n")
        with Sender(program, file, "--expect", "site-1", "--expect", "site-2", "--status-file", str(kept)) as sender:
            mine = {"Authorization": "Basic " + base64.b64encode(b"me:correct horse battery").decode()}
            assert ask(sender.url, {**sender.fields, "Tensorpull-Recipient": "site-1", "Range": f"bytes=0-{sender.bytes // 2 - 1}"})[0] == 206
            for path in ("/", "/status.json", "/metrics"):
                assert ask(urllib.parse.urljoin(sender.url, path))[0] == 401, path
                status, _, page = ask(urllib.parse.urljoin(sender.url, path), mine)
                assert status == 200 and sender.key[:32].encode() not in page, (path, status)
            seen = json.loads(ask(urllib.parse.urljoin(sender.url, "/status.json"), mine)[2])["publications"]
            assert [(one["title"], [(who["name"], who["state"]) for who in one["recipients"]]) for one in seen] == [("my model.safetensors", [("site-1", "acquired")])], seen
    for wrong in ("too short", "x" * 129):
        with tempfile.TemporaryDirectory() as folder:
            kept = pathlib.Path(folder, "password")
            kept.write_text(wrong)
            done = subprocess.run([program, file, "--http", "0", "--status-file", str(kept)], capture_output=True, text=True, timeout=60)
            assert done.returncode == 2 and "16 to 128 characters" in done.stderr and wrong not in done.stderr, done


def sent(sender):
    status, _, page = ask(urllib.parse.urljoin(sender.url, "/metrics"))
    assert status == 200
    return int(re.search(r"^tensorpull_http_sent_bytes_total (\d+)$", page.decode(), re.M)[1])


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "my model.safetensors")
        pathlib.Path(file).write_bytes(model(1))
        with Sender(program, file) as sender:
            assert urllib.parse.urlsplit(sender.url).path == f"/v1/my-model.safetensors/{sender.digest}", sender.url
            assert ask(urllib.parse.urljoin(sender.url, "/metrics"))[0] == 404
            results = [(test.__name__, test(sender)) for test in (python_reads, requests_reads, safetensors_loads, curl_reads)]
        results += [(test.__name__, test(program, file)) for test in (curl_confirms, page_is_right, operator_looks, recv_pulls, nginx_caches, haproxy_passes)]
    for name, left_out in results:
        print(name, "left out: " + left_out if left_out else "ok")


if __name__ == "__main__":
    processes.limit(240)
    main()
