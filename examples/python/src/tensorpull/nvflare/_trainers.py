"""A site's job process for its external trainer: it pulls what the trainer is sent, and sends what the trainer has made. Between the two is memory that both map.

FLARE starts the trainer with this process's environment and its `sys.path`. So the trainer finds for_trainers/sitecustomize.py, and the name of a Unix socket without a file. Over it the
trainer asks for a model by FLARE's reference, or hands over an update that FLARE's server wants. A trainer that does not ask goes on with FLARE's chunks.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import secrets
import socket
import sys
import threading
import time
from collections import OrderedDict
from typing import Any, Dict, List, Optional, Tuple

import nvflare.fuel.utils.fobs as fobs
from nvflare.apis.fl_constant import SystemConfigs
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.utils.config_service import ConfigService
from nvflare.fuel.utils.log_utils import get_obj_logger

from . import _memory, _offer
from ._lent import Theirs, Unreadable
from ._offer import Refused
from ._relayed import PAIRS, job_between
from ._process import LEAST_BYTES, Off, is_server, job_of, most_bytes, place_of, setting

#: The variable with the socket's name.
VARIABLE = "TENSORPULL_NVFLARE_TRAINER"
#: A folder whose `sitecustomize` lets a trainer take part.
FOLDER = str(pathlib.Path(__file__).parent / "for_trainers")
#: What FLARE runs as a site's job process.
_JOB_PROCESSES = ("nvflare.private.fed.app.client.worker_process", "nvflare.private.fed.app.simulator.simulator_worker")
#: Trainers and ranks at the same time; the system refuses more.
_BACKLOG = 64
#: References that FLARE has passed on to the trainer, and that the trainer may ask for.
_REFERENCES = 256
#: Seconds in which a caller says its word.
_PATIENCE = 30.0


class Stranger(Refused):
    """Who has called runs as another user. A name without a file has no rights, so everybody on the machine may call."""


class Trainers:
    """The socket, and a thread for each caller."""

    def __init__(self) -> None:
        self.logger = get_obj_logger(self)
        self._lock = threading.Lock()
        self._passed_on: "OrderedDict[Tuple[str, str], Any]" = OrderedDict()
        self.came = self._strange = False
        self._held: Dict[str, _memory.Sealed] = {}  # what a trainer has not done with, for its other ranks
        self.name = f"tensorpull-{secrets.token_hex(16)}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(f"\0{self.name}")
        self._listener.listen(_BACKLOG)
        threading.Thread(target=self._accept, name="tensorpull-trainers", daemon=True).start()

    def note(self, fqcn: str, ref_id: str, cell: Any) -> bool:
        """FLARE has passed this reference on. Whether it is one more of a trainer that has not asked for the earlier ones."""
        with self._lock:
            unheard = bool(self._passed_on) and not self.came
            self._passed_on[fqcn, ref_id] = cell
            while len(self._passed_on) > _REFERENCES:
                self._passed_on.popitem(last=False)
            return unheard

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._hear, args=(connection,), name="tensorpull-trainer", daemon=True).start()
            except (OSError, RuntimeError):  # no descriptor, or no thread, is free now
                time.sleep(0.1)

    def _hear(self, connection: socket.socket) -> None:
        with connection:
            fds: Any = []
            try:
                if not _memory.is_same_user(connection):
                    raise Stranger("a process of another user has called")
                connection.settimeout(_PATIENCE)
                word, fds = _memory.receive(connection)
                kind = word.get("is")
                if kind == "bring":
                    self._bring(connection, word)
                elif kind == "send":
                    self._send(connection, word, fds)
                elif kind == "map":
                    self._map(connection, word)
                else:
                    raise Refused("its word is not known")
            except Exception as e:  # noqa: BLE001: the trainer hears it, and goes on with FLARE's chunks
                again = isinstance(e, Stranger) and self._strange  # nobody else fills this log
                self._strange |= isinstance(e, Stranger)
                log = self.logger.debug if again else self.logger.info if isinstance(e, Off) else self.logger.warning
                log(f"tensorpull: a trainer's word is not done: {str(e) or type(e).__name__}")
                with contextlib.suppress(OSError):
                    _memory.send(connection, {"is": "no", "why": str(e)[:500] or type(e).__name__, "settings": _settings()})
            finally:
                for fd in fds:
                    os.close(fd)

    def _bring(self, connection: socket.socket, word: Any) -> None:
        """Pulls what FLARE's reference names and gives the memory that it has landed in."""
        source, ref = _text(word, "from"), _text(word, "ref")
        with self._lock:
            self.came = True
            cell = self._passed_on.get((source, ref))
        if not setting("enabled", True):
            raise Off("it is switched off")
        if cell is None:
            raise Refused("FLARE has not passed on that reference")
        ours = _ours(word)
        timeout = word.get("timeout")
        if type(timeout) not in (int, float) or not 0 < timeout < 1e6:
            raise Refused("its time-out makes no sense")
        error, made = ours.bring(source, ref, float(timeout), cell, word.get("secure") is True, _memory.Gone(connection))
        if error:
            _memory.send(connection, {"is": "failed", "why": str(error)[:500], "settings": _settings()})
            return
        again = made
        if isinstance(made, _memory.Sealed):  # which is referred to as long as anybody has it
            if not self._is_refused(connection, made):
                return
            again = ours.again(_memory.opened(made.fd, made.rows, made.framework, owner_waits=True), cell, float(timeout))
        try:
            _memory.send(connection, {"is": "chunks", "ref": again.ref, "settings": _settings()})
            _memory.waits(connection, None)
        finally:
            again.end()

    def _is_refused(self, connection: socket.socket, sealed: _memory.Sealed) -> bool:
        """Gives the memory, until the trainer closes the connection: it has done with the model, or has died. True: it cannot use it, and asks for FLARE's chunks."""
        key = secrets.token_hex(16)
        with self._lock:
            self._held[key] = sealed
        try:
            _memory.send(connection, {"is": "memory", "key": key, "rows": sealed.rows, "settings": _settings()}, [sealed.fd])
            _memory.waits(connection, None)
        finally:
            with self._lock:
                del self._held[key]
        try:
            word, fds = _memory.receive(connection)
        except (EOFError, OSError):
            return False
        for fd in fds:
            os.close(fd)
        return word.get("is") == "chunks"

    def _map(self, connection: socket.socket, word: Any) -> None:
        """Gives another rank what the trainer was given, until that rank has done with it."""
        with self._lock:
            sealed = self._held.get(_text(word, "key"))
        if sealed is None:
            raise Refused("that model is no longer there")
        _memory.send(connection, {"is": "memory", "rows": sealed.rows, "framework": sealed.framework}, [sealed.fd])
        _memory.waits(connection, None)

    def _send(self, connection: socket.socket, word: Any, fds: List[int]) -> None:
        """Dials FLARE's server for the trainer, also on behalf of another site, and is pulled from the trainer's own memory, or from memory that the trainer has filled."""
        ours, gone, cell = _ours(word), _memory.Gone(connection), client_cell()
        trainer, to, ref = _text(word, "trainer"), _text(word, "to"), _text(word, "ref")
        place = place_of(cell)
        if FQCN.get_parent(trainer) != place.fqcn or not (is_server(to) or job_between(trainer, to)):
            raise Refused("it is not from this process's trainer to FLARE's server or to another site of this job")
        call = _offer.parse_call(word.get("call"), job_of(place.fqcn, to), trainer, place.trust) if is_server(to) else None
        tensors: Dict[str, Any]
        if fds:
            tensors = _memory.opened(fds[0], word.get("rows"), ours.offering.framework)
            os.close(fds.pop())
        else:
            try:
                tensors = Theirs(_memory.process_of(connection), word.get("rows"), ours.offering.framework, most_bytes(), gone, word.get("version"))
            except Unreadable as e:
                self.logger.info(f"tensorpull: the trainer's memory cannot be read, so it makes a copy: {e}")
                _memory.send(connection, {"is": "unreadable"})
                return
        if call is None:
            ours.send_between(tensors, cell, ref, place, to, gone, lambda said: _memory.send(connection, {"is": "waits", "said": said}))
        elif why := ours.send(tensors, cell, ref, place, call, to, gone):
            raise Refused(why)
        with contextlib.suppress(OSError):  # it has heard from FLARE already
            _memory.send(connection, {"is": "sent"})


