"""Certificates for tests, made when they run, so that no key lies in the tree."""

from __future__ import annotations


import processes

import tensorpull
from tensorpull import TLS


def certificates(folder, *sites):
    """What a server and sites configure: one authority has signed all of them, and each site's common name is its own. Callers have to show theirs."""

    def openssl(*arguments):
        processes.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    for name in ("server", *sites):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / "names").write_text(f"subjectAltName=DNS:{name},IP:127.0.0.1\n")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.pem", "-extfile", "names")
    return {
        name: TLS(ca_file=folder / "ca.pem", cert_file=folder / f"{name}.pem", key_file=folder / f"{name}.key", require_client_certificates=name == "server")
        for name in ("server", *sites)
    }


def signing_keys(folder, *names, federation="hospitals"):
    """`NAME.pem`, a private key of Ed25519, and `NAME.line`, its line among the keys that a federation trusts, for each name."""
    for name in names:
        processes.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", f"{name}.pem"], check=True, capture_output=True, cwd=folder)
        shared = processes.run(["openssl", "pkey", "-in", f"{name}.pem", "-pubout"], check=True, capture_output=True, text=True, cwd=folder).stdout
        (folder / f"{name}.line").write_text(f"{federation} {shared.splitlines()[1]}\n")
    return folder


def resign(text, key, **claims):
    """A signed reference with other claims, signed by this key."""
    left = dict(line.split(" ", 1) for line in text.splitlines()[1:])
    left.update({name: str(value) for name, value in claims.items()})
    return tensorpull._native.sign_reference(
        left["model"], int(left["schema"], 16), left["tree"], left["root"], int(left["bytes"]), "", str(key), left["federation"], int(left["round"]), int(left["expires"]), left["note"]
    )  # fmt: skip
