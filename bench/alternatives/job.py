"""The job of job/job.hpp for Python programs: the same options, models, pattern and lines on standard input and output."""

import argparse
import json
import os
import resource
import sys
import time


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["send", "receive"])
    parser.add_argument("--address")
    parser.add_argument("--model", default="uniform", choices=["uniform", "mixed", "perceptron"])
    parser.add_argument("--variant", default="")
    parser.add_argument("--site", default="site-1")
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--tensors", type=int, default=16)
    parser.add_argument("--chunk", type=int, default=2 << 20)
    parser.add_argument("--recipients", type=int, default=1)
    return parser.parse_args()


def tensor_sizes(shape, total, tensors):
    if shape == "perceptron":
        return [4 * 784 * 128, 4 * 128, 4 * 128 * 10, 4 * 10]
    if shape == "uniform":
        return [total // tensors // 4 * 4] * tensors
    weights = [0.25 ** (i % 8) for i in range(tensors)]
    return [4 * (1 + int(total * w / sum(weights) / 4)) for w in weights]


def make_state_dict(job):
    import numpy as np
    import torch

    state = {}
    for i, size in enumerate(tensor_sizes(job.model, job.bytes, job.tensors)):
        words = np.arange(size // 4, dtype=np.uint32)
        words *= np.uint32(2654435761)
        words += np.uint32((i * 40503 + 1) & 0xFFFFFFFF)
        state[f"t{i:06}"] = torch.from_numpy(words.view(np.float32))
    return state


def has_pattern(job, state):
    import numpy as np

    expected = make_state_dict(job)
    return list(sorted(state)) == list(expected) and all(
        np.array_equal(state[name].numpy().view(np.uint32), expected[name].numpy().view(np.uint32)) for name in expected
    )


def run(sender, receiver):
    """`sender(job, state)` serves once it is made: `address`, and `publish(recipients)`, whose text the next pull is given.
    `receiver(job)`: `pull(text)` gives the state dict, and the time at which the first tensor was there."""
    out = os.fdopen(os.dup(1), "w")  # what libraries print goes elsewhere
    os.dup2(2, 1)

    def say(line):
        print(line, file=out, flush=True)

    job = options()
    if job.role == "send":
        here = sender(job, make_state_dict(job))
        say(f"ready {here.address}")
    else:
        here, state = receiver(job), None
        say("ready")
    for line in sys.stdin:
        word, _, text = line.strip().partition(" ")
        answer = {}
        if word == "publish":
            answer["address"] = here.publish(int(text or job.recipients))
        elif word == "go":
            state = None
            start = time.monotonic()
            state, first = here.pull(text)
            answer["seconds"] = time.monotonic() - start
            answer["first"] = first - start
        elif word == "clear":
            state = None
        elif word == "check":
            answer["good"] = state is not None and has_pattern(job, state)
        else:
            used = resource.getrusage(resource.RUSAGE_SELF)
            answer = {"cpu": used.ru_utime + used.ru_stime, "allocations": None}
        say("done " + json.dumps(answer))
    os._exit(0)
