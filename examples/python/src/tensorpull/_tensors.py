"""Which of NumPy's and torch's tensors can travel, and how their memory is described to the compiled half.

Neither library is linked, and neither is imported unless the caller's tensors are theirs: everything is read from attributes, so one
build serves every version of both. A description is (name, dtype, shape, strides in bytes or None, address, bytes to swap).
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from ._errors import Error
from ._native import numpy_format, numpy_name

Description = Tuple[str, str, Tuple[int, ...], Optional[Tuple[int, ...]], int, int]

_TORCH = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32", "uint64": "U64",
    "int64": "I64", "float16": "F16", "float32": "F32", "float64": "F64", "complex64": "C64",
    "bfloat16": "BF16", "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3", "float8_e8m0fnu": "F8_E8M0",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float4_e2m1fn_x2": "F4",
}  # fmt: skip
_TORCH_NAMES = {ours: name for name, ours in _TORCH.items()}
_MESSAGES = {"unsupported_dtype": "this dtype is not supported here", "unsupported_layout": "this layout is not supported here"}


def _refuse(code: str, name: str, why: str) -> Error:
    return Error(code, f"{_MESSAGES[code]}: {why}", name)


def _describe_numpy(numpy: Any, name: str, array: Any) -> Description:
    dtype = array.dtype
    # the str of a type of ml_dtypes does not say what it is; its name does, where it has no other byte order
    known = numpy_format(dtype.str) or (numpy_format(dtype.name) if dtype.names is None and dtype.isnative else None)
    if known is None:
        raise _refuse("unsupported_dtype", name, f"NumPy's {dtype}")
    ours, swap = known
    if isinstance(array, numpy.ma.MaskedArray):
        raise _refuse("unsupported_layout", name, "a masked array's mask would be lost; fill it first")
    interface = array.__array_interface__
    strides = None if array.flags.c_contiguous else array.strides
    return name, ours, array.shape, strides, interface["data"][0], swap


def _describe_torch(torch: Any, name: str, tensor: Any) -> Description:
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        raise _refuse("unsupported_layout", name, "a sparse, quantised or nested tensor has no bytes in order")
    if tensor.device.type != "cpu":
        why = "a meta tensor has no bytes" if tensor.device.type == "meta" else f"it is on {tensor.device}; publish tensor.cpu()"
        raise _refuse("unsupported_layout", name, why)
    if tensor.is_conj() or tensor.is_neg():
        raise _refuse("unsupported_layout", name, "its memory is conjugated or negated; publish tensor.resolve_conj().resolve_neg()")
    ours = _TORCH.get(str(tensor.dtype).rpartition(".")[2])
    shape = tuple(tensor.shape)
    if ours is None or (ours == "F4" and not shape):
        raise _refuse("unsupported_dtype", name, str(tensor.dtype))
    size = tensor.element_size()
    if ours == "F4":
        if not tensor.is_contiguous():
            raise _refuse("unsupported_layout", name, "packed elements in another order than C's")
        shape = (*shape[:-1], 2 * shape[-1])
    strides = None if tensor.is_contiguous() else tuple(step * size for step in tensor.stride())
    address = tensor.data_ptr()
    if address == 0 and tensor.numel() != 0:
        raise _refuse("unsupported_layout", name, f"{type(tensor).__name__} has no memory of its own")
    return name, ours, shape, strides, address, 0


class Tensors:
    """A caller's dict, described. `keep` holds what keeps the memory alive; `ties` the names that are further names of another tensor."""

    def __init__(self, tensors: Mapping[str, Any], tie_numpy: bool = False) -> None:
        if not isinstance(tensors, Mapping):
            raise TypeError(f"a dict of tensors, not {type(tensors).__name__}")
        self.described: List[Description] = []
        self.keep: List[Any] = []
        self.ties: Dict[str, str] = {}
        self.torch: List[Any] = []
        self.read_only: List[str] = []
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        seen: Dict[Tuple[Any, ...], str] = {}
        for name, tensor in _sorted(tensors):
            if torch is not None and isinstance(tensor, torch.Tensor):
                one = _describe_torch(torch, name, tensor)
                # an alias: what the module gives this tensor as new memory later does not free the old
                held = tensor.detach()
                may_tie = True
            elif numpy is not None and isinstance(tensor, numpy.ndarray):
                one = _describe_numpy(numpy, name, tensor)
                held = tensor
                may_tie = tie_numpy
                if not tensor.flags.writeable:
                    self.read_only.append(name)
            else:
                raise TypeError(f"{name!r} is no torch.Tensor and no numpy.ndarray but {type(tensor).__module__}.{type(tensor).__qualname__}")
            if may_tie and 0 not in one[2]:
                kept = seen.setdefault(one[1:], name)
                if kept != name:
                    self.ties[name] = kept
                    continue
            self.described.append(one)
            self.keep.append(held)
            if held is not tensor:
                self.torch.append(held)

    def mark_changed(self) -> None:
        """Says to autograd what in-place operations say: a graph that saved one of these tensors fails instead of mixing weights."""
        if not self.torch:
            return
        torch = sys.modules["torch"]
        changed = [t for t in self.torch if not t.is_inference()]
        say = getattr(getattr(torch.autograd, "graph", None), "increment_version", None)
        if say is not None:
            for tensor in changed:
                say(tensor)


