"""The names of Flower that this package uses, and whether they are what it knows. All but `make_message` and `ErrorCode` are of Flower's public modules."""

from __future__ import annotations

import inspect
import logging
from typing import Any, Callable, Dict, Tuple

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
    from flwr.app.message import make_message
    from flwr.clientapp import ClientApp
    from flwr.common.constant import ErrorCode
    from flwr.serverapp import Grid
except ImportError as e:
    raise ImportError(f"tensorpull.flower needs Flower 1.42 (pip install 'flwr>=1.42,<1.43'): {e}") from e

__all__ = ["Array", "ArrayRecord", "ClientApp", "ConfigRecord", "Context", "Error", "Grid", "Message", "RecordDict", "UNUSABLE", "logger", "make_message"]

#: Flower's own, so that its users read what happens.
logger = logging.getLogger("flwr")

#: What a `Grid` has to answer.
_GRID = frozenset({"set_run", "run", "create_message", "get_node_ids", "push_messages", "pull_messages", "send_and_receive"})
#: Calls, and the parameters with which this package calls them.
_CALLS: Dict[str, Tuple[Callable[..., Any], Tuple[str, ...]]] = {
    "flwr.serverapp.Grid.push_messages": (Grid.push_messages, ("self", "messages")),
    "flwr.serverapp.Grid.pull_messages": (Grid.pull_messages, ("self", "message_ids")),
    "flwr.serverapp.Grid.send_and_receive": (Grid.send_and_receive, ("self", "messages", "timeout")),
    "flwr.clientapp.ClientApp": (ClientApp.__init__, ("self", "client_fn", "mods")),
    "flwr.clientapp.ClientApp.__call__": (ClientApp.__call__, ("self", "message", "context")),
    "flwr.app.Array.numpy": (Array.numpy, ("self",)),
    "flwr.app.message.make_message": (make_message, ("metadata", "content", "error")),
}
_MESSAGE = ("dst_node_id", "message_type", "content", "error", "ttl", "group_id", "dst_task_id", "reply_to")


def unlike() -> str:
    """What of Flower is not as this package knows it; "" if all is."""
    if Grid.__abstractmethods__ != _GRID:
        return f"flwr.serverapp.Grid asks for {', '.join(sorted(Grid.__abstractmethods__ ^ _GRID))}"
    for name, (call, parameters) in _CALLS.items():
        have = tuple(inspect.signature(call).parameters)
        if have != parameters:
            return f"{name} takes ({', '.join(have)}), and not ({', '.join(parameters)})"
    lost = set(_MESSAGE) - set(inspect.signature(Message.__init__).parameters)
    if lost:
        return f"flwr.app.Message takes no {', '.join(sorted(lost))}"
    if tuple(Array.__dataclass_fields__) != ("dtype", "shape", "stype", "data"):
        return f"a flwr.app.Array consists of {', '.join(Array.__dataclass_fields__)}"
    if not isinstance(getattr(ErrorCode, "MOD_FAILED_PRECONDITION", None), int):
        return "flwr.common.constant.ErrorCode has no MOD_FAILED_PRECONDITION"
    return ""


if _why := unlike():
    raise ImportError(f"tensorpull.flower does not know this version of Flower, so its own records have to do: {_why}")

#: Flower's code of an error for a message that could not be given to the app, or whose answer cannot be used.
UNUSABLE: int = ErrorCode.MOD_FAILED_PRECONDITION
