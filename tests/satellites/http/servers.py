#!/usr/bin/env python3
"""recv against servers that others wrote: Python's http.server, nginx (if it is installed), and a store that checks signed URLs as S3 does.

    http_servers.py RECV [SEND]

Each server has a port of its own on the loopback interface, and files in a folder that is deleted at the end.
"""

import base64
import hashlib
import hmac
import http.client
import http.server
import json
import os
import pathlib
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import urllib.parse

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "support"))
import processes  # noqa: E402

RECV = os.path.abspath(sys.argv[1])
SEND = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None
SECRET = b"not a real secret"


def model(seed, count=300_000):
    """A safetensors file in the order and the spelling of the reference library."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [count], "data_offsets": [0, 4 * count]}}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    block = hashlib.sha256(str(seed).encode()).digest()
    return struct.pack("<Q", len(header)) + header + (block * (4 * count // 32 + 1))[:4 * count]


def recv(folder, url, *options):
    out = folder / "out.safetensors"
    for path in (out, folder / ".out.safetensors.part"):
        path.unlink(missing_ok=True)
    done = subprocess.run([RECV, url, "-o", str(out), "--json", "--timeout", "20", "--retries", "1", "--chunk", "64K", *options],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    return done, out.read_bytes() if out.exists() else None, json.loads(done.stdout) if done.stdout else {}


def sha(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def completes(folder, url, data, *options, outcome="completed"):
    done, got, said = recv(folder, url, *options)
    assert done.returncode == 0 and got == data and said["outcome"] == outcome, (url, options, done)


def fails(folder, url, code, *options):
    done, got, said = recv(folder, url, *options)
    assert done.returncode == 1 and got is None and said.get("code") == code, (url, options, code, done)


class Serving:
    def __init__(self, handler):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.handle_error = lambda *_: None  # a recipient that has refused the answer closes at once
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class Quiet:
    def log_message(self, *_):
        pass


def plain_server(folder, data):
    """It sends no ranges and has no ETag; its files are old enough for a strong Last-Modified."""
    served = folder / "served"
    (served / "m.safetensors").write_bytes(data)
    (served / "page.html").write_text("<html>no model</html>" * 10)
    os.utime(served / "m.safetensors", (1_000_000_000, 1_000_000_000))

    class Handler(Quiet, http.server.SimpleHTTPRequestHandler):
        def __init__(self, *a, **k):
            super().__init__(*a, directory=str(served), **k)

    with Serving(Handler) as s:
        completes(folder, s.url + "/m.safetensors", data, "--digest", sha(data))
        completes(folder, s.url + "/m.safetensors", data, "--unverified", outcome="completed_unverified")
        fails(folder, s.url + "/m.safetensors", "not_verifiable")
        fails(folder, s.url + "/m.safetensors", "digest_mismatch", "--digest", sha(b"other"))
        fails(folder, s.url + "/none", "unknown_reference", "--unverified")
        fails(folder, s.url + "/page.html", "too_large", "--unverified")


class Store(Quiet, http.server.BaseHTTPRequestHandler):
    """Objects by signed URLs: the signature is over method, path, and the query without it, byte for byte. Errors are XML."""
    protocol_version = "HTTP/1.1"
    objects = {}

    def refuse(self, status, code):
        body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code></Error>'.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def signed(self):
        before, _, signature = self.path.rpartition("&X-Amz-Signature=")
        right = hmac.new(SECRET, f"{self.command} {before}".encode(), hashlib.sha256).hexdigest()
        if hmac.compare_digest(signature, right) and "Authorization" not in self.headers:
            return True
        self.refuse(403, "SignatureDoesNotMatch")
        return False

    def do_GET(self):
        if not self.signed():
            return
        key = urllib.parse.unquote(self.path.partition("?")[0])
        data = self.objects.get(key)
        if data is None:
            self.refuse(404, "NoSuchKey")
            return
        tag = f'"{hashlib.md5(data).hexdigest()}"'
        first, last = 0, len(data) - 1
        if "Range" in self.headers and self.headers.get("If-Range", tag) == tag:
            begin, _, end = self.headers["Range"].removeprefix("bytes=").partition("-")
            first, last = int(begin), min(last, int(end)) if end else last
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("ETag", tag)
        self.send_header("Content-Length", str(last - first + 1))
        if key.endswith("+told.safetensors"):
            self.send_header("Repr-Digest", "sha-256=:" + base64.b64encode(hashlib.sha256(data).digest()).decode() + ":")
        self.end_headers()
        self.give(data[first:last + 1])

    def give(self, body):
        self.wfile.write(body)

    def do_PUT(self):
        if not self.signed():
            return
        self.objects[urllib.parse.unquote(self.path.partition("?")[0])] = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


def sign(method, target):
    return target + "&X-Amz-Signature=" + hmac.new(SECRET, f"{method} {target}".encode(), hashlib.sha256).hexdigest()


def object_store(folder, data):
    Store.objects = {"/bucket/a b+told.safetensors": data, "/bucket/m.safetensors": data}
    query = "?X-Amz-Credential=key%2F20260101%2Fus-east-1&X-Amz-Expires=600&odd=%7e+~"
    with Serving(Store) as s:
        completes(folder, s.url + sign("GET", "/bucket/a%20b+told.safetensors" + query), data)
        completes(folder, s.url + sign("GET", "/bucket/m.safetensors" + query), data, "--digest", sha(data))
        fails(folder, s.url + "/bucket/m.safetensors" + query, "not_permitted", "--digest", sha(data))
        fails(folder, s.url + sign("GET", "/bucket/none" + query), "unknown_reference", "--digest", sha(data))
        done, _, _ = recv(folder, s.url + "/bucket/m.safetensors?X-Amz-Signature=hidden", "--digest", sha(data))
        assert "hidden" not in done.stdout + done.stderr, done
        done, _, _ = recv(folder, s.url.replace("//", "//user:hidden@") + "/x")
        assert done.returncode == 2 and "hidden" not in done.stdout + done.stderr, done


def upload(folder, data):
    """What is sent with a signed URL is what is pulled with another; a signature that is wrong is refused before the body is sent."""
    if SEND is None:
        print("there is no send: left out")
        return
    path = folder / "up.safetensors"
    path.write_bytes(data)

    def put(url, *options):
        return subprocess.run([SEND, str(path), "--put", url, "--json", "--timeout", "20", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)

    Store.objects = {}
    with Serving(Store) as s:
        done = put(s.url + sign("PUT", "/bucket/up%20load.safetensors?X-Amz-Expires=600"))
        assert done.returncode == 0 and Store.objects == {"/bucket/up load.safetensors": data}, done
        completes(folder, s.url + sign("GET", "/bucket/up%20load.safetensors?X-Amz-Expires=600"), data, "--digest", sha(data))
        done = put(s.url + "/bucket/other?X-Amz-Expires=600&X-Amz-Signature=hidden")
        assert done.returncode == 1 and json.loads(done.stdout)["code"] == "not_permitted" and "hidden" not in done.stdout, done
        assert len(Store.objects) == 1
        for wrong in (["--listen", "127.0.0.1:0"], ["--recipients", "1"], ["--idle", "1"], ["--stdio"]):
            done = put(s.url + "/x", *wrong)
            assert done.returncode == 2, done
    done = put(s.url + "/bucket/gone?x=y&X-Amz-Signature=z")
    assert done.returncode == 1 and json.loads(done.stdout)["code"] == "connection_failed", done


def resumption(folder, data):
    """A server dies in the middle; the same command goes on with --resume, and so does one with a URL that was signed anew, if --digest names the file."""
    class Dying(Store):
        left = 400_000

        def signed(self):
            return True

        def do_GET(self):
            if Dying.left > 0:
                super().do_GET()
            self.close_connection = self.close_connection or Dying.left <= 0

        def give(self, body):
            self.wfile.write(body[:Dying.left])
            Dying.left -= len(body)

    Store.objects = {"/bucket/m.safetensors": data}
    out = folder / "out.safetensors"
    with Serving(Dying) as s:
        command = [RECV, s.url + "/bucket/m.safetensors", "-o", str(out), "--json", "--timeout", "20", "--chunk", "64K", "--digest", sha(data)]
        out.unlink(missing_ok=True)
        done = subprocess.run([*command, "--retries", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        said = json.loads(done.stdout)
        assert done.returncode == 1 and said["resumable"] and said["bytes"] > 0, done
        Dying.left = 1 << 40
        anew = [command[0], command[1] + "?X-Amz-Signature=anew", *command[2:-2], "--resume"]
        for names_another_file in (["--unverified"], ["--digest", sha(b"other")]):
            done = subprocess.run([*anew, *names_another_file], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
            assert done.returncode == 1 and json.loads(done.stdout)["code"] == "stale_version", done
        # the digest says that it is the same file, under whatever URL
        done = subprocess.run([*anew, *command[-2:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        again = json.loads(done.stdout)
        assert done.returncode == 0 and out.read_bytes() == data and again["resumed_bytes"] == said["bytes"], (done, said)


class Proxy(Quiet, http.server.BaseHTTPRequestHandler):
    """Asks for whole URLs itself, and makes connections (CONNECT), for those who know the password."""
    protocol_version = "HTTP/1.1"
    asked = []

    def known(self):
        Proxy.asked.append((self.command, self.path))
        if self.headers.get("Proxy-Authorization") == "Basic " + base64.b64encode(b"me:hidden").decode():
            return True
        self.send_response(407)
        self.send_header("Content-Length", "0")
        self.end_headers()
        return False

    def do_GET(self):
        if not self.known():
            return
        to = urllib.parse.urlsplit(self.path)
        far = http.client.HTTPConnection(to.netloc, timeout=30)
        far.request("GET", to.path + ("?" + to.query if to.query else ""), headers={k: v for k, v in self.headers.items() if not k.lower().startswith("proxy-")})
        answer = far.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding"):
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        far.close()

    def do_CONNECT(self):
        if not self.known():
            return
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as far:
            self.send_response(200)
            self.end_headers()
            self.wfile.flush()

            def pass_on(near, to):
                try:
                    while piece := near.recv(65536):
                        to.sendall(piece)
                    to.shutdown(socket.SHUT_WR)
                except OSError:
                    pass

            back = threading.Thread(target=pass_on, args=(far, self.connection), daemon=True)
            back.start()
            pass_on(self.connection, far)
            back.join(timeout=30)
        self.close_connection = True


def through_a_proxy(folder, data):
    """The proxy is asked for the whole URL. Its password is printed nowhere, and goes no further."""
    class Far(Store):
        def signed(self):
            assert "Proxy-Authorization" not in self.headers
            return True

    Store.objects = {"/bucket/m.safetensors": data}
    with Serving(Far) as s, Serving(Proxy) as via:
        Proxy.asked = []
        url, at = s.url + "/bucket/m.safetensors?a=1", via.url.removeprefix("http://")
        completes(folder, url, data, "--digest", sha(data), "--proxy", "me:hidden@" + at)
        assert Proxy.asked and all(a == ("GET", url) for a in Proxy.asked), Proxy.asked
        fails(folder, url, "proxy_refused", "--digest", sha(data), "--proxy", "me:wrong@" + at)
        done, _, _ = recv(folder, s.url + "/none", "--digest", sha(data), "--proxy", "me:hidden@" + at)
        assert done.returncode == 1 and "hidden" not in done.stdout + done.stderr, done


def with_tls(folder, data):
    """The certificate is checked for the host of the URL, and no redirect leads away from TLS."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    made = processes.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", "/CN=test",
                           "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)], capture_output=True, check=False)
    if made.returncode != 0:
        print("openssl is not installed: left out")
        return

    class Open(Store):
        plain = ""

        def signed(self):
            if self.path == "/down":
                self.send_response(302)
                self.send_header("Location", Open.plain + "/bucket/m.safetensors")
                self.send_header("Content-Length", "0")
                self.end_headers()
            return self.path != "/down"

    Store.objects = {"/bucket/m.safetensors": data}
    with Serving(Open) as plain, Serving(Open) as s:
        Open.plain = plain.url
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        s.server.socket = context.wrap_socket(s.server.socket, server_side=True)
        url = s.url.replace("http:", "https:")
        trusted = ("--tls-ca", str(certificate), "--digest", sha(data))
        done, got, said = recv(folder, url + "/bucket/m.safetensors", *trusted)
        if done.returncode == 2 and "without OpenSSL" in done.stderr:
            print("recv has no TLS: left out")
            return
        assert done.returncode == 0 and got == data and said["outcome"] == "completed", done
        fails(folder, url + "/bucket/m.safetensors", "not_authenticated", "--digest", sha(data))
        fails(folder, url.replace("127.0.0.1", "localhost") + "/bucket/m.safetensors", "not_authenticated", *trusted)
        fails(folder, url + "/down", "not_permitted", *trusted)
        with Serving(Proxy) as via:
            Proxy.asked = []
            at = via.url.removeprefix("http://")
            completes(folder, url + "/bucket/m.safetensors", data, *trusted, "--proxy", "me:hidden@" + at)
            assert Proxy.asked and all(a == ("CONNECT", url.removeprefix("https://")) for a in Proxy.asked), Proxy.asked
            fails(folder, url + "/bucket/m.safetensors", "proxy_refused", *trusted, "--proxy", at)
            fails(folder, url + "/bucket/m.safetensors", "not_authenticated", "--digest", sha(data), "--proxy", "me:hidden@" + at)