def _sorted(tensors: Mapping[str, Any]) -> List[Tuple[str, Any]]:
    for name in tensors:
        if not isinstance(name, str):
            raise TypeError(f"tensors have names of type str, not {type(name).__name__}")
    try:
        return sorted(tensors.items(), key=lambda item: item[0].encode())
    except UnicodeEncodeError as e:
        raise Error("invalid_argument", "a tensor's name is not Unicode text", ascii(e.object)) from None


def _make(name: str, shape: Tuple[int, ...], empty: Callable[[], Any]) -> Any:
    """An owner may describe what safetensors allows and these libraries do not: more than 64 dimensions, an extent of 2**63 beside one of 0."""
    try:
        return empty()
    except MemoryError:
        raise Error("out_of_memory", "memory could not be allocated", name) from None
    except (ValueError, TypeError, OverflowError, RuntimeError) as e:
        raise _refuse("unsupported_layout", name, f"no tensor of {len(shape)} dimensions, {str(shape)[:60]}, can be made: {str(e)[:200]}") from None


def numpy_maker(made: Dict[str, Any]) -> Callable[[str, str, Tuple[int, ...]], Tuple[int, int]]:
    """Makes NumPy's arrays for tensors that an owner has described."""
    import numpy

    def make(name: str, dtype: str, shape: Tuple[int, ...]) -> Tuple[int, int]:
        theirs = numpy_name(dtype)
        if not theirs:
            raise _refuse("unsupported_dtype", name, f"NumPy has no {dtype}")
        try:
            kind = numpy.dtype(theirs)
        except TypeError:
            try:
                import ml_dtypes
            except ImportError:
                raise _refuse("unsupported_dtype", name, f"NumPy has {dtype} with the package ml_dtypes only; or ask for torch") from None
            if not hasattr(ml_dtypes, theirs):
                raise _refuse("unsupported_dtype", name, f"this version of ml_dtypes has no {dtype}") from None
            kind = numpy.dtype(getattr(ml_dtypes, theirs))
        array = _make(name, shape, lambda: numpy.empty(shape, kind))
        made[name] = array
        return array.__array_interface__["data"][0], array.nbytes

    return make


def torch_maker(made: Dict[str, Any]) -> Callable[[str, str, Tuple[int, ...]], Tuple[int, int]]:
    """The same for torch's tensors, in the CPU's memory."""
    import torch

    def make(name: str, dtype: str, shape: Tuple[int, ...]) -> Tuple[int, int]:
        kind = getattr(torch, _TORCH_NAMES.get(dtype, ""), None)
        if kind is None:
            raise _refuse("unsupported_dtype", name, f"this torch has no {dtype}")
        if dtype == "F4":
            if not shape or shape[-1] % 2:
                raise _refuse("unsupported_dtype", name, "an odd number of packed elements in a row")
            shape = (*shape[:-1], shape[-1] // 2)
        tensor = _make(name, shape, lambda: torch.empty(shape, dtype=kind))
        made[name] = tensor
        return tensor.data_ptr(), tensor.numel() * tensor.element_size()

    return make


def empty_like(tensors: Mapping[str, Any]) -> Dict[str, Any]:
    """New memory for tensors of these names, dtypes and shapes, contiguous and in this machine's byte order; tied where these are tied."""
    made: Dict[str, Any] = {}
    ties: Dict[int, Any] = {}
    torch = sys.modules.get("torch")
    for name, tensor in tensors.items():
        if id(tensor) not in ties:
            if torch is not None and isinstance(tensor, torch.Tensor):
                ties[id(tensor)] = torch.empty(tensor.shape, dtype=tensor.dtype)
            else:
                import numpy

                ties[id(tensor)] = numpy.empty(tensor.shape, tensor.dtype.newbyteorder("="))
        made[name] = ties[id(tensor)]
    return made
