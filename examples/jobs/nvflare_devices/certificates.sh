#!/usr/bin/env bash
# Makes an authority in a folder, and what it has signed: certificates of a site at 127.0.0.1 and of its devices. usage: certificates.sh FOLDER
set -euo pipefail
cd -- "${1:?certificates.sh FOLDER}"
key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
openssl req -x509 "${key[@]}" -keyout ca.key -out ca.pem -subj "/CN=the site's devices" -addext keyUsage=critical,keyCertSign,cRLSign 2>/dev/null
for name in site device; do
  openssl req "${key[@]}" -keyout "$name.key" -out "$name.csr" -subj "/CN=$name" 2>/dev/null
  printf 'subjectAltName=%s\n' "$([[ $name == site ]] && echo IP:127.0.0.1 || echo DNS:device)" >"$name.names"
  openssl x509 -req -in "$name.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -out "$name.pem" -extfile "$name.names" 2>/dev/null
done
rm -- ca.key ./*.csr ./*.names
