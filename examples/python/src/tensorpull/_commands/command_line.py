"""The command lines: getopt reads the options, each command says what they mean."""

from __future__ import annotations

import getopt
import os
import re
from typing import Any, Callable, List, NamedTuple, Optional, Sequence

from .._errors import Error
from .._tls import TLS
from .text import out, printable, say, say_plain, shell_word


class OptionError(Exception):
    """What is wrong with a command line, in one sentence."""


class Form(NamedTuple):
    """`--name` and, if there is a `letter`, `-l`."""

    name: str
    has_value: bool
    letter: str = ""


TLS_FORMS = [Form("tls-ca", True), Form("tls-cert", True), Form("tls-key", True), Form("tls-crl", True)]


def read(arguments: Sequence[str], tool: str, text: str, forms: Sequence[Form], setter: Callable[[str, str], None], check: Callable[[List[str]], None]) -> Optional[int]:
    """Calls `setter` with each option's name and value, in order, then `check` with the words that are no options. Returns the exit status if the command
    ends here: with 0 after --help, with 2 after an error."""
    letters = "h" + "".join(form.letter + (":" if form.has_value else "") for form in forms if form.letter)
    names = ["help"] + [form.name + ("=" if form.has_value else "") for form in forms]
    long = {f"-{form.letter}": form.name for form in forms if form.letter}
    try:
        try:
            options, words = getopt.gnu_getopt(list(arguments), letters, names)
        except getopt.GetoptError as e:
            raise OptionError(printable(e.msg)) from None
        for option, value in options:
            if option in ("-h", "--help"):
                out(text)
                return 0
            setter(long.get(option, option[2:]), value)
        check(words)
    except OptionError as wrong:
        say(tool, str(wrong))
        say_plain(f"'python -m {tool} --help' lists the options and has an example.")
        return 2
    return None


def number(name: str, text: str, least: int, most: int) -> int:
    # as many digits as anybody may write: int() would refuse thousands of them in another way
    if re.fullmatch("[0-9]+", text, re.ASCII) and len(text.lstrip("0")) <= len(str(most)) and least <= int(text.lstrip("0") or "0") <= most:
        return int(text.lstrip("0") or "0")
    raise OptionError(f"{name} wants a whole number from {least} to {most}, not '{short(text)}'")


def seconds(name: str, text: str) -> float:
    if re.fullmatch(r"[0-9]*\.?[0-9]*(e[+-]?[0-9]+)?", text, re.ASCII) and len(text) < 100:
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if 0.001 <= value <= 31_536_000:
            return value
    raise OptionError(f"{name} wants a number of seconds above 0, as in 30 or 0.5, not '{short(text)}'")


def size(name: str, text: str, least: int, most: int) -> int:
    """Bytes, or a number with K, M or G (powers of 1024; KiB, MiB, GiB are the same)."""
    found = re.fullmatch("([0-9]{1,20})(?:([KMG])(?:iB)?)?", text, re.ASCII)
    if found:
        value = int(found[1]) << {None: 0, "K": 10, "M": 20, "G": 30}[found[2]]
        if least <= value <= most:
            return value
    raise OptionError(f"{name} wants a size from {least} to {most >> 20}M, as in 65536, 64K or 2M, not '{short(text)}'")


def path(name: str, text: str) -> str:
    if not text:
        raise OptionError(f"{name} wants the name of a file")
    return text


def name(option: str, text: str) -> str:
    """A name that travels, so it is Unicode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise OptionError(f"{option} wants a text in UTF-8, not '{short(text)}'") from None
    return text


def first_line(option: str, file: str) -> str:
    """The first line of a small file that has a secret."""
    try:
        with open(path(option, file), encoding="utf-8") as opened:
            line = opened.readline(4098).rstrip("\n")
    except (OSError, ValueError):
        line = ""
    if not 1 <= len(line) <= 4096:
        raise OptionError(f"{option}: {short(file)} has no line of 1 to 4,096 characters")
    return line


def short(text: str) -> str:
    """A word of the command line as an error shows it."""
    return printable(text) if len(text) <= 80 else printable(text[:77]) + "..."


def reference(text: str) -> Optional[str]:
    """The 32 digits of a reference; None: it is none."""
    return text.lower() if re.fullmatch("[0-9a-fA-F]{32}", text, re.ASCII) and int(text, 16) else None


#: The links that have addresses, and those of them that have a port.
LINKS = ("tcp", "tls", "unix", "udp", "serial", "nats", "shm", "pipe")
PORTS = ("tcp", "tls", "udp")


class Link:
    """An address on a link, and the options of TLS."""

    def __init__(self, text: str = "127.0.0.1:0") -> None:
        self.given = text
        self.scheme = "tcp"
        self.tls: "dict[str, Any]" = {}

    def parse(self, text: str, wants: str) -> None:
        """Reads an address. `wants`: what is wanted, for one that is none."""
        name, colon, rest = text.partition(":")
        self.scheme = name if colon and name in LINKS else "tcp"
        try:
            text.encode()
        except UnicodeEncodeError:
            raise OptionError(f"'{short(text)}' is no address: it is no UTF-8") from None
        where = rest[2:] if self.scheme in PORTS and rest.startswith("//") else text
        found = re.fullmatch(r"(?:\[[^\]]+\]|[^:\[\]]*):([0-9]{1,5})", where)
        if self.scheme in PORTS and (not found or int(found[1]) > 65535) or self.scheme not in PORTS and not rest:
            raise OptionError(f"'{short(text)}' is no address: {wants}")
        self.given = text

    @property
    def shown(self) -> str:
        """The address for people. Those of NATS servers without the users and passwords that they may have."""
        if self.scheme in ("http", "https"):
            return printable(self.given.partition("?")[0])  # the query of a signed URL is a key
        return printable(re.sub(r"[^/,@]*@", "", self.given) if self.scheme == "nats" else self.given)

    @property
    def port(self) -> int:
        return int(self.given.rpartition(":")[2])

    def set(self, name: str, value: str) -> bool:
        """Takes an option about TLS. False: it is another one."""
        file = {"tls-ca": "ca_file", "tls-cert": "cert_file", "tls-key": "key_file", "tls-crl": "crl_file"}.get(name)
        if file is None:
            return False
        self.tls[file] = path("--" + name, value)
        return True

    def check(self) -> None:
        """Refuses options of a link that is not used, which might be taken for a protection that is not there."""
        if self.tls and self.scheme != "tls":
            raise OptionError(f"the options --tls-... are for tls://HOST:PORT, and '{self.shown}' is not encrypted")

    def ssl(self) -> Optional[TLS]:
        return TLS(**self.tls) if self.scheme == "tls" or (self.scheme in ("http", "https") and self.tls) else None

    def options(self) -> str:
        """The options as they are written, to be put behind another command."""
        names = {"ca_file": "tls-ca", "cert_file": "tls-cert", "key_file": "tls-key", "crl_file": "tls-crl", "check_hostname": "tls-name"}
        text = "".join(f" --{names[key]} {shell_word(value)}" for key, value in self.tls.items() if key in names)
        return text + (" --tls-clients" if self.tls.get("require_client_certificates") else "")


def reason(e: Error) -> str:
    """The reason without the place: the system's, if there is one."""
    return os.strerror(e.system) if e.system > 0 else e.message
