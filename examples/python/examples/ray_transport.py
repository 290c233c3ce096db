"""A tensor transport for Ray: an actor's tensors stay where they are, and the actor that is given the reference pulls them.

    register()                                                        # in the driver, before the actors are made
    @ray.remote(enable_tensor_transport=True)
    class Trainer:
        @ray.method(tensor_transport="TENSORPULL")
        def weights(self): return self.model.state_dict()

    ray.get(other.load.remote(trainer.weights.remote()))              # goes from actor to actor

`python ray_transport.py` moves 40 MB between two actors of this machine, and prints whether the sums agree. The owner listens on TENSORPULL_LISTEN, "127.0.0.1:0" if that is not
set; between machines say an address that the others reach. Nothing is encrypted: anyone who can connect and has a reference can pull.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Optional

import ray
import torch
from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata, register_tensor_transport

import tensorpull


@dataclass
class Offer(TensorTransportMetadata):
    """What travels through Ray: where the tensors are, and the digest that they have."""

    address: str = ""
    ref: str = ""
    version: int = 0


class TensorpullTransport(TensorTransportManager):
    """One owner in each process that has given tensors away; its thread ends with the process."""

    _owner: Optional[tensorpull.Downloader] = None

    def tensor_transport_backend(self) -> str:
        return "TENSORPULL"

    @staticmethod
    def is_one_sided() -> bool:
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        return True

    @classmethod
    def owner(cls) -> tensorpull.Downloader:
        if cls._owner is None:
            cls._owner = tensorpull.Downloader(os.environ.get("TENSORPULL_LISTEN", "127.0.0.1:0"), max_references=10_000).start(daemon=True)
        return cls._owner

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[torch.Tensor]) -> Offer:
        # named by their places; not settled by a number of recipients, but withdrawn when Ray has no use for them any more
        ref = self.owner().add_tensors({f"{i:06}": t for i, t in enumerate(rdt_object)}, transaction_idle_timeout=None)
        return Offer(tensor_meta=[(t.shape, t.dtype) for t in rdt_object], tensor_device="cpu", address=self.owner().address, ref=str(ref), version=ref.version)

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: Any = None) -> CommunicatorMetadata:
        return CommunicatorMetadata()

    def recv_multiple_tensors(self, obj_id: str, meta: Offer, communicator_metadata: Any, target_buffers: Any = None) -> list[torch.Tensor]:
        out = target_buffers or [torch.empty(shape, dtype=dtype) for shape, dtype in meta.tensor_meta]
        tensorpull.download_tensors(meta.address, meta.ref, version=meta.version, out={f"{i:06}": t for i, t in enumerate(out)})
        return out

    def send_multiple_tensors(self, *arguments: Any) -> None:
        raise NotImplementedError("recipients pull")

    def garbage_collect(self, obj_id: str, meta: Offer, tensors: Any) -> None:
        self.owner().withdraw(meta.ref)

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        """A recipient that has failed has said so to the owner itself."""


def register() -> None:
    register_tensor_transport("TENSORPULL", ["cpu"], TensorpullTransport, torch.Tensor)


def main() -> None:
    register()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)

    @ray.remote(enable_tensor_transport=True, num_cpus=0.1)
    class Actor:
        def __init__(self) -> None:
            self.state = {f"layer{i}": torch.randn(1 << 18) for i in range(40)}

        @ray.method(tensor_transport="TENSORPULL")
        def weights(self) -> dict[str, torch.Tensor]:
            return self.state

        def total(self) -> float:
            return float(sum(tensor.double().sum() for tensor in self.state.values()))

        def total_of(self, state: dict[str, torch.Tensor]) -> float:
            return float(sum(tensor.double().sum() for tensor in state.values()))

    one, other = Actor.remote(), Actor.remote()
    sent, got = ray.get(one.total.remote()), ray.get(other.total_of.remote(one.weights.remote()))
    print("the sums agree" if sent == got else f"the sums differ: {sent} and {got}")
    ray.shutdown()


if __name__ == "__main__":
    main()
