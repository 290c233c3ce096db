"""A hub of models with the layout of Hugging Face's, and the host to which it redirects for large files; each is a server of its own on this machine.

What a test wants done wrong, it sets: `states` changes the answer about a model before it is sent, `instead(request, host, path)` answers in place of a host if it returns true.
"""
import hashlib
import http.server
import json
import re
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def blob_id(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Whoever was killed or has refused the answer is gone."""


class ImitatedHub:
    def __init__(self, files, repository="org/model", revisions=("main",), token=None, commit=COMMIT):
        self.files, self.repository, self.revisions, self.token, self.commit = dict(files), repository, (*revisions, commit), token, commit
        self.states, self.instead = (lambda about: about), (lambda request, host, path: False)
        self.with_blobs = True  # whether it knows ?blobs=true
        self.asked = []  # (host, method, path, fields)
        self.redirects_inside = False  # small files lie at another path of the hub itself
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16

            def do_GET(self):
                host = self.server.name
                hub.asked.append((host, self.command, self.path, {name.lower(): value for name, value in self.headers.items()}))
                path = urllib.parse.unquote(self.path)
                if not hub.instead(self, host, path):
                    (hub.answer if host == "hub" else hub.give)(self, path)

            do_HEAD = do_GET

            def say(self, status, fields=(), body=b"", length=None):
                self.send_response(status)
                for name, value in dict(fields).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body) if length is None else length))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)
                    self.wfile.flush()

            def send_file(self, data, fields=()):
                """All of it, or the range that is asked for."""
                wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
                first = int(wanted[1]) if wanted else 0
                last = min(int(wanted[2]) if wanted and wanted[2] else len(data) - 1, len(data) - 1)
                if wanted:
                    fields = {**dict(fields), "Content-Range": "bytes %d-%d/%d" % (first, last, len(data))}
                self.say(206 if wanted else 200, fields, data[first:last + 1])

            def log_message(self, *_):
                pass

        self.servers = {}
        for name in ("hub", "cdn"):
            server = self.servers[name] = _Server(("127.0.0.1", 0), Handler)
            server.name = name
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.endpoint, self.cdn = ("http://127.0.0.1:%d" % self.servers[name].server_address[1] for name in ("hub", "cdn"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers.values():
            server.shutdown()
            server.server_close()

    @staticmethod
    def is_large(path):
        return path.endswith((".safetensors", ".bin"))

    def about(self, blobs):
        siblings = []
        for path, data in self.files.items():
            one = {"rfilename": path}
            if blobs and self.is_large(path):
                one |= {"size": len(data), "blobId": blob_id(b"a pointer"), "lfs": {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 9}}
            elif blobs:
                one |= {"size": len(data), "blobId": blob_id(data)}
            siblings.append(one)
        return {"_id": "1", "id": self.repository, "private": False, "tags": ["a", {"b": [None, True, -1.5]}], "sha": self.commit, "cardData": {"sha": "x", "siblings": []}, "siblings": siblings, "usedStorage": 1}

    def answer(self, request, path):
        """The hub itself."""
        if self.token is not None and request.headers.get("Authorization") != "Bearer " + self.token:
            return request.say(401, {"X-Error-Code": "RepoNotFound"}, b"{}")
        about = re.fullmatch(r"/api/models/(.+)/revision/(.+?)(\?blobs=true)?", path)
        if about and about[1] == self.repository and about[2] in self.revisions:
            stated = self.states(self.about(bool(about[3]) and self.with_blobs))
            return request.say(200, {"Content-Type": "application/json"}, stated if isinstance(stated, bytes) else json.dumps(stated).encode())
        file = re.fullmatch(r"(/api/resolve-cache/models)?/%s(?:/resolve)?/(\w+)/(.+)" % re.escape(self.repository), path)
        if not file or file[2] not in self.revisions or file[3] not in self.files:
            return request.say(404, {"X-Error-Code": "EntryNotFound"}, b"{}")
        data, fields = self.files[file[3]], {"X-Repo-Commit": self.commit}
        if self.is_large(file[3]):
            digest = hashlib.sha256(data).hexdigest()
            fields |= {"X-Linked-Etag": '"%s"' % digest, "X-Linked-Size": str(len(data)), "Location": self.cdn + "/repos/%s?X-Amz-Signature=a%%2Fb" % digest}
            return request.say(302, fields, b"Found. Redirecting")
        if self.redirects_inside and not file[1]:
            return request.say(307, {**fields, "Location": "/api/resolve-cache/models/%s/%s/%s" % (self.repository, self.commit, urllib.parse.quote(file[3]))}, b"Temporary Redirect")
        return request.send_file(data, {**fields, "ETag": '"%s"' % blob_id(data)})

    def give(self, request, path):
        """The host of large files."""
        digest = path.split("?")[0].rpartition("/")[2]
        for data in self.files.values():
            if hashlib.sha256(data).hexdigest() == digest and path.endswith("?X-Amz-Signature=a/b"):
                return request.send_file(data, {"ETag": '"a-tag-of-its-own"', "X-Repo-Commit": "f" * 40, "X-Linked-Etag": '"%064d"' % 1, "X-Linked-Size": "1"})
        return request.say(404, {}, b"")