def _settings() -> Dict[str, Any]:
    """Of the job, which its trainer does not see."""
    return {"enabled": setting("enabled", True), "least_bytes": setting("least_bytes", LEAST_BYTES), "pairs": setting("pairs", PAIRS)}


def _text(word: Any, name: str) -> str:
    value = word.get(name)
    if type(value) is not str or not 0 < len(value) < 512:
        raise Refused(f"its {name} makes no sense")
    return value


def _ours(word: Any) -> Any:
    """This package's decomposer of what the word is about."""
    dot = word.get("dot")
    ours = getattr(fobs.get_dot_handler(dot), "tensorpull", None) if type(dot) is int else None
    if ours is None or not hasattr(ours, "bring"):
        raise Refused("what it is about does not travel by tensorpull here")
    return ours


def client_cell() -> Any:
    """The cell of a site's job in this process; None: this is no such process."""
    for fqcn, core in list(CoreCell.ALL_CELLS.items()):
        path = FQCN.split(fqcn)
        if len(path) == 2 and path[0] != FQCN.ROOT_SERVER:
            return core.get_fobs_context().get(fobs.FOBSContextKey.CELL)
    return None


_here: Optional[Trainers] = None
#: Why that is None.
_nobody = "this process is not known as a site's job process"
_once = threading.Lock()


