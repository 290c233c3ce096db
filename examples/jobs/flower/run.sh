#!/usr/bin/env bash
# FedAvg with Flower's own processes on this machine, without tensorpull and with it: what each took, side by side.
set -euo pipefail

say() { printf '== %s\n' "$*"; }
fail() { printf 'run.sh: %s\n' "$*" >&2; exit 1; }

case ${1:-} in
  -h | --help)
    cat <<'TEXT'
usage: bash examples/jobs/flower/run.sh [--python PYTHON] [options of measure.py]

  --python PYTHON   one that has flwr 1.42 and tensorpull; otherwise they are installed into build/flower
  --nodes N         SuperNodes (2)
  --megabytes N     of the model (200); a node of Flower's own transport takes about eight times as much memory
  --rounds N        (2)
  --repeats N       runs of each kind, in turns (1)
  --strategy NAME   of flwr.serverapp.strategy (FedAvg)
  --line MS MBIT    nodes have folders, and reach the server over a line like this, which they share; needs root and iproute2
  --count           also counts the bytes between the nodes and the SuperLink, which slows them
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
  python=$root/build/flower/bin/python
  if ! "$python" -c 'import flwr, tensorpull._native' >/dev/null 2>&1; then  # also after an installation that was interrupted
    say "installing Flower and this package into build/flower (some minutes)"
    python3 -m venv "$root/build/flower"
    "$python" -m pip install --quiet "$root/examples/python[flower]" flwr==1.42.0 || fail "pip could not install them (why is above)"
  fi
fi
exec "$python" "$root/examples/jobs/flower/measure.py" "$@"
