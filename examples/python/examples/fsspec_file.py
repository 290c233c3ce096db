"""A file system of published images for fsspec: it reads what is asked for, and nothing before.

    fs = ImageFileSystem({"weights.safetensors": model.state_dict()})
    with fs.open("weights.safetensors") as f:            # a safetensors file that is nowhere on a disk
        f.seek(-100, 2)
        tail = f.read()
    header, image_bytes = tensorpull.read_header(fs.cat_file("weights.safetensors", 0, 1 << 16))

Anything that reads through fsspec reads an image so, by ranges: a loader that wants one tensor of many takes the header and that tensor's bytes. `tensor_range` says
where a tensor is. Another program's image is the same with `read` in the place of `PublishedImage.read`.
"""

from __future__ import annotations

from typing import Any, Mapping

import fsspec
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

import tensorpull


class ImageFile(AbstractBufferedFile):
    """Reads through fsspec's cache; what is not asked for is not packed."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self.fs.images[self.path].read(start, end - start)


class ImageFileSystem(AbstractFileSystem):
    """Read-only. `models`: dicts of tensors by file name; they must not change as long as this is used."""

    protocol = "images"
    cachable = False  # two of these are two, whatever their arguments

    def __init__(self, models: Mapping[str, Mapping[str, Any]], **more: Any) -> None:
        super().__init__(**more)
        self.images = {name: tensorpull.PublishedImage(tensors) for name, tensors in models.items()}

    def _image(self, path: str) -> tensorpull.PublishedImage:
        try:
            return self.images[self._strip_protocol(path)]
        except KeyError:
            raise FileNotFoundError(path) from None

    def info(self, path: str, **more: Any) -> dict[str, Any]:
        name = self._strip_protocol(path)
        if name == "":
            return {"name": "", "size": 0, "type": "directory"}
        image = self._image(path)
        return {"name": name, "size": image.nbytes, "type": "file", "version": f"{image.version:016x}"}

    def ls(self, path: str, detail: bool = True, **more: Any) -> list[Any]:
        names = sorted(self.images) if self._strip_protocol(path) == "" else [self.info(path)["name"]]
        return [self.info(name) for name in names] if detail else names

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True, cache_options: Any = None, **more: Any) -> ImageFile:
        if mode != "rb":
            raise NotImplementedError("images are read-only")
        return ImageFile(self, path, mode, block_size or 1 << 16, cache_options=cache_options, size=self._image(path).nbytes)

    def cat_file(self, path: str, start: Any = None, end: Any = None, **more: Any) -> bytes:
        size = self._image(path).nbytes
        first = 0 if start is None else max(0, start + size) if start < 0 else start
        last = size if end is None else end + size if end < 0 else end
        return self._image(path).read(first, max(0, min(last, size) - first)) if first < size else b""

    def tensor_range(self, path: str, name: str) -> tuple[int, int]:
        """Where a tensor's bytes are in the file: begin and end."""
        for each in self._image(path).tensors:
            if each.name == name:
                return each.begin, each.begin + each.nbytes
        raise KeyError(name)


fsspec.register_implementation("images", ImageFileSystem, clobber=True)
