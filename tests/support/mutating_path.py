"""What lies between an owner and its recipients and changes its replies. tests/satellites/tools/tools.py uses it, too."""

from __future__ import annotations

import select
import socket
import struct
import threading


class MutatingPath(threading.Thread):
    """Lies between recipients and an owner. `mutate(i, frame)` gives what arrives in place of the i-th frame of each connection; None: it is cut. `ask(bytes)` gives what the owner is asked in
    place of what the recipient has said."""

    def __init__(self, port, mutate=lambda i, frame: frame, ask=lambda said: said):
        super().__init__(daemon=True)
        self.to, self.mutate, self.ask = port, mutate, ask
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            try:
                down, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(down,), daemon=True).start()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def serve(self, down):
        mutate, begun, i = self.mutate, b"", 0
        try:
            with down, socket.create_connection(("127.0.0.1", self.to)) as up:
                while True:
                    for ready in select.select([down, up], [], [])[0]:
                        data = ready.recv(65536)
                        if not data:
                            return
                        if ready is down:
                            up.sendall(self.ask(data))
                            continue
                        begun += data
                        while len(begun) >= 8:  # the owner's frames have one segment: four bytes of 0, its words, and the words
                            length = 8 + 8 * struct.unpack("<II", begun[:8])[1]
                            if len(begun) < length:
                                break
                            frame, begun = mutate(i, bytearray(begun[:length])), begun[length:]
                            i += 1
                            if frame is None:
                                return
                            down.sendall(frame)
        except OSError:
            return


def is_long(frame):
    """Whether it has most of a chunk of 64 KiB."""
    return len(frame) > 60_000


class LyingPath(MutatingPath):
    """Changes a byte of each long frame. `dropped` is set once a recipient that had such a frame is gone."""

    def __init__(self, port):
        self.dropped, self._here = threading.Event(), threading.local()
        super().__init__(port, self.lie)

    def lie(self, _, frame):
        if is_long(frame):
            self._here.lied = True  # a connection has a thread
            frame[50_000] ^= 1
        return frame

    def serve(self, down):
        super().serve(down)
        if getattr(self._here, "lied", False):
            self.dropped.set()


def held_until(port, *events):
    """A way that lets no long frame through before all of these are set."""

    def hold(_, frame):
        if is_long(frame):
            for event in events:
                event.wait(60)
        return frame

    return MutatingPath(port, hold)


def flip(frame, bit):
    frame[bit // 8] ^= 1 << bit % 8
    return frame


def without_digest(i, frame):
    """A description in which `verifiable` is false: its data has nine words, which end the frame, and the flag is bit 16 of the last one."""
    return flip(frame, 8 * (len(frame) - 8) + 16) if i == 0 else frame
