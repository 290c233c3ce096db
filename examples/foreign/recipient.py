"""A recipient that has nothing of tensorpull but its schema: pycapnp, a socket and XXH3.
usage: recipient.py HOST PORT REFERENCE FILE: pulls what REFERENCE names, which is a safetensors file"""
import os
import secrets
import socket
import sys
import time

import xxhash
from frames import Connection, parse_reference, wire

MOST_PAYLOAD = 2 << 20


class Recipient:
    def __init__(self, sock, reference):
        self.owner = Connection(sock, MOST_PAYLOAD + 4096)
        self.high, self.low, self.version = reference
        self.number = secrets.randbits(64) | 1
        self.id = 0

    def ask(self, kind, expected, **fields):
        """One request, and the answer to it. A busy owner is asked again after the time that it names."""
        while True:
            self.id += 1
            self.owner.send(wire.Frame.new_message(id=self.id, **{kind: {"refHigh": self.high, "refLow": self.low, **fields}}))
            with self.owner.receive() as frame:
                if frame.id != self.id:
                    raise RuntimeError("an answer to something else")
                if frame.which() == expected:
                    return getattr(frame.as_builder(), expected)  # of a copy, which outlives the frame
                if frame.which() != "refused":
                    raise RuntimeError("an answer of another kind")
                if frame.refused.status != "busy":
                    raise RuntimeError(f"refused: {frame.refused.status}")
                delay = frame.refused.delayMs
            time.sleep(min(delay, 1000) / 1000)

    def pull_to(self, path):
        """Writes the file, and raises unless it has the published bytes."""
        what = self.ask("describe", "description", recipient=self.number)
        if self.version not in (0, what.version):
            raise RuntimeError("another version is published")
        if not what.verifiable:
            raise RuntimeError("the owner has no digest")
        digest, at = xxhash.xxh3_64(), 0
        with open(path + ".part", "wb") as file:
            while at < what.imageBytes:
                length = min(MOST_PAYLOAD, what.chunkCap, what.imageBytes - at)
                chunk = self.ask("pull", "chunk", version=what.version, offset=at, length=length)
                if (chunk.version, chunk.nonce, chunk.offset, len(chunk.payload)) != (what.version, what.nonce, at, length) or length == 0:
                    raise RuntimeError("not the bytes that were asked for")
                digest.update(chunk.payload)
                file.write(chunk.payload)
                at += length
        about = {"version": what.version, "nonce": what.nonce, "recipient": self.number}
        if digest.intdigest() != what.version:
            cancel = {"refHigh": self.high, "refLow": self.low, "status": "digestMismatch", **about}
            self.owner.send(wire.Frame.new_message(cancel=cancel))  # not answered
            raise RuntimeError("the bytes are damaged")
        os.replace(path + ".part", path)  # the owner hears of it when the file is there
        confirmed = self.ask("confirm", "confirmed", digest=digest.intdigest(), verified=True, **about)
        if confirmed.status != "ok":
            raise RuntimeError("the owner does not confirm")
        print(f"completed: {at} bytes, digest {digest.hexdigest()}")


def main():
    host, port, reference, path = sys.argv[1:]
    try:
        with socket.create_connection((host, int(port)), timeout=60) as sock:
            Recipient(sock, parse_reference(reference)).pull_to(path)
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
