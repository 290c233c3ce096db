"""The recipient's side: one pull into a safetensors file."""

from __future__ import annotations

import os
from typing import Any, Optional, Tuple, Union

from . import _native
from ._log import logger, place, short
from ._options import PER_REQUEST_TIMEOUT, RETRIES, PullSettings, most_on_disk, newest, pull_settings, within
from ._proofs import SignedReference, has_it, only_for_all, over_proved
from ._route import Addresses, addresses_of, connections_to, kept, over_addresses, throughout, web_settings
from ._tls import TLS
from ._types import Abort, FileOptions, Receipt, Tell


def download_file(
    address: Addresses,
    ref_id: Union[str, SignedReference],
    path: Union[str, bytes, "os.PathLike[str]"],
    *,
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
    unverified: bool = False,
    believe: bool = False,
    ssl: Optional[TLS] = None,
    digest: Optional[str] = None,
    bearer: Optional[str] = None,
    connections: int = 1,
    timeout: Optional[float] = None,
    wait: Optional[float] = None,
) -> Receipt:
    """Pulls what is published under `ref_id` into a safetensors file. `path` leads to the complete file, after its digest was compared, or to what was there before.

      address    one, or a list of addresses at which the same is published: as `download_tensors`; what has arrived stays when the next one is asked
      resume     until it is complete the file is `.NAME.part`, in the same folder. It stays there if the download fails or the process is killed, and the
                 next call goes on with what is in it, as far as its digest says that the bytes are right. If it is of another version than what is published now,
                 that is fetched from the start, unless `version` (or that of the `Reference`) asks for the other: "stale_version". A file that is
                 there already under `path` and is what is published is left as it is: one byte is fetched, and the owner is told. False: a file
                 of a name of its own, which is removed if the download fails.
      overwrite  replace another regular file that is there; otherwise "io" (`system` is `errno.EEXIST`)
      max_bytes  of the file, refused before data moves ("too_large"); None: what the disk has room for ("disk_full")

    From a URL (`ref_id` is "", or a `Reference`, and then its version is compared) any safetensors file lands. A part is gone on with if it is of the same URL, or of the
    version that is asked for. A file that is there already is refused, or replaced with `overwrite`.

    A `SignedReference` as of `download_tensors`.

    The others are those of `download_tensors`, and its errors. One process at a time may have the part ("io", `errno.EAGAIN`; where there are no locks on files, a
    warning in the log). Cost: the bytes are hashed as they arrive, and what is resumed is read once.
    """
    address = kept(address)
    signed = ref_id if isinstance(ref_id, SignedReference) else None
    if signed is not None:
        only_for_all(
            address, version=(version, None), unverified=(unverified, False), believe=(believe, False), digest=(digest, None), bearer=(bearer, None), chunk_size=(chunk_size == 0, False)
        )  # fmt: skip
    ref = ref_id if not isinstance(ref_id, SignedReference) else ref_id.reference
    told = throughout(progress, address if signed is None else [*addresses_of(address)])
    at_a_time = connections_to(address, connections, chunk_size)
    web = web_settings(address, ref, digest, bearer, recipient)
    with within(timeout, wait, abort, address) as heard:
        how: FileOptions = {
            "resume": resume, "overwrite": overwrite, "max_bytes": max_bytes, "per_request_timeout": per_request_timeout, "chunk_size": chunk_size, "progress_interval": progress_interval, "version": version,
            "recipient": recipient, "window": window, "retries": retries, "unverified": unverified, "believe": believe, "progress": told, "abort": heard,
        }  # fmt: skip
        _settings(ref, path, **how)  # what makes no sense is said first
        if signed is not None and not (resume and has_it(path, signed)):
            receipt, source = over_proved(address, ssl, signed, lambda proved: pull_into_file(proved, signed.reference, path, **how), told, at_a_time)
        else:
            if signed is not None:
                how["overwrite"] = False  # what is there is proved, and what an owner had in its stead would not be
            receipt, source = over_addresses(address, ssl, lambda route: pull_into_file(route, ref, path, **how), web, told, at_a_time)
    logger.info("%s downloaded from %s: %d bytes, %s", short(ref), place(source), receipt.bytes, receipt.outcome)
    return receipt


def pull_into_file(
    source: Any, ref_id: str, path: Union[str, bytes, "os.PathLike[str]"], *, timeout: Optional[float] = None, wait: Optional[float] = None, **how: Any
) -> Receipt:  # fmt: skip
    """The same from a source of the compiled half: a route, or a session. `how`: FileOptions."""
    with within(timeout, wait, how.get("abort")) as heard:

        def pull(told: Any) -> Any:
            file, settings = _settings(ref_id, path, **{**how, "progress": told, "abort": heard})
            return _native.download_file(source, source.reference_of(ref_id, settings.version), *file, settings)

        return Receipt(*newest(ref_id, how.get("version"), how.get("retries", RETRIES), how.get("progress"), pull))


def _settings(ref_id: str, path: Any, resume: bool = True, overwrite: bool = False, max_bytes: Optional[int] = None, **how: Any) -> Tuple[Tuple[bytes, bool, bool, int], PullSettings]:
    limit = most_on_disk(max_bytes)
    return (os.fsencode(path), bool(resume), bool(overwrite), limit), pull_settings(ref_id, **how)
