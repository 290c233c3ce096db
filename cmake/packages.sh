# Sourced by examples/run.sh, examples/tools.sh and tests/run.sh: installs the Debian packages that are missing. Needs their functions say and fail.
#   install_packages LOG ITEM...: an item is PACKAGE, or PROGRAM:PACKAGE where any program of that name will do.

missing_packages() {
  local item
  for item in "$@"; do
    if [[ $item == *:* ]]; then
      command -v "${item%%:*}" >/dev/null || echo "${item#*:}"
    else
      [[ $(dpkg-query -W -f='${db:Status-Status}' "$item" 2>/dev/null) == installed ]] || echo "$item"
    fi
  done
}

install_packages() {
  local log=$1 missing sudo=
  shift
  command -v dpkg-query >/dev/null || { say "no dpkg here: taking the dependencies as installed"; return; }
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  local by_hand="apt-get install --no-install-recommends ${missing[*]}"
  command -v apt-get >/dev/null || fail "these packages are missing, and there is no apt-get to install them: ${missing[*]}"
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null || { [[ ! -t 0 ]] && ! sudo -n true 2>/dev/null; }; then
      fail "packages are missing that only root can install. As root: $by_hand"
    fi
    sudo=sudo
  fi
  say "installing ${missing[*]}"
  # One repository of many may fail without being needed; whether it was, the installation says.
  $sudo apt-get update -qq >"$log" 2>&1 || say "apt-get update failed in part; going on with the package lists that are there"
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}" >>"$log" 2>&1 || {
    grep -E '^(E|W|Err)' "$log" | cut -c 1-300 | tail -n 5 >&2 || tail -n 20 "$log" >&2
    fail "apt-get could not install what is missing (why is above; often the network, or /etc/apt/sources.list). By hand: $by_hand"
  }
}
