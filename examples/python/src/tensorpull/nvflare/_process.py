"""What a process of FLARE is: its job, its site, its certificates, and this library's two doors in the server."""

from __future__ import annotations

import atexit
import os
import pathlib
import secrets
import socket
import threading
import time
import urllib.parse
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

import tensorpull
from nvflare.apis.fl_constant import SystemConfigs
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.mpm import MainProcessMonitor as mpm
from nvflare.fuel.utils.config_service import ConfigService
from nvflare.fuel.utils.fobs import FOBSContextKey
from nvflare.fuel.utils.log_utils import get_obj_logger

from .. import _peers
from .._peers import Refused, is_loopback
from .._proofs import signer
from . import _relayed
from ._changes import OFF, Base, Earlier, mode_of
from ._pool import KEEP_BYTES, Kept
from ._models import Models
from ._offer import Trust
from ._admission import Turns

#: Seconds for a connection, unless a setting says otherwise: a firewall that drops packets says nothing at all.
CONNECT_TIMEOUT = 5.0
#: A smaller model is not offered: one of FLARE's answers carries it, and an offer would be one answer more.
LEAST_BYTES = 2 << 20
#: Why a site that has keys takes nothing else.
ONLY_SIGNED = "this site takes models alone that one of its keys has signed (NVFLARE_TENSORPULL_KEYS)"
#: The kind of the message in which a caller says its word.
HELLO = 0x74700001


def setting(name: str, default: Any) -> Any:
    """A setting of the job's configuration, or of the environment in capitals: tensorpull_enabled, NVFLARE_TENSORPULL_ENABLED."""
    get = {bool: ConfigService.get_bool_var, int: ConfigService.get_int_var, float: ConfigService.get_float_var}.get(type(default), ConfigService.get_str_var)
    try:
        value = get(name=f"tensorpull_{name}", conf=SystemConfigs.APPLICATION_CONF, default=default)
    except Exception:  # FLARE's configuration is not there, as in a program of tests
        value = default
    return default if value is None else value


