"""What a reference has: names, dtypes, shapes and metadata, without its tensors. And which of them are wanted."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

from . import _native
from ._errors import Error
from ._images import TensorRange, kind
from ._log import logger, place, short
from ._options import PER_REQUEST_TIMEOUT, RETRIES, pull_settings, reference_id, text, whole, within
from ._route import Addresses, kept, over_addresses, web_settings
from ._tensors import FLOATING, Tensors
from ._tls import TLS
from ._trees import arrive, own
from ._types import Abort

#: Bytes asked for at a time: enough for the header of some hundred tensors.
_CHUNK = 65536


class Listing(NamedTuple):
    """What is published under a reference, as its owner says. `tensors` are under all of their names, those of tied tensors too, in the order in which a download has them."""

    tensors: Dict[str, TensorRange]
    version: int  #: the digest of the image, if `verifiable`
    fingerprint: int  #: of names, dtypes and shapes
    nbytes: int  #: of the image
    verifiable: bool
    metadata: Dict[str, str]


def list_tensors(
    address: Addresses,
    ref_id: str = "",
    per_request_timeout: Optional[float] = PER_REQUEST_TIMEOUT,
    abort: Abort = None,
    *,
    max_header_bytes: int = 16 << 20,
    max_tensors: int = 1_000_000,
    version: Optional[int] = None,
    recipient: Optional[str] = None,
    retries: int = RETRIES,
    ssl: Optional[TLS] = None,
    digest: Optional[str] = None,
    bearer: Optional[str] = None,
    timeout: Optional[float] = None,
    wait: Optional[float] = None,
) -> Listing:
    """Says what is published under `ref_id`, and pulls none of it: `tensorpull.list_tensors("server:8002", ref).tensors["head.weight"].shape`.

    The owner forgets that it was asked, so nobody counts for it (one that is asked over HTTP counts a recipient that was lost). Nothing is compared with a digest,
    which would need all of the bytes: it is what the owner says. The arguments and errors are those of `download_tensors`. Cost: the header, and at most 128 KiB in all if that is shorter.
    """
    address = kept(address)
    web = web_settings(address, ref_id, digest, bearer, recipient)
    web.max_header_bytes = whole(max_header_bytes, "max_header_bytes", 2**63 - 1)
    with within(timeout, wait, abort, address) as heard:
        settings = looking(ref_id, per_request_timeout, heard, version, recipient, retries)
        got, source = over_addresses(address, ssl, lambda route: look(route, route.reference_of(ref_id, settings.version), max_header_bytes, max_tensors, settings), web)
    logger.info("%s at %s has %d tensors, %d bytes", short(ref_id), place(source), len(got.tensors), got.nbytes)
    return got


def looking(
    ref_id: str, per_request_timeout: Optional[float], abort: Any, version: Optional[int] = None, recipient: Optional[str] = None, retries: int = RETRIES, chunk: int = _CHUNK
) -> Any:  # fmt: skip
    return pull_settings(ref_id, per_request_timeout, chunk, None, 0.1, abort, version, recipient, 1, retries, True)


def chunk_of_header(tensors: Mapping[str, Any]) -> int:
    """About the bytes of the header of these tensors with their digests and order, so that a look at it brings little else."""
    return min(max(8192, sum(2 * len(str(name)) + 128 for name in tensors) // 8 * 8), _CHUNK)


class Seen(NamedTuple):
    """A listing, and what it was made of."""

    listing: Listing
    in_image: List[TensorRange]  #: each tensor once, in the order of the image
    metadata: Dict[str, str]  #: this package's own, too


def look(source: Any, ref_id: str, max_header_bytes: int, max_tensors: int, settings: Any) -> Listing:
    """The same from a source of the compiled half: a route, or a session."""
    return look_closely(source, ref_id, max_header_bytes, max_tensors, settings).listing


def look_closely(source: Any, ref_id: str, max_header_bytes: int, max_tensors: int, settings: Any) -> Seen:
    (version, fingerprint, nbytes, header_bytes, verifiable), tensors, metadata = _native.look(
        source, reference_id(ref_id), whole(max_header_bytes, "max_header_bytes", 2**63 - 1), whole(max_tensors, "max_tensors", 2**63 - 1), settings
    )
    there = {name: TensorRange(name, dtype, shape, header_bytes + begin, size) for name, dtype, shape, begin, size in tensors}
    listing = Listing(dict(arrive(there, metadata).tensors), version, fingerprint, nbytes, verifiable, own(metadata))
    return Seen(listing, list(there.values()), dict(metadata))


def chosen(there: Listing, names: Optional[Iterable[str]], matching: Optional[Iterable[str]]) -> Dict[str, TensorRange]:
    """Those that are named, or that one of the patterns fits, in their order. Each name and pattern chooses at least one."""
    wanted = _texts(names, "names", "a tensor's name")
    patterns = [(pattern, _fitting(pattern)) for pattern in _texts(matching, "matching", 'a pattern, as in "encoder.*"')]
    if not wanted and not patterns:
        raise ValueError("names and matching are empty: no tensor is asked for")
    for name in wanted:
        if name not in there.tensors:
            raise Error("invalid_argument", "no tensor of this name is published", name)
    for pattern, fits in patterns:
        if not any(map(fits, there.tensors)):
            raise Error("invalid_argument", "no tensor that is published fits this pattern", pattern)
    exact = set(wanted)
    return {name: one for name, one in there.tensors.items() if name in exact or any(fits(name) for _, fits in patterns)}


def _texts(given: Optional[Iterable[str]], what: str, means: str) -> List[str]:
    if given is None:
        return []
    if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
        raise TypeError(f"{what} is a list, each {means}; not {given!r}")
    return [text(each, f"each of {what}", means) for each in given]


def _fitting(pattern: str) -> Callable[[str], bool]:
    """Whether a name fits. `*` is any characters, also none and ".", and `?` is one. What is between two `*` is looked for once, from where the one before it was first found:
    the names are the owner's, and a regular expression of all of it would try every way to divide one."""
    parts = pattern.split("*")
    pieces = [re.compile("".join("." if letter == "?" else re.escape(letter) for letter in part), re.DOTALL) for part in parts]
    if len(pieces) == 1:
        return lambda name: pieces[0].fullmatch(name) is not None

    def fits(name: str) -> bool:
        at, end = len(parts[0]), len(name) - len(parts[-1])
        if end < at or pieces[0].match(name) is None or pieces[-1].match(name, end) is None:
            return False
        for piece in pieces[1:-1]:
            found = piece.search(name, at, end)
            if found is None:
                return False
            at = found.end()
        return True

    return fits


