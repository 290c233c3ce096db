"""The server's end: a `Grid` around Flower's, whose messages carry references, and whose replies have the arrays again."""

from __future__ import annotations

import itertools
import os
import secrets
import threading
import time
import weakref
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple, Union

import tensorpull

from .._peers import Door, Refused, is_loopback
from .._proofs import TextOrFile, signer
from ._arrays import MAX_HEADER_BYTES, as_tensors, from_file, held, identity, size
from ._offer import KEY, QUERY, TRIES, UPDATE, WELL, Doors, hello, offer, parse_answer, parse_greeting, printable, uses
from ._seam import UNUSABLE, ArrayRecord, ConfigRecord, Error, Grid as FlowersGrid, Message, RecordDict, logger, make_message
from ._spool import Landed, Spool

#: Bytes of a record below which Flower's own is as fast.
LEAST_BYTES = 65536
#: Seconds between two looks for replies, which is Flower's own number, and while updates arrive.
PAUSE, SOON = 3.0, 0.3
#: Recipients that the owner remembers, each once for each model.
MAX_RECIPIENTS = 16384
#: Nodes of which it is remembered how they are reached; those that were asked first are asked again.
MOST_NODES = 65536
#: Updates that are pulled at the same time; the others wait.
AT_ONCE = 32
#: Seconds in which a node that tries the way takes the answer.
CONNECT = 10.0
#: Seconds in which a node takes 64 bytes for each of them, or is dropped.
IDLE = 600.0
#: Where a node is: it has this package and reaches the doors; it goes on with Flower's records; it has not answered.
SPEAKS, OWN, SILENT = "speaks", "own", "silent"
#: The numbers of a run's exchanges, by Flower's grid: a node takes no earlier one, whichever of our grids around it made it.
_rounds: "weakref.WeakKeyDictionary[FlowersGrid, Iterator[int]]" = weakref.WeakKeyDictionary()


class _Model(NamedTuple):
    """One publication, for all messages that carry it."""

    reference: tensorpull.Reference
    held: List[Any]  # so that no other array gets its number
    nbytes: int
    users: Set[str]  # tokens


class _Sent:
    """A message whose records became references, until its reply is there."""

    def __init__(self, plain: Message, most: int) -> None:
        self.plain, self.most = plain, most  # bytes of its answer
        self.token = secrets.token_hex(16)
        self.models: Dict[str, Tuple[Any, ...]] = {}  # what they are published as, by the keys of the records
        self.pulls = False  # its node has begun to
        self.counted = False  # its answer is of what was pulled from the node
        self.node: int = plain.metadata.dst_node_id
        self.expires = time.monotonic() + plain.metadata.ttl
        self.message_id = ""
        self.busy = False
        self.records: Optional[List[ArrayRecord]] = None


