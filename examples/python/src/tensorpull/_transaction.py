"""Several dicts of tensors that are published as one transaction."""

from __future__ import annotations

from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple

from ._publish import publish
from ._types import Reference


def publish_together(
    add_all: Callable[..., List[Tuple[str, int, int, int]]],
    models: Sequence[Mapping[str, Any]],
    chunk_size: int,
    ref_ids: Optional[Sequence[Optional[str]]],
    metadata: Optional[Sequence[Optional[Mapping[str, str]]]],
    *how: Any,
) -> List[Reference]:
    """`how`: recipients and least, then settled and what follows it of `publish`."""
    if isinstance(models, Mapping) or not hasattr(models, "__iter__"):
        raise TypeError("a transaction is a list of dicts of tensors")
    models = list(models)
    for what, given in (("ref_ids", ref_ids), ("metadata", metadata)):
        if given is not None and (isinstance(given, (str, Mapping)) or len(given) != len(models)):
            raise ValueError(f"{what} has one entry for each dict of tensors, of which there are {len(models)}")
    if not models:
        raise ValueError("a transaction has at least one dict of tensors")
    parts: List[Tuple[Any, ...]] = []
    kept: List[Any] = []
    settings: List[Any] = []

    def collect(described: Any, pairs: Any, keep: Any, one: Any) -> Tuple[str, int, int, int]:
        parts.append((described, pairs, one.id))
        kept.append(keep)
        settings.append(one)
        return "", 0, 0, 0

    recipients, least, *rest = how
    if not isinstance(recipients, int) and not isinstance(recipients, (str, bytes)) and hasattr(recipients, "__iter__"):
        recipients = list(recipients)  # each of the dicts asks for the names
    for i, model in enumerate(models):
        publish(collect, model, chunk_size, recipients, least, None if ref_ids is None else ref_ids[i], None if metadata is None else metadata[i], *rest)
    return [Reference(*made, chunk_size) for made in add_all(parts, kept, settings[0])]
