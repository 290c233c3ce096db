#!/usr/bin/env bash
# The keys of a federation as the page has them, a step at a time in the folder where it is called: keys.sh first|next|revoke
set -euo pipefail

case $1 in
  first)
    openssl genpkey -algorithm ed25519 -out key.pem
    echo "hospitals $(openssl pkey -in key.pem -pubout | sed -n 2p)" > hospitals.keys
    ;;
  next)
    openssl genpkey -algorithm ed25519 -out next.pem
    echo "hospitals $(openssl pkey -in next.pem -pubout | sed -n 2p)" >> hospitals.keys
    ;;
  revoke)
    sed -i '1s/$/ revoked/' hospitals.keys
    ;;
esac
