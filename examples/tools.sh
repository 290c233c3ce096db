#!/usr/bin/env bash
# Builds the command-line tools send, recv and inspect in build/tools. Installs what is missing.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash examples/tools.sh

Installs what is missing (apt-get, as root or with sudo) and builds the tools in build/tools:

  build/tools/send FILE...                publishes safetensors, npy and npz files
  build/tools/recv ADDRESS REF -o FILE    pulls one of them into a file
  build/tools/inspect FILE...             lists the tensors of a file

Each has --help. Status: 0 they are built, 1 something went wrong, 2 a wrong option.
TEXT
}

say() { printf '== %s\n' "$*"; }
fail() { printf 'tools.sh: %s\n' "$*" >&2; exit 1; }

case ${1-} in
  '') ;;
  -h | --help) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p -- "$root/build/tools"
log=$root/build/tools/build.log
source "$root/cmake/packages.sh"
install_packages "$root/build/tools/apt.log" g++:g++ cmake:cmake make:make capnp:capnproto libboost-dev libcapnp-dev zlib1g-dev \
  libcurl4-openssl-dev libssl-dev libnats-dev nlohmann-json3-dev

cd -- "$root"
failed() { tail -n 40 "$log" >&2; fail "$1"; }
say "configuring (what it says goes to $log)"
cmake --preset tools >"$log" 2>&1 || failed "CMake could not configure the build"
say "building (the first time takes some minutes)"
cmake --build --preset tools --parallel "$(nproc)" 2>&1 | tee -a "$log" |
  sed -un -e 's|^\[ *[0-9]*%\] Building CXX object .*/\(.*\)\.o$|   compiling \1|p' -e 's|^\[ *[0-9]*%\] Built target \(.*\)$|   \1 is built|p' ||
  failed "the build failed"
say "the tools are $root/build/tools/send, recv and inspect (--help)"
