"""send FILE...: publishes files of tensors until they have been pulled often enough, or until Ctrl-C."""

from __future__ import annotations

import os
import re
import socket
import time as clock
from typing import Any, Dict, List, Optional, Set, Tuple

from .. import _native
from .._downloader import Downloader
from .._errors import Error
from .._options import milliseconds, recipient_named
from .._types import Progress, Reference
from . import command_line, text
from .command_line import Form, Link, OptionError
from .inspect import json_line
from .tensor_files import Rejected, TensorFile
from .text import Interruption, count, out, printable, say, shell_word

HELP = """usage: python -m tensorpull send FILE... [options]

Publishes safetensors, npy and npz files, each under a reference of its own, and prints a line for each on standard output: the
address and the reference, as 'recv' takes them. Serves until Ctrl-C, or until everybody has them. Files of safetensors are read while they are sent,
so they may be larger than memory; they must not change meanwhile. Whoever can connect and knows the reference can pull.

      --listen LINK       where to listen (127.0.0.1:0)
                            HOST:PORT     TCP; port 0: any that is free; 127.0.0.1:0: this machine only; 0.0.0.0:8002: every network
                            unix:PATH     a Unix socket, for programs of this user; unix:@NAME: one that is no file
                            tls://HOST:PORT  TCP with TLS
                            shm:PATH      shared memory for programs of this user: files are copied into it once, and recipients from it
                            udp://HOST:PORT, serial:DEVICE?speed=115200&flow=rtscts
                            nats://SERVER:4222  a NATS server, if this package was built with libnats, which wheels are not
      --http [HOST:]PORT  answer HTTP on a port beside TCP, TLS (then HTTPS) or a Unix socket, for curl and web clients. Without
                            a host: that of --listen, or 127.0.0.1
      --allow-origin URL  web pages from there may read it in a browser: https://HOST[:PORT], or * for every page
      --metrics           and GET /metrics there, for Prometheus
      --tls-cert FILE, --tls-key FILE   the certificate of this end, with those up to an authority, and its key (PEM)
      --tls-clients, --tls-ca FILE      only recipients with a certificate of these authorities; --tls-crl FILE: that is not revoked there
      --recipients N      end when N recipients have each file
      --expect NAME       end when the recipient that says so ('recv --name NAME') has each file; may be repeated
      --ref REF           the reference of the first file, the second ...; may be repeated. Recipients of a sender that was ended go on
                          where they are when it is started again with the same --listen and --ref
      --timeout SECS      a recipient that takes nothing for so long is given up (600)
      --idle SECS         end when nobody has taken anything for so long (never)
      --json              what happens as JSON objects, one on a line, on standard output
  -h, --help              this text

Example:
  python -m tensorpull send model.safetensors --recipients 1
  python -m tensorpull send encoder.safetensors head.npz --listen 0.0.0.0:8002

The tool of C++ (examples/tools.sh) has --stdio and pipe:COMMAND, too.

Status: 0 it ended as asked (without a number of recipients: by Ctrl-C), 1 a file cannot be published, or not any more, or standard output cannot be written,
2 a wrong option, 3 --idle came first, 130 Ctrl-C and 143 SIGTERM before everybody had the files.
"""
TOOL = "tensorpull send"
WELL, FAILED, IDLE = 0, 1, 3
MOST_FILES = 256


