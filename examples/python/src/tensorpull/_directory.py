"""Directories, such as a checkpoint with its shards, index and tokenizer: one reference for all files below one."""

from __future__ import annotations

import os
from typing import Any, Iterable, List, Optional, Tuple, Union

from . import _native
from ._errors import Error
from ._log import logger, place, short
from ._options import PER_REQUEST_TIMEOUT, RETRIES, most_on_disk, newest, pull_settings, text, within
from ._route import Addresses, addresses_of, connections_to, is_url, kept, over_addresses, throughout
from ._tls import TLS, native
from ._types import Abort, Receipt, Tell

Path = Union[str, bytes, "os.PathLike[str]"]


def patterns(given: Union[str, Iterable[str]], what: str) -> List[str]:
    """One pattern or several."""
    return [text(each, f"each of {what}", "a pattern") for each in ([given] if isinstance(given, str) else given)]


def without_slash(path: Path) -> bytes:
    """A path as the file system has it; what stands behind its last slash is a name."""
    name = os.fsencode(path)
    return name.rstrip(b"/") or name


def need_directories() -> None:
    """Raises where the satellite was taken out."""
    if not hasattr(_native, "Directory"):
        raise Error("unsupported_request", "this build of tensorpull has no directories")


class OpenDirectory:
    """A directory that is published: `add` takes the part of what publishes tensors."""

    def __init__(self, add_held: Any, path: Path, include: Union[str, Iterable[str]], exclude: Union[str, Iterable[str]], follow_links: bool) -> None:
        need_directories()
        self._add_held, self._path = add_held, without_slash(path)
        self._image = _native.Directory(self._path, patterns(include, "include"), patterns(exclude, "exclude"), bool(follow_links))

    def add(self, described: Any, metadata: Any, keep: Any, how: Any) -> Tuple[str, int, int, int]:
        try:
            return self._add_held(self._image, how)  # type: ignore[no-any-return]
        except Error as e:
            if not self._image.changed:
                raise
            raise e.saying("the file changed while it was read", os.path.join(os.fsdecode(self._path), self._image.changed)) from None


def download_directory(
    address: Addresses,
    ref_id: str,
    path: Path,
    *,
    include: Union[str, Iterable[str]] = (),
    exclude: Union[str, Iterable[str]] = (),
    base: Optional[Path] = None,
    resume: bool = True,
    overwrite: bool = False,
    max_bytes: Optional[int] = None,
    per_request_timeout: Optional[float] = PER_REQUEST_TIMEOUT,
    chunk_size: Optional[int] = None,
    progress: Tell = None,
    abort: Abort = None,
    progress_interval: float = 0.1,
    version: Optional[int] = None,
    recipient: Optional[str] = None,
    window: int = 0,
    retries: int = RETRIES,
    believe: bool = False,
    ssl: Optional[TLS] = None,
    connections: int = 1,
    timeout: Optional[float] = None,
    wait: Optional[float] = None,
    bearer: Optional[str] = None,
) -> Receipt:
    """Makes the directory again that `Downloader.add_directory` (or `send DIRECTORY`) publishes, or, with the address "hf://ORG/MODEL" or "hf://ORG/MODEL@REVISION" and the reference "",
    one of a hub's model: all files of one commit, each with the digest that the hub states. The hub is Hugging Face's, or that of `HF_ENDPOINT`. `path` leads to the complete directory of one version, or to what was there before.

      include    only files whose paths below it fit one of these patterns, in which `*` stands for any characters, slashes among them, and `?` for one; (): all. The digest of
                 each is compared with the one that the owner states
      exclude    and fit none of these
      base       a directory of an earlier version, perhaps `path` itself with `overwrite`: a file that has the published digest is copied from there, and not fetched.
                 `Receipt.kept_bytes` has their bytes
      resume     until it is complete the directory is `.NAME.part` beside it. That stays if the download fails or the process is killed, and the next call goes on with it at
                 the byte where it was. False: what is there is fetched anew
      overwrite  replace another directory that is there, in one step; otherwise "io" (`system` is `errno.EEXIST`)
      max_bytes  of all files, refused before data moves ("too_large"); None: what the disk has room for ("disk_full")
      bearer     the token for a hub, which no other host is shown; None: `HF_TOKEN`, or what the hub's own programs have kept

    The others are those of `download_tensors`, and its errors. Besides: "invalid_argument" with the name of a file that could not be one everywhere, or leads elsewhere;
    "duplicate_name", of two names that are one where capital letters are like small ones; "schema_mismatch": a model is published there. Of a hub: "not_permitted" (the token),
    "unknown_reference", "bad_file" (its list of files), "stale_version" (it gives other files than those in its list), "digest_mismatch", "not_verifiable" (it states no digest).
    """
    need_directories()
    address = kept(address)
    of_hub = isinstance(address, str) and address.startswith("hf://")
    if of_hub and (ref_id != "" or version is not None or recipient is not None or believe or connections != 1):
        raise ValueError('a hub\'s model has no reference: ref_id is "", and version, recipient, believe and connections have no meaning for it')
    if bearer is not None and not of_hub:
        raise ValueError("bearer is for hubs, hf://, and there is none")
    if any(map(is_url, addresses_of(address))):
        raise ValueError("a directory is what a Downloader publishes, and a URL leads to one file")
    told = throughout(progress, address)
    at_a_time = 1 if of_hub else connections_to(address, connections, chunk_size)
    name = without_slash(path)
    if name.rpartition(b"/")[2] in (b"", b".", b".."):
        raise ValueError(f"path leads to no name that a directory could be given: {os.fsdecode(name)!r}")
    limit = most_on_disk(max_bytes)
    chosen = patterns(include, "include"), patterns(exclude, "exclude")
    earlier = b"" if base is None else without_slash(base)
    with within(timeout, wait, abort, address) as heard:
        if of_hub:
            settings = pull_settings("", per_request_timeout=per_request_timeout, progress=told, abort=heard, progress_interval=progress_interval, retries=retries)
            token = "" if bearer is None else text(bearer, "bearer", "a hub's token")
            commit, files, nbytes, came, there = _native.download_model(str(address), native(ssl), token, name, earlier, *chosen, bool(resume), bool(overwrite), limit, settings)
            logger.info("%s downloaded: %d files of %d bytes, of commit %s", place(str(address)), files, nbytes, commit)
            return Receipt("completed", came, 0, 0, 0, 0, 0, False, "unsupported_request", True, there)

        def pull(route: Any) -> Tuple[Any, int, int, int]:
            def once(heard_of: Any) -> Any:
                settings = pull_settings(
                    ref_id, per_request_timeout=per_request_timeout, chunk_size=chunk_size, progress=heard_of, abort=heard, progress_interval=progress_interval, version=version,
                    recipient=recipient, window=window, retries=retries, believe=believe,
                )  # fmt: skip
                return _native.download_directory(route, route.reference_of(ref_id, settings.version), name, earlier, *chosen, bool(resume), bool(overwrite), limit, settings)

            return newest(ref_id, version, retries, told, once)  # type: ignore[no-any-return]

        (how, files, nbytes, there), source = over_addresses(address, ssl, pull, None, told, at_a_time)
    receipt = Receipt(*how)._replace(kept_bytes=there)
    logger.info("%s downloaded from %s: %d files of %d bytes, %s", short(ref_id), place(source), files, nbytes, receipt.outcome)
    return receipt
