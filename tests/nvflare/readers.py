"""Components of a server that need values: a filter that computes with each tensor, and an aggregator that reads each update twice."""

import numpy as np
import torch

from nvflare.apis.dxo import from_shareable
from nvflare.apis.filter import Filter
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator


class Doubling(Filter):
    def process(self, shareable, fl_ctx):
        dxo = from_shareable(shareable)
        dxo.data = {name: value * 2 for name, value in dxo.data.items()}
        return dxo.update_shareable(shareable)


class ReadingTwice(ModelAggregator):
    """The mean of the halves of what Doubling leaves, of which one is read when it comes and the other in the end."""

    def reset_stats(self):
        self.sums, self.kept = {}, []

    def accept_model(self, model):
        for name, value in model.params.items():
            self.sums[name] = self.sums.get(name, 0) + np.asarray(value) / 4
        self.kept.append(model)

    def aggregate_model(self):
        for model in self.kept:
            for name, value in model.params.items():
                self.sums[name] = self.sums[name] + value.numpy() / 4
        sums, n = self.sums, len(self.kept)
        return FLModel(params_type=ParamsType.FULL, params={name: torch.as_tensor(value / n) for name, value in sums.items()})
