#!/usr/bin/env bash
# Builds and runs the benchmarks: bash bench/run.sh [--quick]
# Every figure is a ratio within one interleaved run, or comes with its minimum and maximum.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/bench
rounds=15 pulls=5000 compiles=5
case "${1:-}" in
  --quick) rounds=5 pulls=1000 compiles=3 ;;
  "") ;;
  *) echo "usage: bash bench/run.sh [--quick]"; [[ $1 == --help || $1 == -h ]] && exit 0 || exit 2 ;;
esac
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DTENSORPULL_BUILD_BENCH=ON -DTENSORPULL_BUILD_TESTS=OFF -DTENSORPULL_BUILD_EXAMPLES=OFF > /dev/null
cmake --build "$build" --parallel "$(nproc)" > /dev/null
echo "machine: $(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(uname -sr), $(g++ --version | head -1)"
echo
"$build/bench/bench_throughput" "$rounds"
echo
"$build/bench/bench_latency" "$pulls"
echo
"$build/bench/bench_loopback" "$rounds"
echo
bash bench/compile_time.sh "$build" "$compiles"
