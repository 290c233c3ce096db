"""What the owner and the recipient here share: the schema, references, and frames through a socket."""
import pathlib
import socket
import struct

import capnp

capnp.remove_import_hook()
SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "include/tensorpull/framing/protocol.capnp"
wire = capnp.load(str(SCHEMA), imports=[str(pathlib.Path(capnp.__file__).parents[1])])  # which has capnp/c++.capnp


def parse_reference(text):
    """Three numbers of 16 hexadecimal digits each: refHigh, refLow, version."""
    if len(text) != 48:
        raise ValueError("a reference is 48 hexadecimal digits")
    return tuple(int(text[i : i + 16], 16) for i in (0, 16, 32))


class Connection:
    """One end of a connection. A longer frame than `most_bytes` is refused before memory is taken for it. A lost or silent one is an OSError."""

    def __init__(self, sock, most_bytes):
        self.socket, self.most_bytes = sock, most_bytes
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(60)

    def receive(self):
        """The next frame, for a `with`."""
        head = self._exactly(8)
        segments = struct.unpack_from("<I", head)[0] + 1
        if segments > 16:
            raise ValueError("too many segments")
        table = head + self._exactly(segments // 2 * 8)
        length = 8 * sum(struct.unpack_from(f"<{segments}I", table, 4))
        if length > self.most_bytes:
            raise ValueError("too long a frame")
        return wire.Frame.from_bytes(table + self._exactly(length), traversal_limit_in_words=self.most_bytes // 8, nesting_limit=8)

    def send(self, frame):
        self.socket.sendall(frame.to_bytes())

    def _exactly(self, length):
        data = bytearray(length)
        view = memoryview(data)
        while view:
            taken = self.socket.recv_into(view)
            if taken == 0:
                raise ConnectionError("the other end has closed")
            view = view[taken:]
        return bytes(data)
