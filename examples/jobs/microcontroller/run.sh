#!/usr/bin/env bash
# Federated learning with a microcontroller: a Cortex-M3 in QEMU and some clients train one model, which a server averages; the device has a serial line to it.
# Installs what is missing, fetches the digits, builds, runs. Everything that it makes is in build/examples.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash examples/jobs/microcontroller/run.sh [options]

Installs what is missing (apt-get, as root or with sudo), fetches 5,000 handwritten digits, builds server, clients and firmware, and runs rounds of federated
averaging between four clients over TCP and a device of 64 KiB of RAM in QEMU, whose UART is the server's serial line. Shows what both say.

  --rounds N        rounds, 1 to 100 (3)
  --seed N          of the model, and of who gets which digits (1)
  --update KIND     the device's update: whole, or 8-bits, a difference to the round's model, for which that has to lie in flash (whole)
  --prove           the model lands in flash, and the device proves it by a signed reference, which it verifies itself
  --flash FILE      the model lands in this file, which is the device's flash, and outlives the device: started again, it goes on where it was
  --built FOLDER    server, clients and firmware are in this folder: nothing is installed or built (for tests)
  --data FILE       the digits are in this file (with --built)
  -h, --help        this text

Status: 0 every round was completed, the device's updates count, device and server agree on every digest and every accuracy, and the device kept to its stack and
has no heap; 1 something else; 2 a wrong option; 130 interrupted.
TEXT
}

say() { printf '== %s\n' "$*"; }
fail() { printf 'run.sh: %s\n' "$*" >&2; exit 1; }
wrong() { printf 'run.sh: not valid: %s; --help lists the options\n' "$1" >&2; exit 2; }

rounds=3 seed=1 update=whole flash= built= data= prove=
while (($#)); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --prove) prove=1; shift ;;
    --rounds | --seed | --update | --flash | --built | --data)
      (($# > 1)) && [[ -n $2 ]] || wrong "$1"
      declare "${1#--}=$2"
      shift 2
      ;;
    *) wrong "$1" ;;
  esac
done
[[ $rounds =~ ^[1-9][0-9]?$|^100$ ]] || wrong "--rounds $rounds"
[[ $seed =~ ^[0-9]{1,18}$ ]] || wrong "--seed $seed"

[[ $update == whole || $update == 8-bits && ! $prove ]] || wrong "--update $update"

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../../.." && pwd)
build=$root/build/examples
work= device= server= clients= key=

stop() {
  trap '' INT TERM HUP
  trap - EXIT
  local status=$1 process
  for process in $device $server $clients; do kill -TERM "$process" 2>/dev/null || true; done
  for process in $device $server $clients; do wait "$process" 2>/dev/null || true; done
  [[ -z $work ]] || rm -rf -- "$work"
  exit "$status"
}
trap 'stop $?' EXIT
trap 'stop 130' INT
trap 'stop 143' TERM HUP
work=$(mktemp -d)

if [[ -z $built ]]; then
  data=$build/data/mnist_5k.csv
  source "$root/cmake/packages.sh"
  source "$root/examples/digits.sh"
  source "$root/examples/monocypher.sh"
  mapfile -t items < <(needs_of_jobs)
  if [[ $prove ]]; then
    components="freestanding;tensorpull;tls;proofs"
    items+=(libssl-dev openssl:openssl)
    has_monocypher "$build/monocypher" || items+=(python3-pip)
  fi
  install_packages "$work/apt.log" "${items[@]}" arm-none-eabi-g++:gcc-arm-none-eabi libstdc++-arm-none-eabi-newlib qemu-system-arm:qemu-system-arm
  fetch_digits "$data"
  [[ ! $prove ]] || fetch_monocypher "$build/monocypher"
  say "building (the first time takes a minute)"
  built=$(build_jobs microcontroller_server microcontroller_clients microcontroller_digits microcontroller_firmware)
fi

firmware=$built/in_memory.elf
[[ -z $flash ]] || firmware=$built/in_flash.elf
if [[ $update == 8-bits ]]; then
  firmware=$built/in_flash_8_bits.elf
  flash=${flash:-$work/flash}
fi

if [[ $prove ]]; then
  firmware=$built/in_flash_proved.elf
  flash=${flash:-$work/flash} key=$work/digits.keys
  openssl genpkey -algorithm ed25519 -out "$work/key.pem"
  echo "digits $(openssl pkey -in "$work/key.pem" -pubout | sed -n 2p)" >"$key"
fi

source "$root/examples/jobs/microcontroller/device.sh"

wait_for_port() {
  for _ in {1..600}; do
    [[ -f $work/port ]] && return
    kill -0 "$server" 2>/dev/null || return 1
    sleep 0.05
  done
  return 1
}

say "running: $(basename "$firmware"), $rounds rounds"
start_device
shared=(--data "$data" --rounds "$rounds" --seed "$seed" --clients 4)
mkfifo "$work/told"
"$built/microcontroller_server" "${shared[@]}" --update "$update" --line "$line" --port-file "$work/port" ${key:+--sign "$work/key.pem"} >"$work/told" &
server=$!
tee "$work/server" <"$work/told" &
transcripts=("$transcript" $!)
wait_for_port || fail "the server did not start"
"$built/microcontroller_clients" "${shared[@]}" --connect "127.0.0.1:$(<"$work/port")" &
clients=$!

status=0
bad() {
  status=1
  printf '== %s\n' "$*" >&2
}
wait "$server" || bad "the server ended with status $?"
# a process that has nobody left to talk to is not waited for long
ended() {
  for _ in {1..100}; do
    kill -0 "$1" 2>/dev/null || break
    sleep 0.1
  done
  kill -TERM "$1" 2>/dev/null || true
  wait "$1"
}
ended "$clients" || bad "the clients ended with status $?"
ended "$device" || bad "the device ended with status $?" "$(grep -v 'Timer with period zero' "$work/emulator")"
server= clients= device=
wait "${transcripts[@]}"

# What both have said of each model and each update, which must be the same; and nothing may be missing.
# In 8 bits the device knows the accuracy of its model, and the server that of what comes of it.
of() { sed -n 's/^[a-z]*: \(round [0-9]*: [a-z]* [0-9a-f]*: [0-9]* of [0-9]* right\)$/\1/p' "$work/$1" | if [[ $update == whole ]]; then cat; else sed 's/\(update .*\): .*/\1/'; fi; }
lines=$(of server | wc -l)
((lines == 2 * rounds + 1)) || bad "the server measured $lines models and updates, not $((2 * rounds + 1))"
diff <(of server) <(of device) >"$work/diff" || bad "server and device do not agree:" "$(<"$work/diff")"
counted=$(grep -c "the device's counts" "$work/server" || true)
((counted == rounds)) || bad "$counted updates of the device count, not $rounds"
right=$(grep -cE "the $([[ $prove ]] && echo root || echo digest) is right" "$work/device" || true)
((right > rounds)) || bad "the device found $right models right, not $((rounds + 1))"
grep -q "of stack, .* no heap" "$work/device" || bad "the device did not say how much stack it used"
if nm=$(command -v arm-none-eabi-nm || command -v nm) && "$nm" "$firmware" >"$work/symbols"; then
  heap=$(grep -E ' (_?malloc(_r)?|_?free(_r)?|_?sbrk(_r)?|_Znwj|_Znaj)$' "$work/symbols" || true)
  [[ -z $heap ]] || bad "the firmware has a heap: $heap"
fi
((status)) || say "$rounds rounds: device and server agree on every digest and every accuracy$([[ $update == whole ]] || echo " of a model"); the device's updates count"
exit "$status"
