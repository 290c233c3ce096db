"""What this package uses of Flower is there, and where it is another Flower a sentence names what is not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tensorpull.flower import _seam


def test_this_version_of_flower_is_known():
    assert _seam.unlike() == ""
    assert isinstance(_seam.UNUSABLE, int)


@pytest.mark.parametrize("change, sentence", [
    ("Grid.__abstractmethods__ = Grid.__abstractmethods__ | {'stream_messages'}", "flwr.serverapp.Grid asks for stream_messages"),
    ("Grid.push_messages = lambda self, messages, priority: None", "flwr.serverapp.Grid.push_messages takes (self, messages, priority), and not (self, messages)"),
    ("ClientApp.__call__ = lambda self, message: None", "flwr.clientapp.ClientApp.__call__ takes (self, message)"),
    ("Message.__init__ = lambda self, content, error, reply_to: None", "flwr.app.Message takes no dst_node_id, dst_task_id, group_id, message_type, ttl"),
    ("Array.__dataclass_fields__ = {'data': 1}", "a flwr.app.Array consists of data"),
    ("del ErrorCode.MOD_FAILED_PRECONDITION", "ErrorCode has no MOD_FAILED_PRECONDITION"),
    ("import flwr.app; del flwr.app.ArrayRecord", "needs Flower 1.42"),
    ("sys.modules['flwr.serverapp'] = None", "needs Flower 1.42"),
], ids=lambda text: text[:40])  # fmt: skip
def test_another_flower_is_an_import_error_that_names_what_is_not_there(change, sentence):
    """So that a program that falls back where there is no tensorpull falls back here, too."""
    code = f"""
import sys
from flwr.app import Array, Message
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
{change}
try:
    from tensorpull.flower import ClientApp, Grid
except ImportError as e:
    print(e)
"""
    said = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout
    assert sentence in said, said
