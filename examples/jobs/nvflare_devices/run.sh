#!/usr/bin/env bash
# A job of NVIDIA FLARE whose site has devices: C++ clients over TLS, and a microcontroller in QEMU at a serial line. Installs what is missing, fetches the digits, builds,
# makes certificates, runs. What it builds is in build/devices.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash examples/jobs/nvflare_devices/run.sh [options]

Installs what is missing (apt-get, as root or with sudo, and pip into build/nvflare), fetches 5,000 handwritten digits, builds the clients of the main job and the
firmware of the microcontroller, and runs a job of NVIDIA FLARE whose site has no data of its own. Shows what the site and the devices say.

  --python PYTHON   one that has nvflare 2.9, torch and tensorpull; otherwise they are installed
  --rounds N        rounds of training, 1 to 100 (3)
  --clients N       C++ clients in each round, 1 to 10, each with 400 digits (6)
  --seed N          of who gets which digits (1)
  -h, --help        this text

Status: 0 every device counted in every round, and each network finds more digits right at the end; 1 something else; 2 a wrong option; 130 interrupted.
TEXT
}

say() { printf '== %s\n' "$*"; }
fail() { printf 'run.sh: %s\n' "$*" >&2; exit 1; }
wrong() { printf 'run.sh: not valid: %s; --help lists the options\n' "$1" >&2; exit 2; }

python= rounds=3 clients=6 seed=1 flash=
while (($#)); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --python | --rounds | --clients | --seed)
      (($# > 1)) && [[ -n $2 ]] || wrong "$1"
      declare "${1#--}=$2"
      shift 2
      ;;
    *) wrong "$1" ;;
  esac
done
[[ $rounds =~ ^[1-9][0-9]?$|^100$ ]] || wrong "--rounds $rounds"
[[ $clients =~ ^[1-9]$|^10$ ]] || wrong "--clients $clients"
[[ $seed =~ ^[0-9]{1,18}$ ]] || wrong "--seed $seed"

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../../.." && pwd)
here=$root/examples/jobs/nvflare_devices
build=$root/build/devices data=$root/build/examples/data/mnist_5k.csv
components="freestanding;tensorpull;asio;tls"
work= device= job= devices=

stop() {
  trap '' INT TERM HUP
  trap - EXIT
  local status=$1 process
  for process in $job $devices $device; do kill -TERM "$process" 2>/dev/null || true; done
  for process in $job $devices $device; do wait "$process" 2>/dev/null || true; done
  [[ -z $work ]] || rm -rf -- "$work"
  exit "$status"
}
trap 'stop $?' EXIT
trap 'stop 130' INT
trap 'stop 143' TERM HUP
work=$(mktemp -d)

source "$root/cmake/packages.sh"
source "$root/examples/digits.sh"
source "$root/examples/jobs/nvflare/install.sh"
source "$root/examples/jobs/microcontroller/device.sh"
mapfile -t items < <(needs_of_jobs)
[[ -n $python ]] || items+=(python3-venv zlib1g-dev libcurl4-openssl-dev)
install_packages "$work/apt.log" "${items[@]}" openssl:openssl libssl-dev \
  arm-none-eabi-g++:gcc-arm-none-eabi libstdc++-arm-none-eabi-newlib qemu-system-arm:qemu-system-arm
[[ -n $python ]] || install_flare
fetch_digits "$data"
say "building (the first time takes some minutes)"
programs=$(build_jobs federated_clients_tls microcontroller_digits microcontroller_firmware)
built=$programs/jobs/microcontroller firmware=$programs/jobs/microcontroller/in_memory.elf

mkdir "$work/certificates"
bash "$here/certificates.sh" "$work/certificates"
say "running: $rounds rounds, $clients clients over TLS, and a microcontroller"
start_device
python=$(realpath -s -- "$python")
(cd "$here" && exec "$python" job.py --workspace "$work/flare" --rounds "$rounds" --data "$data" --seed "$seed" --certificates "$work/certificates" --port-file "$work/port" \
  --participants "$clients" --line "$line") >"$work/job" 2>&1 &
job=$!
for _ in {1..1200}; do
  [[ -f $work/port ]] && break
  kill -0 "$job" 2>/dev/null || break
  sleep 0.1
done
[[ -f $work/port ]] || { tail -n 40 "$work/job" >&2; fail "the site did not start"; }
"$programs/federated_clients_tls" --data "$data" --seed "$seed" --clients 10 --fixed "$clients" --connect "127.0.0.1:$(<"$work/port")" \
  --ca "$work/certificates/ca.pem" --cert "$work/certificates/device.pem" --key "$work/certificates/device.key" &
devices=$!
tail -n +1 -f --pid="$job" "$work/job" 2>/dev/null | sed -un 's/^.*INFO - \(ACCURACY\|site:\)/\1/p' &
shown=$!

status=0
bad() {
  status=1
  printf '== %s\n' "$*" >&2
}
wait "$job" || bad "the job ended with status $?:" "$(tail -n 40 "$work/job")"
job=
wait "$devices" || bad "the clients ended with status $?"
devices=
wait "$shown"
counted=$(grep -c "site: round .* the board counted, with $((400 * (clients + 1))) images; 0 left out" "$work/job" || true)
((counted == rounds)) || bad "all devices counted in $counted rounds, not in $rounds"
for network in client board; do
  mapfile -t right < <(sed -n "s/.*ACCURACY .* \?$network=\([0-9]*\).*/\1/p" "$work/job")
  ((${#right[@]} == rounds + 1 && right[rounds] > right[0])) || bad "the network of a $network finds ${right[*]} digits right"
done
((status)) || say "every device counted in each of $rounds rounds"
exit "$status"
