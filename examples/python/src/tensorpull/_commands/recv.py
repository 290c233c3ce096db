"""recv LINK REF -o FILE: pulls what `send` publishes into a safetensors file."""

from __future__ import annotations

import errno
import os
import sys
import time as clock
from typing import Any, Dict, List, Optional

from .._errors import Error
from .._file import download_file
from .._options import DEFAULT_CHUNK_BYTES
from .._route import is_url
from .._types import Receipt
from . import command_line, text
from .command_line import Form, Link, OptionError
from .inspect import json_line
from .text import Interruption, out, printable, say

HELP = """usage: python -m tensorpull recv LINK REF -o FILE [options]
       python -m tensorpull recv http[s]://HOST[:PORT]/PATH -o FILE [options]

Pulls the model that 'send' publishes under REF at LINK and writes it as a safetensors file. FILE appears when it is complete and
its digest is that of what was published; until then the bytes are in a file beside it. A connection that is lost, or cannot be
made yet, is tried again. After Ctrl-C or a crash nothing is kept, unless --resume is given.

LINK is
  HOST:PORT, [V6]:PORT   TCP
  unix:PATH, unix:@NAME  a Unix socket of this user
  tls://HOST:PORT        TCP with TLS; the sender has a certificate for HOST of an authority that this system trusts, or of --tls-ca
  shm:PATH               shared memory of a sender on this machine
  udp://HOST:PORT, serial:DEVICE?speed=115200&flow=rtscts
  nats://SERVER:4222     if this package was built with libnats, which wheels are not
  pipe:COMMAND           standard input and output of a command, which no shell reads; it is run again if it ends

  -o, --output FILE    where to write it
      --resume         keep what has arrived in .FILE.part if it ends before, and go on with what an earlier recv left there, as far as its bytes
                       are right. If FILE is there already and is what is published, that is said
      --force          replace FILE if it exists
      --max-bytes SIZE refuse what is longer (what the disk has room for)
      --chunk SIZE     bytes that are asked for at a time, 1 to 511M; 0: all of it at once (2M)
      --timeout SECS   how long a request may take without progress, and a connection to be made (60)
      --retries N      tries to connect again without progress in between, with growing pauses (8, about a minute)
      --digest DIGEST  of a URL's file: sha256: and 64 digits, or xxh3: and 16; without it the server has to state one
      --bearer-file FILE  what a URL's server wants as authorisation: the first line of a file
      --name NAME      who pulls, as in 'send --expect NAME'
      --unverified     take a model that is published without a digest, too: nobody can say whether its bytes are right
      --tls-ca FILE    authorities that the sender's certificate may be of (PEM); --tls-crl FILE: and that do not list it as revoked
      --tls-name NAME  what the sender's certificate has to have, if it is not HOST
      --tls-cert FILE, --tls-key FILE    the certificate of this end and its key, if the sender wants one
      --json           the outcome as a JSON object on standard output:
                         {"file", "outcome": "completed" or "completed_unverified", "digest", "confirmed", "bytes", "chunks", "seconds"}
                         {"file", "outcome": "failed" or "interrupted", "code", "message"}
                       "confirmed" is whether the sender is known to have recorded it; "unconfirmed_because" is a code if it is not
  -h, --help           this text

Example:
  python -m tensorpull send model.safetensors          # prints ADDRESS REF
  python -m tensorpull recv 127.0.0.1:40123 5d1f0c...e2 -o copy.safetensors

The tool of C++ (examples/tools.sh) has --restart, --no-digest, --proxy and pipe:-, too.

Status: 0 FILE is complete, 1 the transfer failed, 2 a wrong option, 3 FILE cannot be written, 130 Ctrl-C, 143 SIGTERM.
"""
TOOL = "tensorpull recv"
COMPLETE, FAILED, UNWRITABLE = 0, 1, 3


