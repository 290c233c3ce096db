"""An aggregator of FLARE's FedAvg that keeps what did not change.

    FedAvgRecipe(..., aggregator=tensorpull.nvflare.DifferenceAggregator())
"""

from __future__ import annotations

import logging
import math
import threading
from typing import Any, Dict, Optional, Tuple

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLMetaKey
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.abstract.model import ModelLearnableKey
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from nvflare.app_common.aggregators.weighted_aggregation_helper import WeightedAggregationHelper, filter_aggregatable_metrics
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.fuel.utils.log_utils import get_obj_logger


class RoundAggregator(ModelAggregator):
    """What the aggregators of this package have in common: FLARE's global model of the round, whose an update is, and metrics."""

    def __init__(self, aggregation_weights: Optional[Dict[str, float]] = None) -> None:
        super().__init__()
        self.aggregation_weights = aggregation_weights
        self.logger: logging.Logger = get_obj_logger(self)
        self._lock = threading.Lock()
        self._base: Dict[str, Any] = {}
        self.reset_stats()

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        super().handle_event(event_type, fl_ctx)
        if event_type == AppEventType.ROUND_STARTED:
            model = fl_ctx.get_prop(AppConstants.GLOBAL_MODEL)
            self._base = dict(model[ModelLearnableKey.WEIGHTS]) if model else {}
        elif event_type == EventType.END_RUN:
            self._base = {}

    def reset_stats(self) -> None:
        self._metrics, self._all_metrics = WeightedAggregationHelper(), True

    def _read(self, model: FLModel) -> Tuple[Dict[str, Any], str, float, float]:
        """All values, also of references that wait; whose they are, what the server weighs it with, and how many steps it says."""
        values = {name: getattr(value, "materialize", lambda value=value: value)() for name, value in (model.params or {}).items()}
        if not values:
            raise ValueError("an update without parameters")
        meta = model.meta or {}
        peer = self.fl_ctx.get_peer_context() if self.fl_ctx else None  # ScatterAndGather's; then the rest is the site's own word
        who = peer.get_identity_name() if peer else meta.get("client_name", AppConstants.CLIENT_UNKNOWN)
        weight, steps = (self.aggregation_weights or {}).get(who, 1.0), _steps(meta)
        if not weight * steps > 0 or not math.isfinite(weight * steps):
            raise ValueError(f"the weight of {who} is a number above 0; not {weight * steps!r}")
        return values, who, weight, steps

    def _add_metrics(self, given: Any, weight: float, who: str, round_: Any) -> None:
        self._all_metrics = self._all_metrics and given is not None
        for name, value in filter_aggregatable_metrics(given).items() if self._all_metrics else ():
            try:
                self._metrics.add({name: value}, weight, who, round_)
            except Exception as e:  # noqa: BLE001: of another shape than others', or a number that no float holds: its tensors count all the same
                self.logger.warning(f"tensorpull: the metric {name!r} of {who} is left out: {type(e).__name__}: {e}")

    def _made(self, params: Dict[str, Any], type_: Any) -> FLModel:
        metrics = self._metrics.get_result() if self._all_metrics else None
        made = FLModel(params=params, params_type=type_, metrics=metrics or None)
        self.reset_stats()
        return made


#: Weights as WeightedAverage takes them.
_LEAST, _MOST = 2.0**-60, 2.0**60


class DifferenceAggregator(RoundAggregator):
    """The weighted mean of whole models, of PyTorch's tensors or NumPy's arrays, with the weights of FLARE's own: `aggregation_weights` of the client (1 if
    it has none) times the steps that its update says.

    The differences to FLARE's global model are summed, so an element that has its old value in all updates has its old bits in the new model, and small
    steps keep their digits. Sums are float32 for floating-point types of at most 32 bits, float64 for the others; the new model has the global one's
    dtypes, and integers are rounded. FLARE's own sum takes what the global model does not have as a tensor of the same shape, and updates that are
    differences already (`ParamsType.DIFF`). Metrics are FLARE's mean of them; one that cannot be added to the others' is left out, and logged.

    `max_steps`: an update counts with so many steps at most. They are the site's own word, and a site that says 10**9 of them decides the model. One with more than half of the weight of a
    round of three or more is logged.

    Memory: one sum for each element, and what a few of the largest tensor need. An update is looked at as a whole before any of it is added: one that
    cannot be had, does not fit, or has a NaN or an infinity where the global model has another value (ValueError) leaves nothing behind.
    """

    def __init__(self, aggregation_weights: Optional[Dict[str, float]] = None, max_steps: Optional[float] = None) -> None:
        if max_steps is not None and (isinstance(max_steps, bool) or not isinstance(max_steps, (int, float)) or not 0 < max_steps < math.inf):
            raise ValueError(f"max_steps is a number above 0; not {max_steps!r}")
        self.max_steps: Optional[float] = max_steps
        super().__init__(aggregation_weights)

    def reset_stats(self) -> None:
        super().reset_stats()
        self._weights: Dict[str, float] = {}
        self._sums: Dict[str, Tuple[Any, float]] = {}
        self._others, self._type = WeightedAggregationHelper(), None

    def accept_model(self, model: FLModel) -> None:
        values, who, by_server, steps = self._read(model)
        weight, round_ = min(steps, self.max_steps or steps) * by_server, model.current_round
        if not _LEAST <= weight <= _MOST:
            raise ValueError(f"the weight of {who} is from 2**-60 to 2**60, as sums of 32 bits want it; not {weight!r}")
        with self._lock:
            if self._type not in (None, model.params_type):
                raise ValueError(f"{who} sends {model.params_type}, and others of this round {self._type}")
            ours = {name for name, value in values.items() if model.params_type == ParamsType.FULL and _alike(self._base.get(name), value)}
            if strangers := [name for name in self._sums if name in values and name not in ours]:
                raise ValueError(f"{who} has another shape of {strangers[0]} than the global model")
            if bad := [name for name, value in sorted(values.items()) if _kind(value) and not _numbers(value, self._base.get(name), name in ours)]:
                raise ValueError(f"the update of {who} has a NaN or an infinity in {bad[0]}, where the global model has another value")
            self._type = model.params_type
            for name in sorted(ours):
                total, weights = self._sums.get(name, (None, 0.0))
                step = _difference(values[name], self._base[name])
                step *= weight
                if total is None:
                    total = step
                else:
                    total += step
                self._sums[name] = total, weights + weight
            self._others.add({name: value for name, value in values.items() if name not in ours}, weight, who, round_)
            self._add_metrics(model.metrics, weight, who, round_)
            self._weights[who] = self._weights.get(who, 0.0) + weight

    def aggregate_model(self) -> FLModel:
        with self._lock:
            heaviest = max(self._weights, key=self._weights.__getitem__, default="")
            if len(self._weights) > 2 and 2 * self._weights[heaviest] > sum(self._weights.values()):
                self.logger.warning(f"tensorpull: {heaviest} has more than half of this round's weight, by the steps that it says (max_steps bounds them)")
            params = {name: _moved(self._base[name], total, weight) for name, (total, weight) in self._sums.items()}
            params.update(self._others.get_result())
            return self._made(params, self._type or ParamsType.FULL)


