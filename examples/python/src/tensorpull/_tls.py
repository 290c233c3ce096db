"""How connections over TLS are configured."""

from __future__ import annotations

import os
from typing import Any, Callable, Optional, Union

from . import _native
from ._errors import Error
from ._options import text

Path = Union[str, bytes, "os.PathLike[str]"]


class _Arguments:
    """As the compiled half reads them. Texts are empty if they were not given."""

    ca_file = ca_text = cert_file = cert_text = key_file = key_text = key_password = crl_file = check_hostname = ""
    proxy = proxy_user = proxy_password = ""
    require_client_certificates = only_tls_1_3 = session_tickets = False


class TLS:
    """Certificates, keys and authorities for addresses that begin with "tls://": `ssl=tensorpull.TLS(...)`. Either end may have each of them.

      ca_file, ca_text      authorities that the other end's certificate may be of, in PEM; none: a client trusts the system's
      cert_file, cert_text  the own certificate, then those between it and an authority; an end that listens needs one
      key_file, key_text    its private key; none: it is with the certificate
      key_password          of an encrypted key; nobody is asked for it
      crl_file              lists of revoked certificates
      check_hostname        the name that the other end's certificate has to have, in place of the address's host. There is no way not to check
      require_client_certificates  an end that listens refuses clients without a certificate of `ca_file`, before one byte of theirs is looked at
      minimum_version       "1.2" or "1.3"
      session_tickets       clients may come back sooner, without showing their certificate again
      proxy, proxy_user, proxy_password  an HTTP proxy on the way, "host:port"; it is sent the password in the clear

    Where nobody gives you certificates, an authority of your own does, for example with OpenSSL. Keep ca.key where nobody else reads it, and give everybody ca.pem:

        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=our authority" -keyout ca.key -out ca.pem
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=server" -keyout server.key -out server.csr
        echo "subjectAltName=DNS:server.example.org" | openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -days 825 -out server.pem -extfile /dev/stdin

    The server has TLS(cert_file="server.pem", key_file="server.key"), and its clients, who dial the name in subjectAltName, TLS(ca_file="ca.pem"). A client's certificate is made alike, with
    its recipient's name as CN; it needs no subjectAltName. Then the client gives cert_file and key_file too, and the server ca_file and require_client_certificates.

    Files are read once, here, and again by `reload()`. Errors: "bad_file" with the file's name, "invalid_argument", "bad_address" if this build has
    no TLS.
    """

    def __init__(
        self,
        *,
        ca_file: Optional[Path] = None,
        ca_text: Optional[str] = None,
        cert_file: Optional[Path] = None,
        cert_text: Optional[str] = None,
        key_file: Optional[Path] = None,
        key_text: Optional[str] = None,
        key_password: Optional[str] = None,
        crl_file: Optional[Path] = None,
        check_hostname: Optional[str] = None,
        require_client_certificates: bool = False,
        minimum_version: str = "1.2",
        session_tickets: bool = False,
        proxy: Optional[str] = None,
        proxy_user: Optional[str] = None,
        proxy_password: Optional[str] = None,
    ) -> None:
        if missing := _native.missing_link("tls"):
            raise Error("bad_address", missing)
        for what, file, words in (("ca", ca_file, ca_text), ("cert", cert_file, cert_text), ("key", key_file, key_text)):
            if file is not None and words is not None:
                raise ValueError(f"{what}_file or {what}_text, not both")
            if words == "" or file in ("", b""):  # otherwise an empty list of authorities would mean the system's
                raise ValueError(f"{what}_file or {what}_text is empty")
        if crl_file in ("", b""):
            raise ValueError("crl_file is empty")
        if minimum_version not in ("1.2", "1.3"):
            raise ValueError(f'minimum_version is "1.2" or "1.3"; not {minimum_version!r}')
        if isinstance(check_hostname, bool):
            raise TypeError("check_hostname is a name; names are always checked")
        given = _Arguments()
        for what, file in (("ca_file", ca_file), ("cert_file", cert_file), ("key_file", key_file), ("crl_file", crl_file)):
            if file is not None:
                setattr(given, what, os.fsencode(file))  # its name need not be Unicode
        for what, words in (
            ("ca_text", ca_text), ("cert_text", cert_text), ("key_text", key_text), ("key_password", key_password), ("check_hostname", check_hostname),
            ("proxy", proxy), ("proxy_user", proxy_user), ("proxy_password", proxy_password),
        ):  # fmt: skip
            if words is not None:
                setattr(given, what, text(words, what, "text"))
        given.require_client_certificates = bool(require_client_certificates)
        given.only_tls_1_3 = minimum_version == "1.3"
        given.session_tickets = bool(session_tickets)
        self._files = [os.fsdecode(file) for file in (ca_file, cert_file, key_file, crl_file) if file]
        self._key = os.fsdecode(key_file or cert_file or "key_text")
        self._native = self._told(lambda: _native.Tls(given))

    def reload(self) -> None:
        """Reads the files again, for connections that begin afterwards. After an error the old ones stay."""
        self._told(self._native.reload)

    def _told(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Error as e:
            if e.code == "bad_file" and e.name.startswith("key:"):
                raise e.saying("the key is not that of the certificate", self._key) from None
            for file in self._files:  # the compiled half has cut a long name
                if e.name.endswith("...") and file.startswith(e.name[:-3]):
                    raise e.saying(e.message, file) from None
            raise


def native(ssl: Optional[TLS]) -> Any:
    if ssl is None:
        return None
    if not isinstance(ssl, TLS):
        raise TypeError(f"ssl is a tensorpull.TLS; not {ssl!r}")
    return ssl._native
