"""Weights of a trainer for vLLM's workers: a weight transfer engine for each side, of vLLM 0.33.

    register()                                                       # in each process, before vLLM makes its workers
    llm = LLM(..., weight_transfer_config={"backend": "tensorpull"})

    trainer = WeightTransferTrainerFactory.trainer_init(TrainerInit("10.0.0.1:0", workers=8, rank=rank), client=client, source=ModuleSource(model))
    trainer.send_weights()                                           # in each round

Each round is one publication: a worker pulls all of it, loads each tensor as it arrives, and fails if the digest of the whole is another one. vLLM's own control plane tells the workers where it is.
`TrainerInit.dtype="BF16"` converts floating tensors as they are taken. The owner's tensors must not change before `send_weights` returns. Nothing is encrypted: anyone who can connect and has a reference can pull.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Optional

from vllm.distributed.weight_transfer.base import TrainerInitInfo, TrainerWeightTransferEngine, WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory

import tensorpull

BACKEND = "tensorpull"


@dataclass
class Init(WeightTransferInitInfo):
    """What a worker is told once."""

    dtype: str = ""
    memory: int = 256 << 20


@dataclass
class Update(WeightTransferUpdateInfo):
    """What a worker is told in each round: where the weights are, and their digest, which is a part of the reference."""

    address: str
    ref: str


class Worker(WeightTransferEngine[Init, Update]):
    init_info_cls, update_info_cls = Init, Update

    def init_transfer_engine(self, init_info: Init) -> None:
        self._how = init_info

    def start_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: Update) -> None:
        # an error, that of the digest at the end among them, leaves the round unfinished: what was loaded is not to be used
        with tensorpull.stream(update_info.address, update_info.ref, framework="torch", dtype=self._how.dtype or None, memory=self._how.memory) as weights:
            self.model.load_weights((name, tensor.to(self.device)) for name, tensor in weights)
            for _ in weights:  # what the model did not ask for is pulled, too: the digest is that of all
                pass

    def finish_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        pass


@dataclass
class TrainerInit(TrainerInitInfo):
    """`listen` is an address that the workers reach; they are `workers` together, which all have to confirm a round."""

    backend: ClassVar[str] = BACKEND
    listen: str = "127.0.0.1:0"
    workers: int = 1
    dtype: str = ""
    memory: int = 256 << 20


class Trainer(TrainerWeightTransferEngine[TrainerInit]):
    init_info_cls = TrainerInit
    _owner: Optional[tensorpull.Downloader] = None
    _workers = 1

    @classmethod
    def trainer_init(cls, init_info: TrainerInit, *, client: Any, source: Any = None) -> "Trainer":
        if source is None:
            raise ValueError("weights come from a WeightSource")
        made = cls(client=client, source=source, is_sender=init_info.is_sender, rank=init_info.rank)
        if made.is_sender:
            made._owner, made._workers = tensorpull.Downloader(init_info.listen).start(), init_info.workers
            client.init_weight_transfer_engine({"dtype": init_info.dtype, "memory": init_info.memory})
        return made

    def send_weights(self) -> None:
        weights = {name: tensor.detach() for name, tensor in self.source.iter_full()}  # on every rank: a sharded tensor is gathered by all
        if self._owner is None:
            return
        ref = self._owner.add_tensors(weights, recipients=self._workers)
        try:
            self.client.start_weight_update()
            self.client.update_weights({"address": self._owner.address, "ref": str(ref)})
            if not self._owner.wait(ref, timeout=60) or self._owner.outcome(ref).verdict != "completed":
                raise RuntimeError(f"not every worker has confirmed these weights: {self._owner.outcome(ref)}")
            self.client.finish_weight_update()
        finally:
            self._owner.withdraw(ref)

    def shutdown(self) -> None:
        if self._owner is not None:
            self._owner.close()


def register() -> None:
    """Makes both engines known to vLLM under the name "tensorpull"."""
    WeightTransferEngineFactory.register_engine(BACKEND, Worker)
    WeightTransferTrainerFactory.register_engine(BACKEND, Trainer)