class Choices:
    """What the command line says."""

    def __init__(self) -> None:
        self.link = Link()
        self.ref = self.output = self.name = ""
        self.digest: Optional[str] = None
        self.bearer: Optional[str] = None
        self.chunk, self.timeout, self.retries = DEFAULT_CHUNK_BYTES, 60.0, 8
        self.max_bytes: Optional[int] = None
        self.force = self.resume = self.unverified = self.json = False

    def set(self, name: str, value: str) -> None:
        if name == "output":
            self.output = command_line.path("--output", value)
        elif name == "force":
            self.force = True
        elif name == "resume":
            self.resume = True
        elif name == "max-bytes":
            self.max_bytes = command_line.size("--max-bytes", value, 1, 2**63 - 1)
        elif name == "chunk":
            self.chunk = command_line.size("--chunk", value, 0, 511 << 20)
        elif name == "timeout":
            self.timeout = command_line.seconds("--timeout", value)
        elif name == "retries":
            self.retries = command_line.number("--retries", value, 0, 1_000_000)
        elif name == "name":
            self.name = command_line.name("--name", value)
        elif name == "unverified":
            self.unverified = True
        elif name == "digest":
            self.digest = command_line.name("--digest", value)
        elif name == "bearer-file":
            self.bearer = command_line.first_line("--bearer-file", value)
        elif name == "tls-name":
            self.link.tls["check_hostname"] = command_line.name("--tls-name", value)
        elif not self.link.set(name, value):
            self.json = True

    def check(self, words: List[str]) -> None:
        if words and is_url(words[0]):
            return self._check_url(words)
        if self.digest is not None or self.bearer is not None:
            raise OptionError("--digest and --bearer-file are for a URL, http:// or https://")
        if len(words) < 2:
            raise OptionError("an address and a reference are wanted, as send prints them")
        if len(words) > 2:
            raise OptionError(f"'{command_line.short(words[2])}' is one word too many: after the address and the reference comes -o FILE")
        self.link.parse(words[0], "HOST:PORT is wanted, as in 127.0.0.1:8002, or a link such as unix:/run/model")
        self.link.check()
        if self.link.scheme in command_line.PORTS and (self.link.port == 0 or self.link.given.rpartition("//")[2].startswith(":")):
            raise OptionError(f"'{self.link.shown}' is no address of an owner: HOST:PORT is wanted, as in 127.0.0.1:8002")
        if self.link.given == "pipe:-":
            raise OptionError("'pipe:-' is not for this command, only for the tool of C++: pipe:COMMAND starts a command")
        ref = command_line.reference(words[1])
        if ref is None:
            raise OptionError(f"'{command_line.short(words[1])}' is no reference: 32 hexadecimal digits are wanted, as send prints them")
        self.ref = ref
        if not self.output:
            raise OptionError("where to? -o FILE says it")
        if "\0" in self.output:
            raise OptionError("the name of a file has no zero byte")

    def _check_url(self, words: List[str]) -> None:
        if len(words) > 1:
            raise OptionError(f"'{command_line.short(words[1])}' is one word too many: a URL names the file, and has no reference")
        self.link.given, self.link.scheme = words[0], "https" if words[0].startswith("https") else "http"
        if "check_hostname" in self.link.tls:
            raise OptionError("--tls-name is not for a URL, whose host the certificate has to have")
        if self.digest == "":
            raise OptionError("--digest wants sha256: and 64 digits, or xxh3: and 16")
        if not self.output:
            raise OptionError("where to? -o FILE says it")
        if "\0" in self.output:
            raise OptionError("the name of a file has no zero byte")


def main(arguments: List[str]) -> int:
    c = Choices()
    flags = ["resume", "force", "unverified", "json"]
    forms = [Form("output", True, "o"), *(Form(name, False) for name in flags), *(Form(name, True) for name in ("max-bytes", "chunk", "timeout", "retries", "name", "tls-name", "digest", "bearer-file"))]
    ended = command_line.read(arguments, TOOL, HELP, [*forms, *command_line.TLS_FORMS], c.set, c.check)
    return text.run(TOOL, lambda: _recv(c), unwritable=UNWRITABLE) if ended is None else ended


def _recv(c: Choices) -> int:
    interrupted = Interruption()
    began = clock.monotonic()
    line = Line(printable(os.path.basename(c.output)))
    try:
        try:
            receipt = download_file(
                c.link.given, c.ref, c.output, resume=c.resume, overwrite=c.force, max_bytes=c.max_bytes, per_request_timeout=c.timeout, chunk_size=c.chunk, progress=line,
                abort=lambda: bool(interrupted), progress_interval=0.2, recipient=c.name or None, retries=c.retries, unverified=c.unverified, ssl=c.link.ssl(),
                digest=c.digest, bearer=c.bearer,
            )  # fmt: skip
        finally:
            line.clear()
    except Error as e:
        if interrupted and e.code == "cancelled":
            return _fail(c, "cancelled", "interrupted", interrupted.status)
        if e.code == "disk_full" or (e.code in ("io", "invalid_argument") and e.name and not (is_url(c.link.given) and e.code == "invalid_argument")):
            return _fail(c, e.code, _output_error(c, e), UNWRITABLE)
        return _fail(c, e.code, _transfer_error(c, e), FAILED)
    except MemoryError:
        return _fail(c, "out_of_memory", "there is not enough memory", FAILED)
    return _tell(c, receipt, clock.monotonic() - began)


def _output_error(c: Choices, e: Error) -> str:
    name = printable(c.output)
    why = {
        errno.EEXIST: "exists already: --force replaces it", errno.EISDIR: "is a directory: name a file in it", errno.EINVAL: "is no regular file",
        errno.ELOOP: "is a symbolic link, which is neither followed nor replaced", errno.EAGAIN: "is being written by another recv",
    }.get(e.system)  # fmt: skip
    return f"{name} {why}" if why else f"{name} cannot be written: {command_line.reason(e)}"