def nginx(folder, data):
    program = processes.found("nginx")
    if program is None:
        print("nginx is not installed: left out")
        return
    served = folder / "served"
    (served / "m.safetensors").write_bytes(data)
    own = processes.OwnPort()
    url = "http://" + own.address
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(f"""
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{ access_log off; {temporary} gzip on; gzip_types *; gzip_min_length 1; keepalive_requests 3;
  server {{ listen {own.address}; root {served};
    location /moved/ {{ return 302 /m.safetensors; }}
    location /round/ {{ return 302 /round/; }}
    location /secret/ {{ alias {served}/; if ($http_authorization != "Bearer open sesame") {{ return 401; }} }}
    location /none/ {{ alias {served}/; max_ranges 0; }} }} }}
""")
    with processes.Server([program, "-c", str(folder / "nginx.conf"), "-p", str(folder), "-e", str(folder / "error.log")], stderr=subprocess.DEVNULL):
        assert processes.eventually(lambda: processes.accepts(own.number)), (folder / "error.log").read_text()
        (folder / "key").write_text("open sesame\n")
        completes(folder, url + "/m.safetensors", data, "--digest", sha(data))
        completes(folder, url + "/moved/", data, "--digest", sha(data))
        completes(folder, url + "/none/m.safetensors", data, "--digest", sha(data))
        completes(folder, url + "/secret/m.safetensors", data, "--digest", sha(data), "--bearer-file", str(folder / "key"))
        fails(folder, url + "/secret/m.safetensors", "not_permitted", "--digest", sha(data))
        fails(folder, url + "/round/", "not_permitted", "--digest", sha(data))
        fails(folder, url + "/nothing", "unknown_reference", "--unverified")


def main():
    data = model(1)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.chmod(folder, 0o755)
        (folder / "served").mkdir()
        plain_server(folder, data)
        object_store(folder, data)
        upload(folder, data)
        resumption(folder, data)
        through_a_proxy(folder, data)
        with_tls(folder, data)
        nginx(folder, data)
    print("every server was understood")


if __name__ == "__main__":
    processes.limit(240)
    main()
