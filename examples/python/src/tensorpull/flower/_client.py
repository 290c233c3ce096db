"""A node's end: the mod that pulls a message's models before the app has it, and has its update pulled by the server."""

from __future__ import annotations

import functools
import os
import secrets
import shutil
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import flwr.clientapp

import tensorpull

from .._peers import vouched
from ._arrays import as_tensors, from_file, from_memory, size
from ._offer import KEY, QUERY, TRIES, UPDATE, WELL, Doors, Offer, Refused, Trust, answer, greeting, parse_hello, parse_offer, uses
from ._seam import UNUSABLE, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict, logger
from ._spool import Kept, hold

#: Seconds in which a server that is there answers.
CONNECT = 10.0
#: Tries again in a row, of a model or of a connection: about 4 s without anybody.
RETRIES = 4
#: Seconds without a byte after which an update is given up, and goes by Flower's records.
IDLE = 600.0
#: The last model, in the folder that the node's configuration names.
LAST = "last.safetensors"

#: What a model is pulled by: a signed reference is proved.
AnyReference = Union[str, tensorpull.SignedReference]
App = Callable[[Message, Context], Message]


class _Site:
    """What this node's own configuration allows (`flower-supernode --node-config`): the server does not decide it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        def text(name: str) -> Optional[str]:
            return str(config[name]) if config.get(name) else None

        hosts = frozenset(host.strip().lower() for host in (text("tensorpull-hosts") or "").split(",") if host.strip())
        self.trust = Trust(hosts, config.get("tensorpull-without-tls") is True)
        self.folder = text("tensorpull-folder")
        self.keys, self.federation = text("tensorpull-keys"), text("tensorpull-federation")
        for name in ("keys", "federation"):  # which somebody has meant to be something
            if f"tensorpull-{name}" in config and getattr(self, name) is None:
                raise Refused(f"tensorpull-{name} is empty")
        if self.federation is not None and self.keys is None:
            raise Refused("tensorpull-federation has no meaning without tensorpull-keys")
        self._files = {name: text(f"tensorpull-{name.replace('_', '-')}") for name in ("ca_file", "cert_file", "key_file")}

    def ssl(self, address: str) -> Optional[tensorpull.TLS]:
        if not address.startswith("tls://"):
            return None
        return tensorpull.TLS(**{name: file for name, file in self._files.items() if file})  # type: ignore[arg-type]


def mod(message: Message, context: Context, call_next: App) -> Message:
    """For `flwr.clientapp.ClientApp(mods=[...])`, as the first of them. The app also has to answer the query whether it is there, which `ClientApp` of this package does by itself:
    `app.query("tensorpull")(lambda message, context: None)`, which the mod answers before it is called."""
    if message.metadata.message_type == QUERY:
        return _greet(message, context)
    said = message.content.get(KEY) if message.has_content() else None
    offer, why = None, "the model cannot be had"
    try:
        site = _Site(context.node_config)
        if site.keys is not None:
            why = "no signed model can be had"  # and the server does not send it again, unsigned
            _refuse_unsigned(message)
        if isinstance(said, ConfigRecord) and "is" in said:
            offer = parse_offer(said, site.trust)
            message.content = _pull(message.content, offer, _to_pull(offer, site, context), site)
    except (Refused, tensorpull.Error, MemoryError) as e:
        logger.warning("tensorpull: message %s: %s: %s", message.metadata.message_id[:8], why, str(e))
        return Message(Error(UNUSABLE, f"tensorpull: {why}: {e}"), reply_to=message)
    if offer is None:
        return call_next(message, context)
    reply = call_next(message, context)
    if reply.has_content():
        reply.content = _have_pulled(reply.content, offer, site)
    return reply


class ClientApp(flwr.clientapp.ClientApp):
    """Flower's, with this package's mod around all of its own."""

    def __call__(self, message: Message, context: Context) -> Message:
        return mod(message, context, super().__call__)


def _greet(message: Message, context: Context) -> Message:
    """Tries the way to the server's doors, as a transfer would take it."""
    said = message.content.get(KEY) if message.has_content() else None
    token = said.get("token") if isinstance(said, ConfigRecord) else None
    why = ""
    try:
        site = _Site(context.node_config)
        doors = parse_hello(said, site.trust)
        with _session(doors, site) as session:
            session.send(TRIES, doors.token.encode(), timeout=CONNECT)
            _hear_well(session)
        _knock(doors, site)
    except (Refused, tensorpull.Error) as e:
        why = str(e)
        logger.warning("tensorpull: models go by Flower's own records to this node: %s", str(e))
    return Message(RecordDict({KEY: greeting(token if isinstance(token, str) and len(token) == 32 else "0" * 32, why)}), reply_to=message)


def _session(doors: Doors, site: _Site) -> tensorpull.Session:
    return tensorpull.Session(doors.updates, timeout=CONNECT, retries=1, ssl=site.ssl(doors.updates))


def _hear_well(session: tensorpull.Session) -> None:
    heard = session.receive(CONNECT)
    if heard is None or heard.kind != WELL:
        raise Refused("the server does not answer at the door for updates")


