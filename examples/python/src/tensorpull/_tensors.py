"""Which of NumPy's and torch's tensors can travel, and how their memory is described to the compiled half.

Neither library is linked, and neither is imported unless the caller's tensors are theirs: everything is read from attributes, so one
build serves every version of both. A description is (name, dtype, shape, strides in bytes or None, address, bytes to swap), and for a
tensor on a device also what copies it and the device's number.
"""

from __future__ import annotations

import re
import sys
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from ._devices import Blocks, DeviceTensor, copier_of
from ._errors import Error
from ._native import numpy_format, numpy_name
from ._trees import is_foreign

Description = Tuple[Any, ...]

_TORCH = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32", "uint64": "U64",
    "int64": "I64", "float16": "F16", "float32": "F32", "float64": "F64", "complex64": "C64",
    "bfloat16": "BF16", "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3", "float8_e8m0fnu": "F8_E8M0",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float4_e2m1fn_x2": "F4",
}  # fmt: skip
_TORCH_NAMES = {ours: name for name, ours in _TORCH.items()}
#: The dtypes that are narrowed, and converted.
FLOATING = frozenset({"F16", "BF16", "F32", "F64"})
_CPU = 1  # of DLPack's kinds of devices
_MESSAGES = {"unsupported_dtype": "this dtype is not supported here", "unsupported_layout": "this layout is not supported here"}


def _refuse(code: str, name: str, why: str) -> Error:
    return Error(code, f"{_MESSAGES[code]}: {why}", name)


def _describe_numpy(numpy: Any, name: str, array: Any) -> Description:
    dtype = array.dtype
    # the str of a type of ml_dtypes does not say what it is; its name does, if it has no other byte order
    known = numpy_format(dtype.str) or (numpy_format(dtype.name) if dtype.names is None and dtype.isnative else None)
    if known is None:
        raise _refuse("unsupported_dtype", name, f"NumPy's {dtype}{_advice(dtype.name)}")
    ours, swap = known
    if isinstance(array, numpy.ma.MaskedArray):
        raise _refuse("unsupported_layout", name, "a masked array's mask would be lost; fill it first")
    if type(array) not in (numpy.ndarray, numpy.memmap):
        raise _refuse("unsupported_layout", name, f"a {type(array).__name__} would arrive as an ndarray; publish numpy.asarray(...) of it")
    interface = array.__array_interface__
    strides = None if array.flags.c_contiguous else array.strides
    return name, ours, array.shape, strides, interface["data"][0], swap


def _advice(dtype: str) -> str:
    """What to do with elements that safetensors has no name for, as far as there is something."""
    if re.fullmatch(r"(torch\.)?u?int[1-7]", dtype) or dtype.startswith("torch.bits"):
        return ", for which safetensors has no dtype; publish the bytes that hold them, as uint8"
    if re.fullmatch(r"float[46]_\w+", dtype):
        return ", which holds one element in each byte, where safetensors packs them; publish uint8"
    return ""


def _describe_torch(torch: Any, name: str, tensor: Any, blocks: Blocks, spaces: Dict[str, int]) -> Description:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        how = "publish its tensorpull.local_shards(...)" if hasattr(tensor, "to_local") else "publish the tensors that it is made of"
        raise _refuse("unsupported_layout", name, f"a {type(tensor).__module__}.{type(tensor).__qualname__} would arrive as something else; {how}")
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        raise _refuse("unsupported_layout", name, "a sparse, quantised or nested tensor has no bytes in order")
    copier = None if tensor.device.type == "cpu" else copier_of(tensor.device)
    if copier is None and tensor.device.type != "cpu":
        raise _refuse("unsupported_layout", name, f"a {tensor.device} tensor has no bytes")
    if tensor.is_conj() or tensor.is_neg():
        raise _refuse("unsupported_layout", name, "its memory is conjugated or negated; publish tensor.resolve_conj().resolve_neg()")
    ours = _TORCH.get(str(tensor.dtype).rpartition(".")[2])
    shape = tuple(tensor.shape)
    if ours is None or (ours == "F4" and not shape):
        raise _refuse("unsupported_dtype", name, f"{tensor.dtype}{_advice(str(tensor.dtype))}")
    size = tensor.element_size()
    if ours == "F4":
        if not tensor.is_contiguous():
            raise _refuse("unsupported_layout", name, "packed elements in another order than C's")
        shape = (*shape[:-1], 2 * shape[-1])
    strides = None if tensor.is_contiguous() else tuple(step * size for step in tensor.stride())
    if copier is not None and tensor.numel() != 0:
        space = spaces.setdefault(str(tensor.device), len(spaces) + 1)
        return name, ours, shape, strides, copier.address(tensor), 0, DeviceTensor(torch, tensor, copier, blocks), space
    address = tensor.data_ptr() if copier is None else 0
    if address == 0 and tensor.numel() != 0:
        raise _refuse("unsupported_layout", name, f"{type(tensor).__name__} has no memory of its own")
    last = tensor.storage_offset() + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride()))
    if tensor.numel() != 0 and size * (last + 1) > tensor.untyped_storage().nbytes():
        raise _refuse("unsupported_layout", name, "its storage has been made shorter than the tensor")
    return name, ours, shape, strides, address, 0