class Grid(FlowersGrid):
    """Flower's `Grid`, whose models and updates travel by tensorpull.

        @app.main()
        def main(grid: Grid, context: Context) -> None:
            with tensorpull.flower.Grid(grid, "0.0.0.0", ports=(8090, 8091), host="server.example.org", ssl=tensorpull.TLS(...)) as grid:
                FedAvg().start(grid=grid, initial_arrays=arrays)

    A node is asked once, before the first message that is worth it, whether it has this package and reaches both ports; otherwise it gets Flower's own records. A model is published once
    for all nodes. A node connects to the second port for its update, which is written to a file; its arrays are read when they are asked for.
    """

    def __init__(
        self,
        grid: FlowersGrid,
        listen: str = "127.0.0.1",
        *,
        ports: Tuple[int, int] = (0, 0),
        host: Optional[str] = None,
        ssl: Optional[tensorpull.TLS] = None,
        without_tls: bool = False,
        least_bytes: int = LEAST_BYTES,
        max_update_bytes: Optional[int] = None,
        greeting_timeout: float = 120.0,
        folder: "Optional[Union[str, os.PathLike[str]]]" = None,
        key: Optional[TextOrFile] = None,
        federation: Optional[str] = None,
    ) -> None:
        """Listens at the IP address `listen` on two ports: models, updates; 0: one that is free.

          host              under which nodes reach this machine; default: `listen`
          ssl               certificates: then both ports have TLS, and nodes check `host`. With `require_client_certificates` each node stays the one whose certificate it has shown first
          without_tls       other machines may connect without it, if their own configuration allows it, too
          least_bytes       of a record: smaller ones stay in Flower's messages
          max_update_bytes  of one node's answer; None: four times what it was sent, at least 64 MiB. A larger one goes by Flower's own records
          greeting_timeout  seconds for the answer whether a node has this package
          folder            where updates wait until they are read; default: that of temporary files
          key, federation   as of `tensorpull.sign_reference`: each model is signed for its run and the number of the exchange, until the message's time to live is over. All records with arrays
                            are published then, whatever `least_bytes` is, since nodes that have the federation's public keys take no others. Read for each message, so a file may be replaced

        Errors: ValueError, and those of `tensorpull.Downloader`.
        """
        if not is_loopback(listen) and ssl is None and not without_tls:
            raise ValueError(f"it does not listen on {listen} without certificates: ssl=tensorpull.TLS(cert_file=..., key_file=...), or without_tls=True")
        if not isinstance(grid, FlowersGrid):
            raise TypeError(f"grid is the flwr.serverapp.Grid that the ServerApp was given; not {grid!r}")
        if (key is None) != (federation is None):
            raise ValueError("key and federation belong together: a signed model is for one federation")
        host = host or listen
        if host in ("0.0.0.0", "::"):
            raise ValueError("host is the name under which nodes reach this machine: none can connect to all addresses")
        self._grid, self._least, self._most, self._greeting_timeout = grid, least_bytes, max_update_bytes, greeting_timeout
        self._sign = signer(key, federation) if key is not None and federation is not None else None
        self._rounds = _rounds.setdefault(grid, itertools.count(1))  # messages that were pushed together have one, and later ones a larger one
        self._lock = threading.Lock()  # of what follows; no other is taken while it is held
        self._nodes: Dict[int, str] = {}
        self._peers: Dict[int, str] = {}  # the names in the certificates that they have shown
        self._greeted: Dict[str, int] = {}  # nodes that may try the way, by their secrets
        self._sent: Dict[str, _Sent] = {}  # by their secrets
        self._by_message: Dict[str, str] = {}  # secrets by the IDs of messages
        self._may: Dict[str, Dict[int, _Sent]] = {}  # for which message a model is pulled under which name; without a lock, for the thread that serves
        self._publishing = threading.Lock()
        self._models: Dict[Tuple[Any, ...], _Model] = {}
        self._pulls = threading.Semaphore(AT_ONCE)
        self._news, self._closing = threading.Event(), threading.Event()
        scheme, at = "tls" if ssl else "tcp", f"[{listen}]" if ":" in listen else listen
        self._spool = Spool(os.fspath(folder) if folder is not None else None)
        try:
            self._owner = tensorpull.Downloader(f"{scheme}://{at}:{ports[0]}", ssl=ssl, max_recipients=MAX_RECIPIENTS, authorise=self._allows).start()
            try:
                listener = tensorpull.Listener(f"{scheme}://{at}:{ports[1]}", ssl=ssl)
                self._door = Door(listener, self._take, logger, self._closing)
            except BaseException:
                self._owner.close()
                raise
        except BaseException:
            self._spool.close()
            raise
        named = f"{scheme}://[{host}]" if ":" in host else f"{scheme}://{host}"
        self._addresses = tuple(f"{named}:{where.address.rpartition(':')[2]}" for where in (self._owner, listener))

    # Flower's own

    def set_run(self, run: Any) -> None:
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        return self._grid.run

    def create_message(self, *arguments: Any, **more: Any) -> Message:
        return self._grid.create_message(*arguments, **more)

    def get_node_ids(self) -> Iterable[int]:
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """As of Flower's grid. What a message refers to is published until its reply is pulled, or its time to live is over."""
        return self._push(list(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """As of Flower's grid. A reply that cannot be used is one with an error."""
        return [self._received(reply) for reply in self._grid.pull_messages(list(message_ids))]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: Optional[float] = None) -> Iterable[Message]:
        """As of Flower's grid. A node that could not pull a model is sent Flower's own records within the same call."""
        end = None if timeout is None else time.monotonic() + timeout
        ids = self._push(list(messages))
        waiting: Set[str] = {each for each in ids if each}
        replies: List[Message] = []
        with self._lock:
            sent = [self._sent[token] for token in map(self._by_message.get, waiting) if token]
        try:
            for reply in self._replies(waiting, end):
                plain = self._not_pulled(reply)
                received = self._received(reply)
                again = [each for each in self._grid.push_messages([plain]) if each] if plain is not None else []
                waiting.update(again)
                if not again:
                    replies.append(received)
        finally:
            for each in sent:
                self._end(each)
        models, updates = sum(bool(each.models) for each in sent), sum(each.counted for each in sent)
        logger.info("tensorpull: models by tensorpull to %d of %d nodes, updates from %d of %d", models, len(ids), updates, len(replies))
        return replies

    def close(self) -> None:
        """Ends both ports, their threads, and all publications. Arrays that were received stay until nothing refers to them."""
        self._door.close()
        self._owner.close()
        with self._lock:
            self._sent.clear()
            self._by_message.clear()
            self._greeted.clear()
        self._models.clear()
        self._may.clear()
        self._spool.close()

    def __enter__(self) -> "Grid":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # messages

    def _replies(self, waiting: Set[str], end: Optional[float]) -> Iterator[Message]:
        """The replies to these messages as they arrive, also to those that are added meanwhile."""
        busy_until = 0.0
        while waiting and (end is None or time.monotonic() < end):
            for reply in self._grid.pull_messages(list(waiting)):
                waiting.discard(reply.metadata.reply_to_message_id)
                yield reply
            if not waiting:
                return
            pause = SOON if time.monotonic() < busy_until else PAUSE
            if self._news.wait(pause if end is None else max(0.0, min(pause, end - time.monotonic()))):
                self._news.clear()  # a node has called, and its reply is not far behind
                busy_until = time.monotonic() + 2 * PAUSE
                time.sleep(SOON)

    def _push(self, messages: List[Message]) -> List[str]:
        self._forget_the_expired()
        self._greet({m.metadata.dst_node_id for m in messages if self._worth_it(m)})
        at = next(self._rounds)
        wrapped: List[Tuple[Message, Optional[_Sent]]] = []
        try:
            for message in messages:
                wrapped.append(self._wrapped(message, at))
            ids = list(self._grid.push_messages([message for message, _ in wrapped]))
        except BaseException:
            for _, sent in wrapped:
                self._end(sent)
            raise
        for each, (_, sent) in zip(ids + [""] * (len(wrapped) - len(ids)), wrapped):  # Flower gives None, or fewer, for what it has not taken
            if sent is not None and each:
                with self._lock:
                    sent.message_id = each
                    self._by_message[each] = sent.token
            else:
                self._end(sent)
        return ids

    def _worth_it(self, message: Message) -> bool:
        if not message.has_content() or KEY in message.content:
            return False
        return any(self._goes(record) for record in message.content.values())

    def _goes(self, record: Any) -> bool:
        return isinstance(record, ArrayRecord) and (size(record) >= self._least or self._sign is not None)

    def _wrapped(self, message: Message, at: int) -> Tuple[Message, Optional[_Sent]]:
        """The message with references in place of its records, if its node takes them."""
        about = message.metadata
        if self._nodes.get(about.dst_node_id) != SPEAKS or not message.has_content() or KEY in message.content:
            return message, None
        sent = _Sent(message, 0)
        references: Dict[str, tensorpull.Reference] = {}
        nbytes = 0
        for key, record in message.content.items():
            if self._goes(record):
                try:
                    model = self._published(record, sent, key)
                except (Refused, tensorpull.Error) as e:
                    logger.info("tensorpull: %s goes by Flower's own record: %s", key, str(e))
                    continue
                references[key] = model.reference
                nbytes += model.nbytes
        sent.most = self._most if self._most is not None else max(4 * nbytes, 64 << 20)
        content = RecordDict({key: record for key, record in message.content.items() if key not in references})
        signed: List[str] = []
        if self._sign is not None:
            try:
                signed = [self._sign(ref, expires=about.ttl, round=at, note=note) for ref, note in zip(references.values(), uses(about.run_id, list(references)))]
            except BaseException:  # its file is another one now
                self._end(sent)
                raise
        content[KEY] = offer(Doors(sent.token, *self._addresses), {key: str(ref) for key, ref in references.items()}, list(message.content), self._least, signed)
        with self._lock:
            self._sent[sent.token] = sent
        made = Message(content, about.dst_node_id, about.message_type, ttl=about.ttl, group_id=about.group_id, dst_task_id=about.dst_task_id)
        return made, sent

    def _received(self, reply: Message) -> Message:
        """The reply with its arrays, or with an error."""
        sent = self._sent_as(reply.metadata.reply_to_message_id)
        if sent is None:
            with self._lock:  # one with keys has refused Flower's records, and a way that was closed may be open again
                if self._nodes.get(reply.metadata.src_node_id) == SILENT or (reply.has_error() and reply.error.code == UNUSABLE):
                    self._nodes.pop(reply.metadata.src_node_id, None)
            return _unusable(reply, "it refers to an update that is not kept any more") if _is_answer(reply) else reply
        try:
            if reply.has_error():
                if reply.error.code == UNUSABLE or (sent.models and not sent.pulls):
                    with self._lock:
                        self._nodes.pop(sent.node, None)  # whether it still has this package, and reaches the doors, is asked again
                return reply
            if reply.metadata.src_node_id != sent.node:
                raise Refused(f"node {reply.metadata.src_node_id} answers a message to node {sent.node}")
            said = reply.content.get(KEY)
            if isinstance(said, ConfigRecord) and "is" in said:
                reply.content = self._with_arrays(reply.content, sent)
                sent.counted = True
            return reply
        except Refused as e:
            return _unusable(reply, str(e))
        finally:
            self._end(sent)

    def _with_arrays(self, content: RecordDict, sent: _Sent) -> RecordDict:
        told = parse_answer(content[KEY])
        if not secrets.compare_digest(told.token, sent.token):
            raise Refused("it refers to the update of another message")
        with self._lock:
            records = sent.records
        if records is None or len(records) != len(told.keys):
            raise Refused("it refers to an update that was not pulled")
        arrays = dict(zip(told.keys, records))
        if set(content) - {KEY} != set(told.order) - set(told.keys):
            raise Refused("its order is not that of its records")
        return RecordDict({key: arrays[key] if key in arrays else content[key] for key in told.order})

    def _not_pulled(self, reply: Message) -> Optional[Message]:
        """The message as Flower would send it, if this is the reply of a node that could not pull its model, so that its app has not begun."""
        if not reply.has_error() or reply.error.code != UNUSABLE or not (reply.error.reason or "").startswith("tensorpull: the model"):
            return None
        sent = self._sent_as(reply.metadata.reply_to_message_id)
        return sent.plain if sent is not None and sent.records is None else None

    def _sent_as(self, message_id: str) -> Optional[_Sent]:
        with self._lock:
            return self._sent.get(self._by_message.get(message_id, ""))

    def _end(self, sent: Optional[_Sent]) -> None:
        """Nothing is pulled for this message any more. Again: does nothing."""
        if sent is None:
            return
        with self._lock:
            self._sent.pop(sent.token, None)
            self._by_message.pop(sent.message_id, None)
        with self._publishing:
            for key in set(sent.models.values()):
                model = self._models.get(key)
                if model is None:
                    continue
                model.users.discard(sent.token)
                self._may.get(model.reference.id, {}).pop(tensorpull.recipient_named(sent.token), None)
                if not model.users:
                    del self._models[key]
                    for one in _ids(model.reference):
                        self._may.pop(one, None)
                    self._owner.withdraw(model.reference)

    def _forget_the_expired(self) -> None:
        now = time.monotonic()
        with self._lock:
            expired = [sent for sent in self._sent.values() if sent.expires < now]
        for sent in expired:
            self._end(sent)

    # models

    def _published(self, record: ArrayRecord, sent: _Sent, key: str) -> _Model:
        """The one publication of these arrays, which may be pulled for this message from now on."""
        with self._publishing:
            known = identity(record)
            model = self._models.get(known)
            if model is None:
                tensors, metadata = as_tensors(record)
                reference = self._owner.add_tensors(
                    tensors, metadata=metadata, recipient_idle_timeout=IDLE, transaction_idle_timeout=None, proofs=self._sign is not None
                )
                model = self._models[known] = _Model(reference, held(record), reference.nbytes, set())
                may: Dict[int, _Sent] = {}
                self._may.update({one: may for one in _ids(reference)})
            model.users.add(sent.token)
            self._may[model.reference.id][tensorpull.recipient_named(sent.token)] = sent
            sent.models[key] = known
            return model

    def _allows(self, who: tensorpull.Access) -> bool:
        sent = self._may.get(who.ref_id, {}).get(who.recipient)
        if sent is None or who.peer != self._peers.get(sent.node, who.peer):
            return False
        sent.pulls = True
        return True

    # nodes

    def _greet(self, nodes: Set[int]) -> None:
        """Asks those nodes of which it is not known whether they have this package."""
        with self._lock:
            asked = sorted(node for node in nodes if node not in self._nodes)
            tokens = {secrets.token_hex(16): node for node in asked}
            self._greeted.update(tokens)
            self._nodes.update({node: SILENT for node in asked})
            for node in list(self._nodes)[: max(0, len(self._nodes) - max(MOST_NODES, len(asked)))]:
                del self._nodes[node]
                self._peers.pop(node, None)
        if not asked:
            return
        try:
            messages = [
                Message(RecordDict({KEY: hello(Doors(token, *self._addresses))}), node, QUERY, ttl=self._greeting_timeout) for token, node in tokens.items()
            ]  # fmt: skip
            ids = dict(zip(self._grid.push_messages(messages), tokens))
            waiting = {each for each in ids if each}
            for reply in self._replies(waiting, time.monotonic() + self._greeting_timeout):
                token = ids.get(reply.metadata.reply_to_message_id, "")
                if token and not (reply.has_error() and reply.metadata.src_node_id != tokens[token]):  # Flower itself may say that there is no reply
                    self._heard(reply, token, tokens[token])
        finally:
            with self._lock:
                for token in tokens:
                    self._greeted.pop(token, None)
                silent = [node for node in asked if self._nodes.get(node) == SILENT]
        for node in silent:
            logger.warning("tensorpull: node %d has not answered within %g s; Flower's own records go to it", node, self._greeting_timeout)

    def _heard(self, reply: Message, token: str, node: int) -> None:
        why = ""
        if reply.has_error():
            why = f"it has no tensorpull: {printable((reply.error.reason or '').strip())[-200:]}"
        else:
            try:
                if reply.metadata.src_node_id != node:
                    raise Refused(f"node {reply.metadata.src_node_id} answers for it")
                why = parse_greeting(reply.content.get(KEY), token)
                with self._lock:
                    if not why and token in self._greeted:
                        why = "it has not connected"
            except Refused as e:
                why = str(e)
        with self._lock:
            self._nodes[node] = OWN if why else SPEAKS
        if why:
            logger.warning("tensorpull: Flower's own records go to node %d: %s", node, why)

    def _take(self, session: tensorpull.Session, message: tensorpull.Message, token: str) -> bool:
        """A caller at the door: a node that tries the way, or one with an update."""
        kind, references = message.kind, message.references
        if kind == TRIES and not references:
            with self._lock:
                node = self._greeted.pop(token, None)
                if node is not None and session.peer_name:
                    self._peers.setdefault(node, session.peer_name)
            if node is not None:
                with session:
                    session.send(WELL, timeout=CONNECT, abort=self._closing)
                self._news.set()
            return node is not None
        if kind != UPDATE or not references:
            return False
        with self._lock:
            sent = self._sent.get(token)
            if sent is None or sent.busy or sent.records is not None or session.peer_name != self._peers.get(sent.node, session.peer_name):
                return False
            sent.busy = True
        records: List[ArrayRecord] = []
        try:
            left = sent.most
            for ref in references:
                records.append(self._landed(session, ref, left))
                left -= size(records[-1])
            with self._lock:
                sent.records = records
            session.send(WELL, timeout=CONNECT, abort=self._closing)
        except (tensorpull.Error, Refused, OSError) as e:
            logger.warning("tensorpull: the update of node %d is left to Flower's own records: %s", sent.node, str(e))
        finally:
            session.close()
            with self._lock:
                sent.busy = False
            self._news.set()
        return True

    def _landed(self, session: tensorpull.Session, ref: tensorpull.Reference, most: int) -> ArrayRecord:
        stop = self._closing
        while not self._pulls.acquire(timeout=0.2):
            if stop.is_set():
                raise Refused("the server ends")
        try:
            landed = Landed(self._spool)
            session.download_file(ref, landed.path, resume=False, max_bytes=min(most + MAX_HEADER_BYTES, 2**63 - 1), abort=stop)
            return from_file(landed)
        finally:
            self._pulls.release()


def _ids(reference: tensorpull.Reference) -> Tuple[str, ...]:
    """What a recipient asks for: the model, and the tree that proves it."""
    return tuple(each[:32] for each in (reference, reference._tree) if each)


def _unusable(reply: Message, why: str) -> Message:
    """The same reply as an error, for strategies to leave out."""
    logger.warning("tensorpull: the reply of node %d does not count: %s", reply.metadata.src_node_id, why)
    return make_message(metadata=reply.metadata, error=Error(UNUSABLE, f"tensorpull: the reply cannot be used: {why}"))


def _is_answer(reply: Message) -> bool:
    try:
        return reply.has_content() and bool(parse_answer(reply.content.get(KEY)))
    except Refused:
        return False
