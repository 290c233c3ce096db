"""Whether a host's name or address leads to this machine alone, for peers that may go without TLS there."""

import ipaddress


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
