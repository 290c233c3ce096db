"""An owner that has nothing of tensorpull but its schema: pycapnp, sockets and XXH3.
usage: owner.py FILE RECIPIENTS: serves a safetensors file until so many recipients have it. Prints first its port on 127.0.0.1 and the reference.
Each connection has a thread."""
import queue
import secrets
import socket
import sys
import threading

import capnp
import xxhash
from frames import Connection, wire
from safetensors_file import File

CHUNK_CAP, LONGEST_REQUEST = 1 << 20, 4096
ANSWERS = ("nothing", "chunk", "end", "confirmed", "refused", "description", "schemaPage", "located", "piece", "taken")


class Serve:
    """One connection. Nothing of a request is believed: each answer is made of what this owner has."""

    def __init__(self, sock, file, completed):
        self.peer, self.file, self.completed = Connection(sock, LONGEST_REQUEST), file, completed
        self.nonce, self.at_end = secrets.randbits(64) | 1, False  # at_end: the last byte was sent

    def run(self):
        while True:
            with self.peer.receive() as asked:
                self.answer(asked)

    def answer(self, asked):
        try:
            kind = asked.which()
        except capnp.KjException:  # of a newer schema
            return self.peer.send(wire.Frame.new_message(id=asked.id, refused={"status": "unsupported"}))
        if kind in ANSWERS:
            raise ValueError("an answer that nobody asked for")
        if kind == "application":
            return  # messages are for programs that expect some
        request = asked._get(kind)  # `schema` as an attribute is pycapnp's own
        if kind == "cancel":
            self.at_end = False
        elif (request.refHigh, request.refLow) != (self.file.high, self.file.low):
            self.refuse(asked, request, "unknownReference")
        elif kind in ("describe", "pull", "confirm"):
            getattr(self, kind)(asked, request)
        else:
            self.refuse(asked, request, "unsupported")

    def describe(self, asked, _):
        size, tensors = len(self.file.image), len(self.file.tensors)
        self.reply(asked, "description", fingerprint=self.file.fingerprint, imageBytes=size, dataStart=self.file.header_bytes, nonce=self.nonce,
                   chunkCap=CHUNK_CAP, tensors=tensors, window=8, verifiable=True)  # fmt: skip

    def pull(self, asked, p):
        size = len(self.file.image)
        if p.version not in (0, self.file.version):
            return self.refuse(asked, p, "stale")
        if p.fingerprint not in (0, self.file.fingerprint):
            return self.refuse(asked, p, "schemaMismatch")
        if p.offset > size:
            return self.refuse(asked, p, "outOfRange")
        if p.offset == size:
            return self.reply(asked, "end", imageBytes=size, nonce=self.nonce)
        if p.length == 0:
            return self.refuse(asked, p, "badRequest")
        if p.digestKind > 1:
            return self.refuse(asked, p, "unsupported")
        payload = self.file.image[p.offset : p.offset + min(p.length, CHUNK_CAP)]
        digest = xxhash.xxh3_64_intdigest(payload) if p.digestKind == 1 else 0
        self.reply(asked, "chunk", len(payload) // 8 + 16, offset=p.offset, nonce=self.nonce, digest=digest, payload=payload)
        self.at_end = self.at_end or p.offset + len(payload) == size

    def confirm(self, asked, c):
        if c.nonce != self.nonce or not self.at_end:
            return self.refuse(asked, c, "badRequest")
        wrong = c.verified and c.digest != self.file.version
        self.reply(asked, "confirmed", nonce=self.nonce, status="digestMismatch" if wrong else "ok")
        if not wrong:
            self.completed.put(c.recipient or self.nonce)

    def refuse(self, asked, request, why):
        about = {"refHigh": request.refHigh, "refLow": request.refLow, "version": 0 if why == "unknownReference" else self.file.version}
        self.peer.send(wire.Frame.new_message(id=asked.id, refused={"status": why, **about}))

    def reply(self, asked, kind, words=64, **fields):
        """`words`: room for all in the first segment."""
        about = {"refHigh": self.file.high, "refLow": self.file.low, "version": self.file.version}
        self.peer.send(wire.Frame.new_message(num_first_segment_words=words, id=asked.id, **{kind: {**about, **fields}}))


def serve(sock, file, completed, room):
    try:
        with sock:
            Serve(sock, file, completed).run()
    except (OSError, ValueError, capnp.KjException):
        pass  # it is over, or what came is no frame
    finally:
        room.release()


def accept(listener, file, completed):
    room = threading.Semaphore(64)
    while room.acquire():
        sock, _ = listener.accept()
        threading.Thread(target=serve, args=(sock, file, completed, room), daemon=True).start()


def main():
    file, completed, recipients = File(sys.argv[1]), queue.Queue(), set()
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(listener.getsockname()[1], f"{file.high:016x}{file.low:016x}{file.version:016x}", flush=True)
    threading.Thread(target=accept, args=(listener, file, completed), daemon=True).start()
    while len(recipients) < int(sys.argv[2]):
        recipients.add(completed.get())


if __name__ == "__main__":
    main()
