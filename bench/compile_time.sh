#!/usr/bin/env bash
# What a pipeline of 400 tensors costs to compile, beside an empty file: bash bench/compile_time.sh BUILD_FOLDER [ROUNDS]
# BUILD_FOLDER: a configured build, whose generated protocol header is used. The files take turns, round by round.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 rounds=${2:-5}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

model='struct row { std::array<float, 8> a, b, c; std::array<std::int8_t, 4> d; };
BOOST_HANA_ADAPT_STRUCT(row, a, b, c, d);
struct model { std::array<row, 100> rows; };
BOOST_HANA_ADAPT_STRUCT(model, rows);'
includes='#include <tensorpull/pipeline.hpp>
#include <tensorpull/tensors/raw.hpp>'
echo 'int main() {}' > "$work/empty.cpp"
cat > "$work/loopback.cpp" <<EOF
$includes
#include <tensorpull/transports/loopback.hpp>
$model
using net = tensorpull::pipeline<tensorpull::raw_tensors<model>, tensorpull::fixed_bytes<65536>, tensorpull::loopback>;
bool f(net::downloader& from, const tensorpull::reference& ref, model& to) { return net::download_tensors(from, ref, to).has_value(); }
EOF
cat > "$work/tcp.cpp" <<EOF
$includes
#include <tensorpull/transports/tcp.hpp>
$model
using net = tensorpull::pipeline<tensorpull::raw_tensors<model>, tensorpull::fixed_bytes<65536>, tensorpull::tcp>;
bool f(const tensorpull::reference& ref, model& to) { return net::download_tensors("server:8002", ref, to).has_value(); }
EOF
cat > "$work/owner.cpp" <<EOF
$includes
#include <tensorpull/transports/tcp_owner.hpp>
$model
using net = tensorpull::pipeline<tensorpull::raw_tensors<model>, tensorpull::fixed_bytes<65536>, tensorpull::tcp>;
bool f(const model& m) { auto o = net::downloader::open(); return o && o->add_tensors(m).has_value(); }
EOF

flags=(-std=c++20 -Iinclude -isystem "$build/tensorpull-generated/include" -c -o /dev/null)
compilers=(g++)
for c in clang++ clang++-14; do command -v "$c" > /dev/null && compilers+=("$c") && break; done
for round in $(seq 0 "$rounds"); do
  for compiler in "${compilers[@]}"; do
    for file in empty loopback tcp owner; do
      start=$(date +%s%N)
      "$compiler" "${flags[@]}" "$work/$file.cpp"
      # the first round warms the disk's cache
      if ((round > 0)); then echo $((($(date +%s%N) - start) / 1000000)) >> "$work/$compiler.$file.ms"; fi
    done
  done
done
echo "400 tensors, without optimisation, seconds to compile, $rounds rounds: median (min to max), and the median's difference to an empty file"
for compiler in "${compilers[@]}"; do
  empty=$(sort -n "$work/$compiler.empty.ms" | sed -n "$((rounds / 2 + 1))p")
  for file in empty loopback tcp owner; do
    sort -n "$work/$compiler.$file.ms" | awk -v name="$compiler, $file" -v empty="$empty" '
      { v[NR] = $1 } END { m = v[int(NR / 2) + 1]; printf "%-24s %6.2f (%.2f to %.2f)  %+.2f\n", name, m / 1000, v[1] / 1000, v[NR] / 1000, (m - empty) / 1000 }'
  done
done
