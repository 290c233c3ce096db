"""What changed since an earlier version, without loss and coded: published beside the whole, whose metadata has its reference.

It is of those tensors alone that have changed and were there before under the same name, with the same dtype and shape. Whether it has brought what it should is told by the digests of
the whole's tensors, as for what a recipient had already (_changed.py): a difference that lies costs a pull of what it was to bring.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from . import _native
from ._errors import Error
from ._log import logger, short
from ._tensors import Tensors
from ._trees import DIFFERENCE

#: A difference that is longer than this share of what has changed is not published: the whole is as good.
WORTH = 0.9
#: A difference that is not there any more, or that is none of what the recipient has, brings nothing, and the tensors are pulled as they are.
_BRINGS_NOTHING = frozenset({"unknown_reference", "withdrawn", "stale_version", "schema_mismatch", "digest_mismatch", "bad_frame", "not_verifiable", "too_large", "unsupported_layout", "value_out_of_range"})

_ID = re.compile("[0-9a-f]{32}")

Description = Tuple[Any, ...]


def code(new: List[Description], digests: Mapping[str, int], base: Mapping[str, Any]) -> Optional[Tuple[Any, ...]]:
    """Codes what of `new` has changed since `base`; what `publish_coded` takes. `digests`: of each tensor of `new`.

    None: nothing that was there has changed, or coding it is not worth it. Cost: one pass over the tensors of `base`, and one over both versions of what has changed, on this thread.
    Memory: the coded bytes.
    """
    of = {one[0]: one for one in new}
    old = Tensors({name: tensor for name, tensor in base.items() if name in of}, apart=True)
    alike = [one for one in old.described if kind_of(one) == kind_of(of[one[0]])]
    before = dict(_native.tensor_digests(alike))
    changed = [one for one in alike if before[one[0]] != digests[one[0]]]
    if not is_worth_it(sum(map(nbytes_of, changed)), min(map(nbytes_of, new), default=0)):
        return None
    coded: Optional[Tuple[Any, ...]] = _native.encode_difference(changed, [of[one[0]] for one in changed], WORTH)
    return coded


def publish_coded(add: Callable[..., Tuple[str, int, int, int]], ref_id: str, coded: Optional[Tuple[Any, ...]]) -> Optional[str]:
    """Publishes it through `add` of the compiled half, and returns its ID. `ref_id`: as `id_beside` says. None: there is nothing, or the owner's table is full."""
    if coded is None:
        return None
    how = _native.PublishSettings()
    how.id = ref_id
    try:
        digits, _, _, nbytes = add(*coded, how)
    except Error as e:
        if e.code != "table_full":
            raise
        return None
    logger.debug("%s: what has changed takes %d bytes", short(digits), nbytes)
    return digits[:32]


def id_beside(ref_id: str, digests: Mapping[str, int]) -> str:
    """As secret as the whole's ID, of which it is made. Each version has another; and several owners of one version have the same, so that their metadata is the same."""
    text = " ".join(("tensorpull.difference", ref_id[:32].lower(), *(f"{digest:x}" for digest in digests.values())))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def nbytes_of(described: Description) -> int:
    return int(_native.tensor_bytes(described[1], list(described[2])))


def is_worth_it(changed_bytes: int, smallest_bytes: int) -> bool:
    """Whether a difference can save bytes: the smallest tensor of all is pulled as well, so that the owner hears of this recipient."""
    return changed_bytes > 0 and smallest_bytes <= (1 - WORTH) * changed_bytes


def kind_of(described: Description) -> Tuple[str, Tuple[int, ...]]:
    """Dtype and shape."""
    return described[1], tuple(described[2])


def bring(through: Any, where: Tuple[Any, ...], whole: str, metadata: Mapping[str, str], described: List[Description], settings: Any) -> Tuple[int, bool]:
    """Pulls the difference that the metadata of `whole` names, and applies it to these tensors in place: they have to be what it is a difference to. Returns the bytes that came,
    and whether they were applied.

    False: there is none, or not of these tensors; they are as they were. Or it is not what it should be: then they are something else. Raises what ends the pull as a whole.
    """
    ref_id = metadata.get(DIFFERENCE, "")
    if not described or not _ID.fullmatch(ref_id) or ref_id in ("0" * 32, whole[:32].lower()):
        return 0, False
    given = settings.version, settings.believe
    settings.version, settings.believe = 0, True  # what comes of it is compared with the digests of the whole's tensors
    try:
        return int(through.download_difference(*where, ref_id, described, settings)[1]), True
    except Error as e:
        if e.code not in _BRINGS_NOTHING:
            raise
        logger.info("%s: the difference to what is here cannot be used (%s); the tensors are pulled as they are", short(ref_id), e.code)
        return e.landed, False
    finally:
        settings.version, settings.believe = given
