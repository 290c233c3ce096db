#!/usr/bin/env bash
# The wheel in build/wheels on a Debian that has nothing but Python: usage: bash bare_debian.sh [ROOT]
# Makes the system in ROOT (build/bare) with debootstrap, unless it is there, installs the wheel in it, and moves a model over TCP and TLS. Needs root.
set -euo pipefail

tree=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../../.." && pwd)
root=${1:-$tree/build/bare}
wheel=$(echo "$tree"/build/wheels/tensorpull-*.whl)
[[ -f $wheel ]] || { echo "bare_debian.sh: there is no wheel in build/wheels: bash examples/python/wheel.sh" >&2; exit 1; }
if [[ ! -x $root/usr/bin/python3 ]]; then
  mirror=$(sed -nE 's/^URIs: *([^ ]+).*/\1/p; s/^deb +(\[[^]]*\] +)?([^ ]+).*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1)
  debootstrap --variant=minbase --include=python3,python3-venv "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" "$mirror" >"$tree/build/wheels/bare.log" 2>&1 ||
    { tail -n 5 "$tree/build/wheels/bare.log" >&2; exit 1; }
fi
mkdir -p -- "$root/new"
rm -rf -- "${root:?}/new"/*
cp -- "$wheel" "$root/new/"
openssl req -x509 -newkey rsa:2048 -nodes -keyout "$root/new/key.pem" -out "$root/new/ca.pem" -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost 2>/dev/null
cat >"$root/new/moves.py" <<'PYTHON'
import array, shutil, subprocess, sys
import tensorpull

assert not [tool for tool in ("g++", "gcc", "cc", "clang", "cmake") if shutil.which(tool)], "this system has a compiler"
data = array.array("B", range(256)) * 4000
header = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (len(data), len(data))
header += b" " * (-len(header) % 8)
with open("/new/model", "wb") as file:
    file.write(len(header).to_bytes(8, "little") + header + data)
tool = [sys.executable, "-m", "tensorpull"]
assert str(len(data)) in subprocess.run([*tool, "inspect", "/new/model"], capture_output=True, text=True, check=True).stdout
for listen, more in (([], []), (["--listen", "tls://127.0.0.1:0", "--tls-cert", "/new/ca.pem", "--tls-key", "/new/key.pem"], ["--tls-ca", "/new/ca.pem", "--tls-name", "localhost"])):
    sender = subprocess.Popen([*tool, "send", "/new/model", "--recipients", "1", *listen], stdout=subprocess.PIPE, text=True)
    address, ref = sender.stdout.readline().split()[:2]
    subprocess.run([*tool, "recv", address, ref, "-o", "/new/got", "--force", *more], check=True)
    assert sender.wait(60) == 0 and open("/new/got", "rb").read() == open("/new/model", "rb").read()
print(tensorpull.__version__, "TLS" if tensorpull._native.has_tls else "no TLS")
PYTHON
# with /proc, by which programs find the libraries beside them; it is mounted for this command alone
unshare --mount sh -euc 'mount -t proc proc "$0/proc"; exec chroot "$0" "$@"' "$root" env -i PATH=/usr/bin:/bin HOME=/root LANG=C.UTF-8 sh -euc '
  python3 -m venv --clear /new/venv
  /new/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-index --no-deps /new/*.whl
  /new/venv/bin/python /new/moves.py'
du -h --apparent-size "$wheel"
