"""What keeps the memory of FLARE's server flat over the rounds of a job, with and without this library's decomposers.

    recipe.add_server_output_filter(tensorpull.nvflare.Memory())
"""

from __future__ import annotations

import ctypes
import gc
from typing import Any, Optional

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.filter import Filter
from nvflare.app_common.app_event_type import AppEventType

from . import _admission

#: mallopt's name for the size from which a block has pages of its own (malloc.h).
_M_MMAP_THRESHOLD = -3
#: A task begins here: at a server, at the server of a cyclic job, which has no rounds, and at a client.
_BEGINNINGS = (AppEventType.ROUND_STARTED, AppEventType.AFTER_LEARNABLE_PERSIST, EventType.BEFORE_TASK_EXECUTION)


class Memory(Filter):
    """A component of a job, for its server, its clients or both; it changes nothing that passes. It is for the whole process, so a job has to ask for it:

    - When a run starts, blocks from `own_pages` bytes on get pages of their own, which go back to the system when they are freed (glibc's malloc; others are left
      as they are). Without it glibc raises that size itself, up to 32 MiB, and keeps freed tensors in the arenas of FLARE's many threads.
    - When a round starts, cycles are collected. FLARE's task and its model are in one, and Python looks at its oldest generation seldom, so each round's model
      stays. What is there when the run starts is left out of it (gc.freeze), so that it takes milliseconds.
    - When FLARE has processed a site's update, the update is taken out of the two contexts in which FLARE leaves it until the next one comes. A component that wants it has it
      in all events up to AFTER_PROCESS_SUBMISSION.

    `own_pages`: bytes; 0: malloc is left as it is. `collect`: whether cycles are collected, and updates let go.
    """

    def __init__(self, own_pages: int = 1 << 20, collect: bool = True) -> None:
        if isinstance(own_pages, bool) or not isinstance(own_pages, int) or not 0 <= own_pages <= 32 << 20:
            raise ValueError(f"own_pages is a number of bytes from 0 to {32 << 20}; not {own_pages!r}")
        if not isinstance(collect, bool):
            raise TypeError(f"collect is True or False; not {collect!r}")
        super().__init__()
        self.own_pages = own_pages
        self.collect = collect

    def process(self, shareable: Any, fl_ctx: Any) -> Any:
        """As it came."""
        return shareable

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        if event_type == EventType.START_RUN:
            self._start()
        elif event_type == EventType.AFTER_PROCESS_SUBMISSION and self.collect:
            _let_go(fl_ctx)
        elif event_type in _BEGINNINGS and self.collect:
            gc.collect()

    def _start(self) -> None:
        if self.own_pages != 0:
            libc = _glibc()
            if libc is None or libc.mallopt(_M_MMAP_THRESHOLD, self.own_pages) != 1:
                self.logger.warning("tensorpull: this process has no malloc of glibc, so what it keeps of freed memory is left as it is")
        if self.collect:
            _admission.let_go_at_once = True
            gc.collect()
            gc.freeze()

    def add_to_fed_job(self, job: Any, ctx: Any, **kwargs: Any) -> Any:
        """What FLARE's Job API and recipes call. A recipe takes components of a server as filters alone; nothing is to be filtered, so it is none."""
        return job.add_component("", self, ctx)


def _let_go(fl_ctx: Any) -> None:
    """The workflow keeps this context until the next update comes, and with it the site's own, which it has as its peer."""
    for context, name in ((fl_ctx, FLContextKey.TASK_RESULT), (fl_ctx.get_peer_context(), FLContextKey.SHAREABLE)):
        there = context.get_prop_detail(name) if context is not None else None
        if there is not None:
            context.set_prop(name, None, private=there["private"], sticky=there["sticky"])


def _glibc() -> Optional[Any]:
    """The C library of this process, if its malloc is glibc's."""
    try:
        libc = ctypes.CDLL(None)
        return libc if hasattr(libc, "gnu_get_libc_version") and not hasattr(libc, "mallctl") else None
    except (OSError, AttributeError):
        return None