class Line:
    """On a terminal: how far it is, on one line that is drawn again."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.drawn = False
        self.on_terminal = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self, event: Any) -> None:
        if not self.on_terminal or not event.bytes_total:
            return
        shown = f"{self.name[:30]}  {100 * event.bytes_done // event.bytes_total:3} %  {text.size(event.bytes_done)} of {text.size(event.bytes_total)}"
        sys.stderr.write(f"\r\x1b[K{shown}")
        sys.stderr.flush()
        self.drawn = True

    def clear(self) -> None:
        if self.drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _fail(c: Choices, code: str, message: str, status: int) -> int:
    if c.json:
        out(json_line({"file": c.output, "outcome": "interrupted" if message == "interrupted" else "failed", "code": code, "message": message}))
    else:
        say(TOOL, message)
        if message == "interrupted":
            say(TOOL, "nothing was kept" if not c.resume else "the same command goes on")
    return status


def _tell(c: Choices, receipt: Receipt, seconds: float) -> int:
    if c.json:
        done: Dict[str, Any] = {
            "file": c.output, "outcome": receipt.outcome, "digest": f"{receipt.digest:016x}" if receipt.digest else None, "confirmed": receipt.confirmed,
        }  # fmt: skip
        if not receipt.confirmed:
            done["unconfirmed_because"] = receipt.unconfirmed_because
        out(json_line({**done, "bytes": receipt.bytes, "chunks": receipt.chunks, "seconds": seconds}))
        return COMPLETE
    rate = f", {text.size(receipt.bytes / seconds)}/s" if seconds >= 0.5 else ""
    checked = f"; digest {receipt.digest:016x} agrees" if receipt.outcome == "completed" else "; not checked"
    out(f"{printable(c.output)}: {text.size(receipt.bytes)} in {text.time(seconds)}{rate}{checked}\n")
    if not receipt.confirmed and not (is_url(c.link.given) and receipt.unconfirmed_because == "unsupported_request"):  # a web server records nothing
        say(TOOL, f"the file is complete, but {c.link.shown} is not known to have recorded that: {receipt.unconfirmed_because}")
    return COMPLETE


def _web_error(c: Choices, e: Error) -> str:
    at, why, told = c.link.shown, command_line.reason(e), f" ({printable(e.name)})" if e.name else ""
    sentences = {
        "connection_failed": f"nobody can be reached at {at}: {why}",
        "bad_address": "that is no URL, or its host is not known: http[s]://HOST[:PORT]/PATH is wanted, with %20 for a space",
        "timed_out": f"{at} has not answered for {text.time(c.timeout)}",
        "not_authenticated": f"{at} and this end do not accept each other's certificates{told}",
        "not_verifiable": f"{at} states no digest, so nobody could say whether the bytes are right: --digest says which one they have, --unverified takes them nevertheless",
        "digest_mismatch": f"what came from {at} has another digest than {'the server states' if c.digest is None else '--digest says'}",
        "stale_version": f"{at} has another file now{told}",
        "unknown_reference": f"there is nothing at {at}{told}",
        "withdrawn": f"there is nothing at {at}{told}",
        "not_permitted": f"{at} does not let us have it{told}",
        "invalid_argument": f"--digest, --name or the authorisation is not valid{told}",
        "bad_file": f"what is at {at} is no safetensors file{told}",
    }  # fmt: skip
    if e.message.startswith("this build"):
        return e.message
    return sentences.get(e.code, f"the transfer from {at} failed: {why}{told}")


def _transfer_error(c: Choices, e: Error) -> str:
    at, why = c.link.shown, command_line.reason(e)
    if is_url(c.link.given):
        return _web_error(c, e)
    sentences = {
        "connection_failed": f"nobody can be reached at {at}: {why}",
        "timed_out": f"{at} has not answered for {text.time(c.timeout)}",
        "not_authenticated": f"{at} and this end do not accept each other's certificates" + (f": {printable(e.name)}" if e.name else ""),
        "not_verifiable": f"{at} has no digest of {c.ref}, so nobody could say whether the bytes are right: --unverified takes them nevertheless",
        "does_not_fit": "the model is too long for one chunk: without --chunk 0 it comes in several",
        "unknown_reference": f"{at} has nothing under {c.ref} (mistyped, or published anew under another reference)",
        "withdrawn": f"{at} has withdrawn {c.ref}",
        "unreadable": f"{at} cannot read {c.ref} any more: its file changed or is gone",
        "stale_version": f"{at} now has another version under {c.ref}",
        "digest_mismatch": f"what came from {at} is not what was published (its digest differs); nothing of it was kept",
        "connection_lost": f"the connection to {at} was lost, and could not be made again (tried {text.count(c.retries, 'time')})",
        "bad_frame": f"{at} does not speak tensorpull's protocol: {e.message}",
        "unexpected_frame": f"{at} does not speak tensorpull's protocol: {e.message}",
        "too_large": "the model is longer than --max-bytes allows",
        "out_of_memory": "there is not enough memory for the tensors",
        "bad_file": f"a file of the options --tls-... is not valid: {printable(e.name)}",
    }  # fmt: skip
    if e.code == "bad_address" and c.link.scheme in command_line.PORTS and not e.message.startswith("this build"):
        return f"the host of {at} is not known"
    return sentences.get(e.code, f"the transfer from {at} failed: {why}")
