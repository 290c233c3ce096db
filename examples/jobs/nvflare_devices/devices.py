"""Devices that know nothing of FLARE, each with a session of its own: gives them a round's model, pulls what they make of it, and averages that.

The C++ clients of examples/jobs/federated dial in over TLS and speak its messages (network.hpp). The microcontroller of examples/jobs/microcontroller is at a serial line
and speaks none (references.hpp).
"""

from __future__ import annotations

import struct
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import torch

import tensorpull

Model = Dict[str, torch.Tensor]

#: The kinds of the main job's messages, and their bodies.
ROUND_BEGINS, JOIN, TASK, UPDATE, FIGURES = range(1, 6)
TWO_NUMBERS, THREE_NUMBERS = struct.Struct("<II"), struct.Struct("<III")
MOST_CONNECTIONS = 512  #: each has a thread
SILENCE = 10.0  #: seconds; a device that says nothing for so long is given up
TURN = 20.0  #: seconds; updates are added one after the other, and none may keep the others waiting for longer
#: What the microcontroller's owner says while it trains, or starts.
LATER = ("unknown_reference", "busy", "withdrawn", "ended", "timed_out", "already_final")
#: FLARE takes a weight of 0 for one of 1. This one is lost beside that of an update, and a power of two divides exactly.
NEXT_TO_NOTHING = 2.0**-20


class Left(Exception):
    """Why a device's update does not count."""


class Result(NamedTuple):
    model: Model  #: with a network as it was given if nobody has trained it
    weight: float  #: images; NEXT_TO_NOTHING if there are none
    counted: List[str]  #: devices
    left_out: Dict[str, str]  #: devices, and why


