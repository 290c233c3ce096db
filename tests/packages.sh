# Sourced by run.sh: finds which Debian packages are missing, and installs them.
#   install_packages LOG: needs the functions say and fail.

missing_packages() {
  have() { command -v "$1" >/dev/null; }
  have g++ || echo g++
  have cmake || echo cmake
  have ninja || echo ninja-build
  have ccache || echo ccache
  have capnp || echo capnproto
  have xxhsum || echo xxhash
  have git || echo git
  have python3 || echo python3
  have arm-none-eabi-g++ || echo gcc-arm-none-eabi
  have clang++ || have clang++-14 || echo clang
  # A Python without these two modules cannot make an environment; the package adds them to Debian's.
  /usr/bin/python3 -c 'import venv, ensurepip' 2>/dev/null || echo python3-venv
  local package libraries=(libboost-dev libcapnp-dev libxxhash-dev libgtest-dev nlohmann-json3-dev libstdc++-arm-none-eabi-newlib ca-certificates)
  for package in "${libraries[@]}"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || echo "$package"
  done
}

install_packages() {
  local log=$1 missing sudo=
  command -v dpkg-query >/dev/null || { say "no dpkg here: taking the dependencies as installed"; return; }
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]})) || return 0
  local needs="the tests need the packages: ${missing[*]}"
  command -v apt-get >/dev/null || fail "$needs (and there is no apt-get to install them)"
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null || { [[ ! -t 0 ]] && ! sudo -n true 2>/dev/null; }; then
      fail "$needs. Install them as root: apt-get install ${missing[*]}"
    fi
    sudo=sudo
  fi
  say "installing ${missing[*]}"
  $sudo apt-get update -qq >"$log" 2>&1 || { tail -n 5 "$log" >&2; fail "apt-get update failed; $needs"; }
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$log" 2>&1 ||
    { tail -n 20 "$log" >&2; fail "apt-get install failed; $needs"; }
}