def _knock(doors: Doors, site: _Site) -> None:
    """Asks for what cannot be there, at the door for models."""
    try:
        tensorpull.list_tensors(doors.models, secrets.token_hex(16), ssl=site.ssl(doors.models), retries=1, timeout=CONNECT)
    except tensorpull.Error as e:
        if e.code != "unknown_reference":
            raise


def _refuse_unsigned(message: Message) -> None:
    for key, record in message.content.items() if message.has_content() else ():
        if isinstance(record, ArrayRecord) and record:
            raise Refused(f"{key!r} is a record of Flower's own")


def _to_pull(offer: Offer, site: _Site, context: Context) -> Sequence[AnyReference]:
    """The references that are pulled: with keys, only those that one of them has signed for this run, and in no earlier round than the node has had."""
    if site.keys is None:
        return offer.references
    if offer.keys and not offer.signed:
        raise Refused("it is not signed")
    rounds = context.state.setdefault(KEY, ConfigRecord())  # by run, as the state may be that of several
    run, least = str(context.run_id), rounds.get(str(context.run_id), 0)
    known = [
        vouched(text, ref, site.keys, site.federation, note, least)
        for text, ref, note in zip(offer.signed, offer.references, uses(context.run_id, offer.keys))
    ]  # fmt: skip
    if len({one.round for one in known}) > 1:
        raise Refused("its records are of several rounds")
    rounds[run] = max([least, *(one.round for one in known)])
    return known


def _pull(content: RecordDict, offer: Offer, to_pull: Sequence[AnyReference], site: _Site) -> RecordDict:
    """The content as it was before its records became references."""
    if set(content) - {KEY} != set(offer.order) - set(offer.keys):
        raise Refused("its order is not that of its records")
    found: Dict[str, ArrayRecord] = {}
    pulled: Dict[str, Callable[[], ArrayRecord]] = {}
    for key, ref, one in zip(offer.keys, offer.references, to_pull):
        if ref not in pulled:
            pulled[ref] = (_kept(one, offer, site) if not pulled else None) or _in_memory(one, offer, site)
        found[key] = pulled[ref]()
    return RecordDict({key: found[key] if key in found else content[key] for key in offer.order})


def _in_memory(ref: AnyReference, offer: Offer, site: _Site) -> Callable[[], ArrayRecord]:
    got = tensorpull.download_tensors(offer.doors.models, ref, recipient=offer.doors.token, ssl=site.ssl(offer.doors.models), retries=RETRIES)
    return functools.partial(from_memory, got)


def _kept(ref: AnyReference, offer: Offer, site: _Site) -> Optional[Callable[[], ArrayRecord]]:
    """Pulls it into the node's folder. If it is there since the last message, a byte is pulled. None: the folder cannot be used."""
    if site.folder is None:
        return None
    held, why = hold(site.folder), "it is no folder of this user, or another node has it"
    if held is not None:
        path = os.path.join(site.folder, LAST)
        try:
            room = shutil.disk_usage(site.folder).free // 2  # a server does not fill the disk
            tensorpull.download_file(
                offer.doors.models, ref, path, overwrite=True, max_bytes=room, recipient=offer.doors.token, ssl=site.ssl(offer.doors.models), retries=RETRIES
            )  # fmt: skip
            return functools.partial(from_file, Kept(path))
        except (tensorpull.Error, OSError) as e:
            if isinstance(e, tensorpull.Error) and e.code not in ("io", "disk_full", "too_large"):
                raise
            why = str(e)
        finally:
            os.close(held)
    logger.warning("tensorpull: the model is not kept in %s: %s", site.folder, why)
    return None


def _have_pulled(content: RecordDict, offer: Offer, site: _Site) -> RecordDict:
    """The answer with references in place of its records, once the server has them. The same, if that cannot be: then Flower sends them."""
    records: Dict[str, Tuple[Dict[str, Any], Dict[str, str]]] = {}
    for key, record in content.items():
        if isinstance(record, ArrayRecord) and size(record) >= offer.least and KEY not in content:
            try:
                records[key] = as_tensors(record)
            except Refused as e:
                logger.info("tensorpull: %s goes by Flower's own record: %s", key, str(e))
    if not records:
        return content
    try:
        with _session(offer.doors, site) as session:
            refs: List[tensorpull.Reference] = [
                session.add_tensors(tensors, recipients=1, metadata=metadata, recipient_idle_timeout=IDLE, transaction_idle_timeout=IDLE)
                for tensors, metadata in records.values()
            ]
            session.send(UPDATE, offer.doors.token.encode(), refs, timeout=CONNECT)
            session.serve(until=refs)
            _hear_well(session)  # so that the reply never is there before the update
    except (Refused, tensorpull.Error, MemoryError) as e:
        logger.warning("tensorpull: the update goes by Flower's own records: %s", str(e))
        return content
    made = RecordDict({key: record for key, record in content.items() if key not in records})
    made[KEY] = answer(offer.doors.token, list(records), list(content))
    return made