def _numpy_lent(numpy: Any, tensor: Any) -> Any:
    try:
        return numpy.from_dlpack(tensor, copy=False)
    except Exception:  # it lends a copy, or neither it nor NumPy knows to say that it does not
        array = numpy.from_dlpack(tensor)
    array.flags.writeable = False  # what landed in a copy would be lost
    return array


def lent(name: str, tensor: Any) -> Any:
    """A tensor of another library as torch's or NumPy's over the same memory, if it lends that by DLPack; any other as it is."""
    if not is_foreign(tensor):
        return tensor
    where = tensor.__dlpack_device__()
    if where[0] == _CPU:
        try:
            return _numpy_lent(numpy_or_say(), tensor)
        except Exception:  # NumPy has no bfloat16, or is not there
            pass
    try:
        import torch.utils.dlpack

        return torch.utils.dlpack.from_dlpack(tensor)
    except ImportError:
        why = "a tensor of this dtype, or on this device, is read through torch, which is not installed"
    except Exception as e:
        why = str(e)[:200]
    raise _refuse("unsupported_layout", name, f"a {type(tensor).__module__}.{type(tensor).__qualname__} does not lend its memory: {why}")


class Tensors:
    """A caller's dict, described. `keep` holds what keeps the memory alive; `ties` the names that are further names of another tensor. `apart`: none is, each is described
    by itself, to be read."""

    def __init__(self, tensors: Mapping[str, Any], apart: bool = False) -> None:
        if not isinstance(tensors, Mapping):
            raise TypeError(f"a dict of tensors, not {type(tensors).__name__}")
        self.described: List[Description] = []
        self.keep: List[Any] = []
        self.ties: Dict[str, str] = {}
        self.torch: List[Any] = []
        self.read_only: List[str] = []
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        seen: Dict[Tuple[Any, ...], str] = {}
        blocks = Blocks()
        spaces: Dict[str, int] = {}
        for name, given in _sorted(tensors):
            tensor = lent(name, given)
            if tensor is not given:  # the libraries that lend may have been imported for this
                numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
                if torch is not None and isinstance(tensor, torch.Tensor):  # which does not say whether it may be written to, and JAX's may not
                    self.read_only.append(name)
            if torch is not None and isinstance(tensor, torch.Tensor):
                try:
                    one = _describe_torch(torch, name, tensor, blocks, spaces)
                except (RuntimeError, NotImplementedError) as e:  # of a tensor without memory, as within torch.vmap
                    raise _refuse("unsupported_layout", name, str(e)[:200]) from None
                # an alias: what the module gives this tensor as new memory later does not free the old
                held = tensor.detach()
            elif numpy is not None and isinstance(tensor, numpy.ndarray):
                one = _describe_numpy(numpy, name, tensor)
                held = tensor
                if not tensor.flags.writeable:
                    self.read_only.append(name)
            else:
                raise TypeError(f"{name!r} is no torch.Tensor and no numpy.ndarray but {type(tensor).__module__}.{type(tensor).__qualname__}")
            if not apart and 0 not in one[2]:
                kept = seen.setdefault((*one[1:6], *one[7:]), name)
                if kept != name and name != "format":  # which savers put into metadata: there it is no tie
                    self.ties[name] = kept
                    continue
            self.described.append(one)
            self.keep.append((held, *one[6:7]))
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


def make_or_refuse(name: str, shape: Tuple[int, ...], empty: Callable[[], Any]) -> Any:
    """An owner may describe what safetensors allows and these libraries do not: more than 64 dimensions, an extent of 2**63 beside one of 0."""
    try:
        return empty()
    except MemoryError:
        raise Error("out_of_memory", "memory could not be allocated", name) from None
    except (ValueError, TypeError, OverflowError, RuntimeError) as e:
        raise _refuse("unsupported_layout", name, f"no tensor of {len(shape)} dimensions, {str(shape)[:60]}, can be made: {str(e)[:200]}") from None


def numpy_or_say() -> Any:
    """NumPy, which is not installed with this package."""
    try:
        import numpy
    except ImportError as e:
        if getattr(e, "name", None) not in ("numpy", None):
            raise
        raise ModuleNotFoundError(
            'new tensors are arrays of NumPy unless framework="torch" is asked for, and NumPy is not installed: pip install numpy', name="numpy"
        ) from None
    return numpy