def tie_as_published(mine: Tensors, there: Listing) -> None:
    """Tensors to land in that are one memory under several names: under those of them that are published. A model may have been saved with one of the names alone."""
    for kept in set(mine.ties.values()):
        published = [name for name in (kept, *(alias for alias, of in mine.ties.items() if of == kept)) if name in there.tensors]
        travels = {there.tensors[name].name for name in published}
        if len(travels) != 1 or not travels.issubset(published):
            continue  # landing says what does not fit
        as_name = travels.pop()
        mine.described = [(as_name, *one[1:]) if one[0] == kept else one for one in mine.described]
        mine.ties = {alias: of for alias, of in mine.ties.items() if of != kept} | {name: as_name for name in published if name != as_name}


#: What torch's DistributedDataParallel and torch.compile put into names.
_WRAPPED = re.compile(r"(?:(?<=\.)|^)(?:module|_orig_mod)\.")


def as_published(mine: Iterable[str], there: Listing) -> Dict[str, str]:
    """Of each name the one that is published for it: itself, or the only one that is the same but for what wrappers of modules put into names."""
    bare: Dict[str, List[str]] = {}
    for name in there.tensors:
        bare.setdefault(_WRAPPED.sub("", name), []).append(name)
    called: Dict[str, str] = {}
    for name in mine:
        same = [name] if name in there.tensors else bare.get(_WRAPPED.sub("", name), [])
        called[name] = same[0] if len(same) == 1 else name
    if len(set(called.values())) != len(called):  # two of them are one that is published
        name = next(name for name, of in called.items() if name != of and list(called.values()).count(of) > 1)
        raise Error("schema_mismatch", f"two tensors of out would be the one that is published as {called[name]!r}", name)
    return called


def difference(mine: Tensors, there: Listing, subset: bool, name: str) -> Optional[Tuple[str, str]]:
    """In which way tensors to land in are not those that are published: a sentence, and the name; that with `name` if there are several. None: they are."""
    found: Dict[str, str] = {}

    bare_there, bare_here = ({_WRAPPED.sub("", name) for name in names} for names in (there.tensors, [*(one[0] for one in mine.described), *mine.ties]))

    def wrapped(name: str, among: Set[str]) -> str:
        return " (adapt=True takes names that differ by module. and _orig_mod.)" if _WRAPPED.sub("", name) in among else ""

    for one in mine.described:
        theirs = there.tensors.get(one[0])
        if theirs is None:
            found[one[0]] = "out has a tensor that is not published" + wrapped(one[0], bare_there)
        elif theirs.name != one[0]:
            found[one[0]] = f"what is published has tied this tensor to {theirs.name!r}, and out has them apart"
        elif (theirs.dtype, tuple(theirs.shape)) != (one[1], tuple(one[2])):
            what = "dtype" if theirs.dtype != one[1] else "shape"
            found[one[0]] = f"a tensor of out has another {what}: it is {kind(one[1], one[2])} here, and {kind(theirs.dtype, theirs.shape)} is published"
            if what == "dtype" and {one[1], theirs.dtype} <= FLOATING and tuple(theirs.shape) == tuple(one[2]):
                found[one[0]] += " (adapt=True converts)"
    have = {one[0] for one in mine.described}
    for alias, kept in mine.ties.items():
        if there.tensors.get(alias) is None or there.tensors[alias] is not there.tensors.get(kept):
            found.setdefault(alias, f"two tensors of out are one memory, this one and {kept!r}, and what is published has not tied them")
    for other, theirs in there.tensors.items():
        if not subset and other not in have and other not in mine.ties and theirs.name not in have:
            found.setdefault(other, "a tensor is published that out does not have" + (wrapped(other, bare_here) or " (subset=True takes only those of out)"))
    if not found:
        return None
    about = name if name in found else next(iter(found))
    more = f"; {len(found) - 1} more differ" if len(found) > 1 else ""
    return found[about] + more, about
