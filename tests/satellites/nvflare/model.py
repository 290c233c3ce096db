"""A stack of layers like those of language models: the larger, the longer a transfer takes."""

import torch


class Block(torch.nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = torch.nn.LayerNorm(d)
        self.wide = torch.nn.Linear(d, 4 * d)
        self.back = torch.nn.Linear(4 * d, d)


class Model(torch.nn.Module):
    def __init__(self, d=128, blocks=2, words=1000):
        super().__init__()
        torch.manual_seed(7)
        self.d, self.blocks, self.words = d, blocks, words  # FLARE reads the constructor's arguments from attributes of their names
        self.embedding = torch.nn.Embedding(words, d)
        self.layers = torch.nn.ModuleList([Block(d) for _ in range(blocks)])

    def forward(self, x):
        return x


SMALL = {"d": 128, "blocks": 2, "words": 1000}  # 1.6 MB
LARGE = {"d": 512, "blocks": 8, "words": 8000}  # 84 MB


def of(megabytes):
    """A model of so many megabytes, half of it in two large tensors."""
    d = 1024
    return {"d": d, "blocks": max(1, megabytes // 2 // 33), "words": megabytes * 1_000_000 // 2 // (4 * d)}
