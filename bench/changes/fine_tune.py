"""Fine-tunes a small BERT (MiniLM) in federated rounds, and keeps the models of the last round, so that bench_changes can measure what has changed.

The task is a real one that needs no network: from which of eight Python packages a docstring is. Its name is taken out of the text. The docstrings are those of the
packages that are installed beside this Python. Writes into the folder OUT, in F32 and BF16: what the last round began from (base), what one client has made of it
(client), and the mean of all clients (mean). adapters.safetensors has what a client sends instead if it trains low-rank adapters of rank 8 beside the queries and values.
Prints the share of held-out docstrings that each has right.
"""

import argparse
import ast
import glob
import math
import os
import random
import sysconfig

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

PACKAGES = ["torch", "numpy", "scipy", "sklearn", "networkx", "sympy", "sqlalchemy", "nvflare"]
HEADS, RANK, TOKENS = 12, 8, 64


def docstrings(most, seed):
    """Pairs of a text and the number of its package."""
    found = []
    for number, package in enumerate(PACKAGES):
        texts = set()
        paths = sorted(glob.glob(os.path.join(sysconfig.get_paths()["purelib"], package, "**", "*.py"), recursive=True))
        random.Random(seed).shuffle(paths)
        for path in paths:
            if len(texts) >= most:
                break
            try:
                with open(path) as source:
                    tree = ast.parse(source.read())
            except (SyntaxError, ValueError):
                continue
            for node in ast.walk(tree):
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    text = ast.get_docstring(node) or ""
                    if len(text) > 80:
                        texts.add(text[:600].lower().replace(package, "it"))
        texts = sorted(texts)
        random.Random(seed).shuffle(texts)
        found += [(text, number) for text in texts[:most]]
    random.Random(seed).shuffle(found)
    return found


def encoded(tokenizer, texts):
    """Tokens and mask of each text, and its label."""
    tokenizer.enable_truncation(TOKENS)
    tokenizer.enable_padding(length=TOKENS)
    all_of = tokenizer.encode_batch([text for text, _ in texts])
    return torch.tensor([e.ids for e in all_of]), torch.tensor([e.attention_mask for e in all_of]), torch.tensor([label for _, label in texts])


