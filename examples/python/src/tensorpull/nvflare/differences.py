"""An aggregator of FLARE's FedAvg that keeps what did not change.

    FedAvgRecipe(..., aggregator=tensorpull.nvflare.DifferenceAggregator())
"""

from __future__ import annotations

import logging
import math
import threading
from typing import Any, Dict, Optional, Tuple

import numpy
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
    """The weighted mean of updates, of PyTorch's tensors or NumPy's arrays, with the weights of FLARE's own: `aggregation_weights` of the client (1 if
    it has none) times the steps that its update says.

    The differences to FLARE's global model are summed, so an element that has its old value in all updates has its old bits in the new model, and small
    steps keep their digits. Sums are float32 for floating-point types of at most 32 bits, float64 for the others; the new model has the global one's
    dtypes, and whole numbers are rounded, and stay within their type. Metrics are FLARE's mean of them; one that cannot be added to the others' is left out, and logged.

    Updates of a round may be whole models or differences (`ParamsType.DIFF`), in any order. The result is a difference if all of them are. Otherwise it is a whole model; tensors that no update
    has are the global model's if any update is a difference. Where the global model has an infinity or a NaN, a difference changes nothing.

    Tensors that the global model does not have, and those that have no mean, such as bools, have FLARE's own sum, of whole models alone. If updates disagree about the shape of one, the shape that most have counts.

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
        self._others: Dict[bool, WeightedAggregationHelper] = {}  # by whether they are of differences; its keys are names with shapes

    def accept_model(self, model: FLModel) -> None:
        values, who, by_server, steps = self._read(model)
        weight, difference = min(steps, self.max_steps or steps) * by_server, model.params_type == ParamsType.DIFF
        if not _LEAST <= weight <= _MOST:
            raise ValueError(f"the weight of {who} is from 2**-60 to 2**60, as sums of 32 bits want it; not {weight!r}")
        with self._lock:
            ours = sorted(name for name in values if _kind(self._base.get(name)))
            for name in ours:
                if isinstance(values[name], (int, float)) and not isinstance(values[name], bool):
                    values[name] = numpy.asarray(values[name])  # a number is a tensor without dimensions
                if not _alike(self._base[name], values[name]):
                    raise ValueError(f"{who} has another shape or type of {name} than the global model")
                values[name] = _in_library_of(self._base[name], values[name])
            for name in set(values).intersection(self._base).difference(ours):
                if _shape(values[name]) != _shape(self._base[name]):
                    raise ValueError(f"{who} has another shape of {name} than the global model")
            if difference and self._base and len(ours) < len(values):
                raise ValueError(f"{who} has a difference to {min(set(values) - set(ours))}, and the global model has no numbers of that name")
            if bad := [name for name, value in sorted(values.items()) if _kind(value) and not _numbers(value, self._base.get(name), not difference)]:
                raise ValueError(f"the update of {who} has a NaN or an infinity in {bad[0]}, where the global model has another value")
            for name in ours:
                total, weights = self._sums.get(name, (None, 0.0))
                step = (_step if difference else _difference)(values[name], self._base[name])
                step *= weight
                if total is None:
                    total = step
                else:
                    total += step
                self._sums[name] = total, weights + weight
            others = self._others.setdefault(difference, WeightedAggregationHelper())
            for name in sorted(set(values) - set(ours)):
                value = values[name]
                try:
                    others.add({(name, type(value), _shape(value)): value}, weight, who, model.current_round)
                except Exception as e:  # noqa: BLE001: it has no sum, and the rest of the update counts all the same
                    self.logger.warning(f"tensorpull: {name!r} of {who} is left out: {type(e).__name__}: {e}")
            self._add_metrics(model.metrics, weight, who, model.current_round)
            self._weights[who] = self._weights.get(who, 0.0) + weight

    def aggregate_model(self) -> FLModel:
        with self._lock:
            heaviest = max(self._weights, key=self._weights.__getitem__, default="")
            if len(self._weights) > 2 and 2 * self._weights[heaviest] > sum(self._weights.values()):
                self.logger.warning(f"tensorpull: {heaviest} has more than half of this round's weight, by the steps that it says (max_steps bounds them)")
            differences = list(self._others) == [True]
            params = dict(self._base) if len(self._others) == 2 else {}
            if len(self._others) == 2 and not params:
                self.logger.warning("tensorpull: FLARE has no global model, so the differences of this round are left out")
            for name, (total, weight) in self._sums.items():
                params[name] = _mean_step(self._base[name], total, weight) if differences else _moved(self._base[name], total, weight)
            others = self._others.get(differences, WeightedAggregationHelper())
            counts = others.key_contribution_counts
            means = others.get_result()  # which forgets the counts
            for key in sorted(means, key=lambda key: (counts[key], str(key))):  # the last one counts
                params[key[0]] = means[key]
            return self._made(params, ParamsType.DIFF if differences else ParamsType.FULL)


def _steps(meta: Dict[str, Any]) -> float:
    """As FLARE's FedAvg reads it: 1 for what is no number above 0."""
    value = meta.get(FLMetaKey.NUM_STEPS_CURRENT_ROUND)
    try:
        steps = 1.0 if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return 1.0
    return steps if math.isfinite(steps) and steps > 0 else 1.0


