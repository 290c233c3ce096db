"""Lands a model in safetensors files, one for each tensor, through a mapping of each: nothing is held in memory of this process's own."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Dict, List, Optional, Tuple, Union

from .. import _native
from .._options import pull_settings
from .._proofs import SignedReference, over_proved
from .._route import over_addresses
from .._types import Receipt, TensorDict


class _Files:
    """No descriptor of a file is kept: a model may have more tensors than a process may have descriptors."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.rows: List[Tuple[str, str]] = []  # name of the tensor, path
        self.mapped: List[Any] = []

    def make(self, name: str, dtype: str, shape: Tuple[int, ...]) -> Tuple[int, int]:
        """A file with room for one tensor, and where that is mapped."""
        import torch  # only PyTorch's decomposer lands in files

        nbytes = _bytes_of(dtype, shape)
        header = json.dumps({name: {"dtype": dtype, "shape": list(shape), "data_offsets": [0, nbytes]}}).encode()
        header += b" " * (-len(header) % 64 + 56)  # 8 for the length and 56: the data begins at a multiple of 64
        path = os.path.join(self.folder, f"tensor_{len(self.rows)}.part")  # not the tensor's name, which the other end chose
        with open(path, "xb") as file:
            self.rows.append((name, path))
            file.write(len(header).to_bytes(8, "little") + header)
            file.flush()
            os.posix_fallocate(file.fileno(), 0, 8 + len(header) + nbytes)  # a full disk is an error here, and a dead process later
        mapped = torch.from_file(path, shared=True, size=8 + len(header) + nbytes, dtype=torch.uint8)  # Python's mmap would keep a descriptor
        self.mapped.append(mapped)
        return mapped.data_ptr() + 8 + len(header), nbytes

    def finish(self) -> Dict[str, Any]:
        """All bytes are right: the files get their names."""
        self.mapped.clear()
        for i, (name, path) in enumerate(self.rows):
            final = path[: -len(".part")] + ".safetensors"
            os.replace(path, final)
            self.rows[i] = (name, final)
        return {name: (path, name) for name, path in self.rows}

    def clear(self) -> None:
        """It begins anew, or has failed."""
        self.mapped.clear()
        for _, path in self.rows:
            with contextlib.suppress(OSError):  # FLARE may have removed the folder
                os.unlink(path)
        self.rows.clear()


_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
    "C64": 64,
}  # fmt: skip


def _bytes_of(dtype: str, shape: Tuple[int, ...]) -> int:
    if dtype not in _BITS:
        raise ValueError(f"the type {dtype} cannot be landed in a file here")
    count = 1
    for n in shape:
        count *= n
    return count * _BITS[dtype] // 8


def fetch(
    through: Any, where: Tuple[Any, ...], ref: Union[str, SignedReference], make: Any, clear: Any, per_request_timeout: Optional[float], chunk_size: int, retries: int, max_bytes: int, abort: Any,
    version: Optional[int], ssl: Any,
) -> Any:  # fmt: skip
    """Pulls into what `make` makes for each tensor; the receipt and the metadata. `clear`: it begins anew. `ref`: one that is signed is proved."""
    from .._session import Session

    signed = ref if isinstance(ref, SignedReference) else None
    ref = ref.reference if isinstance(ref, SignedReference) else ref
    settings = pull_settings(ref, per_request_timeout, chunk_size, None, 0.1, abort, version, None, 4, retries, False)

    def pull(source: Any) -> Any:
        return _native.download_new(source, ref, make, clear, max_bytes, 16 << 20, 1_000_000, settings)

    if signed is not None:
        return over_proved(*where, ssl, signed, pull, None)[0]
    return pull(through._session) if isinstance(through, Session) else over_addresses(*where, ssl, pull)[0]


def land_in_files(
    through: Any, where: Tuple[Any, ...], ref: Any, folder: str, *, per_request_timeout: Optional[float], chunk_size: int, retries: int, max_bytes: int, abort: Any,
    version: Optional[int] = None, ssl: Any = None,
) -> Any:  # fmt: skip
    """Pulls into `folder`: a dict of (path, name), as FLARE's LazyTensorDict takes it. The files have their names once the digest is right."""
    files = _Files(folder)
    try:
        receipt, metadata = fetch(through, where, ref, files.make, files.clear, per_request_timeout, chunk_size, retries, max_bytes, abort, version, ssl)
        result = files.finish()
    except BaseException:
        files.clear()
        raise
    for alias, kept in metadata.items():
        if kept in result and alias not in result and alias != "format":
            result[alias] = result[kept]
    landed = TensorDict(result)
    landed.metadata, landed.receipt = metadata, Receipt(*receipt)
    return landed