class Choices:
    """What the command line says."""

    def __init__(self) -> None:
        self.files: List[str] = []
        self.expected: List[str] = []
        self.refs: List[str] = []
        self.listen = Link()
        self.recipients, self.timeout, self.idle = 0, 600.0, 0.0
        self.json = self.metrics = False
        self.http: Optional[str] = None
        self.origin: Optional[str] = None

    def set(self, name: str, value: str) -> None:
        if name == "listen":
            self.listen.parse(value, "--listen wants HOST:PORT, as in 0.0.0.0:8002, or a link such as unix:/run/model")
        elif name == "tls-clients":
            self.listen.tls["require_client_certificates"] = True
        elif name == "http":
            self.http = f":{value}" if re.fullmatch("[0-9]+", value, re.ASCII) else value
            Link().parse(f"tcp://{self.http}", "--http wants a port, or HOST:PORT")
        elif name == "metrics":
            self.metrics = True
        elif name == "allow-origin":
            if not re.fullmatch(r"\*|[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:]+\])(:[0-9]{1,5})?", value, re.ASCII):
                raise OptionError("--allow-origin wants https://HOST[:PORT] in lower case and without a path, or *")
            self.origin = value
        elif name == "recipients":
            self.recipients = command_line.number("--recipients", value, 1, 1_000_000)
        elif name == "expect":
            if command_line.name("--expect", value) not in self.expected:
                self.expected.append(value)
        elif name == "ref":
            ref = command_line.reference(value)
            if ref is None:
                raise OptionError(f"--ref wants 32 hexadecimal digits, not '{command_line.short(value)}'")
            if ref in self.refs:
                raise OptionError("--ref: two files cannot have the same reference")
            self.refs.append(ref)
        elif name == "timeout":
            self.timeout = command_line.seconds("--timeout", value)
        elif name == "idle":
            self.idle = command_line.seconds("--idle", value)
        elif not self.listen.set(name, value):
            self.json = True

    def check(self, words: List[str]) -> None:
        tls = self.listen.tls
        if not words:
            raise OptionError("which file? 'send model.safetensors' publishes it")
        if len(words) > MOST_FILES:
            raise OptionError(f"at most {MOST_FILES} files at a time")
        if len(self.refs) > len(words):
            raise OptionError("there are more references than files")
        self.listen.check()
        if self.listen.scheme == "pipe":
            raise OptionError("a pipe is not for this command, only for the tool of C++")
        if self.listen.scheme == "tls" and "cert_file" not in tls:
            raise OptionError("tls://HOST:PORT needs a certificate: --tls-cert FILE, and --tls-key FILE if its key is in another file")
        if not tls.get("require_client_certificates") and ("ca_file" in tls or "crl_file" in tls):
            raise OptionError("--tls-ca and --tls-crl are about recipients' certificates, and only --tls-clients asks for them")
        if self.origin is not None and self.http is None:
            raise OptionError("--allow-origin is about the port of --http")
        if self.metrics and self.http is None:
            raise OptionError("--metrics is answered on the port of --http")
        if self.http is not None and self.listen.scheme not in ("tcp", "tls", "unix"):
            raise OptionError("--http is beside TCP, tls://HOST:PORT or unix:PATH")
        if self.http is not None and self.http.startswith(":"):  # as public as the link, and no more
            host = self.listen.given.rpartition(":")[0].rpartition("/")[2] if self.listen.scheme != "unix" else "127.0.0.1"
            self.http = host + self.http
        if self.recipients and self.expected:
            raise OptionError("--recipients and --expect exclude each other")
        self.files = words


def main(arguments: List[str]) -> int:
    c = Choices()
    forms = [Form(name, True) for name in ("listen", "http", "allow-origin", "recipients", "expect", "ref", "timeout", "idle")] + [Form("json", False), Form("metrics", False), Form("tls-clients", False)]
    ended = command_line.read(arguments, TOOL, HELP, [*forms, *command_line.TLS_FORMS], c.set, c.check)
    return text.run(TOOL, lambda: Sender(c).run()) if ended is None else ended


