#!/usr/bin/env bash
# The main job, on made-up digits if no file of digits is given: rounds with ever-changing numbers of participants must leave memory, threads,
# descriptors and live allocations of both processes where they were after the sixth, and have to learn something where the digits are real.
# Usage: federated_flat.sh SERVER CLIENTS PARTICIPANTS ROUNDS [DIGITS]
set -euo pipefail
work=$(mktemp -d)
server=
trap '[[ -z $server ]] || kill "$server" 2>/dev/null || true; rm -rf -- "$work"' EXIT
digits=${5:-$work/digits.csv}
# 5,000 lines of 784 pixels and a label, as the digits' file has them
[[ -n ${5:-} ]] || awk 'BEGIN { srand(1); for (i = 0; i < 5000; ++i) { line = ""; for (k = 0; k < 784; ++k) line = line ((i * 7 + k * 13) % 256) ","; print line int(rand() * 10) } }' > "$work/digits.csv"
"$1" --data "$digits" --participants "$3" --rounds "$4" --listen 127.0.0.1:0 --port-file "$work/port" > "$work/log" 2>&1 &
server=$!
for _ in {1..600}; do
  [[ -s $work/port ]] && break
  kill -0 "$server" 2>/dev/null || { cat "$work/log"; exit 1; }
  sleep 0.1
done
"$2" --data "$digits" --participants "$3" --rounds "$4" --connect "127.0.0.1:$(cat "$work/port")"
status=0
wait "$server" || status=$?
server=
cat "$work/log"
exit "$status"
