"""What this package says through `logging`, to the logger "tensorpull". Nothing is printed unless the program configures logging."""

from __future__ import annotations

import logging
import re
from typing import Any, Callable, Dict, Optional

from ._types import Outcome, Progress

logger = logging.getLogger("tensorpull")
logger.addHandler(logging.NullHandler())


#: What progress says of a recipient that cannot take what is described.
_DECLINED = ("schema_mismatch", "unsupported_request")


def short(ref_id: str) -> str:
    """Enough of a reference to recognise it, and not enough to pull with."""
    return str(ref_id)[:8] + "..." if ref_id else "a file"


def place(address: str) -> str:
    """An address without what may be secret in it: a user and a password, a command's arguments."""
    if address.startswith("pipe:"):
        return address.split(" ", 1)[0]
    if address.startswith(("http://", "https://")):
        address = address.partition("?")[0]  # the query of a signed URL is a key
    return re.sub(r"//[^/]*@", "//...@", address)


#: Recipients without a name that are remembered: whoever has the reference can come under any number.
_MOST_STRANGERS = 64


def recipient_progress(progress: Optional[Callable[[Progress], None]], reasons: Dict[str, str], noted: Callable[[], None]) -> Callable[[Progress], None]:
    """A callback that logs how each recipient ended, notes in `reasons` why it has not completed, of which `noted` is told, and calls the caller's."""

    def tell(event: Progress) -> None:
        if event.phase in ("completed", "failed", "aborted"):
            number = f"{event.recipient >> 32:08x}..." if event.recipient else ""
            who = f"recipient {event.name or number}" if event.name or number else "a recipient without a name"
            name = event.name or number
            reasons.pop(name, None)
            if event.code and (event.name or len(reasons) < _MOST_STRANGERS):
                reasons[name] = event.code
                noted()
            if event.code in _DECLINED:
                logger.warning("%s: %s cannot take it (%s), and may come again", short(event.ref_id), who, event.code)
            elif event.code == "digest_mismatch":
                logger.warning("%s: %s failed (digest_mismatch): were the tensors changed after they were published? copy=True publishes a copy", short(event.ref_id), who)
            else:
                logger.info("%s: %s %s%s", short(event.ref_id), who, event.phase, f" ({event.code})" if event.code else "")
        if progress is not None:
            progress(event)

    return tell


def log_outcome(settled: Optional[Callable[[Outcome], None]], what: Callable[[], str]) -> Callable[[Outcome], None]:
    def tell(how: Outcome) -> None:
        counts = how.counts
        others = [f"{name} {state}" + (f": {how.reasons[name]}" if name in how.reasons else "") for name, state in how.recipients.items() if not state.startswith("completed")]
        others += [f"{name or 'one without a name'}: {why}" for name, why in how.reasons.items() if name not in how.recipients]
        logger.info(
            "%s ended: %s; %d of %s recipients completed, %d failed, %d cancelled, %d vanished or were absent%s; %d bytes sent in %.1f s", what(), how.verdict,
            counts.completed + counts.completed_unverified, how.expected or "an unknown number of", counts.failed, counts.cancelled, counts.vanished + counts.absent,
            f" ({', '.join(others)})" if others else "", counts.bytes_sent, how.milliseconds / 1000,
        )  # fmt: skip
        if settled is not None:
            settled(how)

    return tell


def attempts(addresses: Any) -> Callable[[int, int, str, int], None]:
    """A callback for the compiled half, which is told of each attempt to connect."""
    shown = [place(address) for address in addresses]

    def tell(index: int, before: int, code: str, system: int) -> None:
        if code == "cancelled":
            return
        if code:
            logger.warning("no connection to %s: %s%s", shown[index], code, f" (errno {system})" if system > 0 else "")
        elif before:
            logger.warning("connected again, to %s, for the %d. time", shown[index], before + 1)

    return tell
