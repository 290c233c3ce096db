"""The page that whoever runs an owner looks at: one argument of `Downloader` switches it on. With TENSORPULL_BROWSER=1 and a Chromium it is also looked at."""

import base64
import json
import os
import pathlib
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
import zlib

import numpy as np
import processes
import pytest

import tensorpull
from tensorpull import Downloader

PASSWORD = "correct horse battery"
DASHBOARD = pathlib.Path(__file__).parents[3] / "examples" / "http" / "grafana.json"
MODEL = {f"layer.{i}": np.full((64, 1024), i, dtype=np.float32) for i in range(8)}
HOSTILE = "<script>document.title='mine'</script>\"'&\u202e\x1b[2J"


def ask(owner, path, password=PASSWORD):
    headers = {} if password is None else {"Authorization": "Basic " + base64.b64encode(f"me:{password}".encode()).decode()}
    with urllib.request.urlopen(urllib.request.Request(owner.http_address + path, headers=headers), timeout=20) as answer:
        return answer.read().decode()


def refused(owner, path, password=PASSWORD):
    with pytest.raises(urllib.error.HTTPError) as e:
        ask(owner, path, password)
    return e.value.code


def pull(owner, ref, name):
    return tensorpull.download_tensors(owner.address, ref, recipient=name)


def test_a_page_is_there_if_the_program_gives_a_password():
    with Downloader(http="127.0.0.1:0") as owner:
        owner.start()
        owner.label(owner.add_tensors(MODEL), "nobody sees it")
        assert refused(owner, "/") == refused(owner, "/status.json") == refused(owner, "/metrics") == 404
    with Downloader(http="127.0.0.1:0", status_password=PASSWORD) as owner:
        owner.start()
        assert refused(owner, "/", None) == refused(owner, "/status.json", PASSWORD + "x") == refused(owner, "/metrics", "") == 401
        assert "Nothing is published now" in ask(owner, "/")
    for wrong in ("", "15 characters..", "x" * 129, "0123456789abcdef\n", "0123456789abcdef\x00"):
        with pytest.raises(ValueError):
            Downloader(http="127.0.0.1:0", status_password=wrong).close()
    with pytest.raises(ValueError):
        Downloader(status_password=PASSWORD)
    with pytest.raises(TypeError):
        Downloader(http="127.0.0.1:0", status_password=7).close()


def test_each_recipient_has_its_name_and_how_it_ended():
    with Downloader(http="127.0.0.1:0", status_password=PASSWORD) as owner:
        owner.start()
        ref = owner.add_tensors(MODEL, recipients=["site-1", "site-2", HOSTILE])
        owner.label(ref, "round 7")
        pull(owner, ref, "site-1")
        page = json.loads(ask(owner, "/status.json"))
        assert page["version"] == tensorpull.__version__ and page["more_publications"] == 0
        (shown,) = page["publications"]
        assert (shown["title"], shown["image_bytes"], shown["expected"], shown["completed"], shown["verdict"]) == ("round 7", ref.nbytes, 3, 1, "open")
        fares = {r["name"]: r["state"] for r in shown["recipients"]}
        hostile = HOSTILE.replace("\u202e", "\ufffd").replace("\x1b", "\ufffd")
        assert fares == {"site-1": "completed", "site-2": "unseen", hostile: "unseen"}
        html, metrics = ask(owner, "/"), ask(owner, "/metrics")
        assert "<bdi>round 7</bdi>" in html and "<bdi>site-1</bdi>" in html and "has it" in html and "<script" not in html
        assert 'tensorpull_transfers_total{outcome="completed"} 1\n' in metrics
        pulled = re.search(r"^tensorpull_pulls_total\{outcome=\"completed\"\} (\d+)$", metrics, re.M)
        assert pulled and int(pulled[1]) >= 1 and "\ntensorpull_damaged_chunks_total 0\n" in metrics
        said = (html + metrics + json.dumps(page)).lower()
        for at in range(0, len(ref) - 9):
            assert ref[at : at + 10].lower() not in said, "a part of the reference"


