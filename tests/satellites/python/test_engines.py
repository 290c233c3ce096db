"""The door of vLLM's weight transfer, between stand-ins that have its public classes and functions with their signatures, as of vLLM 0.33."""

from __future__ import annotations

import abc
import importlib
import pathlib
import sys
import types
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import pytest
from processes import JoinedThread

import tensorpull

torch = pytest.importorskip("torch")
EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples/python/examples"


class InitInfo(abc.ABC):
    pass


class UpdateInfo(abc.ABC):
    pass


@dataclass
class TrainerInitInfo:
    backend: ClassVar[str]
    rank: int = field(kw_only=True)

    @property
    def is_sender(self):
        return self.rank == 0


A, B = TypeVar("A"), TypeVar("B")


class WorkerEngine(abc.ABC, Generic[A, B]):
    def __init__(self, config, vllm_config, device, model):
        self.config, self.vllm_config, self.device, self.model = config, vllm_config, device, model
        self.model_config = vllm_config.model_config

    def update_weights(self, update_info):
        self.receive_weights(self.update_info_cls(**update_info))

    @abc.abstractmethod
    def init_transfer_engine(self, init_info): ...
    @abc.abstractmethod
    def start_weight_update(self): ...
    @abc.abstractmethod
    def finish_weight_update(self): ...
    @abc.abstractmethod
    def receive_weights(self, update_info): ...
    @abc.abstractmethod
    def shutdown(self): ...


class TrainerEngine(abc.ABC, Generic[A]):
    def __init__(self, *, client, source=None, is_sender=True, rank=0):
        self.client, self.source, self.is_sender, self.rank = client, source, is_sender, rank

    @classmethod
    @abc.abstractmethod
    def trainer_init(cls, init_info, *, client, source=None): ...
    @abc.abstractmethod
    def send_weights(self): ...


class Factory:
    registry: dict[str, Any] = {}

    @classmethod
    def register_engine(cls, name, module_path_or_cls, class_name=None):
        cls.registry[name] = module_path_or_cls


@pytest.fixture
def door(monkeypatch):
    """The example, beside a vLLM of these; and what its reloading was asked to do."""
    reloads = []
    workers, trainers = (type(name, (Factory,), {"registry": {}}) for name in ("WeightTransferEngineFactory", "WeightTransferTrainerFactory"))
    of = {
        "vllm.distributed.weight_transfer.base": dict(
            TrainerInitInfo=TrainerInitInfo, TrainerWeightTransferEngine=TrainerEngine, WeightTransferEngine=WorkerEngine, WeightTransferInitInfo=InitInfo, WeightTransferUpdateInfo=UpdateInfo
        ),
        "vllm.distributed.weight_transfer.factory": {each.__name__: each for each in (workers, trainers)},
        "vllm.model_executor.model_loader.reload": dict(
            initialize_layerwise_reload=lambda model: reloads.append("begun"), finalize_layerwise_reload=lambda model, model_config: reloads.append("done")
        ),
    }
    for path, names in of.items():
        parts = path.split(".")
        for n in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:n]), sys.modules.get(".".join(parts[:n])) or types.ModuleType(".".join(parts[:n])))
        sys.modules[path].__dict__.update(names)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "vllm_weights", raising=False)
    made = importlib.import_module("vllm_weights")
    made.register()
    yield made, workers.registry["tensorpull"], trainers.registry["tensorpull"], reloads
    sys.modules.pop("vllm_weights", None)


class Source:
    def __init__(self, module):
        self._module = module

    def iter_full(self):
        yield from self._module.named_parameters()


class Model(torch.nn.Sequential):
    """What an engine loads into: by name, one after the other."""

    def __init__(self):
        super().__init__(torch.nn.Linear(40, 30), torch.nn.Linear(30, 7))
        self.loaded = []

    def load_weights(self, weights):
        mine = dict(self.named_parameters())
        for name, tensor in weights:
            mine[name].data.copy_(tensor)
            self.loaded.append(name)


class Client:
    """The four calls of a control plane, to all workers."""

    def __init__(self, workers):
        self.workers = workers

    def _all(self, call):
        errors = []

        def run(worker):
            try:
                call(worker)
            except BaseException as e:  # noqa: B902: raised by the caller
                errors.append(e)

        threads = [JoinedThread(target=run, args=(worker,), daemon=True) for worker in self.workers]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        if errors:
            raise errors[0]

    def init_weight_transfer_engine(self, init_info):
        self._all(lambda worker: worker.init_transfer_engine(worker.init_info_cls(**init_info)))

    def start_weight_update(self):
        self._all(lambda worker: worker.start_weight_update())

    def update_weights(self, update_info):
        self._all(lambda worker: worker.update_weights(update_info))

    def finish_weight_update(self, weight_version=None):
        self._all(lambda worker: worker.finish_weight_update())


def made_of(door, workers=2, **how):
    example, worker, trainer, reloads = door
    config = types.SimpleNamespace(model_config=None, parallel_config=None)
    engines = [worker(types.SimpleNamespace(backend="tensorpull"), config, torch.device("cpu"), Model()) for _ in range(workers)]
    module = Model()
    sender = trainer.trainer_init(example.TrainerInit(workers=workers, rank=0, **how), client=Client(engines), source=Source(module))
    return module, engines, sender, reloads


@pytest.mark.parametrize("dtype", ["", "F64"])
def test_each_round_all_workers_have_the_trainers_weights(door, dtype):
    module, engines, sender, reloads = made_of(door, dtype=dtype)
    for round in range(3):
        with torch.no_grad():
            for p in module.parameters():
                p += round
        sender.send_weights()
        for each in engines:
            assert all(torch.equal(a, b) for a, b in zip(each.model.parameters(), module.parameters(), strict=True))
            assert len(each.model.loaded) == 4 * (round + 1)
    assert reloads.count("begun") == reloads.count("done") == 6
    sender.shutdown()
    for each in engines:
        each.shutdown()


def test_a_worker_that_fails_fails_the_round(door):
    module, engines, sender, reloads = made_of(door)

    def breaks(weights):
        next(iter(weights))
        raise KeyError("no such weight")

    engines[1].model.load_weights = breaks
    with pytest.raises(KeyError):
        sender.send_weights()
    assert "done" not in reloads
    del engines[1].model.load_weights
    sender.send_weights()
    assert all(torch.equal(a, b) for each in engines for a, b in zip(each.model.parameters(), module.parameters(), strict=True))
    sender.shutdown()


def test_weights_that_change_meanwhile_are_told(door):
    module, engines, sender, reloads = made_of(door, workers=1)
    published = sender._owner.add_tensors

    def publish(weights, **how):
        ref = published(weights, **how)
        module[1].weight.data.add_(1)  # against the rule, before a byte is asked for
        return ref

    sender._owner.add_tensors = publish
    with pytest.raises(tensorpull.Error) as e:
        sender.send_weights()
    assert e.value.code == "digest_mismatch" and "done" not in reloads
    sender.shutdown()


def test_ranks_that_do_not_send_only_gather(door):
    example, _, trainer, _ = door
    asked = []

    class Gathered(Source):
        def iter_full(self):
            asked.append(1)
            yield from super().iter_full()

    other = trainer.trainer_init(example.TrainerInit(rank=1), client=None, source=Gathered(Model()))
    other.send_weights()
    other.shutdown()
    assert asked == [1]
    with pytest.raises(ValueError):
        trainer.trainer_init(example.TrainerInit(rank=0), client=None)