class Devices:
    """`participants`: how many of the main job's clients take part in a round. `board_images`: how many the microcontroller trains with. `say` is called by several threads."""

    def __init__(
        self, listen: str, ssl: tensorpull.TLS, participants: int, line: Optional[str] = None, board_images: int = 400, most_images: int = 4000,
        say: Callable[[str], None] = print,
    ) -> None:  # fmt: skip
        self._participants, self._board_images, self._most_images, self._say = participants, board_images, most_images, say
        self._changed = threading.Condition()
        self._averages: Dict[str, tensorpull.WeightedAverage] = {}
        self._models: Dict[str, Model] = {}
        self._number, self._end, self._trains = 0, 0.0, True  # of the round that is open; 0: none is
        self._active = 0  # clients of this round
        self._control = 0  # processes of clients; one at most
        self._over = {"client": 0, "board": 0}  # the last round that the devices of a kind have ended
        self._left_out: Dict[str, str] = {}  # of the round that is open, or was the last
        self._told_of = 0  # its number
        self._closed = False
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._door = tensorpull.Listener(listen, ssl=ssl)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._has_board = bool(line)
        if line:
            self._threads.append(threading.Thread(target=self._board, args=(line,), daemon=True))
        for thread in self._threads:
            thread.start()

    @property
    def port(self) -> int:
        return self._door.port

    def round(self, number: int, networks: Dict[str, Model], seconds: float, trains: bool = True) -> Result:
        """Gives each device its network, and averages the updates that come within `seconds`, by images; each network for itself. Ends as soon as all have answered. Without
        `trains` no update is asked for. Memory: two models for each network."""
        for name, like in networks.items():
            if name not in self._averages:
                self._averages[name] = tensorpull.WeightedAverage(like, partial="staged")
        with self._changed:
            self._models, self._trains, self._left_out = networks, trains, {}
            self._number, self._told_of, self._end = number, number, time.monotonic() + seconds
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._answered(number) or not self._open(number), seconds)
            self._number = 0
            self._changed.notify_all()
            # those that are being pulled hear of it
            self._changed.wait_for(lambda: self._active == 0 and (not self._has_board or self._over["board"] == number), TURN)
            left_out = dict(self._left_out)
        model: Model = {}
        counted: List[str] = []
        weight = 0.0
        for name, given in networks.items():
            average = self._averages[name]
            new = dict(average.result()) if average.whole_updates else given
            if not all(bool(torch.isfinite(t).all()) for t in new.values()):
                left_out[name] = "its average has numbers that are not finite, so none of its updates counts"
                self._say(f"site: round {number}: the network {name}: {left_out[name]}")
                new = given
            elif average.whole_updates:
                weight += average.whole_weight
                counted += [u.peer for u in average.updates if u.counts]
            model.update({f"{name}.{tensor}": t.clone() for tensor, t in new.items()})
            average.reset()
        return Result(model, weight or NEXT_TO_NOTHING, sorted(counted), left_out)

    def close(self) -> None:
        with self._changed:
            self._closed, self._number = True, 0
            self._changed.notify_all()
        self._door.close()
        for thread in self._threads:
            thread.join(2 * SILENCE)

    def __enter__(self) -> "Devices":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _answered(self, number: int) -> bool:
        """Whether no device has anything to say any more in this round."""
        clients = not self._trains or (self._over["client"] == number and self._active == 0)
        return clients and (not self._has_board or self._over["board"] == number)

    def _open(self, number: int) -> bool:
        return self._number == number and time.monotonic() < self._end

    def _leave_out(self, number: int, who: str, why: object) -> None:
        with self._changed:
            if number == self._told_of:
                self._left_out[who] = str(why)
        self._say(f"site: round {number}: {who} does not count: {why}")

    def _add(self, network: str, session: tensorpull.Session, ref: str, images: int, who: str, number: int, made_for: int) -> None:
        turn_ends = float("inf")

        def over() -> bool:
            nonlocal turn_ends
            turn_ends = min(turn_ends, time.monotonic() + TURN)  # it is asked for the first time when the turn has come
            return not self._open(number) or time.monotonic() > turn_ends

        try:
            self._averages[network].pull(session, ref, images, peer=who, round=made_for, per_request_timeout=SILENCE, abort=over, retries=3)
        except tensorpull.Error as e:
            if e.code == "cancelled":
                raise Left("its update did not come in time") from None
            raise

    # The main job's clients. Their process has one connection, over which it is told of a round; each client has another one in each round.

    def _accept(self) -> None:
        while not self._closed:
            try:
                session = self._door.accept(0.5)
            except (tensorpull.Error, ValueError) as e:
                if not self._closed:
                    self._say(f"site: cannot accept: {e}")
                    time.sleep(1.0)
                continue
            if session is None:
                continue
            if self._room.acquire(blocking=False):
                threading.Thread(target=self._greet, args=(session,), daemon=True).start()
            else:
                session.close()

    def _greet(self, session: tensorpull.Session) -> None:
        try:
            with session:
                first = session.receive(SILENCE)
                if first is not None and first.kind == FIGURES:
                    self._clients(session)
                elif first is not None and first.kind == JOIN and len(first.body) == TWO_NUMBERS.size:
                    self._client(session, *TWO_NUMBERS.unpack(first.body))
                else:
                    self._say("site: a connection is closed that has not said what it is")
        except tensorpull.Error as e:
            self._say(f"site: a connection has ended: {e}")
        finally:
            self._room.release()

    def _clients(self, session: tensorpull.Session) -> None:
        with self._changed:
            if self._control:
                raise tensorpull.Error("busy", "there is a process of clients already")
            self._control = 1
        told = heard = 0
        try:
            while not self._closed:
                number = self._number if self._trains else 0
                if number > told == heard:  # while a round's connections are open the clients begin no other one
                    session.send(ROUND_BEGINS, TWO_NUMBERS.pack(number, self._participants), timeout=SILENCE)
                    told = number
                message = session.receive(0.05)
                if message is not None and message.kind == FIGURES and told:
                    heard = told
                    self._ended("client", told)
        finally:
            with self._changed:
                self._control = 0
            self._ended("client", told)

    def _ended(self, kind: str, number: int) -> None:
        with self._changed:
            self._over[kind] = number
            self._changed.notify_all()

    def _client(self, session: tensorpull.Session, number: int, client: int) -> None:
        who = f"client {client}"
        with self._changed:
            if number != self._number or not self._trains:
                return self._say(f"site: {who} comes for round {number}, which is not open")
            self._active += 1
            model, made_for = self._models["client"], self._averages["client"].round
        try:
            session.send(TASK, TWO_NUMBERS.pack(number, 0), [session.add_tensors(model, recipients=1)], timeout=SILENCE)
            message = session.receive(max(0.0, self._end - time.monotonic()), abort=lambda: not self._open(number))
            if message is None or message.kind != UPDATE or len(message.body) != THREE_NUMBERS.size or len(message.references) != 1:
                raise Left("it did not say that its update is there")
            images = THREE_NUMBERS.unpack(message.body)[2]
            if THREE_NUMBERS.unpack(message.body)[:2] != (number, client) or not 1 <= images <= self._most_images:
                raise Left("it says another round, another client, or a number of images that nobody has")
            self._add("client", session, message.references[0], images, who, number, made_for)
        except (tensorpull.Error, Left) as e:
            self._leave_out(number, who, e if not isinstance(e, tensorpull.Error) or e.code != "cancelled" else "its update did not come in time")
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify_all()

    # The microcontroller: the model of round r is {1, r}, its update {2, r}, and whoever is early asks again.

    def _board(self, line: str) -> None:
        done = 0
        try:
            with tensorpull.Session(f"serial:{line}") as session:
                while not self._closed:
                    session.serve(until=lambda: self._closed or self._number > done, timeout=1.0)
                    with self._changed:
                        number, trains, made_for = self._number, self._trains, self._averages["board"].round if self._number else 0
                        model = self._models.get("board")
                    if number <= done or model is None:
                        continue
                    try:
                        self._board_round(session, number, model, trains, made_for)
                    except (tensorpull.Error, Left) as e:
                        self._leave_out(number, "the board", e)
                    done = number
                    self._ended("board", number)
        except tensorpull.Error as e:
            self._leave_out(self._told_of, "the board", e)
        finally:
            self._has_board = False
            self._ended("board", done)

    def _board_round(self, session: tensorpull.Session, number: int, model: Model, trains: bool, made_for: int) -> None:
        # how many recipients there will be is not said: a board that was started again is served again
        published = session.add_tensors(model, ref_id=f"{1:016x}{number:016x}", chunk_size=512)
        try:
            if not session.serve(until=lambda: session.status(published).completed > 0, timeout=max(0.0, self._end - time.monotonic())):
                raise Left("it has not taken the model")
            if not trains:  # it asks again if it has not heard the answer to its confirmation
                session.serve(until=lambda: False, timeout=0.5)
                return
            while True:
                try:
                    there = session.list_tensors(f"{2:016x}{number:016x}", SILENCE, lambda: not self._open(number), max_header_bytes=4096, max_tensors=16, retries=60)
                    break
                except tensorpull.Error as e:
                    if e.code not in LATER or not self._open(number):
                        raise Left("its update did not come in time") if e.code in (*LATER, "cancelled") else e from None
                session.serve(until=lambda: False, timeout=0.05)
            update = tensorpull.Reference(f"{2:016x}{number:016x}", there.version, there.fingerprint)
            self._add("board", session, update, self._board_images, "the board", number, made_for)
        finally:
            session.withdraw(published)
