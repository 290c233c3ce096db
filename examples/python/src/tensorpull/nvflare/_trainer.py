"""An external trainer's own part. It has no certificate and no port: its site's job process pulls for it and sends for it (_trainers.py)."""

from __future__ import annotations

import contextlib
import inspect
import os
import queue
import socket
import struct
import threading
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

import nvflare.fuel.utils.fobs as fobs
from nvflare.client.cell.bootstrap import BOOTSTRAP_FILE_ENV_VAR, BootstrapKey, read_bootstrap_config
from nvflare.client.config import ConfigKey, ExchangeFormat
from nvflare.fuel.f3.cellnet.fqcn import FQCN

from . import _memory
from ._lent import Lent
from ._offer import Refused
from ._process import ONLY_SIGNED, Refuge, takes_signed_alone
from ._registration import take_over
from ._trainers import VARIABLE
from ._transfer import KINDS, REFERENCE, Offering, check_names, warn_once

#: Settings of the job that the job process tells.
_SETTINGS = ("enabled", "least_bytes", "pairs")
#: Seconds between two looks at whether FLARE has given up.
_LOOK = 0.2
#: Seconds in which the job process, which is on this machine, takes and says a word that it has begun.
_PATIENCE = 60.0


def _called(word: Dict[str, Any], fds: List[int]) -> socket.socket:
    """A connection to the job process, with the word said. Refuge: nobody is there, as in another container."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # With Python's time-out it would not wait for its turn, and many ranks call at once.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", int(_PATIENCE), 0))
        connection.connect(f"\0{os.environ[VARIABLE]}")
        connection.settimeout(_PATIENCE)
        if not _memory.is_same_user(connection):
            raise Refused("a process of another user has its name")
        _memory.send(connection, word, fds)
        return connection
    except OSError as e:
        connection.close()
        raise Refuge(f"its job process cannot be called: {e}") from None
    except BaseException:
        connection.close()
        raise


def _answer(connection: socket.socket, stopped: Any) -> Optional[Tuple[Dict[str, Any], List[int]]]:
    """The job process's next word; None: FLARE has given up before. EOFError: it is gone."""
    while not _memory.waits(connection, _LOOK):
        if stopped():
            return None
    word, fds = _memory.receive(connection)
    for name, value in (word.get("settings") or {}).items():
        if name in _SETTINGS and type(value) in (bool, int):
            os.environ[f"NVFLARE_TENSORPULL_{name.upper()}"] = str(value)
    return word, fds


def _memory_of(word: Dict[str, Any], fds: List[int], framework: str) -> _memory.Opened:
    """The tensors that came with an answer; closes its descriptors."""
    try:
        if word.get("is") != "memory" or len(fds) != 1:
            raise Refused(f"its job process refuses: {str(word.get('why'))[:300]}")
        return _memory.opened(fds[0], word.get("rows"), framework, owner_waits=True)
    finally:
        for fd in fds:
            os.close(fd)


def _keep(connection: contextlib.ExitStack, tensors: _memory.Opened) -> None:
    """The connection ends with the tensors' memory: until then the job process does not write there."""
    there = tensors.mapping() if tensors.mapping is not None else None
    if there is not None:
        weakref.finalize(there, connection.pop_all().close).atexit = False


class Handing(Offering):
    """Comes before one of FLARE's Downloadables, in a trainer. FLARE's server hears an offer like a site's, and the address that it wants to be called at goes to the job process."""

    dot: int  # FLARE's number for what it is

    def _call(self, said: Any, requester: str) -> None:
        with self._once:
            if requester in self._calls:  # FLARE has asked again
                return
            self._calls[requester] = ""
        threading.Thread(target=self._hand_over, args=(said, requester), name="tensorpull-call", daemon=True).start()

    def _waits_for(self, place: Any, job: str, requester: str) -> Dict[str, Any]:
        """As it is: the job process waits, with its certificate."""
        waits: "queue.SimpleQueue[Optional[Dict[str, Any]]]" = queue.SimpleQueue()
        threading.Thread(target=self._hand_over, args=(None, requester, waits.put), name="tensorpull-call", daemon=True).start()
        said = waits.get()
        if said is None:
            raise Refuge(self._calls.get(requester, "FLARE has given up"))
        return said

    def _hand_over(self, said: Any, requester: str, waits: Callable[[Any], None] = lambda _: None) -> None:
        """`said`: the server's call; None: another site asks, and `waits` is told where the job process waits for it. None: nowhere."""
        try:
            with self._once:
                tensors = self._there()
            word = {"is": "send", "dot": self.dot, "ref": self._flare_ref, "trainer": self._cell.get_fqcn(), "to": requester, "call": said}
            lent = Lent(tensors, self.framework)  # longer than the connection
            if self._is_unreadable({**word, "rows": lent.rows, "version": lent.version({REFERENCE: self._flare_ref})}, [], waits):
                sealed = _memory.Room(self.framework).fill(tensors)
                self._is_unreadable({**word, "rows": sealed.rows}, [sealed.fd], waits)
        except Exception as e:  # noqa: BLE001: FLARE's chunks carry it
            self._call_failed(requester, e)
        finally:
            waits(None)

    def _is_unreadable(self, word: Dict[str, Any], fds: List[int], waits: Callable[[Any], None]) -> bool:
        """Waits until the job process has sent it. True: it cannot read what is in this process's memory."""
        with _called(word, fds) as connection:
            heard = _answer(connection, self._gone.is_set)
            if heard is not None and heard[0].get("is") == "waits":
                waits(heard[0].get("said"))
                heard = _answer(connection, self._gone.is_set)
        if heard is None or heard[0].get("is") == "sent":
            return False
        if not fds and heard[0].get("is") == "unreadable":
            return True
        raise Refuge(f"its job process did not send it: {str(heard[0].get('why'))[:300]}")


