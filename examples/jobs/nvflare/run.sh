#!/usr/bin/env bash
# FedAvg on real handwritten digits with NVIDIA FLARE, 4 clients, without tensorpull and with it: what each took, side by side.
set -euo pipefail

say() { printf '== %s\n' "$*"; }
fail() { printf 'run.sh: %s\n' "$*" >&2; exit 1; }

case ${1:-} in
  -h | --help)
    cat <<'TEXT'
usage: bash examples/jobs/nvflare/run.sh [--python PYTHON] [options of measure.py and job.py]

  --python PYTHON   one that has nvflare 2.9, torch and tensorpull; otherwise they are installed into build/nvflare
  --repeats N       runs of each kind, in turns (1)
  --clients N       (4)      --rounds N   (5)
  --steps N         of training in each round (16)
  --width N         of the model: 1024 gives 7.5 MB (the default), 6600 gives 195 MB
  --format FORMAT   what the server computes with: pytorch (the default here) or numpy (FLARE's)
  --line MS MBIT    all processes reach each other over a line like this, which they share; needs root and iproute2
  --differences     with tensorpull, and with what has changed since the model before (tensorpull_differences), instead of without tensorpull and with it
  --table           one row for each of --sites N..., --megabytes M... and --formats F... (2 8, 20 207, numpy pytorch); 40 minutes on two cores, 20 GiB of memory
TEXT
    exit 0
    ;;
esac

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../../.." && pwd)
python=
if [[ ${1:-} == --python ]]; then
  python=${2:?--python wants a program}
  shift 2
fi
if [[ -z $python ]]; then
  source "$root/examples/jobs/nvflare/install.sh"
  install_flare
fi
source "$root/examples/digits.sh"
export DIGITS=$root/build/examples/data/mnist_5k.csv
fetch_digits "$DIGITS"
exec "$python" "$root/examples/jobs/nvflare/measure.py" "$@"
