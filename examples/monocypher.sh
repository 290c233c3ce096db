# Sourced by what verifies signatures of Ed25519 on a small machine. Needs its functions say and fail.
#   fetch_monocypher FOLDER puts monocypher.c and monocypher.h there (Monocypher 4.0.3, from the source distribution of the Python package pymonocypher), unless they are there.

monocypher_sha256=39db62e71876d13bb887d88a214f7f5d1eca857cb3964064202ac4c82b77572e
has_monocypher() { [[ -f $1/monocypher.c && -f $1/monocypher.h ]] && cat -- "$1/monocypher.c" "$1/monocypher.h" | sha256sum | grep -q "^$monocypher_sha256 "; }

fetch_monocypher() (
  has_monocypher "$1" && return
  say "fetching Monocypher (0.5 MB, from the Python package pymonocypher)"
  folder=$(mktemp -d)
  trap 'rm -rf -- "$folder"' EXIT
  # pip asks the package for its name, which runs its setup.py: so the hash is compared before that. Nothing is built.
  echo "pymonocypher==4.0.3.4 --hash=sha256:5e56e3d3eb770a53e0b9f6274146663c11a11f3d0de5cd48e3be0428d1b07a4a" >"$folder/wanted"
  for python in python3 /usr/bin/python3; do  # another Python may come first, without pip or setuptools; Debian's has both with python3-pip
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: --no-build-isolation --require-hashes -r "$folder/wanted" -d "$folder" 2>>"$folder/pip.log" && break
  done || { tail -n 5 "$folder/pip.log" >&2; fail "pip could not download pymonocypher (why is above; often the network or a proxy). monocypher.c and monocypher.h can also be put into $1 by hand"; }
  mkdir -p -- "$1"
  tar --no-same-owner -xzf "$folder"/pymonocypher-4.0.3.4.tar.gz -C "$1" --strip-components=1 pymonocypher-4.0.3.4/monocypher.c pymonocypher-4.0.3.4/monocypher.h
  has_monocypher "$1" || fail "$1 has not the files that this example was written for (their SHA-256 differs)"
)
