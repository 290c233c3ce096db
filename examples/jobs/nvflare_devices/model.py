"""The model of the job: the two networks that its devices have, with the names and shapes that the devices give their tensors; and the digits that measure them."""

from __future__ import annotations

import csv
from typing import Dict, List, Tuple

import torch

#: Digits that no device trains with, the first of the order in which the devices deal them; and the share that microcontrollers are dealt.
HELD_OUT, MEASURED, SHARES = 1000, 400, 10


class Perceptron(torch.nn.Module):
    """`perceptron` of examples/jobs/federated, and `mlp` of examples/jobs/microcontroller."""

    def __init__(self, pixels: int, units: int) -> None:
        super().__init__()

        def uniform(*shape: int, inputs: int) -> torch.nn.Parameter:
            return torch.nn.Parameter((2 * torch.rand(*shape) - 1) / inputs**0.5)

        self.hidden_weight, self.hidden_bias = uniform(units, pixels, inputs=pixels), uniform(units, inputs=pixels)
        self.output_weight, self.output_bias = uniform(10, units, inputs=units), uniform(10, inputs=units)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        linear = torch.nn.functional.linear
        return linear(torch.relu(linear(x, self.hidden_weight, self.hidden_bias)), self.output_weight, self.output_bias)


class Networks(torch.nn.Module):
    """`client`: of the main job's C++ clients, on 28 x 28 pixels. `board`: of the microcontroller, on 14 x 14, each the mean of four."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.client, self.board = Perceptron(784, 128), Perceptron(196, 39)

    def count_right(self, digits: "Digits") -> Dict[str, int]:
        """How many of the digits that nobody trains with each network finds right."""
        with torch.no_grad():
            inputs = {"client": digits.pixels, "board": digits.pooled}
            return {name: int((getattr(self, name)(x / 255).argmax(1) == digits.labels).sum()) for name, x in inputs.items()}


class Digits:
    """The digits that measure the accuracy: `pixels`, `pooled` and `labels`. All of the job's programs hold out the same ones."""

    def __init__(self, path: str, seed: int) -> None:
        with open(path, newline="") as f:
            rows = [[int(field) for field in row] for row in csv.reader(f)]
        self.training = len(rows) - HELD_OUT
        chosen = torch.tensor([rows[i] for i in _dealt(len(rows), seed)[:MEASURED]])
        images, self.labels = chosen[:, :784], chosen[:, 784]
        self.pixels = images.float()
        self.pooled = (images.view(-1, 14, 2, 14, 2).sum((2, 4)) + 2).div(4, rounding_mode="floor").view(-1, 196).float()


_WORD = 2**64 - 1


def _splitmix(state: int) -> Tuple[int, int]:
    """The next state, and a number."""
    z = state = (state + 0x9E3779B97F4A7C15) & _WORD
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _WORD
    return state, z ^ z >> 31


def _dealt(count: int, seed: int) -> List[int]:
    """The order of `dealt_digits` (examples/jobs/federated/digits.hpp)."""
    first = _splitmix((seed + 0xD1342543DE82EF95) & _WORD)[1]
    state = _splitmix(first)[1]
    order = list(range(count))
    for i in range(count):
        biased = 2**64 % (count - i)
        while True:
            state, drawn = _splitmix(state)
            if drawn >= biased:
                break
        j = i + drawn % (count - i)
        order[i], order[j] = order[j], order[i]
    return order
