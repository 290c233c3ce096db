"""FLARE's own decomposer of a type stays the one that is registered, under the name that every peer knows, and what it offers and downloads becomes ours.

FLARE keeps the first registration of a type, and makes some of them when a process starts. Its accessor `fobs.get_dot_handler` says which one it has. Only an object of exactly FLARE's
class is touched: a subclass, or a framework's own class, knows something about its models that this package does not.
"""

from __future__ import annotations

import inspect
from typing import Any

import nvflare.fuel.utils.fobs as fobs

from . import _trainers
from ._offer import Refused
from ._process import ONLY_SIGNED, is_server, site_setting

#: What FLARE calls. Its versions of these take no more than ours take, or the seam is another one.
_METHODS = ("to_downloadable", "download")
_MARK = "tensorpull"


def take_over(ours: Any, kind: str) -> None:
    """FLARE's decomposer of the type of `ours` uses the methods of `ours` from now on, in this process. If it cannot, nothing is changed, and a warning says what that means."""
    try:
        dot = ours.get_download_dot()
        if fobs.get_dot_handler(dot) is None:
            fobs.register(ours.flares)  # as FLARE does later
        there = fobs.get_dot_handler(dot)
        if hasattr(there, _MARK):
            return
        why = _unlike(there, ours)
        if not why:
            for name in _METHODS:
                setattr(there, name, getattr(ours, name))
            _listen_in(there)
            _refuse_what_is_inline(there)
            setattr(there, _MARK, ours)
    except Exception as e:  # whatever another version of FLARE has made of it, its own way goes on
        why = f"{type(e).__name__}: {e}"
    if why and site_setting("keys"):
        raise Refused(f"{ONLY_SIGNED}, and {kind} travel by FLARE's chunks in this process: {why}")
    if why:
        ours.logger.warning(f"tensorpull: {kind} travel by FLARE's chunks in this process: {why}")
    else:
        ours.logger.info(f"tensorpull: {kind} are offered and pulled in this process")


def _listen_in(there: Any) -> bool:
    """From now on a trainer's process may ask for what a message has brought. False: this version of FLARE reads messages in another way."""
    reads = there.process_datum
    if "process_datum" in vars(there) or list(inspect.signature(reads).parameters) != ["datum", "manager"]:
        return False

    def process_datum(datum: Any, manager: Any) -> Any:
        try:
            _trainers.note(datum.value, manager.fobs_ctx)
        except Exception as e:  # noqa: BLE001: another form of it, which its trainer cannot ask for
            there.logger.debug(f"tensorpull: {e}")
        return reads(datum, manager)

    there.process_datum = process_datum
    return True


def _refuse_what_is_inline(there: Any) -> None:
    """From now on a site that takes signed models alone takes none that a message itself carries."""
    reads = there.native_recompose

    def native_recompose(data: Any, manager: Any = None) -> Any:
        about = manager.fobs_ctx if manager is not None else {}
        cell = about.get(fobs.FOBSContextKey.CELL)
        if about.get(fobs.FOBSContextKey.MESSAGE) is not None and site_setting("keys") and (cell is None or not is_server(cell.get_fqcn())):
            raise Refused(f"{ONLY_SIGNED}: a message carries it")  # whoever sent it: its header says anything
        return reads(data, manager)

    there.native_recompose = native_recompose


def _unlike(there: Any, ours: Any) -> str:
    """Why `there` is not the object that this package knows; "" if it is."""
    if type(there) is not ours.flares:
        return f"what is registered for them is {type(there).__module__}.{type(there).__qualname__}, and not FLARE's own"
    for name in _METHODS:
        if name in vars(there):
            return f"something else has replaced its {name}"
        if name not in vars(ours.flares):
            return f"this version of FLARE has no {name} of its own for them"
        more = set(inspect.signature(getattr(there, name)).parameters) - set(inspect.signature(getattr(ours, name)).parameters)
        if more:
            return f"this version of FLARE calls {name} with {', '.join(sorted(more))}"
    return ""
