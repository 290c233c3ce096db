#!/usr/bin/env python3
"""browser.py SEND: a page in a headless Chromium fetches what `send --http` publishes on another origin.

Status: 0 all is well, 1 something is wrong, 2 left out: TENSORPULL_BROWSER is not 1, or there is no Chromium. The program says which.
"""

import hashlib
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading

import clients

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "support"))
import processes  # noqa: E402

# What the page does for each owner; a refusal of the browser is a TypeError, and says nothing more to the page.
PAGE = """<!doctype html><meta charset="utf-8"><title>running</title><script>
const hex = bytes => Array.from(new Uint8Array(bytes), b => b.toString(16).padStart(2, "0")).join("");
async function asked(url, options) {
  try {
    const answer = await fetch(url, {cache: "no-store", ...options});
    const bytes = await answer.arrayBuffer();
    return {status: answer.status, bytes: bytes.byteLength, sha256: hex(await crypto.subtle.digest("SHA-256", bytes)), text: bytes.byteLength < 100 ? new TextDecoder().decode(bytes) : "",
            tag: answer.headers.get("ETag"), digest: answer.headers.get("Repr-Digest"), range: answer.headers.get("Content-Range")};
  } catch (e) {
    return {refused: e.name};
  }
}
async function run() {
  const done = {};
  for (const [name, o] of Object.entries(await (await fetch("/plan")).json())) {
    const key = {"Authorization": "Bearer " + o.key}, who = {...key, "Tensorpull-Recipient": "page"};
    const got = done[name] = {};
    got.whole = await asked(o.url, {headers: who});
    got.part = await asked(o.url, {headers: {...key, "Range": "bytes=8-107", "If-Range": got.whole.tag || '"0"'}});
    got.wrong = await asked(o.url, {headers: {"Authorization": "Bearer " + "1".repeat(32)}});
    got.simple = await asked(o.url + "?key=" + o.key, {});
    got.metrics = await asked(new URL("/metrics", o.url), {});
    got.confirmed = await asked(o.url + "/confirm", {method: "POST", headers: who, body: "digest=" + o.digest});
  }
  return done;
}
run().catch(e => ({failed: String(e)})).then(done => fetch("/done", {method: "POST", body: JSON.stringify(done)}));
</script>"""


class Site(http.server.ThreadingHTTPServer):
    """The origin that the page comes from; it also hears what the page has found."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.plan, self.found, self.heard = {}, None, threading.Event()
        self.origin = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, kind, body):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/plan":
            self.answer("application/json", json.dumps(self.server.plan).encode())
        else:
            self.answer("text/html", PAGE.encode())

    def do_POST(self):
        self.server.found = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer("text/plain", b"")
        self.server.heard.set()

    def log_message(self, *_):
        pass


def visit(chromium, site, folder):
    """Opens the page, and gives what it has found."""
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    quiet = ["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run", "--no-proxy-server"]
    with open(os.path.join(folder, "browser.log"), "wb") as log:
        browser = processes.Program([chromium, *root, *quiet, "--remote-debugging-port=0", f"--user-data-dir={folder}/profile", site.origin + "/"], stdout=log, stderr=log)
        try:
            if not site.heard.wait(timeout=180):
                raise AssertionError("the page told nothing: " + pathlib.Path(folder, "browser.log").read_text(errors="replace")[-2000:])
        finally:
            browser.terminate()
            try:
                browser.wait(timeout=30)
            except subprocess.TimeoutExpired:
                browser.kill()
                browser.wait(timeout=30)
    return site.found


def main():
    program = os.path.abspath(sys.argv[1])
    if os.environ.get("TENSORPULL_BROWSER") != "1":
        print("left out: a browser takes its time, and runs with TENSORPULL_BROWSER=1")
        return 2
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("left out: there is no chromium")
        return 2
    site = Site()
    threading.Thread(target=site.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file = os.path.join(folder, "model.safetensors")
        image = clients.model(1)
        pathlib.Path(file).write_bytes(image)
        expects = ("--metrics", "--expect", "page")
        with clients.Sender(program, file, "--allow-origin", site.origin, *expects) as named, clients.Sender(program, file, "--allow-origin", "*", *expects) as anybody, \
                clients.Sender(program, file, "--allow-origin", "https://app.example", *expects) as others, clients.Sender(program, file, *expects) as silent:
            senders = {"named": named, "anybody": anybody, "others": others, "silent": silent}
            site.plan = {name: {"url": s.url, "key": s.key, "digest": s.digest} for name, s in senders.items()}
            found = visit(chromium, site, folder)
            print(json.dumps(found, indent=1))
            refused = {"refused": "TypeError"}
            for name in ("named", "anybody"):
                got, sender = found[name], senders[name]
                assert got["whole"]["status"] == 200 and got["whole"]["sha256"] == hashlib.sha256(image).hexdigest(), got["whole"]
                assert got["whole"]["tag"] == f'"{sender.digest}"' and got["whole"]["digest"].startswith("xxh3=:"), got["whole"]
                assert got["part"]["status"] == 206 and got["part"]["sha256"] == hashlib.sha256(image[8:108]).hexdigest(), got["part"]
                assert got["part"]["range"] == f"bytes 8-107/{len(image)}", got["part"]
                assert got["wrong"]["status"] == 404, got["wrong"]
                assert got["simple"]["status"] == 200 and got["simple"]["sha256"] == got["whole"]["sha256"], got["simple"]
                assert got["metrics"] == refused, "no page reads the metrics"
                assert got["confirmed"]["text"] == "completed\n", got["confirmed"]
                assert sender.process.wait(timeout=60) == 0, "the page was not counted"
            for name in ("others", "silent"):
                assert all(answer == refused for answer in found[name].values()), found[name]
                assert senders[name].process.poll() is None
    print("ok")
    return 0


if __name__ == "__main__":
    processes.limit(240)
    sys.exit(main())
