#!/usr/bin/env bash
# Benchmarks: at run time and at compile time, beside what people would use instead. Installs what is missing, builds, runs, reports.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash bench/run.sh [--quick | --smoke | --all] [--only NAME]... [--rounds N] [--json] [--guide-bytes N] [--no-python]

Installs what is missing (apt-get, as root or with sudo; a virtual environment with nvflare and torch in build/), builds with optimisation,
runs everything in rounds in which all cases take turns, prints tables and writes bench/report/: report.md, a CSV file for each table,
plots (SVG), report.json, log.txt.

  --quick          smaller models and fewer rounds; under three minutes once it is built
  --smoke          everything is built and every suite runs once, in its smallest form, without NVIDIA FLARE and torch: does it still work? Its figures mean nothing
  --all            also NVIDIA FLARE's memory and threads over 45 rounds (suite flatness); some minutes more. With --only wan: every line, loss and model,
                   which takes hours
  --only NAME      one of: transfers chunks recipients tls tensors latency local udp wan changes unix_socket nats http hostile serial shared_memory flatness guide micro profile compile;
                   may be given again
  --rounds N       at most N rounds of each suite, for a machine with little time
  --json           print report.json instead of tables
  --guide-bytes N  size of the model in the suite guide (2147483648)
  --no-python      without NVIDIA FLARE and torch, which take 2 GB of disk

Status: 0 everything ran, 1 something failed, 2 a wrong option. Missing a target is not a failure; the report lists it.
TEXT
}

say() { printf '== %s\n' "$*" >&2; }
fail() { printf 'run.sh: %s\n' "$*" >&2; exit 1; }

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/bench
python_packages='nvflare==2.9.0|torch==2.13.0|numpy'
options=() with_python=1 everything=0 only=()
while (($#)); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --quick | --json) options+=("$1") ;;
    --smoke) options+=("$1") with_python=0 ;;
    --all) options+=("$1") everything=1 ;;
    --only | --guide-bytes | --rounds)
      (($# > 1)) || { usage >&2; exit 2; }
      [[ $1 != --only ]] || only+=("$2")
      options+=("$1" "$2")
      shift
      ;;
    --no-python) with_python=0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done
# these need no Python
[[ ${#only[@]} -eq 0 || " ${only[*]} " =~ \ (transfers|recipients|latency)\  || ($everything -eq 1 && " ${only[*]} " == *" flatness "*) ]] || with_python=0

mkdir -p -- "$build"
source "$root/cmake/packages.sh"
items=(g++:g++ cmake:cmake ninja:ninja-build capnp:capnproto python3:python3 pkg-config:pkg-config ca-certificates libboost-dev libcapnp-dev zlib1g-dev libcurl4-openssl-dev curl:curl
  libzmq3-dev cppzmq-dev libnats-dev nats-server libssl-dev libgrpc++-dev protoc:protobuf-compiler libprotobuf-dev grpc_cpp_plugin:protobuf-compiler-grpc libbenchmark-dev)
python=/usr/bin/python3 # another Python may come first, and it needs no venv
[[ -x $python ]] || python=python3
((!with_python)) || "$python" -c 'import venv, ensurepip' 2>/dev/null || items+=(python3-venv)
# the suite wan needs root, and nobody else has to install for it
((EUID != 0)) || items+=(gtlsclient:ngtcp2-client gtlsserver:ngtcp2-server)
install_packages "$build/apt.log" "${items[@]}"
((EUID != 0)) || fetch_nginx "$build/nginx" "$build/apt.log" || say "nginx is not installed and cannot be fetched; the suite wan goes without it"
if ((with_python)); then
  environment=$root/build/bench-python
  [[ -f $environment/packages.txt ]] || say "installing ${python_packages//|/ } in build/bench-python"
  cmake "-DPYTHON=$python" "-DENVIRONMENT=$environment" "-DPACKAGES=$python_packages" -P "$root/tests/python_environment.cmake" >"$build/pip.log" 2>&1 ||
    { tail -n 5 "$build/pip.log" >&2; fail "pip could not install them (why is above); --no-python goes without"; }
  options+=(--python "$environment/bin/python")
fi

say "building"
generator=()
[[ -f $build/CMakeCache.txt ]] || generator=(-G Ninja)
launcher=()
! command -v ccache >/dev/null || launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
{
  cmake -S "$root" -B "$build" "${generator[@]}" "${launcher[@]}" -DCMAKE_BUILD_TYPE=Release -DTENSORPULL_BUILD_BENCH=ON -DTENSORPULL_BUILD_TESTS=OFF \
    "-DTENSORPULL_COMPONENTS=ground;satellites" \
    -DTENSORPULL_BUILD_EXAMPLES=OFF && cmake --build "$build" --parallel "$(nproc)"
} >"$build/build.log" 2>&1 || { grep -E -A 3 'error: |^FAILED|CMake Error' "$build/build.log" >&2 || tail -n 30 "$build/build.log" >&2; fail "the build failed"; }

exec python3 "$root/bench/driver" --build "$build/bench" --report "$root/bench/report" "${options[@]}"
