#!/usr/bin/env bash
# Federated averaging on real handwritten digits, between two processes over TCP, with tensorpull moving the models.
# Installs what is missing, fetches the digits, builds, runs. Everything that it makes is in build/examples.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash examples/run.sh [options]

Installs what is missing (apt-get, as root or with sudo), fetches 5,000 handwritten digits, builds, and runs federated
averaging with a server and 500 clients in two processes over TCP. Both programs are given the options:

  --rounds N          rounds of federated averaging (45)
  --clients N         clients that share the training images, 1 to 4000 (500)
  --fixed N           N participants in each round; otherwise as examples/participants.txt says
  --participants FILE numbers of participants, one for each round
  --seed N            seed of shuffling, model and choice of participants (1)
  --learning-rate X   of the clients' local training (0.3)
  --json FILE         write settings, rounds and verdict as JSON
  --plot FILE         write memory, threads and accuracy as SVG (build/examples/federated.svg)

Status: 0 the run passed, 1 a check failed or something went wrong, 2 a wrong option, 130 interrupted.
TEXT
}

say() { printf '== %s\n' "$*"; }
fail() { printf 'run.sh: %s\n' "$*" >&2; exit 1; }

for argument in "$@"; do
  case $argument in -h | --help) usage; exit 0 ;; esac
done

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/examples
data=$build/data/mnist_5k.csv
work= server= clients=

stop() {
  trap '' INT TERM HUP
  trap - EXIT
  local status=$1 process
  for process in $server $clients; do kill -TERM "$process" 2>/dev/null || true; done
  for _ in {1..30}; do
    [[ -z $(jobs -rp) ]] && break
    sleep 0.1
  done
  for process in $(jobs -rp); do kill -KILL "$process" 2>/dev/null || true; done
  [[ -z $work ]] || rm -rf -- "$work"
  exit "$status"
}
trap 'stop $?' EXIT
trap 'stop 130' INT
trap 'stop 143' TERM HUP

# The server writes the port that it got to a file, whole or not at all, once it listens.
wait_for_port() {
  local port
  for _ in {1..600}; do
    if [[ -f $work/port ]] && read -r port <"$work/port"; then
      echo "$port"
      return
    fi
    kill -0 "$server" 2>/dev/null || return 1
    sleep 0.05
  done
  return 1
}

# Waits for process $1, which has nobody left to talk to: $2 seconds, then it is told to stop. Leaves with its status.
finish() {
  local tenths=$(($2 * 10))
  while ((tenths-- > 0)) && kill -0 "$1" 2>/dev/null; do sleep 0.1; done
  kill -TERM "$1" 2>/dev/null || true
  wait "$1"
}

run_programs() {
  local options=(--data "$data" --participants "$root/examples/participants.txt" --plot "$build/federated.svg" "$@")
  local server_status=0 clients_status=0 finished status=0 port

  say "running"
  "$programs/federated_server" "${options[@]}" --listen 127.0.0.1:0 --port-file "$work/port" &
  server=$!
  if ! port=$(wait_for_port); then
    finish "$server" 0 || status=$?
    server=
    ((status == 2)) || say "the server did not start (status $status)" >&2
    return $((status ? status : 1))
  fi
  "$programs/federated_clients" "${options[@]}" --connect "127.0.0.1:$port" &
  clients=$!

  wait -n -p finished "$server" "$clients" || status=$?
  local grace=$((status == 0 ? 30 : 5))
  if [[ $finished == "$server" ]]; then
    server_status=$status
    finish "$clients" "$grace" || clients_status=$?
  else
    clients_status=$status
    finish "$server" "$grace" || server_status=$?
  fi
  server= clients=
  ((clients_status == 0)) || say "the clients' process ended with status $clients_status" >&2
  ((server_status != 143)) || server_status=1  # told to stop, since the clients had failed
  return $((server_status ? server_status : clients_status ? 1 : 0))
}

work=$(mktemp -d)
source "$root/cmake/packages.sh"
source "$root/examples/digits.sh"
mapfile -t items < <(needs_of_jobs)
install_packages "$work/apt.log" "${items[@]}"
fetch_digits "$data"
say "building (the first time takes a minute)"
programs=$(build_jobs federated_server federated_clients)
status=0
run_programs "$@" || status=$?
exit "$status"