class Taking:
    """Comes before one of FLARE's decomposers, in a trainer."""

    flares: Any  # FLARE's class
    offering: Any  # the class of what it sends
    logger: Any
    get_download_dot: Any

    def to_downloadable(self, items: Dict[str, Any], max_chunk_size: int, fobs_ctx: Dict[str, Any]) -> Any:
        return self.offering(items, max_chunk_size, fobs_ctx.get(fobs.FOBSContextKey.CELL))

    def download(
        self, from_fqcn: str, ref_id: str, per_request_timeout: float, cell: Any, secure: bool = False, optional: bool = False, abort_signal: Any = None,
        progress_cb: Any = None, fobs_ctx: Optional[Dict[str, Any]] = None,
    ) -> Any:  # fmt: skip
        word = {"is": "bring", "dot": self.get_download_dot(), "from": from_fqcn, "ref": ref_id, "timeout": per_request_timeout, "secure": secure}
        stopped = lambda: bool(abort_signal is not None and abort_signal.triggered)  # noqa: E731
        own: Any = getattr(super(), "download")
        more = {"fobs_ctx": fobs_ctx} if "fobs_ctx" in inspect.signature(own).parameters else {}
        parent = FQCN.get_parent(cell.get_fqcn())
        _for_others.pop(self.offering.framework, None)
        with contextlib.ExitStack() as kept:
            if from_fqcn != parent:  # else its job process has made it, as in swarm learning
                try:
                    connection = kept.enter_context(_called(word, []))
                    heard = _answer(connection, stopped)
                    if heard is not None and heard[0].get("is") == "memory":
                        try:
                            return None, self._mapped(*heard, kept)
                        except Exception as e:  # noqa: BLE001: FLARE's server has let go of the model, and the job process sends it on
                            warn_once(self.logger, f"{KINDS[self.offering.framework]} come from {parent} by FLARE's chunks: {e}")
                            _memory.send(connection, {"is": "chunks"})
                            heard = _answer(connection, stopped)
                    if heard is None:
                        return "FLARE has given up", None
                    if heard[0].get("is") == "failed":
                        return str(heard[0].get("why")), None
                    if heard[0].get("is") != "chunks":
                        raise Refuge(str(heard[0].get("why"))[:300])
                    from_fqcn, ref_id, secure = str(parent), str(heard[0].get("ref")), False  # within this machine, as FLARE's messages to a trainer are
                except Exception as e:  # noqa: BLE001: whatever it is, the job goes on
                    if takes_signed_alone(cell.get_fqcn(), from_fqcn):
                        return f"{ONLY_SIGNED}: {e}", None
                    warn_once(self.logger, f"{KINDS[self.offering.framework]} come from {from_fqcn} by FLARE's chunks: {e}")
            return own(
                from_fqcn=from_fqcn, ref_id=ref_id, per_request_timeout=per_request_timeout, cell=cell, secure=secure, optional=optional, abort_signal=abort_signal,
                progress_cb=progress_cb, **more,
            )  # fmt: skip

    def _mapped(self, word: Dict[str, Any], fds: List[int], connection: contextlib.ExitStack) -> _memory.Opened:
        """The tensors, which keep the connection: the job process has the memory for other ranks until it ends."""
        tensors = _memory_of(word, fds, self.offering.framework)
        check_names(tensors)
        _came[self.offering.framework] = _Came(str(word.get("key")), tensors)
        _keep(connection, tensors)
        return tensors