@pytest.mark.skipif(not DASHBOARD.exists(), reason="optional: the tree without the satellite http")
def test_the_dashboard_is_one_and_asks_for_what_there_is():
    board = json.loads(DASHBOARD.read_text())
    with Downloader(http="127.0.0.1:0", metrics=True) as owner:
        owner.start()
        there = {line.split()[2]: line.split()[3] for line in ask(owner, "/metrics", None).splitlines() if line.startswith("# TYPE")}
    samples = {name + end for name, kind in there.items() for end in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))}
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(queries) >= 10 and samples == {name for query in queries for name in re.findall(r"tensorpull_\w+", query)}
    for query in queries:  # what only grows is asked for as a rate
        for name in re.findall(r"tensorpull_\w+", query):
            grows = there.get(name) == "counter" or name.endswith(("_bucket", "_sum", "_count"))
            assert bool(re.search(r"(?:rate|increase)\(" + name + r"\{", query)) == grows, query
    boxes = [panel["gridPos"] for panel in board["panels"]]
    cells = [(x, y) for b in boxes for x in range(b["x"], b["x"] + b["w"]) for y in range(b["y"], b["y"] + b["h"])]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24 and len({panel["id"] for panel in board["panels"]}) == len(boxes)


def chromium():
    return shutil.which("chromium") or shutil.which("chromium-browser") if os.environ.get("TENSORPULL_BROWSER") == "1" else None


def first_pixel(png):
    """Of a PNG with 8 bits for each of red, green and blue: whatever its filter is, nothing is left of it or above it."""
    at, packed = 8, b""
    while at < len(png):
        size, kind = int.from_bytes(png[at : at + 4], "big"), png[at + 4 : at + 8]
        packed += png[at + 8 : at + 8 + size] if kind == b"IDAT" else b""
        at += size + 12
    return tuple(zlib.decompressobj().decompress(packed, 64)[1:4])


def browse(folder, url, *options):
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    quiet = ["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run", "--no-proxy-server"]
    done = subprocess.run([chromium(), *root, *quiet, "--hide-scrollbars", "--enable-logging=stderr", f"--user-data-dir={folder}/profile", *options, url], capture_output=True, timeout=180, check=True)
    assert b"Content Security Policy" not in done.stderr, done.stderr.decode(errors="replace")
    return done.stdout.decode()


@pytest.mark.skipif(chromium() is None, reason="optional: a browser takes its time, and runs with TENSORPULL_BROWSER=1 where there is a chromium")
def test_a_browser_shows_it_in_light_and_dark(tmp_path):
    with Downloader(http="127.0.0.1:0", status_password=PASSWORD, recipient_bytes_per_second=50_000) as owner:
        owner.start()
        ref = owner.add_tensors(MODEL, recipients=["site-1", "site-2", "hospital-north", HOSTILE])
        owner.label(ref, "round 7: mod\u00e8le <b>")
        small = owner.add_tensors({"w": np.ones(10, dtype=np.float32)}, recipients=["site-1", "site-2"])
        owner.label(small, "settings of round 8")
        pull(owner, small, "site-1")
        pull(owner, small, "site-2")
        over = threading.Event()

        def slowly(name):
            with pytest.raises(tensorpull.Error):
                tensorpull.download_tensors(owner.address, ref, recipient=name, abort=over.is_set)

        pulls = [processes.JoinedThread(target=slowly, args=(name,)) for name in ("site-1", HOSTILE)]
        for thread in pulls:
            thread.start()
        url = owner.http_address.replace("//", "//me:" + PASSWORD.replace(" ", "%20") + "@") + "/"
        try:
            dom = browse(tmp_path, url, "--dump-dom")
            assert "<title>tensorpull: 1 published</title>" in dom and "<bdi>hospital-north</bdi>" in dom
            assert dom.count("<script") == 0 and "&lt;script&gt;" in dom and dom.count("<progress") == 6
            pictures = pathlib.Path(os.environ.get("TENSORPULL_SCREENSHOTS", tmp_path))
            for scheme, number, background in (("light", 1, (0xF5, 0xF6, 0xF8)), ("dark", 0, (0x14, 0x17, 0x1C))):
                picture = pictures / f"status-{scheme}.png"
                browse(tmp_path, url, f"--screenshot={picture}", "--window-size=1100,900", f"--blink-settings=preferredColorScheme={number}")
                assert first_pixel(picture.read_bytes()) == background, "the page has its style"
            browse(tmp_path, url, f"--screenshot={pictures / 'status-narrow.png'}", "--window-size=500,1000")
        finally:
            over.set()
            for thread in pulls:
                thread.join()
