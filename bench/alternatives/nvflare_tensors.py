"""NVIDIA FLARE 2.9.0: a server's cell and a client's cell over TCP. Variants: downloader (chunks, through its tensor downloader), native
(the whole state dict in one reply, as with a download chunk size of 0)."""

import logging
import os
import socket
import sys
import time

if "native" in sys.argv:
    os.environ["NVFLARE_TENSOR_DOWNLOAD_CHUNK_SIZE"] = "0"

from nvflare.app_opt.pt.decomposers import TensorDecomposer
from nvflare.app_opt.pt.tensor_downloader import add_tensors, download_tensors
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.obj_downloader import ObjectDownloader
from nvflare.fuel.utils import fobs

import job

logging.basicConfig(level=logging.ERROR)
fobs.register(TensorDecomposer)


def open_cell(name, port):
    cell = Cell(fqcn=name, root_url=f"tcp://127.0.0.1:{port}", secure=False, credentials={})
    cell.start()
    return cell


class Sender:
    def __init__(self, options, state):
        self.options, self.state = options, state
        with socket.create_server(("127.0.0.1", 0)) as probe:  # FLARE wants to be told its port
            self.address = str(probe.getsockname()[1])
        self.cell = open_cell("server", self.address)
        self.cell.register_request_cb(channel="bench", topic="model", cb=lambda _: make_reply(ReturnCode.OK, body=self.state))

    def publish(self, recipients):
        if self.options.variant == "native":
            return "native"
        downloader = ObjectDownloader(cell=self.cell, timeout=600.0, num_receivers=recipients)
        return add_tensors(downloader, self.state, max_chunk_size=self.options.chunk)


class Receiver:
    def __init__(self, options):
        self.cell = open_cell(options.site, options.address)
        time.sleep(1)  # until the cells know each other

    def pull(self, ref):
        if ref == "native":
            reply = self.cell.send_request(channel="bench", topic="model", target="server", request=Message(payload={}), timeout=600.0)
            if reply.get_header(MessageHeaderKey.RETURN_CODE) != ReturnCode.OK:
                raise RuntimeError(str(reply.headers))
            return reply.payload, time.monotonic()
        first = []

        def received(tensors):
            if "t000000" in tensors:
                first.append(time.monotonic())
            return tensors

        problem, state = download_tensors(from_fqcn="server", ref_id=ref, per_request_timeout=600.0, cell=self.cell, tensors_received_cb=received)
        if problem:
            raise RuntimeError(problem)
        return state, first[0]


job.run(Sender, Receiver)