def _alike(old: Any, new: Any) -> bool:
    """Whether both are numbers of one shape, and complex ones beside complex ones."""
    return _kind(old) != "" and _kind(new) != "" and tuple(old.shape) == tuple(new.shape) and _is_complex(old) == _is_complex(new)


def _shape(value: Any) -> Tuple[int, ...]:
    return tuple(getattr(value, "shape", ()))


def _is_complex(value: Any) -> bool:
    return value.dtype.kind == "c" if _kind(value) == "numpy" else value.is_complex()


def _name_of(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def _is_whole(value: Any) -> bool:
    return _name_of(value.dtype).startswith(("int", "uint"))


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


def _in_library_of(old: Any, value: Any) -> Any:
    """The value as old's framework has it, beside old; itself if it is so."""
    if _kind(value) == _kind(old):
        return value if _kind(old) == "numpy" else value.to(old.device)
    if _kind(old) == "numpy":
        return (value.detach().cpu() if _is_whole(value) else _wide(value).cpu()).numpy()
    import torch

    plain = value.astype(value.dtype.newbyteorder("="), order="C") if _is_whole(value) else _wide(value)
    return torch.from_numpy(numpy.asarray(plain)).to(old.device)


def _difference(new: Any, old: Any) -> Any:
    """A value that is no number in the old model has no difference: there it is the new value."""
    if _is_whole(old) and _is_whole(new):
        (high, low), (old_high, old_low) = _halves(_int64(new)), _halves(_int64(old))
        offset = 2.0**63 * (_is_uint64(new) - _is_uint64(old))
        return (high - old_high) * 2.0**32 + offset + (low - old_low)
    return _wide(new) - _finite_or_0(_wide(old))


def _step(difference: Any, old: Any) -> Any:
    """A site's own difference, as _difference() has it. A value that is no number in the old model stays."""
    library, was = _library(old), _wide(old)
    return library.where(library.isfinite(was), _wide(difference), was)


def _finite_or_0(value: Any) -> Any:
    library = _library(value)
    return library.where(library.isfinite(value), value, library.zeros_like(value))


def _is_uint64(value: Any) -> bool:
    return _name_of(value.dtype) == "uint64"


def _int64(value: Any) -> Any:
    """Whole numbers, in their order: those of uint64 less 2**63."""
    if _kind(value) == "torch":
        import torch

        return value.detach().contiguous().view(torch.int64) ^ -(2**63) if _is_uint64(value) else value.detach().to(torch.int64)
    return value.astype("i8") ^ (-(2**63) if _is_uint64(value) else 0)


def _halves(value: Any) -> Tuple[Any, Any]:
    """Of int64, without loss: value = high * 2**32 + low."""
    return _cast(value >> 32, "float64"), _cast(value & 0xFFFFFFFF, "float64")


def _cast(value: Any, dtype: str) -> Any:
    return value.to(getattr(_library(value), dtype)) if _kind(value) == "torch" else value.astype(dtype)


def _numbers(new: Any, old: Any, whole: bool) -> bool:
    """Whether each element is a finite number, or as it was. If it is not `whole` but a difference, or of no old tensor: whether each is finite, or where the old one is not."""
    library, kind = _library(new), _name_of(new.dtype)
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


def _mean(total: Any, weight: float) -> Any:
    return _cast(total, "complex128" if _is_complex(total) else "float64") / weight


def _mean_step(old: Any, total: Any, weight: float) -> Any:
    """The mean of differences, which somebody else adds to the old tensor."""
    if _is_whole(old):
        step = _int64(_moved(old, total, weight)) - _int64(old)
    else:
        library = _library(old)
        step = library.where(library.isfinite(_wide(old)), _mean(total, weight), 0.0)
    return _cast(step, _name_of(old.dtype))


def _moved(old: Any, total: Any, weight: float) -> Any:
    """The new tensor: the old bits where nothing has moved, and where it is NaN as before."""
    library, mean, kept = _library(old), _mean(total, weight), old.detach() if _kind(old) == "torch" else old
    if _is_whole(old):
        return _moved_whole(kept, library.round(mean))
    was = _wide(old)
    stays = (library.isfinite(was) & (total == 0)) | (library.isnan(was) & library.isnan(total))
    return library.where(stays, kept, _cast(_cast(_finite_or_0(was), _name_of(mean.dtype)) + mean, _name_of(old.dtype)))


def _moved_whole(old: Any, step: Any) -> Any:
    """Whole numbers, which stay within their type. None becomes a float on its way, which would have 53 of 64 bits."""
    library, was, most = _library(old), _int64(old), math.nextafter(2.0**64, 0)
    step = library.clip(step, -most, most)
    part = step - 2.0**64 * library.round(step / 2.0**64)  # from -2**63 to 2**63
    with numpy.errstate(over="ignore"):  # beyond the ends it goes round
        moved = was + _cast(library.where(part == 2.0**63, -(2.0**63), part), "int64")
    moved = library.where((step > 0) & (moved < was), 2**63 - 1, library.where((step < 0) & (moved > was), -(2**63), moved))
    if _is_uint64(old):
        moved = moved ^ -(2**63)
    else:
        limits = library.iinfo(old.dtype)
        moved = library.clip(moved, limits.min, limits.max)
    return library.asarray(_cast(moved, _name_of(old.dtype)))
