#!/usr/bin/env python3
"""send --put s3://... against moto, an object store that others wrote and that checks signatures.

    stores.py SEND

A relay between the two counts the bytes that are sent, and kills the sender in the middle.
"""

import hashlib
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading

import boto3
import botocore.exceptions
from moto.server import ThreadedMotoServer

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "support"))
import processes  # noqa: E402

SEND = os.path.abspath(sys.argv[1])
MIB = 1 << 20
PART = 16 * MIB


class Relay:
    """TCP to a port; `count` bytes have gone there, and `seen(count)` is called as they go."""

    def __init__(self, port):
        self.port, self.count, self.seen = port, 0, lambda count: None
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            here = self.listener.accept()[0]
            there = socket.create_connection(("127.0.0.1", self.port))
            threading.Thread(target=self.copy, args=(here, there, True), daemon=True).start()
            threading.Thread(target=self.copy, args=(there, here, False), daemon=True).start()

    def copy(self, source, to, counts):
        try:
            while some := source.recv(1 << 16):
                to.sendall(some)
                if counts:
                    with self.lock:
                        self.count += len(some)
                    self.seen(self.count)
        except OSError:
            pass
        for one in (source, to):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def model(seed, size):
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    block = hashlib.sha256(str(seed).encode()).digest()
    return struct.pack("<Q", len(header)) + header + bytes(hashlib.shake_128(block).digest(size))


def send(url, place, keys):
    environment = dict(os.environ, AWS_ENDPOINT_URL=url, AWS_ACCESS_KEY_ID=keys[0], AWS_SECRET_ACCESS_KEY=keys[1], AWS_REGION="eu-central-1")
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION"):
        environment.pop(name, None)
    return processes.Program([SEND, "model.safetensors", "--put", place, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def peak_memory(pid):
    """The most that a process has had, in bytes; 0: it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            return next((1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM:")), 0)
    except OSError:
        return 0


def ended(process):
    out, err = process.communicate()
    assert out, err
    return process.returncode, json.loads(out)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        store = ThreadedMotoServer(port=0, verbose=False)
        store.start()
        port = store.get_host_and_port()[1]
        at = f"http://127.0.0.1:{port}"
        free = dict(endpoint_url=at, region_name="eu-central-1", aws_access_key_id="any", aws_secret_access_key="any")
        iam = boto3.client("iam", **free)
        boto3.client("s3", **free).create_bucket(Bucket="models", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        iam.create_user(UserName="site")
        everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
        iam.put_user_policy(UserName="site", PolicyName="s3", PolicyDocument=json.dumps(everything))
        made = iam.create_access_key(UserName="site")["AccessKey"]
        keys = made["AccessKeyId"], made["SecretAccessKey"]
        s3 = boto3.client("s3", endpoint_url=at, region_name="eu-central-1", aws_access_key_id=keys[0], aws_secret_access_key=keys[1])
        # from now on each request needs a signature of this user
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.sendall(b"POST /moto-api/reset-auth HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nConnection: close\r\n\r\n0")
            while peer.recv(4096):
                pass

        def stored(key):
            try:
                return s3.get_object(Bucket="models", Key=key)["Body"].read()
            except botocore.exceptions.ClientError as e:
                assert e.response["Error"]["Code"] in ("NoSuchKey", "404"), e
                return None

        relay = Relay(port)
        data = model(1, 40 * MIB)
        pathlib.Path("model.safetensors").write_bytes(data)

        status, said = ended(send(relay.url, "s3://models/a key+%/model", (keys[0], "x" * 40)))
        assert status == 1 and said["code"] == "not_permitted" and "SignatureDoesNotMatch" in said["message"], said
        process, memory = send(relay.url, "s3://models/a key+%/model", keys), []
        relay.seen = lambda count: memory.append(peak_memory(process.pid))
        status, said = ended(process)
        relay.seen = lambda count: None
        assert status == 0 and said["bytes"] == said["sent_bytes"] == len(data), said
        print(f"{memory[0] // 1024} KiB of memory when it asked what is there, {max(memory) // 1024} KiB at most")
        assert 0 < max(memory) < memory[0] + PART // 2, "no part is held"
        assert stored("a key+%/model") == data

        # killed in the middle of its second part
        relay.count = 0
        process = send(relay.url, "s3://models/model", keys)
        relay.seen = lambda count: count > PART + 8 * MIB and os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL, process.returncode
        relay.seen = lambda count: None
        assert stored("model") is None, "a part of an object is none"
        upload = s3.list_multipart_uploads(Bucket="models")["Uploads"]
        assert len(upload) == 1, upload
        parts = s3.list_parts(Bucket="models", Key="model", UploadId=upload[0]["UploadId"])["Parts"]
        assert [p["Size"] for p in parts] == [PART], parts
        relay.count = 0
        status, said = ended(send(relay.url, "s3://models/model", keys))
        assert status == 0 and said["sent_bytes"] == len(data) - PART, said
        assert len(data) - PART < relay.count < len(data) - PART + 64 * 1024, relay.count
        print(f"of {len(data)} bytes the second run sent {relay.count}, heads of requests among them")
        assert stored("model") == data
        assert "Uploads" not in s3.list_multipart_uploads(Bucket="models")

        # what somebody has put there under its name is sent anew
        begun = s3.create_multipart_upload(Bucket="models", Key="other")["UploadId"]
        for number, part in ((1, data[:PART]), (2, bytes(PART)), (3, data[2 * PART:])):
            s3.upload_part(Bucket="models", Key="other", UploadId=begun, PartNumber=number, Body=part)
        status, said = ended(send(relay.url, "s3://models/other", keys))
        assert status == 0 and said["sent_bytes"] == PART and stored("other") == data, said

        for url, place, key, says in ((relay.url, "s3://models/model", "", "AWS_ACCESS_KEY_ID"), (relay.url, "s3://models", "secret", "is no object"),
                                      (relay.url, "s3://models/", "secret", "is no object"), ("ftp://host", "s3://models/model", "secret", "AWS_ENDPOINT_URL"),
                                      (relay.url + "/path", "s3://models/model", "secret", "AWS_ENDPOINT_URL")):
            process = send(url, place, (keys[0], key))
            _, err = process.communicate()
            assert process.returncode == 2 and says in err, (place, err)
        process = send(relay.url, "s3://models/interrupted", keys)
        at = relay.count
        once = iter([signal.SIGINT])  # a second one would end it without a word
        relay.seen = lambda count: count > at + PART + MIB and [process.send_signal(number) for number in once]
        status, said = ended(process)
        relay.seen = lambda count: None
        assert status == 130 and said["code"] == "cancelled" and "started again" in said["message"], said
        assert ended(send(relay.url, "s3://models/interrupted", keys))[1]["sent_bytes"] == len(data) - PART
        status, said = ended(send(relay.url, "s3://nowhere/model", keys))
        assert status == 1 and "NoSuchBucket" in said["message"], said
        store.stop()


if __name__ == "__main__":
    main()
