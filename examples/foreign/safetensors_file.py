"""The file that the owner here serves, and its fingerprint."""
import json
import secrets
import struct

import xxhash

DTYPES = "BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64".split()


class File:
    """A file as `safetensors.save` writes it, which is an image."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.image = file.read()
        self.header_bytes = 8 + int.from_bytes(self.image[:8], "little")
        self.tensors = json.loads(self.image[8 : self.header_bytes])
        self.tensors.pop("__metadata__", None)
        fingerprint = xxhash.xxh3_64()
        for name, tensor in self.tensors.items():
            text, shape = name.encode(), tensor["shape"]
            fingerprint.update(struct.pack("<I", len(text)) + text)
            fingerprint.update(struct.pack(f"<BH{len(shape)}Q", DTYPES.index(tensor["dtype"]), len(shape), *shape))
        self.fingerprint = fingerprint.intdigest()
        self.high, self.low = secrets.randbits(64), secrets.randbits(64)
        self.version = xxhash.xxh3_64_intdigest(self.image)