def logits(p, ids, mask, adapters=None):
    """BERT as its checkpoints name it, the mean over tokens, and a layer that classifies."""

    def dense(name, x):
        y = F.linear(x, p[name + ".weight"], p[name + ".bias"])
        if adapters and name + ".down" in adapters:
            y = y + F.linear(F.linear(x, adapters[name + ".down"]), adapters[name + ".up"])
        return y

    def normal(name, x):
        return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], 1e-12)

    x = p["embeddings.word_embeddings.weight"][ids] + p["embeddings.position_embeddings.weight"][: ids.shape[1]] + p["embeddings.token_type_embeddings.weight"][0]
    x = normal("embeddings.LayerNorm", x)
    seen = mask[:, None, None, :].bool()
    for layer in range(1 + max(int(k.split(".")[2]) for k in p if k.startswith("encoder.layer."))):
        at = f"encoder.layer.{layer}."
        q, k, v = (dense(f"{at}attention.self.{which}", x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for which in ("query", "key", "value"))
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(2)
        x = normal(at + "attention.output.LayerNorm", x + dense(at + "attention.output.dense", attended))
        x = normal(at + "output.LayerNorm", x + dense(at + "output.dense", F.gelu(dense(at + "intermediate.dense", x))))
    weights = mask[..., None].to(x.dtype)
    head = adapters if adapters else p
    return F.linear((x * weights).sum(1) / weights.sum(1), head["classifier.weight"], head["classifier.bias"])


def trained(model, data, order, batch, adapters=None, rate=5e-5):
    """What a client makes of a model, or of its adapters, in one pass over `order`."""
    begin = adapters if adapters else model
    mine = {name: t.clone().requires_grad_(t.is_floating_point()) for name, t in begin.items()}
    rate = 1e-3 if adapters else rate
    groups = [{"params": [t], "lr": 20 * rate if name.startswith("classifier") and not adapters else rate} for name, t in mine.items() if t.requires_grad]
    optimiser = torch.optim.AdamW(groups, weight_decay=0)
    ids, mask, labels = data
    for start in range(0, len(order) - batch + 1, batch):
        some = order[start : start + batch]
        loss = F.cross_entropy(logits(model, ids[some], mask[some], mine) if adapters else logits(mine, ids[some], mask[some]), labels[some])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return {name: t.detach() for name, t in mine.items()}


def mean(base, all_of):
    """The base and the mean of what was added to it: what nobody has changed keeps its bits."""
    return {name: t + sum(m[name] - t for m in all_of) / len(all_of) if t.is_floating_point() else t for name, t in base.items()}


def right(model, data, adapters=None):
    ids, mask, labels = data
    with torch.no_grad():
        guesses = [logits(model, i, m, adapters).argmax(-1) for i, m in zip(ids.split(64), mask.split(64))]
    return (torch.cat(guesses) == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a folder with model.safetensors and tokenizer.json")
    parser.add_argument("--out", required=True)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--texts", type=int, default=256, help="that each client learns in a round")
    parser.add_argument("--judge", nargs="*", metavar="FILE", help="trains nothing, and says what these models have right")
    options = parser.parse_args()
    torch.manual_seed(1)
    tokenizer = Tokenizer.from_file(os.path.join(options.model, "tokenizer.json"))
    texts = docstrings(800, 1)
    held_out = encoded(tokenizer, texts[:512])
    if options.judge is not None:
        for path in options.judge:
            print(f"{path}: {right({k: t.float() if t.is_floating_point() else t for k, t in load_file(path).items()}, held_out):.3f} right", flush=True)
        return
    data = encoded(tokenizer, texts[512:])
    count = len(data[2])
    print(f"{count} docstrings to learn, {len(held_out[2])} held out", flush=True)
    model = {k: t for k, t in load_file(os.path.join(options.model, "model.safetensors")).items() if not k.startswith("pooler.")}
    width = model["embeddings.word_embeddings.weight"].shape[1]
    head = {"classifier.weight": torch.zeros(len(PACKAGES), width), "classifier.bias": torch.zeros(len(PACKAGES))}
    adapters = dict(head)
    for name, t in model.items():
        if name.endswith((".query.weight", ".value.weight")):
            adapters[name.replace(".weight", ".down")] = torch.randn(RANK, t.shape[1]) / math.sqrt(t.shape[1])
            adapters[name.replace(".weight", ".up")] = torch.zeros(t.shape[0], RANK)
    frozen, model = model, model | head
    for number in range(1, options.rounds + 1):
        base = model
        shares = [torch.arange(c, count, options.clients) for c in range(options.clients)]
        orders = [s[torch.randperm(len(s))][: options.texts] for s in shares]
        clients = [trained(model, data, order, 16) for order in orders]
        model = mean(base, clients)
        print(f"round {number}: the mean has {right(model, held_out):.3f} right", flush=True)
        adapted = [trained(frozen, data, order, 16, adapters) for order in orders]
        adapters = mean(adapters, adapted)
        print(f"round {number}: the mean of adapters has {right(frozen, held_out, adapters):.3f} right", flush=True)
        os.makedirs(options.out, exist_ok=True)
        for name, tensors in (("base", base), ("client", clients[0]), ("mean", model)):
            save_file({k: t.contiguous() for k, t in tensors.items()}, os.path.join(options.out, f"{name}.safetensors"))
            narrow = {k: t.bfloat16().contiguous() if t.is_floating_point() else t for k, t in tensors.items()}
            save_file(narrow, os.path.join(options.out, f"{name}_bf16.safetensors"))
        save_file(adapters, os.path.join(options.out, "adapters.safetensors"))


if __name__ == "__main__":
    main()
