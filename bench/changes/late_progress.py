"""How far a MiniLM that has learned for some rounds gets in further ones at a small rate, if what travels is narrowed: as a share of what it gets as with FP32.

Accuracy alone does not show what a narrow format loses; the loss on what is learned does. The task and the model are those of fine_tune.py. Both ways are narrowed: the
model to the clients, and each client's update. The arithmetic is that of blocks_of_8_bits<256> and blocks_of_4_bits<256>, written with torch. In 4 bits each client adds
to its next update what its last one left out, as error_feedback does.
"""

import argparse
import os

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from fine_tune import PACKAGES, docstrings, encoded, logits, mean, trained

BLOCK = 256


def moved(base, to, most):
    """`base` after a step towards `to` whose codes are of -most to most: what both ends have then."""
    if not base.is_floating_point():
        return to
    difference = (to.double() - base.double()).flatten()
    padded = F.pad(difference, (0, -len(difference) % BLOCK)).view(-1, BLOCK)
    scale = (padded.abs().amax(1, keepdim=True) / most).float().double()
    codes = torch.where(scale > 0, padded / scale, 0).round().clamp(-most, most)
    return (base.double().flatten() + (scale * codes).flatten()[: len(difference)]).view(base.shape).float()


def sent(way, to, base):
    if way == "FP32":
        return to
    if way == "weights in BF16":
        return {name: t.bfloat16().float() if t.is_floating_point() else t for name, t in to.items()}
    return {name: moved(base[name], t, 127 if way == "differences in 8 bits" else 7) for name, t in to.items()}


def rounds(way, model, data, clients, numbers, texts, rate, seed):
    """FedAvg; what the clients hold at the end is held by nobody else, so the server's model is returned."""
    held, left_out, count = model, [None] * clients, len(data[2])
    for number in numbers:
        held = sent(way, model, held)
        updates = []
        for c in range(clients):
            share = torch.arange(c, count, clients)
            order = share[torch.randperm(len(share), generator=torch.Generator().manual_seed(1000 * seed + 10 * number + c))][:texts].to(data[2].device)
            mine = trained(held, data, order, 16, rate=rate)
            if way == "differences in 4 bits":
                whole = {n: t + left_out[c][n] if left_out[c] else t for n, t in mine.items()}
                got = sent(way, whole, held)
                left_out[c] = {n: t - got[n] for n, t in whole.items()}
            else:
                got = sent(way, mine, held)
            updates.append(got)
        model = mean(held, updates)
    return model


def loss(model, data):
    ids, mask, labels = data
    with torch.no_grad():
        parts = zip(ids.split(256), mask.split(256), labels.split(256))
        return sum(F.cross_entropy(logits(model, i, m), at, reduction="sum").double().item() for i, m, at in parts) / len(labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a folder with model.safetensors and tokenizer.json")
    parser.add_argument("--data", required=True, help="the docstrings as tokens; made if it is not there, so that a machine without the packages can have it")
    parser.add_argument("--only-data", action="store_true", help="makes that and trains nothing")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--early", type=int, default=4, help="rounds in FP32 with a rate of 5e-5")
    parser.add_argument("--late", type=int, default=8, help="rounds each way with the small rate")
    parser.add_argument("--rate", type=float, default=1e-6)
    parser.add_argument("--texts", type=int, default=256, help="that each client learns in a round")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    options = parser.parse_args()
    torch.use_deterministic_algorithms(True, warn_only=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if not os.path.exists(options.data):
        tokenizer = Tokenizer.from_file(os.path.join(options.model, "tokenizer.json"))
        ids, mask, labels = encoded(tokenizer, docstrings(800, 1)[512:])
        save_file({"ids": ids.int(), "mask": mask.to(torch.uint8), "labels": labels.int()}, options.data)
    if options.only_data:
        return
    tensors = load_file(options.data)
    data = tuple(tensors[name].long().to(device) for name in ("ids", "mask", "labels"))
    start = {n: t.float().to(device) if t.is_floating_point() else t.to(device)
             for n, t in load_file(os.path.join(options.model, "model.safetensors")).items() if not n.startswith("pooler.")}
    width = start["embeddings.word_embeddings.weight"].shape[1]
    start |= {"classifier.weight": torch.zeros(len(PACKAGES), width, device=device), "classifier.bias": torch.zeros(len(PACKAGES), device=device)}
    print(f"{len(data[2])} docstrings on {device}", flush=True)
    for seed in options.seeds:
        late = range(options.early, options.early + options.late)
        learned = rounds("FP32", start, data, options.clients, range(options.early), options.texts, 5e-5, seed)
        before = loss(learned, data)
        gains = {way: before - loss(rounds(way, learned, data, options.clients, late, options.texts, options.rate, seed), data)
                 for way in ("FP32", "differences in 8 bits", "differences in 4 bits", "weights in BF16")}
        shares = ", ".join(f"{way} {gain / gains['FP32']:.4f}" for way, gain in gains.items() if way != "FP32")
        print(f"seed {seed}: loss {before:.5f}, with FP32 {before - gains['FP32']:.5f}; of that progress {shares}", flush=True)


if __name__ == "__main__":
    main()