def an_own_address() -> str:
    """An address of this machine that other machines can reach, for a sender that listens on all addresses. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address for documentation: only the route is looked up
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


class Sender:
    """One sender: its files, and which recipients have them."""

    def __init__(self, c: Choices) -> None:
        self.c = c
        self.files: List[TensorFile] = []
        self.refs: List[Reference] = []
        self.names = {recipient_named(name): name for name in c.expected}
        self.heard: List[Progress] = []
        self.began: Dict[Tuple[int, int], float] = {}
        self.have: Dict[int, Set[int]] = {}
        self.lost: Set[int] = set()
        self.completed = 0
        self.address = self.http = ""

    def run(self) -> int:
        interrupted = Interruption()
        c = self.c
        try:
            # every file is read before any is announced, so that a bad file ends the sender before a recipient waits
            for path in c.files:
                try:
                    self.files.append(TensorFile(path))
                except Rejected as e:
                    return self._complain(e.sentence(path), e.code)
                if self.files[-1].format == "npz" and not self.files[-1].entries:
                    return self._complain(f"{printable(path)} is an archive without NumPy arrays", "bad_file")
            try:
                owner = Downloader(c.listen.given, ssl=c.listen.ssl(), http=c.http, metrics=c.metrics, allow_origin=c.origin)
            except Error as e:
                why = command_line.reason(e) if e.code != "bad_address" or e.system or e.message.startswith("this build") else "the host is not known"
                return self._complain(f"cannot listen on {c.listen.shown}: {why}", e.code)
            except ValueError as e:  # an origin that only looks like one, with the scheme's own port
                return self._complain(str(e), "invalid_argument")
            with owner:
                return self._serve(owner, interrupted)
        finally:
            for file in self.files:
                file.close()

    def _serve(self, owner: Downloader, interrupted: Interruption) -> int:
        c = self.c
        self.address = self._reachable(owner)
        self.http = self._reachable_http(owner) if owner.http_address else ""
        for i, file in enumerate(self.files):
            try:
                self.refs.append(self._publish(owner, file, c.refs[i] if i < len(c.refs) else ""))
            except Error as e:
                about = f", tensor '{printable(e.name)}'" if e.name else ""
                return self._complain(f"{printable(c.files[i])} is rejected ({e.code}{about}): {e.message}", e.code)
            if interrupted:
                return interrupted.status
        self._announce()

        moved, seen, status = clock.monotonic(), self._activity(owner), WELL
        while True:
            owner.serve(until=lambda: bool(interrupted or self.heard), timeout=0.2)
            self._tell(owner)
            now = self._activity(owner)
            if now != seen:
                seen, moved = now, clock.monotonic()
            self._look_for_lost_files(owner)
            if len(self.lost) == len(self.files) or (self.lost and self._wanted and self._all_have_them):
                status = FAILED
            elif interrupted:
                status = interrupted.status if self._wanted and not self._all_have_them else WELL
            elif c.idle and clock.monotonic() - moved > c.idle:
                status = IDLE
            elif not self._all_have_them:
                continue
            break
        # serves a little longer: the last answers, and the last messages of recipients, are still on their way
        begin = clock.monotonic()
        longest = 10.0 if status == FAILED else 1.0
        owner.serve(until=lambda: clock.monotonic() - begin > 0.25 and (owner.connections == 0 or bool(interrupted)), timeout=longest)
        self._tell(owner)
        self._finish(owner, status)
        return status

    def _publish(self, owner: Downloader, file: TensorFile, ref: str) -> Reference:
        how = _native.PublishSettings()
        how.id = ref
        how.recipient_idle_ms = milliseconds(self.c.timeout, "--timeout")
        how.transaction_idle_ms = 0  # this program says itself when it ends
        how.progress_interval_ms = 30_000
        how.progress = lambda event: self.heard.append(Progress._make(event))
        digits, version, fingerprint, nbytes = owner._owner.add(file.described, list(file.metadata.items()), file.keep, how)
        return Reference(digits, version, fingerprint, nbytes)

    def _reachable(self, owner: Downloader) -> str:
        """The address that recipients connect to."""
        listen = self.c.listen
        if listen.scheme in ("unix", "shm") and not listen.given.partition(":")[2].startswith("@"):
            return f"{listen.scheme}:{os.path.abspath(listen.given.partition(':')[2])}"
        if listen.scheme not in command_line.PORTS:
            return listen.given
        head, _, _ = listen.given.rpartition(":")
        scheme, slashes, host = head.rpartition("//")
        if host in ("", "0.0.0.0", "*", "[::]"):
            host = an_own_address()
        return f"{'' if scheme == 'tcp:' else scheme + slashes}{host}:{owner.port}"

    def _reachable_http(self, owner: Downloader) -> str:
        scheme, _, rest = owner.http_address.partition("//")
        host, _, port = rest.rpartition(":")
        return f"{scheme}//{an_own_address() if host in ('', '0.0.0.0', '*', '[::]') else host}:{port}"

    def _url(self, path: str, ref: Reference) -> str:
        name = re.sub("[^A-Za-z0-9._-]", "-", os.path.basename(path))[:64]
        return f"{self.http}/v1/{name if name.strip('.') else 'file'}/{ref.version:016x}"

    @property
    def _wanted(self) -> bool:
        return bool(self.c.recipients or self.c.expected)

    @property
    def _all_have_them(self) -> bool:
        if not self._wanted:
            return False
        for i in range(len(self.refs)):
            have = self.have.get(i, set())
            if i not in self.lost and (not self.names.keys() <= have if self.c.expected else len(have) < self.c.recipients):
                return False
        return True

    def _look_for_lost_files(self, owner: Downloader) -> None:
        """Withdraws files that have become shorter, and reports them; the others are served on."""
        for i, file in enumerate(self.files):
            if i in self.lost or (file.is_whole() and not owner.settled(self.refs[i])):
                continue
            self.lost.add(i)
            if not owner.settled(self.refs[i]):
                owner.withdraw(self.refs[i])
            if self.c.json:
                out(json_line({"event": "withdrawn", "file": self.c.files[i], "ref": str(self.refs[i])}))
            else:
                say(TOOL, f"{printable(self.c.files[i])} can no longer be read, or not all of it, so it was withdrawn")

    def _activity(self, owner: Downloader) -> int:
        """A number that changes whenever something happens."""
        return sum(sum(status) for status in map(owner.status, self.refs))

    def _complain(self, what: str, code: str) -> int:
        if self.c.json:
            out(json_line({"event": "failed", "code": code, "message": what}))
        else:
            say(TOOL, what)
        return FAILED

    def _announce(self) -> None:
        for path, file, ref in zip(self.c.files, self.files, self.refs):
            if self.c.json:
                out(
                    json_line(
                        {"event": "published", "file": path, "address": self.address, "ref": str(ref), "bytes": ref.nbytes, "tensors": len(file.entries), "digest": f"{ref.version:016x}", **({"url": self._url(path, ref)} if self.http else {})}
                    )
                )
                continue
            say(TOOL, f"{printable(path)} ({count(len(file.entries), 'tensor')}, {text.size(ref.nbytes)}); recv takes it with this line and -o FILE:")
            out(f"{self.address} {ref}\n")
            if self.http:
                say(TOOL, f"or: curl -H 'Authorization: Bearer {ref}' -o FILE {self._url(path, ref)}")
        if not self.c.json:
            say(TOOL, "serving, Ctrl-C ends it")

    def _tell(self, owner: Downloader) -> None:
        """Prints what recipients have done since the last call."""
        heard, self.heard = self.heard, []
        for e in heard:
            i = next((k for k, ref in enumerate(self.refs) if ref == e.ref_id), None)
            if i is None or e.phase == "active":
                continue
            key = (i, e.recipient)
            if e.phase == "started":
                self.began[key] = clock.monotonic()
            elif e.phase == "completed":
                self.completed += 1
                self.have.setdefault(i, set()).add(e.recipient or -self.completed)  # over HTTP somebody without a name is a connection, and each has the number 0
            seconds = clock.monotonic() - self.began.get(key, clock.monotonic())
            if e.phase != "started":
                self.began.pop(key, None)
            unverified = e.phase == "completed" and self._state(owner, i, e.recipient) == "completed_unverified"
            if self.c.json:
                self._tell_program(e, i, unverified)
                continue
            who = printable(self.names[e.recipient]) if e.recipient in self.names else f"recipient {e.recipient:016x}" if e.recipient else "a recipient without a name"
            file, of = printable(self.c.files[i]), f" ({text.size(e.bytes_done)} of {text.size(self.refs[i].nbytes)} sent)"
            if e.phase == "started":
                say(TOOL, f"{who} pulls {file}")
            elif e.phase == "completed":
                say(TOOL, f"{who} has {file}" + (", unchecked" if unverified else "") + (f" in {text.time(seconds)}" if seconds >= 0.5 else ""))
            elif e.phase == "aborted":
                say(TOOL, f"{who} gave up {file}{of}")
            else:
                say(TOOL, f"{who}{' has vanished, without all of ' if e.code == 'timed_out' else ' got other bytes than those of '}{file}{of}")

    def _tell_program(self, e: Progress, i: int, unverified: bool) -> None:
        line: Dict[str, Any] = {"event": "completed_unverified" if unverified else e.phase, "file": self.c.files[i], "ref": str(self.refs[i]), "recipient": f"{e.recipient:016x}"}
        if e.recipient in self.names:
            line["name"] = self.names[e.recipient]
        if e.phase != "started":
            line["sent_bytes"] = e.bytes_done
        if e.code:
            line["code"] = e.code
        out(json_line(line))

    def _state(self, owner: Downloader, i: int, recipient: int) -> str:
        try:
            return owner.recipient_state(self.refs[i], recipient)
        except Error:
            return ""

    def _finish(self, owner: Downloader, status: int) -> None:
        sent = sum(owner.status(ref).bytes_sent for ref in self.refs)
        if self.c.json:
            how = {WELL: "done", IDLE: "idle", FAILED: "withdrawn"}.get(status, "interrupted")
            out(json_line({"event": "ended", "outcome": how, "completed": self.completed, "sent_bytes": sent}))
            return
        if status == IDLE:
            say(TOOL, f"nobody has taken anything for {text.time(self.c.idle)}")
        say(TOOL, f"{count(self.completed, 'pull') + ' completed' if self.completed else 'nobody has pulled a file to its end'}; {text.size(sent)} sent")
        if status == FAILED or not (self.began or (self._wanted and status != WELL)):
            return
        listen = self.c.listen
        where = f"{listen.given.rpartition(':')[0]}:{owner.port}" if listen.scheme in command_line.PORTS else listen.shown
        words = "".join(f" {shell_word(path)}" for path in self.c.files)
        refs = "".join(f" --ref {ref}" for ref in self.refs)
        if self.c.http is not None:  # on the port that it has, under the name by which it was asked for
            refs = f" --http {shell_word(owner.http_address.partition('//')[2])}{' --metrics' if self.c.metrics else ''}{refs}"
        say(TOOL, f"recipients go on where they are when it is started again with\n  python -m tensorpull send{words} --listen {shell_word(where)}{listen.options()}{refs}")
