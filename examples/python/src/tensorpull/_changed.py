"""Only the tensors that changed. An owner's metadata may have 16 digits for each tensor, which are its digest, and a recipient that has an earlier version pulls those of another digest.

What the digests say decides only what is asked for. What is taken is what the digest of the whole says, over what was there and what came; a list of digests that lies costs a pull of all.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from . import _native
from ._difference import kind_of
from ._images import TensorRange
from ._listing import Seen
from ._options import at_work
from ._tensors import Tensors
from ._trees import DIGESTS
from ._types import Receipt

_DIGITS = 16  # of one digest


def digests_said(digests: Mapping[str, int]) -> Dict[str, str]:
    """The entry of the metadata: of each tensor 16 hexadecimal digits, in the order of the image, as `tensor_digests` has them."""
    return {DIGESTS: "".join(f"{digest:0{_DIGITS}x}" for digest in digests.values())}


def _digests_of(published: List[TensorRange], metadata: Mapping[str, str]) -> Optional[Dict[str, int]]:
    """By the names under which the tensors travel; None: the owner says none, or something else under that name."""
    said = metadata.get(DIGESTS, "")
    if not said or len(said) != _DIGITS * len(published):
        return None
    try:
        return {one.name: int.from_bytes(bytes.fromhex(said[_DIGITS * i : _DIGITS * (i + 1)]), "big") for i, one in enumerate(published)}
    except ValueError:
        return None


class Changes(NamedTuple):
    """What a recipient lacks of a publication."""

    wanted: Dict[str, TensorRange]  #: is pulled, by the names under which the tensors travel
    have: Dict[str, Any]  #: is not pulled: the recipient's own tensors, and those that a difference has brought up to date


def changes(base: Mapping[str, Any], seen: Seen, abort: Any, bring: Callable[[Dict[str, Any]], Dict[str, Any]]) -> Optional[Changes]:
    """Which tensors have other bytes than those of `base`, by the owner's digests. None: all is to be pulled, since the owner has no digests, or every tensor has changed.

    `bring` is called with those of `base` that have changed. It returns them, or others in their place, as a difference has made them; or nothing. What has the owner's digest then is not pulled.
    Cost: one pass over the tensors of `base` that are published, and one over those that were brought.
    """
    digests = _digests_of(seen.in_image, seen.metadata) if seen.listing.verifiable else None
    if digests is None:
        return None
    published = {one.name: one for one in seen.in_image}
    there = {name: tensor for name, tensor in base.items() if name in published}
    mine = Tensors(there, apart=True)  # holds the memory while it is read, whatever another thread does with the dict or its tensors
    alike = [one for one in mine.described if kind_of(one) == kind_of_published(published[one[0]])]
    have = _of_these_digests(there, alike, digests, abort)
    changed = {one[0]: there[one[0]] for one in alike if one[0] not in have}
    brought = bring(changed) if changed else {}
    if brought:
        made = Tensors(brought, apart=True)
        have.update(_of_these_digests(brought, made.described, digests, abort))
    wanted = {name: one for name, one in published.items() if name not in have}
    return None if len(wanted) == len(published) else Changes(wanted, have)


def take_smallest(seen: Seen, todo: Changes) -> None:
    """If nothing is wanted, and no byte alone can be pulled: so the owner hears that there was a recipient, and that it has all."""
    smallest = min(seen.in_image, key=lambda one: (one.nbytes == 0, one.nbytes))
    todo.wanted[smallest.name] = smallest
    del todo.have[smallest.name]


def confirmed(source: Any, ref_id: str, tensors: Mapping[str, Any], seen: Seen, settings: Any) -> Optional[Tuple[Any, ...]]:
    """Pulls the last byte of what is published, all of which is here, and compares the digest of all: so the owner counts this recipient. None: it is another one, or this link begins every
    pull anew, as one to several owners does. Cost: one pass over the tensors."""
    mine = Tensors(tensors, apart=True)
    got = _native.confirm(source, ref_id, mine.described, list(seen.metadata.items()), settings)
    return None if got is None else Receipt(*got)


def _of_these_digests(tensors: Mapping[str, Any], described: List[Tuple[Any, ...]], digests: Mapping[str, int], abort: Any) -> Dict[str, Any]:
    return {name: tensors[name] for name, digest in _native.tensor_digests(described, at_work(abort)) if digest == digests[name]}


def kind_of_published(one: TensorRange) -> Tuple[str, Tuple[int, ...]]:
    return one.dtype, tuple(one.shape)


def is_the_whole(tensors: Mapping[str, Any], seen: Seen, abort: Any) -> bool:
    """Whether these tensors, by the names under which they travel, are what is published: its digest is that of all bytes. Cost: one pass over them."""
    mine = Tensors(tensors, apart=True)
    image = _native.ImageReader(mine.described, list(seen.metadata.items()), mine.keep, at_work(abort))
    return bool(image.version == seen.listing.version)


def receipt_of(pulled: Tuple[Any, ...], seen: Seen, brought_bytes: int, believed: bool) -> Receipt:
    """Of a pull of what had changed, once the digest of the whole has agreed. `brought_bytes`: of the difference that came before."""
    got, there = Receipt(*pulled), seen.listing
    came = got.bytes + brought_bytes
    return got._replace(
        outcome="completed", bytes=came, version=there.version, fingerprint=there.fingerprint, digest=there.version, believed=believed,
        kept_bytes=max(0, sum(one.nbytes for one in seen.in_image) - came),
    )  # fmt: skip