def _steps(meta: Dict[str, Any]) -> float:
    """As FLARE's FedAvg reads it: 1 for what is no number above 0."""
    value = meta.get(FLMetaKey.NUM_STEPS_CURRENT_ROUND)
    try:
        steps = 1.0 if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return 1.0
    return steps if math.isfinite(steps) and steps > 0 else 1.0


def _alike(old: Any, new: Any) -> bool:
    """Whether both are numbers of one framework and shape."""
    return _kind(old) != "" and _kind(old) == _kind(new) and tuple(old.shape) == tuple(new.shape)


def _kind(value: Any) -> str:
    """"torch", "numpy", or nothing: neither, or of a type that has no mean."""
    if hasattr(value, "is_floating_point") and hasattr(value, "add_"):
        import torch

        plain = value.layout == torch.strided and not value.is_quantized and value.dtype != torch.bool
        return "torch" if plain else ""
    return "numpy" if hasattr(value, "__array_interface__") and hasattr(value, "dtype") and value.dtype.kind in "fciu" else ""


def _library(value: Any) -> Any:
    if _kind(value) == "torch":
        import torch as library
    else:
        import numpy as library
    return library


def _wide(value: Any) -> Any:
    """A copy with the type of the sums."""
    if _kind(value) == "torch":
        import torch

        if value.is_complex():
            return value.detach().to(torch.complex128 if value.dtype == torch.complex128 else torch.complex64, copy=True)
        return value.detach().to(torch.float32 if value.is_floating_point() and value.element_size() <= 4 else torch.float64, copy=True)
    size = value.dtype.itemsize
    if value.dtype.kind == "c":
        return value.astype("c8" if size <= 8 else "c16")
    return value.astype("f4" if value.dtype.kind == "f" and size <= 4 else "f8")


def _difference(new: Any, old: Any) -> Any:
    """What is no number in the old model has no difference: there it is the new value."""
    library, was = _library(old), _wide(old)
    return _wide(new) - library.where(library.isfinite(was), was, library.zeros_like(was))


def _numbers(new: Any, old: Any, whole: bool) -> bool:
    """Whether each element is a finite number, or as it was. If it is not `whole` but a difference, or of no old tensor: whether each is finite, or where the old one is not."""
    library, kind = _library(new), str(new.dtype).rpartition(".")[2]
    if new.dtype == library.bool or kind.startswith(("int", "uint")):
        return True
    alike = _alike(old, new)
    if kind.startswith("float8"):  # which PyTorch does not ask whether it is finite
        new, old = _wide(new), _wide(old) if alike else None
    bad = ~library.isfinite(new)
    if not bool(bad.any()):
        return True
    if not alike:
        return False
    same = (new == old) | (library.isnan(new) & library.isnan(old)) if whole else ~library.isfinite(_wide(old))
    return not bool((bad & ~same).any())


def _moved(old: Any, total: Any, weight: float) -> Any:
    """The new tensor: the old bits where nothing has moved, and where it is NaN as before."""
    library, was = _library(old), _wide(old)
    finite = library.isfinite(was)
    stays = (finite & (total == 0)) | (library.isnan(was) & library.isnan(total))
    double = library.complex128 if str(was.dtype).rpartition(".")[2].startswith("complex") else library.float64
    cast = (lambda value, dtype: value.to(dtype)) if _kind(old) == "torch" else (lambda value, dtype: value.astype(dtype))
    mean = cast(library.where(finite, was, library.zeros_like(was)), double) + cast(total, double) / weight
    if str(old.dtype).rpartition(".")[2].startswith(("int", "uint")):
        limits = library.iinfo(old.dtype)
        mean = library.clip(library.round(mean), limits.min, limits.max)
    with_new = cast(mean, old.dtype)
    return library.where(stays, old.detach() if _kind(old) == "torch" else old, with_new)
