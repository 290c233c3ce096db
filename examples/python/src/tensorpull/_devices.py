"""Tensors of torch that are on a device: their bytes come and go a slice at a time, through a block of host memory of a fixed size.

The compiled half knows no device. It asks a `DeviceTensor` for bytes, and tells it of bytes, and both lie in blocks; what copies between a
device and a block is that device's entry in `COPIERS`, and nothing else here depends on which device it is.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, Optional, Tuple

#: The length of a block: at most two of them for each publication, and for each landing.
BLOCK_BYTES = 2 << 20


class Copier:
    """How one kind of device is reached, in torch's words. `pins`: whether blocks are memory that the device reads by itself."""

    def __init__(self, pins: bool = False) -> None:
        self.pins = pins

    def block(self, nbytes: int) -> Any:
        """Host memory of that many bytes."""
        import torch

        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=self.pins)

    def copy(self, to: Any, source: Any) -> None:
        """Copies a tensor to one of the same shape and dtype. Has happened when it returns."""
        to.copy_(source)

    def address(self, tensor: Any) -> int:
        """Where its first element is, to tell which tensors share memory. Nobody reads there."""
        return int(tensor.data_ptr())


#: By the type of the device; one that is not listed is copied from and to as torch does, through memory that is not pinned. "meta" has no bytes.
COPIERS: Dict[str, Copier] = {"cuda": Copier(pins=True), "xpu": Copier(pins=True)}


def copier_of(device: Any) -> Optional[Copier]:
    """None: there are no bytes on that device."""
    known = COPIERS.get(device.type)
    return known if known is not None or device.type == "meta" else Copier()


class Blocks:
    """The host memory of one publication or landing: one block that bytes are read into, one that they arrive in. Each is made when it is first used."""

    def __init__(self) -> None:
        self._reading: Any = None
        self._landing: Any = None

    def reading(self, copier: Copier) -> Any:
        if self._reading is None:
            self._reading = copier.block(BLOCK_BYTES)
        return self._reading

    def landing(self, copier: Copier) -> Any:
        if self._landing is None:
            self._landing = copier.block(BLOCK_BYTES)
        return self._landing


class DeviceTensor:
    """One tensor on a device, as the compiled half sees it: a row of bytes in C's order, whatever its strides are."""

    def __init__(self, torch: Any, tensor: Any, copier: Copier, blocks: Blocks) -> None:
        # one of inference mode may be written to in that mode only
        self._quiet = torch.inference_mode if tensor.is_inference() else torch.no_grad
        self._copier = copier
        self._blocks = blocks
        self._tensor = tensor.detach()
        self._item = tensor.element_size()
        # a view: bytes of a contiguous tensor can be cut anywhere
        self._bytes = self._tensor.reshape(-1).view(torch.uint8) if tensor.is_contiguous() else None

    def read(self, offset: int, nbytes: int) -> Tuple[int, int]:
        """Copies bytes from `offset` on to the block for reading; returns where they are, and how many: `nbytes`, or as many as the block holds."""
        block, copy = self._blocks.reading(self._copier), self._copier.copy
        with self._quiet():
            if self._bytes is not None:
                nbytes = min(nbytes, block.numel())
                copy(block[:nbytes], self._bytes[offset : offset + nbytes])
                return block.data_ptr(), nbytes
            first, skip = divmod(offset, self._item)
            nbytes = min(nbytes, block.numel() - 2 * self._item)
            self._copy(block, first, -(-(skip + nbytes) // self._item), to_device=False)
            return block.data_ptr() + skip, nbytes

    def landing_block(self) -> Tuple[int, int]:
        """The memory that bytes arrive in: its address and its length."""
        block = self._blocks.landing(self._copier)
        return block.data_ptr(), block.numel()

    def write(self, offset: int, at: int, nbytes: int) -> None:
        """Takes `nbytes` bytes, which lie in the block for landing from `at` on; they are the tensor's from `offset` on."""
        # both are made out here: what is made in inference mode is of that mode
        landed, copy = self._blocks.landing(self._copier), self._copier.copy
        block: Any = self._blocks.reading(self._copier) if self._bytes is None else None
        with self._quiet():
            if self._bytes is not None:
                copy(self._bytes[offset : offset + nbytes], landed[at : at + nbytes])
                return
            # elements that are cut at an end are completed with what the tensor has there, so that whole ones are copied
            room = block.numel() // self._item - 1
            while nbytes > 0:
                first, skip = divmod(offset, self._item)
                n = min(nbytes, room * self._item - skip)
                count = -(-(skip + n) // self._item)
                if skip:
                    self._copy(block, first, 1, to_device=False)
                if (skip + n) % self._item and (count > 1 or not skip):
                    self._copy(block[(count - 1) * self._item :], first + count - 1, 1, to_device=False)
                block[skip : skip + n] = landed[at : at + n]
                self._copy(block, first, count, to_device=True)
                offset, at, nbytes = offset + n, at + n, nbytes - n

    def _copy(self, block: Any, first: int, count: int, to_device: bool) -> None:
        copy, done = self._copier.copy, 0
        host = block[: count * self._item].view(self._tensor.dtype)
        for part in _pieces(self._tensor, first, count):
            here = host[done : done + part.numel()].view(part.shape)
            if to_device:
                copy(part, here)
            else:
                copy(here, part)
            done += part.numel()


def _pieces(tensor: Any, first: int, count: int) -> Iterator[Any]:
    """Views that are together the `count` elements from the one with index `first` in C's order on. As many as twice the dimensions."""
    while tensor.dim() > 0:
        inner = tensor.numel() // tensor.shape[0]
        row, within = divmod(first, inner)
        if within + count <= inner:
            tensor, first = tensor.select(0, row), within
            continue
        if within:
            yield from _pieces(tensor.select(0, row), within, inner - within)
            row, count = row + 1, count - (inner - within)
        rows = count // inner
        if rows:
            yield tensor.narrow(0, row, rows)
            row, count = row + rows, count - rows * inner
        if count:
            yield from _pieces(tensor.select(0, row), 0, count)
        return
    yield tensor