def wait_for_trainers() -> None:
    """A trainer that FLARE starts from now on takes part, if this is a site's job process."""
    global _here, _nobody
    main = getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", "")
    with _once:
        if _here is None and hasattr(os, "memfd_create") and main in _JOB_PROCESSES:
            try:
                _here = Trainers()
            except (OSError, RuntimeError) as e:  # no such socket, or no thread
                _nobody = f"its job process cannot be called: {e}"
                return
            os.environ[VARIABLE] = _here.name
            sys.path.insert(0, FOLDER)  # FLARE makes the trainer's PYTHONPATH from it


def note(datum: Any, fobs_ctx: Any) -> None:
    """FLARE has read a reference, its JSON. One that it passes on to a trainer is what the trainer may ask for; if no trainer does, a warning says why."""
    if not fobs_ctx.get(fobs.FOBSContextKey.PASS_THROUGH):
        return
    why = _nobody
    if _here is not None:
        ref, cell = json.loads(datum), fobs_ctx.get(fobs.FOBSContextKey.CELL)
        if len(FQCN.split(ref["fqcn"])) > 2 or ref["fqcn"] == cell.get_fqcn():  # a trainer's update, or this process's model, as in swarm learning
            return
        if not _here.note(ref["fqcn"], ref["ref_id"], cell):
            return
        why = "it has not asked for the first of them, so it cannot import tensorpull, or cannot reach this process"
    if not _warned and _has_a_trainer():
        _warned.append(why)
        get_obj_logger(Trainers).warning(f"tensorpull: models of the external trainer travel by FLARE's chunks: {why}")


def _has_a_trainer() -> bool:
    """By the job's configuration: FLARE passes references on in other jobs, too."""
    section = ConfigService.get_section(SystemConfigs.APPLICATION_CONF) or {}
    return any(e.get("executor", {}).get("args", {}).get("execution_mode") == "external_process" for e in section.get("executors", []))


_warned: List[str] = []
