"""Recipients of one model through an nginx that caches: real processes of send and recv.

usage: http_cache.py FOLDER_OF_PROGRAMS [CASE]
       http_cache.py FOLDER_OF_PROGRAMS --measure [RECIPIENTS [MIB [ROUNDS]]]
Status: 0 well, 1 a case failed, 77 nginx is not installed.
--measure prints the rows of a table: without a cache, and with each configuration of it (200 recipients of 16 MiB, 3 rounds).
"""
import concurrent.futures
import http.client
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path

from cases import SKIPPED, has, run_cases, write_model

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "..", "support"))
import processes  # noqa: E402

KEY = "5d1f0c0000000000000000000000000c"
OTHER_KEY = "5d1f0c0000000000000000000000000d"
PATIENCE = 120

# The key of the cache has the Authorization field in it, so what one key has fetched is nobody else's, whatever nginx makes of Vary. One of the clients that ask
# for the same at once asks the owner, and the others wait for it.
CONFIG = """
{user}
worker_processes 2;
worker_rlimit_nofile 16384;
daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  proxy_cache_path {folder}/cache keys_zone=images:1m;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://{owner};
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_cache images;
      proxy_cache_lock on;
      proxy_cache_lock_timeout 60s;
      proxy_cache_lock_age 60s;
      add_header Cached $upstream_cache_status;
{parts}
    }}
  }}
}}
"""
WHOLE = '      proxy_cache_key "$http_authorization $uri";'
SLICES = """\
      slice 2m;
      proxy_set_header Range $slice_range;
      proxy_cache_key "$http_authorization $uri $slice_range";
"""


class Run:
    """An owner, and what stands before it. The processes end with it."""

    def __init__(self, programs, folder, data_bytes=4 << 20):
        self.programs, self.folder, self.started = programs, folder, []
        self.model = folder / "model.safetensors"
        write_model(self.model, data_bytes)
        for name, key in (("key", KEY), ("other", OTHER_KEY)):
            (folder / name).write_text(key + "\n")
        self.ports = [processes.OwnPort()]
        self.door = self.ports[0].address

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.started:
            p.terminate()
        for p in self.started:
            try:
                p.wait(timeout=30)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()

    def send(self):
        """The owner, once it has said what it published: its process, and the path of the model's URL."""
        p = processes.Program([self.programs / "send", self.model, "--ref", KEY, "--http", self.door, "--metrics", "--json"], stdout=subprocess.PIPE, text=True)
        self.started.append(p)
        said = json.loads(p.stdout.readline())
        assert said["event"] == "published", said
        threading.Thread(target=p.stdout.read, daemon=True).start()  # it says a line for each recipient, and waits if nobody reads them
        self.digest = said["digest"]
        return p, urllib.parse.urlsplit(said["url"]).path

    def nginx(self, parts):
        """Where it listens."""
        folder = self.folder / "nginx"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        port = processes.OwnPort()
        self.ports.append(port)
        config = folder / "nginx.conf"
        config.write_text(CONFIG.format(user="user root;" if os.geteuid() == 0 else "", folder=folder, port=port.number, owner=self.door, parts=parts))
        self.started.append(processes.Program(["nginx", "-p", folder, "-c", config, "-e", folder / "error.log"], stderr=subprocess.DEVNULL))
        assert processes.eventually(lambda: processes.accepts(port.number)), (folder / "error.log").read_text()
        return port.address

    def stop(self, p):
        p.terminate()
        p.wait(timeout=30)
        self.started.remove(p)

    def recv(self, url, to, key="key", digest=None):
        command = [self.programs / "recv", url, "-o", to, "--force", "--bearer-file", self.folder / key, "--digest", "xxh3:" + (digest or self.digest), "--json"]
        done = processes.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return done.returncode, json.loads(done.stdout.splitlines()[-1]) if done.stdout else {"message": done.stderr}

    def all_pull(self, url, count):
        """So many recipients at once: seconds until the last has the model. Every file is compared, and goes."""
        gate = threading.Barrier(count)
        content = self.model.read_bytes()

        def one(i):
            to = self.folder / f"copy{i}.safetensors"
            gate.wait(processes.AMPLE)
            status, said = self.recv(url, to)
            ended = time.monotonic()
            assert status == 0 and said["outcome"] == "completed", said
            assert to.read_bytes() == content, i
            to.unlink()
            return ended

        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            began = time.monotonic()
            return max(pool.map(one, range(count))) - began

    def left_the_owner(self):
        """Bytes of images that it has sent."""
        status, page, _ = ask(self.door, "/metrics")
        assert status == 200, status
        return int(re.search(r"^tensorpull_http_sent_bytes_total (\d+)$", page.decode(), re.M)[1])