def most_bytes() -> int:
    """Of a model that somebody offers."""
    return int(setting("max_bytes", 0) or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def flares_setting(name: str) -> Optional[float]:
    """One of FLARE's own; None: it is not known to be set. With a default FLARE would give that one to itself, too, since it remembers what it has answered,
    and with its type: asked for a float, it has one instead of the whole number that its own code needs."""
    read = ConfigService.get_int_var if name.endswith("_chunk_size") else ConfigService.get_float_var
    try:
        value = read(name=name, conf=SystemConfigs.APPLICATION_CONF, default=None)
    except Exception:  # as above
        value = None
    return float(value) if value is not None else None


def site_setting(name: str) -> str:
    """A setting that a job must not make for a site: of the environment only, as NVFLARE_TENSORPULL_HOSTS."""
    return os.environ.get(f"NVFLARE_TENSORPULL_{name.upper()}", "").strip()


def takes_signed_alone(fqcn: str, source: str) -> bool:
    """Whether the process `fqcn` takes a model from `source` only if a key of its site's file has signed it. No job decides that. FLARE's server takes anything, a process what is its own or a trainer's
    that it has started, and a trainer what its job process gives it. A message may name any other cell of the site, and FLARE would look for it at the server."""
    if not site_setting("keys") or is_server(fqcn):
        return False
    near = {fqcn, *([FQCN.get_parent(fqcn)] if len(FQCN.split(fqcn)) > 2 else [])}
    return source not in near and FQCN.get_parent(source) != fqcn


def without_tls() -> bool:
    return site_setting("without_tls").lower() in ("1", "true", "yes")


def _host_of(url: Any) -> Optional[str]:
    url = url[0] if isinstance(url, (list, tuple)) and url else url
    return (urllib.parse.urlsplit(url).hostname or "").lower() or None if isinstance(url, str) else None


def is_server(fqcn: str) -> bool:
    return FQCN.split(fqcn)[0] == FQCN.ROOT_SERVER


def job_of(fqcn: str, other: str) -> str:
    """The job of a transfer between these two cells, as the server's name has it: "server.JOB"; a simulator's is "server" alone."""
    for name in (fqcn, other):
        if is_server(name):
            return _relayed.job_of_server(name)
    if fqcn == FQCN.get_parent(other) or other == FQCN.get_parent(fqcn):
        raise Off("it does not leave this site")
    raise Refuge("neither end is a FLARE server")


class Refuge(Exception):
    """tensorpull cannot be used here; FLARE's own chunks can."""


class Off(Refuge):
    """It is switched off, or there is no need of it."""


class Place:
    """One process of one job."""

    def __init__(self, cell: Any) -> None:
        self.logger = get_obj_logger(self)
        self.cell = cell  # or another one could get its number
        self.fqcn: str = cell.get_fqcn()
        self.is_server = is_server(self.fqcn)
        core = cell.core_cell
        keys = core.get_fobs_context().get(FOBSContextKey.SEC_CREDS) or {}
        mine = (DriverParams.SERVER_CERT, DriverParams.SERVER_KEY) if self.is_server else (DriverParams.CLIENT_CERT, DriverParams.CLIENT_KEY)
        cert, key, ca = (keys.get(name.value) for name in (*mine, DriverParams.CA_CERT))
        url_host = _host_of(core.root_url)
        self.server_host = url_host or ("localhost" if not core.secure else "")
        if not self.server_host:
            raise Refuge("this process is not connected to FLARE's server itself")
        self.tls: Optional[tensorpull.TLS] = None
        if core.secure and not (cert and key and ca):
            raise Refuge("this process has no certificates of the startup kit")
        if core.secure:
            self.tls = tensorpull.TLS(
                ca_file=ca, cert_file=cert, key_file=key, require_client_certificates=self.is_server, check_hostname=None if self.is_server else self.server_host
            )  # fmt: skip
        #: From site to site. FLARE encrypts its own messages between sites with the same certificates, also over connections without TLS.
        self.to_site = tensorpull.TLS(ca_file=ca, cert_file=cert, key_file=key, require_client_certificates=True) if cert and key and ca and not self.is_server else None
        also = {host.strip().lower() for host in site_setting("hosts").split(",") if host.strip()}
        self.trust = Trust(self.tls is not None, self.server_host, frozenset(also), without_tls())
        self._lock = threading.Lock()
        self._owner: Optional[tensorpull.Downloader] = None
        self._door: Optional["Door"] = None
        self._failed: Dict[str, float] = {}
        self.models = Models()
        self.kept = Kept(setting("keep_bytes", KEEP_BYTES))
        self.turns = Turns(setting("updates", 0) if self.is_server else 0, self.logger)
        mode = mode_of(setting("differences", OFF))
        key, federation = site_setting("key"), site_setting("federation")
        #: The server's, which signs what it offers.
        self.sign = signer(pathlib.Path(key), federation) if self.is_server and key else None
        self.round = 0  #: of the newest model that the server has offered, or that this site was offered
        self.earlier = Earlier(mode) if self.is_server and mode != OFF else None
        self.base = Base(self.kept, mode) if not self.is_server and mode != OFF and not site_setting("keys") else None

    def reaches(self, round: int) -> int:
        """The newest round, now that there is this one."""
        with self._lock:
            self.round = max(self.round, round)
            return self.round

    def _listen(self) -> str:
        default = "127.0.0.1" if self.tls is None and not without_tls() else "0.0.0.0"
        host = site_setting("listen") or default
        if self.tls is None and not is_loopback(host) and not without_tls():
            raise Refuge(f"it does not listen on {host} without TLS")
        return f"{'tls' if self.tls else 'tcp'}://{host}"

    def _open(self, make: Callable[[str], Any]) -> Any:
        """What `make` gives for the first port that is free, of those which the settings name."""
        first, _, last = str(setting("ports", "0")).partition("-")
        refusal: Optional[Exception] = None
        for port in range(int(first), int(last or first) + 1):
            try:
                return make(f"{self._listen()}:{port}")
            except tensorpull.Error as e:
                refusal = e
        raise Refuge(f"no port to listen on: {refusal}")

    def _advertised(self, port: int) -> str:
        host = setting("host", "") or "*"
        if ":" in host:
            host = f"[{host}]"
        return f"{'tls' if self.tls else 'tcp'}://{host}:{port}"

    def owner(self) -> Tuple[tensorpull.Downloader, str]:
        """The server's one owner of all its models, made at the first use and served on one thread, and its address for the sites."""
        with self._lock:
            if self._owner is None:
                rate = setting("bytes_per_second", 0) or None
                self._owner = self._open(lambda at: _downloader(at, ssl=self.tls, recipient_bytes_per_second=rate)).start()
                _at_the_end(self._owner.close)
            return self._owner, self._advertised(self._owner.port)

    def door(self) -> "Door":
        """The server's one listener. Sites call it: their updates are pulled over that connection, or what two of them want of each other is passed on."""
        with self._lock:
            if self._door is None:
                rate, most = setting("bytes_per_second", 0), setting("pairs", _relayed.PAIRS)
                self._door = Door(self._open(lambda at: tensorpull.Listener(at, ssl=self.tls)), self._advertised, most, self.tls is not None, rate)
                _at_the_end(self._door.close)
            return self._door

    def reach(self, address: str, host: str, port: int) -> None:
        """Finds out within seconds whether anybody is there: a wall drops packets, and the transfer itself would be patient."""
        self.refuses(address)
        try:
            socket.create_connection((host, port), timeout=setting("connect_timeout", CONNECT_TIMEOUT)).close()
        except OSError as e:
            self.is_out_of_reach(address)
            raise Refuge(f"{address} is out of reach: {e}") from None

    def dial(self, address: str, abort: Any) -> tensorpull.Session:
        """A session with the server's door. Refuge or Error: nobody answered there, which is remembered."""
        self.refuses(address)
        try:
            return tensorpull.Session(address, timeout=setting("connect_timeout", CONNECT_TIMEOUT), retries=0, abort=abort, ssl=self.tls)
        except tensorpull.Error as e:
            if e.code in ("connection_failed", "timed_out", "unknown_host"):
                self.is_out_of_reach(address)
            raise

    def refuses(self, address: str) -> None:
        """Refuge, if nobody answered there within the last five minutes: each transfer would wait again."""
        if time.monotonic() - self._failed.get(address, -1e9) < 300:
            raise Refuge(f"{address} was out of reach a while ago")

    def is_out_of_reach(self, address: str) -> None:
        """Nobody answers there."""
        if len(self._failed) > 64:
            self._failed.clear()
        self._failed[address] = time.monotonic()


def _at_the_end(close: Callable[[], None]) -> None:
    """FLARE stops its own threads first, and complains about others that go on; a program without its monitor ends as usual."""
    mpm.add_cleanup_cb(close)
    atexit.register(close)


def _downloader(at: str, **more: Any) -> tensorpull.Downloader:
    """One reference for each model that is under way: as many as a server of many clients may have, if this build lets its caller say so."""
    try:
        return tensorpull.Downloader(at, max_references=setting("max_references", 2048), **more)
    except TypeError:
        return tensorpull.Downloader(at, **more)


class Caller(NamedTuple):
    """A site that has called and said an expected word, and what it has published on its connection."""

    session: tensorpull.Session
    reference: tensorpull.Reference


class Door:
    """The server's door, at which each caller states the word that it was given over FLARE's own connection."""

    def __init__(
        self, listener: tensorpull.Listener, advertised: Callable[[int], str], pairs: int = _relayed.PAIRS, names: bool = False, bytes_per_second: int = 0
    ) -> None:
        """`pairs`, `names` and `bytes_per_second` are for two sites that meet here (_relayed.Pairs)."""
        self.address = advertised(listener.port)
        self._changed = threading.Condition()
        self._expected: Dict[str, Optional[Caller]] = {}
        self._closing = threading.Event()
        self.pairs = _relayed.Pairs(pairs, names, bytes_per_second, self._closing.is_set)
        self._door = _peers.Door(listener, self._take, get_obj_logger(self), self._closing, self.pairs.look_after)

    def expect(self) -> str:
        """A new word for one caller."""
        token = secrets.token_hex(16)
        with self._changed:
            self._expected[token] = None
        return token

    def arrived(self, token: str, timeout: float) -> Optional[Caller]:
        """The caller that has said the word; None if none does within `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._expected.get(token) is not None, timeout)
            return self._expected.get(token)

    def forget(self, token: str) -> None:
        """Ends what `expect` began: closes the session, if there is one."""
        with self._changed:
            caller = self._expected.pop(token, None)
        if caller is not None:
            caller.session.close()

    def close(self) -> None:
        """Its threads have ended when this returns; those that have a caller notice it within 0.1 s."""
        self._door.close()
        self.pairs.close()

    def _take(self, session: tensorpull.Session, message: tensorpull.Message, token: str) -> bool:
        """Whether the caller's session is somebody's from now on. Refused: this word of two sites is not for it."""
        try:
            return self._took(session, message.kind, token, message.references)
        except _relayed.NoPlace as e:
            session.send(_relayed.NO, str(e).encode(), timeout=_peers.HANDSHAKE, abort=self._closing)
            raise Refused(f"it has no place: {e}") from None

    def _took(self, session: tensorpull.Session, kind: int, token: str, references: Tuple[tensorpull.Reference, ...]) -> bool:
        if kind == _relayed.OFFERS and not references:
            self.pairs.owner_came(session, token)
        elif kind == _relayed.WANTS and not references:
            self.pairs.recipient_came(session, token)
        elif kind == HELLO and len(references) == 1:
            with self._changed:
                if token not in self._expected or self._expected[token] is not None:
                    return False
                self._expected[token] = Caller(session, references[0])
                self._changed.notify_all()
        else:
            return False
        return True


_places: Dict[int, Place] = {}
_places_lock = threading.Lock()


def meeting_at(cell: Any) -> Optional[_relayed.Meeting]:
    """The server's door, for two sites; None: it is switched off. Refuge: it cannot be opened."""
    try:
        place = place_of(cell)
    except Off:
        return None
    if setting("pairs", _relayed.PAIRS) <= 0:
        return None
    door = place.door()
    return _relayed.Meeting(_relayed.job_of_server(place.fqcn), door.address, door.pairs)


def place_of(cell: Any) -> Place:
    """The one `Place` of a cell. Refuge: its certificates are missing, or tensorpull is switched off."""
    if not setting("enabled", True):
        raise Off("it is switched off")
    with _places_lock:
        found = _places.get(id(cell))
        if found is None:
            found = _places[id(cell)] = Place(cell)
        return found