class _Came:
    """What this process was given last, of one framework: where each tensor lies."""

    def __init__(self, key: str, tensors: _memory.Opened) -> None:
        self.key, self.mapping = key, tensors.mapping
        self._names = {_address(t): (name, _kind_of(t)) for name, t in tensors.items() if t.nbytes and name not in tensors.apart}

    def name_of(self, tensor: Any) -> Optional[str]:
        """Of a tensor that lies there, also if it is seen through the other framework. None: it is not one of them, or a part of one, or its bits seen as another type."""
        there = self.mapping() if self.mapping is not None else None
        name, kind = self._names.get(_address(tensor), (None, None))
        return name if there is not None and name is not None and _kind_of(tensor) == kind else None


def _kind_of(tensor: Any) -> Any:
    return str(tensor.dtype).rpartition(".")[2], tensor.nbytes


_came: Dict[str, _Came] = {}
#: What other ranks may still be about to map, until the next model is asked for: the first one may have done with it before the last one has heard of it.
_for_others: Dict[str, Any] = {}


def _address(tensor: Any) -> int:
    return int(tensor.data_ptr()) if hasattr(tensor, "data_ptr") else int(tensor.__array_interface__["data"][0])


class ForRanks(Dict[str, Any]):
    """`for_ranks`."""

    def __reduce__(self) -> Any:
        mapped, others = {}, {}
        for name, value in self.items():
            there = next(((came.key, found) for came in _came.values() for found in [came.name_of(value)] if found is not None), None) if _is_tensor(value) else None
            if there is None:
                others[name] = value
            else:
                mapped[name] = (*there, tuple(value.shape), hasattr(value, "data_ptr"))
        keys = {key for key, *_ in mapped.values()}
        _for_others.update((framework, came.mapping()) for framework, came in _came.items() if came.key in keys and came.mapping is not None)
        return _as_came, (list(self), mapped, others)


def _is_tensor(value: Any) -> bool:
    if hasattr(value, "data_ptr"):
        return value.device.type == "cpu" and bool(value.is_contiguous()) and not value.is_conj() and not value.is_neg()
    return hasattr(value, "__array_interface__") and bool(value.flags.c_contiguous)


def _as_came(order: List[str], mapped: Dict[str, Any], others: Dict[str, Any]) -> Dict[str, Any]:
    """In another rank: the same dict, over the same memory."""
    opened: Dict[str, Any] = {}
    for key, *_ in mapped.values():
        if key not in opened:
            with contextlib.ExitStack() as kept:
                word, fds = _memory.receive(kept.enter_context(_called({"is": "map", "key": key}, [])))
                opened[key] = _memory_of(word, fds, "torch" if word.get("framework") == "torch" else "numpy")
                _keep(kept, opened[key])
    made = {}
    for name, (key, found, shape, is_torch) in mapped.items():
        tensor = opened[key][found]
        if is_torch and not hasattr(tensor, "data_ptr"):
            import torch

            tensor = torch.from_numpy(tensor)
        elif not is_torch and hasattr(tensor, "data_ptr"):
            tensor = tensor.numpy()
        made[name] = tensor.reshape(shape)
    return {name: made[name] if name in made else others[name] for name in order}


def for_ranks(params: Dict[str, Any]) -> Dict[str, Any]:
    """The params that `flare.receive()` has returned in the first rank, to be sent to other ranks of this machine with pickle, as `torch.distributed.broadcast_object_list` does.
    There they are over the same memory: nothing is copied. A write changes the writer's own alone, and none of the first rank's before the call is seen. Tensors that did not come
    through shared memory are pickled as usual. The memory stays until the next model is asked for."""
    return ForRanks(params)


def _take_over(flares: Any, offered: Any) -> None:
    ours: Any = type("Taken", (Taking, flares), {"flares": flares})()
    ours.offering = type("Handed", (Handing, offered), {"dot": ours.get_download_dot()})
    take_over(ours, KINDS[offered.framework])


def join() -> None:
    """FLARE's client has been imported here, and has not begun: what it receives and sends goes through the job process from now on."""
    exchange = read_bootstrap_config(os.environ[BOOTSTRAP_FILE_ENV_VAR]).get(BootstrapKey.TASK_EXCHANGE, {})
    formats = [exchange.get(key) for key in (ConfigKey.EXCHANGE_FORMAT, ConfigKey.SERVER_EXPECTED_FORMAT)]
    if os.environ.get("RANK", "0") != "0":
        return  # FLARE talks to the first rank alone
    if formats[1] == ExchangeFormat.PYTORCH or {ExchangeFormat.RAW, ExchangeFormat.PYTORCH} <= set(formats):  # as FLARE registers its own one
        from nvflare.app_opt.pt.decomposers import TensorDecomposer

        from .decomposers.tensor import OfferedTensors

        _take_over(TensorDecomposer, OfferedTensors)
    from nvflare.app_common.decomposers.numpy_decomposers import NumpyArrayDecomposer

    from .decomposers.array import OfferedArrays

    _take_over(NumpyArrayDecomposer, OfferedArrays)
