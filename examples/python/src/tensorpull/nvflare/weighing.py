"""An aggregator of FLARE's FedAvg that looks at all updates before it decides what each of them is worth.

    FedAvgRecipe(..., aggregator=tensorpull.nvflare.WeighingAggregator())
"""

from __future__ import annotations

import math
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

import tensorpull

from .._native import max_trimmed
from .._tensors import native
from .._weighing import Differences, Weigh, Weighing, clip_norms, weights_of
from .differences import RoundAggregator


class WeighingAggregator(RoundAggregator):
    """The new model is FLARE's global model and a mean of the updates' differences to it, so that one site that is out of proportion, by accident or on purpose, does not decide it.

    `weights`: `tensorpull.clip_norms()`, which is the default, or an object of a class of yours that is called with `tensorpull.Differences` and gives N weights, or N weights and N
    scales. FLARE writes it to the job's files: its constructor's arguments have to be attributes of their names. Or `trimmed`: each element is the mean of its values without the
    `trimmed` least and greatest.

    An update's own weight is what `aggregation_weights` of its site says (1 if nothing) times the steps that the update says, at most the median of what all of the round say, because
    that is the site's own word. `trimmed` has no weights. `names`: the tensors that are compared and scaled, in place of all floating ones; the rest has the weighted median, such as running variances, which would
    make norms of their own. Tensors of whole numbers and of bools are not looked at: each element is the median (of an even number: the lower one in the
    middle) of the updates whose weight is not 0. Metrics are FLARE's mean, with the weights; one that cannot be added to the others' is left out, and logged.

    An update is refused (ValueError with the site's name, which FLARE logs, and the site is left out of the round) if it has infinities or NaNs that the old model has not (with `trimmed`: any), or other
    tensors than that: names, shapes and PyTorch or NumPy have to be the same, and other types are cast. Updates that are differences already are added to the old model first. If no update is left, or weights are negative, no numbers or all zero, or the
    function raises, an error is logged, the old model stays, and the job goes on.

    Memory: all updates of a round, a new model, and 24 bytes * max_updates * max_updates. An update is compared with those before it when it comes, while others are on their way.
    """

    def __init__(
        self, weights: Optional[Weigh] = None, trimmed: Optional[int] = None, aggregation_weights: Optional[Dict[str, float]] = None, max_updates: int = 256,
        names: Optional[Sequence[str]] = None,
    ) -> None:  # fmt: skip
        if trimmed is not None and (weights is not None or isinstance(trimmed, bool) or not isinstance(trimmed, int) or trimmed < 0):
            raise ValueError(f"either weights, or trimmed, a number of updates; not {trimmed!r}")
        if weights is not None and not callable(weights):
            raise TypeError(f"weights is clip_norms() or is called with Differences; not {weights!r}")
        if names is not None and (trimmed is not None or isinstance(names, str) or not names or not all(isinstance(name, str) for name in names)):
            raise ValueError(f"names is a list of tensors' names, without trimmed; not {names!r}")
        self.weights: Optional[Weigh] = weights
        self.names: Optional[Sequence[str]] = names
        self.trimmed: Optional[int] = trimmed
        self.max_updates: int = max_updates
        super().__init__(aggregation_weights)

    def reset_stats(self) -> None:
        super().reset_stats()
        self._weighing: Optional[Weighing] = None
        self._old: Tuple[Dict[str, Any], Dict[str, Any]] = {}, {}  # what the updates are compared with, and what is not looked at
        self._given: Dict[str, Tuple[float, Dict[str, Any], FLModel]] = {}  # by site: steps, what is not looked at, and metrics

    def accept_model(self, model: FLModel) -> None:
        values, who, by_server, steps = self._read(model)
        began = time.monotonic()
        with self._lock:
            try:
                if self._weighing is None:
                    self._begin()
                floats, others = self._like_old(values, model.params_type)
                del values
                self._take(who, by_server, floats)
            except (ValueError, TypeError, RuntimeError, tensorpull.Error) as e:  # PyTorch has no arithmetic for some types
                raise ValueError(f"an update of {who} is left out of this round: {e}") from e
            self._given[who] = steps, others, FLModel(metrics=model.metrics, current_round=model.current_round)
        self.logger.info(f"tensorpull: looked at the update of {who} in {time.monotonic() - began:.3f} s")

    def aggregate_model(self) -> FLModel:
        began = time.monotonic()
        with self._lock:
            params = None
            if self._weighing is None or not self._given:
                self.logger.error("tensorpull: no update counts in this round, so the old model stays")
            else:
                try:
                    params = self._new_model()
                    self.logger.info(f"tensorpull: weighed {len(self._given)} updates in {time.monotonic() - began:.3f} s")
                except Exception as e:  # noqa: BLE001: the function is the job's, and what sites have sent is no reason to end the job
                    self.logger.error(f"tensorpull: the updates could not be weighed, so the old model stays: {type(e).__name__}: {e}")
            if params is None:
                self._all_metrics = False
                params = dict(self._base)
            return self._made(params, ParamsType.FULL)

    def _begin(self) -> None:
        """The first update of the round."""
        if not self._base:
            raise ValueError("FLARE has no global model to compare with")
        old: Tuple[Dict[str, Any], Dict[str, Any]] = {}, {}
        for name, value in self._base.items():
            kind = _kind(value)
            if kind not in ("float", "whole"):
                raise ValueError(f"{name} of the global model is no tensor that has a mean")
            old[kind == "whole"][name] = _plain(value, value)
        if not old[0]:
            raise ValueError("the global model has no floating-point tensor")
        floats = _apart(old[0])
        self._weighing = Weighing(floats, max_updates=self.max_updates if self.trimmed is None else min(self.max_updates, max_trimmed), names=self.names)
        self._old = floats, old[1]

    def _like_old(self, values: Dict[str, Any], type_: Any) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """What is looked at, and what is not, as whole models. ValueError: it is not what the old model is."""
        if strangers := sorted(set(values) ^ set(self._base)):
            raise ValueError(f"it {'has' if strangers[0] in values else 'lacks'} {strangers[0]}, and the global model {'has not' if strangers[0] in values else 'has it'}")
        parts = []
        for old in self._old:
            for name, was in old.items():
                if _kind(values[name]) != _kind(was) or _is_torch(values[name]) != _is_torch(was) or tuple(values[name].shape) != tuple(was.shape):
                    raise ValueError(f"{name} has another type or shape than in the global model")
            parts.append({name: _plain(values[name] if type_ == ParamsType.FULL else was + values[name], was) for name, was in old.items()})
        return _apart(parts[0]), parts[1]

    def _take(self, who: str, weight: float, floats: Dict[str, Any]) -> None:
        """Looks at it beside those that are there. An update with what is no number is not among them in the end."""
        assert self._weighing is not None
        if self.trimmed is not None:
            if bad := [name for name, value in floats.items() if not _finite(value)]:
                raise ValueError(f"{bad[0]} has infinities or NaNs")
            return self._weighing.add(who, weight, floats)
        self._weighing.add(who, weight, floats)
        try:
            seen = self._weighing.look()
            if not numpy.isfinite(seen.norms[seen.peers.index(who)]):
                raise ValueError("it has infinities or NaNs, or its difference has no length")
        except BaseException:
            self._weighing.remove(who)
            raise

    def _new_model(self) -> Dict[str, Any]:
        assert self._weighing is not None
        peers = self._weighing.peers
        if self.trimmed is not None:
            floats, weights = self._weighing.trimmed_mean(self.trimmed), [1.0] * len(peers)
        else:
            weights = []

            def weigh(seen: Differences) -> Tuple[List[float], List[float]]:
                told = sorted(self._given[peer][0] for peer in seen.peers)
                at_most = told[(len(told) - 1) // 2]
                seen = seen._replace(weights=tuple(weight * min(self._given[peer][0], at_most) for peer, weight in zip(seen.peers, seen.weights)))
                weigh = self.weights or clip_norms()
                if isinstance(weigh, clip_norms) and weigh.heaviest is None:
                    weigh = clip_norms(weigh.longest, math.inf)  # the sites' own word is bounded above; the rest is the server's
                made = weights_of(weigh(seen), len(seen.peers))
                weights.extend(made[0])
                self.logger.info("tensorpull: " + ", ".join(f"{p} has norm {n:.3g}, weight {w:.3g} and scale {s:.3g}" for p, n, w, s in zip(seen.peers, seen.norms, *made)))
                return made

            floats = self._weighing.result(weigh)
        counted = [self._given[peer] for peer, weight in zip(peers, weights) if weight > 0]
        made = {name: floats[name] if name in floats else _median([given[1][name] for given in counted], was) for name, was in self._base.items()}
        for peer, weight in zip(peers, weights):
            if weight > 0:
                told = self._given[peer][2]
                self._add_metrics(told.metrics, weight, peer, told.current_round)
        return made


def _is_torch(value: Any) -> bool:
    return hasattr(value, "is_floating_point") and hasattr(value, "add_")


def _kind(value: Any) -> str:
    """"float", which has a difference; "whole", a number without a fraction or a bool; or "", what has no mean."""
    if _is_torch(value):
        import torch

        if value.layout != torch.strided or value.is_quantized or value.dtype == torch.complex128:
            return ""
        return "float" if value.is_floating_point() or value.is_complex() else "whole"
    if not hasattr(value, "__array_interface__") or not hasattr(value, "dtype"):
        return ""
    return "float" if value.dtype.kind == "f" or value.dtype == "c8" else "whole" if value.dtype.kind in "iub" else ""


def _plain(value: Any, like: Any) -> Any:
    """In the CPU's memory, contiguous, of the same type; itself if it is so."""
    if _is_torch(value):
        return value.detach().to("cpu", like.dtype).contiguous()
    with numpy.errstate(over="ignore"):
        return numpy.asarray(value, native(like.dtype), order="C")


def _apart(tensors: Dict[str, Any]) -> Dict[str, Any]:
    """Tensors that share memory arrive as tensors of their own, so those of the old model are, too."""
    seen = set()
    made = {}
    for name, value in tensors.items():
        at = value.data_ptr() if _is_torch(value) else value.__array_interface__["data"][0]
        size = value.numel() if _is_torch(value) else value.size
        made[name] = value if not size or at not in seen else value.clone() if _is_torch(value) else value.copy()
        seen.add(at)
    return made


def _finite(value: Any) -> bool:
    if _is_torch(value):
        import torch

        return bool(torch.isfinite(value).all())
    return bool(numpy.isfinite(value).all())


def _median(values: List[Any], like: Any) -> Any:
    """Of each element, a value that one of them has."""
    middle = numpy.sort(numpy.stack([numpy.asarray(value) for value in values]), axis=0)[(len(values) - 1) // 2]
    if not _is_torch(like):
        return numpy.asarray(middle)
    import torch

    return torch.from_numpy(numpy.array(middle))
