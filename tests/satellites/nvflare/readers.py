"""Components of a server that need values: a filter that computes with each tensor, an aggregator that reads each update twice, one that has a sum of its own, and a function that weighs."""

import numpy as np
import torch

from nvflare.apis.dxo import from_shareable
from nvflare.apis.filter import Filter
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from nvflare.app_common.aggregators.weighted_aggregation_helper import WeightedAggregationHelper


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


class Noting(WeightedAggregationHelper):
    """FLARE's sum with something more, and with another argument, as users have it: it notes what it has added."""

    def __init__(self):
        super().__init__()
        self.noted = []

    def add(self, data, weight, contributor_name, contribution_round, *, note):
        super().add(data, weight, contributor_name, contribution_round)
        self.noted.append((contributor_name, note))


class OwnHelper(ModelAggregator):
    def reset_stats(self):
        self.helper = Noting()

    def accept_model(self, model):
        self.helper.add(model.params, 1.0, model.meta["client_name"], model.current_round, note=len(model.params))

    def aggregate_model(self):
        self.info(f"OwnHelper: {sorted(self.helper.noted)}")
        return FLModel(params_type=ParamsType.FULL, params=self.helper.get_result())


class Nearest:
    """Krum's score, and the mean of the `keep` updates that have the least."""

    def __init__(self, keep=1):
        self.keep = keep

    def __call__(self, seen):
        squares = np.diag(seen.products)
        apart = np.sort(squares[:, None] + squares[None, :] - 2 * seen.products, axis=1)
        scores = apart[:, : len(squares) - 1].sum(axis=1)
        return np.where(np.argsort(np.argsort(scores)) < self.keep, seen.weights, 0.0)