def ask(at, path, **fields):
    c = http.client.HTTPConnection(at, timeout=PATIENCE)
    c.request("GET", path, headers=fields)
    answer = c.getresponse()
    got = answer.status, answer.read(), answer.headers
    c.close()
    return got


def bearer(key):
    return {"Authorization": "Bearer " + key}


def one_image_leaves_the_owner(run, parts=SLICES, recipients=8):
    _, path = run.send()
    run.all_pull(f"http://{run.nginx(parts)}{path}", recipients)
    sent, image = run.left_the_owner(), run.model.stat().st_size
    assert image <= sent < image * 1.01 + 1024, (sent, image)


def one_image_leaves_the_owner_without_slices(run):
    one_image_leaves_the_owner(run, WHOLE)


def another_key_gets_nothing_from_the_cache(run):
    _, path = run.send()
    for parts in (SLICES, WHOLE):
        cache = run.nginx(parts)
        run.all_pull(f"http://{cache}{path}", 2)
        before = run.left_the_owner()
        assert ask(cache, path, **bearer(KEY))[:2] == (200, run.model.read_bytes())
        assert run.left_the_owner() == before, "the image is in the cache"
        assert ask(cache, path, **bearer(OTHER_KEY))[0] == 404
        assert ask(cache, path)[0] == 401
        assert ask(cache, path, **bearer(KEY), Range="bytes=0-9")[0] == 206
        assert ask(cache, path, **bearer(OTHER_KEY), Range="bytes=0-9")[0] == 404
        status, said = run.recv(f"http://{cache}{path}", run.folder / "none.safetensors", key="other")
        assert status == 1 and said["code"] == "unknown_reference", said
        assert not (run.folder / "none.safetensors").exists()


def a_version_that_is_replaced_is_another_url(run):
    owner, old = run.send()
    old_digest, old_content = run.digest, run.model.read_bytes()
    cache = run.nginx(SLICES)
    latest = old.rsplit("/", 1)[0] + "/latest"
    run.all_pull(f"http://{cache}{old}", 2)
    assert ask(cache, latest, **bearer(KEY))[1] == old_content
    run.stop(owner)
    write_model(run.model, 4 << 20, 2)
    _, new = run.send()
    assert new != old and run.digest != old_digest, new
    run.all_pull(f"http://{cache}{new}", 2)
    assert ask(cache, latest, **bearer(KEY))[1] == run.model.read_bytes(), "'latest' is asked of the owner each time"
    # the old URL has the old content for as long as the cache keeps it, and its digest says so
    to = run.folder / "old.safetensors"
    status, said = run.recv(f"http://{cache}{old}", to, digest=old_digest)
    assert status == 0 and to.read_bytes() == old_content, said
    status, said = run.recv(f"http://{cache}{old}", run.folder / "wrong.safetensors")
    assert status == 1 and said["code"] == "digest_mismatch", said
    assert not (run.folder / "wrong.safetensors").exists()


CASES = [one_image_leaves_the_owner, one_image_leaves_the_owner_without_slices, another_key_gets_nothing_from_the_cache, a_version_that_is_replaced_is_another_url]


def measure(programs, recipients=200, mib=16, rounds=3):
    ways = [("nothing", None), ("nginx, whole files", WHOLE), ("nginx, slices of 2 MiB", SLICES)]
    took, left = {name: [] for name, _ in ways}, {name: [] for name, _ in ways}
    for _ in range(rounds):
        for name, parts in ways:
            with tempfile.TemporaryDirectory() as folder, Run(programs, Path(folder), mib << 20) as run:
                _, path = run.send()
                took[name].append(run.all_pull(f"http://{run.door if parts is None else run.nginx(parts)}{path}", recipients))
                left[name].append(run.left_the_owner() / (1 << 20))
    for name, _ in ways:
        middle = statistics.median(took[name])
        print(f"| {name} | {middle:.1f} ({min(took[name]):.1f} to {max(took[name]):.1f}) | {recipients * mib / 1024 / middle:.2f} | {max(left[name]):,.1f} MiB | {recipients} |")


def main():
    if not has("nginx"):
        return SKIPPED
    programs, wanted = Path(sys.argv[1]), sys.argv[2:]
    if wanted and wanted[0] == "--measure":
        measure(programs, *map(int, wanted[1:]))
    else:
        run_cases(Run, CASES, programs, wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
