"""Decomposers of a site or a server that lies or dies: what the other end must not fall for. One tells the truth about its digests."""

import itertools
import os
import sys
import threading
import time

import nvflare.fuel.utils.fobs as fobs
from nvflare.fuel.f3.streaming.download_service import ProduceRC

import tensorpull
from tensorpull.nvflare import _pool, _offer
from tensorpull.nvflare._offer import KEY
from tensorpull.nvflare._process import is_server, place_of
from tensorpull.nvflare.decomposers.array import ArrayDecomposer, OfferedArrays
from tensorpull.nvflare.decomposers.tensor import AwaitedTensors, OfferedTensors, TensorDecomposer


def _both(behaviour):
    """The one line of a job, with offers of tensors and of arrays that behave like that."""
    tensors, arrays = type("Tensors", (behaviour, OfferedTensors), {}), type("Arrays", (behaviour, OfferedArrays), {})
    of_arrays = type("OfArrays", (ArrayDecomposer,), {"offering": arrays})
    return type("Decomposer", (TensorDecomposer,), {"offering": tensors, "arrays": lambda self: of_arrays()})


def _lying(change):
    class Lying:
        def produce(self, state, requester):
            rc, data, new = super().produce(state, requester)
            said = new.get(KEY) if isinstance(new, dict) else None
            if not state and said:
                change(said, self)
            return rc, data, new

    return _both(Lying)


def _foreign(said, owner):
    """Another publication of the same owner, with the same names and shapes and other values."""
    if "ref" in said:
        ref = place_of(owner._cell).owner()[0].add_tensors({name: tensor * 0 for name, tensor in owner.base_obj.items()}, metadata={"nvflare.ref": "another"})
        said.update(ref=ref.id, version=ref.version, bytes=ref.nbytes)
    else:
        said["job"] = "another"


def _schema(said, owner):
    """A publication with the word of this offer, whose tensors are none of FLARE's."""
    if "ref" in said:
        ref = place_of(owner._cell).owner()[0].add_tensors({"other": next(iter(owner.base_obj.values()))}, metadata={"nvflare.ref": said["model"]})
        said.update(ref=ref.id, version=ref.version, bytes=ref.nbytes)
    else:
        said["bytes"] = 8  # and more is pulled


AnotherAddress = _lying(lambda said, _: said.update(address="tcp://192.0.2.1:8002") if "address" in said else said.update(v=2))
ForeignReference = _lying(_foreign)
WrongVersion = _lying(lambda said, _: said.update(v=_offer.VERSION + 1))
WrongModel = _lying(lambda said, _: said.update(version=said["version"] ^ 1) if "version" in said else said.update(site="site-77"))
AnotherSchema = _lying(_schema)
Exabyte = _lying(lambda said, _: said.update(bytes=2**60))
Nonsense = _lying(lambda said, _: (said.clear(), said.update({"is": ["offer"] * 3})))


class Dying:
    """The server's port closes while models are under way."""

    def produce(self, state, requester):
        answer = super().produce(state, requester)
        if not state and self._published:
            threading.Timer(1.0, place_of(self._cell).owner()[0].close).start()
        return answer


DyingInMidTransfer = _both(Dying)


class _Telling:
    """Says of each publication of the server whether its digest was known."""

    def _publish(self, place, requester):
        owner = place.owner()[0]
        with _TOLD:
            if "add_tensors" not in vars(owner):
                owner.add_tensors = self._told(owner.add_tensors)
        return super()._publish(place, requester)

    def _told(self, add):
        def told(*tensors, version=None, **more):
            self.logger.info(f"published with {'a known' if version is not None else 'its first'} digest, number {next(_COUNT)}")
            return add(*tensors, version=version, **more)

        return told


_COUNT, _TOLD = itertools.count(), threading.Lock()
Telling = _both(_Telling)


class NotAtTheSecondSite(TensorDecomposer):
    """A package that one of the sites does not have."""

    def __init__(self):
        if "site-2" in sys.argv:
            fobs.register(self.flares)  # and FLARE has its own
        else:
            super().__init__()


class AnotherVersionAtTheSecondSite(TensorDecomposer):
    """A package that is older or newer by one version of what the two ends say (TENSORPULL_VERSION)."""

    def __init__(self):
        super().__init__()
        if any("site-2" in word.split("/") for word in sys.orig_argv):
            _offer.VERSION += int(os.environ["TENSORPULL_VERSION"])


class _GoneHalfWay:
    """When the server has the header of its update, its connection is lost, and it answers FLARE no more."""

    def produce(self, state, requester):
        return (ProduceRC.ERROR, None, {}) if _GONE.is_set() else super().produce(state, requester)


class _Fleeting(tensorpull.Session):
    def serve(self, until=None, timeout=None):
        def gone():
            if os.path.exists(_BEGUN):
                _GONE.set()
            return _GONE.is_set() or until()

        return super().serve(gone, timeout)


#: In the job's own folder, which all of its processes have.
_BEGUN, _GONE = os.path.expanduser("~/begun"), threading.Event()


class _Watched(AwaitedTensors):
    def land(self, *given, **how):
        _THREAD.watched = self._source.startswith("site-2")
        return super().land(*given, **how)


_THREAD = threading.local()


def _slowly(*given, maker=_pool.kept_maker):
    make = maker(*given)

    def made(*tensor):
        if _THREAD.watched and not os.path.exists(_BEGUN):
            open(_BEGUN, "w").close()
            time.sleep(1.0)
        return make(*tensor)

    return made


class GoneHalfWay(_both(_GoneHalfWay)):
    """At the second site. The server waits until it has looked, or all of the update would have come."""

    def __init__(self):
        super().__init__()
        if "site-2" in sys.argv:
            tensorpull.Session = _Fleeting

    def consumer(self, cell, fobs_ctx):
        if not is_server(cell.get_fqcn()):
            return super().consumer(cell, fobs_ctx)
        _pool.kept_maker = _slowly
        return _Watched(None, {})