def dtype_named(dtype: Any) -> str:
    """What safetensors calls a dtype of torch's or NumPy's; what is none of these, as text."""
    name = str(getattr(dtype, "name", None) or getattr(dtype, "__name__", dtype)).rpartition(".")[2]
    return _TORCH.get(name, name)


def numpy_dtype(name: str, dtype: str) -> Any:
    """NumPy's own or ml_dtypes's, for a tensor that an owner has described."""
    import numpy

    theirs = numpy_name(dtype)
    if not theirs:
        raise _refuse("unsupported_dtype", name, f"NumPy has no {dtype}")
    try:
        return numpy.dtype(theirs)
    except TypeError:
        try:
            import ml_dtypes
        except ImportError:
            raise _refuse("unsupported_dtype", name, f"NumPy has {dtype} with the package ml_dtypes only; or ask for torch") from None
        if not hasattr(ml_dtypes, theirs):
            raise _refuse("unsupported_dtype", name, f"this version of ml_dtypes has no {dtype}") from None
        return numpy.dtype(getattr(ml_dtypes, theirs))


def torch_dtype(name: str, dtype: str, shape: Tuple[int, ...]) -> Tuple[Any, Tuple[int, ...]]:
    """torch's dtype, and the shape as torch has it."""
    import torch

    kind = getattr(torch, _TORCH_NAMES.get(dtype, ""), None)
    if kind is None:
        raise _refuse("unsupported_dtype", name, f"this torch has no {dtype}")
    if dtype == "F4":
        if not shape or shape[-1] % 2:
            raise _refuse("unsupported_dtype", name, "an odd number of packed elements in a row")
        shape = (*shape[:-1], shape[-1] // 2)
    return kind, shape


def numpy_maker(made: Dict[str, Any]) -> Callable[[str, str, Tuple[int, ...]], Tuple[int, int]]:
    """Makes NumPy's arrays for tensors that an owner has described."""
    numpy = numpy_or_say()

    def make(name: str, dtype: str, shape: Tuple[int, ...]) -> Tuple[int, int]:
        kind = numpy_dtype(name, dtype)
        array = make_or_refuse(name, shape, lambda: numpy.empty(shape, kind))
        made[name] = array
        return array.__array_interface__["data"][0], array.nbytes

    return make


def torch_maker(made: Dict[str, Any]) -> Callable[[str, str, Tuple[int, ...]], Tuple[int, int]]:
    """The same for torch's tensors, in the CPU's memory."""
    import torch

    def make(name: str, dtype: str, shape: Tuple[int, ...]) -> Tuple[int, int]:
        kind, shape = torch_dtype(name, dtype, shape)
        tensor = make_or_refuse(name, shape, lambda: torch.empty(shape, dtype=kind))
        made[name] = tensor
        return tensor.data_ptr(), tensor.numel() * tensor.element_size()

    return make


def convert_into(out: Any, new: Any) -> None:
    """Writes the numbers of a tensor into another one of the same shape and another floating dtype."""
    torch = sys.modules.get("torch")
    out = lent("", out)
    if torch is not None and isinstance(out, torch.Tensor):
        with torch.inference_mode() if out.is_inference() else torch.no_grad():
            out.detach().copy_(new)
    else:
        import numpy

        with numpy.errstate(over="ignore"):  # what is too large is an infinity, as of torch
            out[...] = new


def native(dtype: Any) -> Any:
    """NumPy's type in this machine's byte order: itself if it is so, because `newbyteorder` makes one that is none of NumPy's own."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def empty_like(tensors: Mapping[str, Any]) -> Dict[str, Any]:
    """New memory for tensors of these names, dtypes and shapes, contiguous and in this machine's byte order; tied if these are tied."""
    made: Dict[str, Any] = {}
    ties: Dict[Any, Any] = {}
    for name, given in tensors.items():
        tensor = lent(name, given)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(tensor, torch.Tensor):
            # a state dict's tied tensors are several objects over one memory; a meta tensor has none, and gives its shape all the same
            same: Any = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()) if tensor.device.type != "meta" and tensor.numel() else id(tensor)
            if same not in ties:
                ties[same] = torch.empty(tensor.shape, dtype=tensor.dtype)
        else:
            import numpy

            same = (tensor.__array_interface__["data"][0], tensor.dtype, tensor.shape, tensor.strides) if tensor.size else id(tensor)
            if same not in ties:
                ties[same] = numpy.empty(tensor.shape, native(tensor.dtype))
        made[name] = ties[same]
    return made
