"""Flower without processes: a grid whose messages go through Flower's own serialisation, and an app for each node."""

from __future__ import annotations

import threading

import processes
from flwr.app import Context, Error, Message, RecordDict
from flwr.app.message import make_message
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

for name in ("run_id", "node_id", "task_id"):
    setattr(TaskIdentity, f"_{name}", 1)


class FakeGrid(Grid):
    """`apps`: by node. `config`: of each node. Answers are computed on a thread each; an exception of an app is Flower's error."""

    def __init__(self, apps, config=None, at_once=True):
        self.apps, self.config = dict(apps), config or {}
        self.states = {}  # of each node, which Flower keeps from message to message
        self.replies, self.order, self.lock = {}, [], threading.Lock()
        self.bytes, self.types, self.contents = 0, [], []
        self.threads = []
        self.tamper = lambda reply: reply  #: what a node that lies, or somebody on the way, makes of a reply

    def set_run(self, run):
        self.was_set = run

    run = property(lambda self: "the run")

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self):
        return list(self.apps)

    def over(self, message):
        message.metadata.__dict__["_message_id"] = message_id = message.object_id
        contents = {i: o.deflate() for i, o in get_all_nested_objects(message).items()}
        with self.lock:
            self.bytes += sum(map(len, contents.values()))
        got = inflate_object_from_contents(message_id, contents)
        got.metadata.__dict__["_message_id"] = message_id
        return got

    def push_messages(self, messages):
        ids = []
        for message in messages:
            got = self.over(message)
            self.types.append(got.metadata.message_type)
            self.contents.append(got.content)
            ids.append(got.metadata.message_id)
            if got.metadata.dst_node_id in self.apps:
                thread = processes.JoinedThread(target=self.answer, args=(got, got.metadata.message_id))
                self.threads.append(thread)
                thread.start()
        return ids

    def answer(self, message, message_id):
        node = message.metadata.dst_node_id
        app = self.apps[node]
        plain = make_message(metadata=message.metadata, content=RecordDict())
        try:
            reply = app(message, Context(1, node, self.config.get(node, {}), self.states.setdefault(node, RecordDict()), {}))
        except Exception as e:  # noqa: BLE001: as Flower's own process does
            reply = Message(Error(2, f"{type(e).__name__}: {e}"), reply_to=plain)
        if reply is None:  # the node has died
            return
        reply = self.tamper(self.over(reply))
        with self.lock:
            self.replies[message_id] = reply

    def pull_messages(self, message_ids):
        with self.lock:
            return [self.replies.pop(i) for i in list(message_ids) if i in self.replies]

    def send_and_receive(self, messages, *, timeout=None):
        raise AssertionError("the wrapper has its own")
