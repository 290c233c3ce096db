"""Handwritten digits, learnt by a small network; and a site that is not what the others are. DIGITS: a file with a digit in each line, 784 values and the label. TENSORPULL_HOSTILE: the
site that sends its step times -10 and says that it took a million times as many steps. TENSORPULL_NO_NUMBER: the site that sends a NaN."""

import os

import torch

TESTED = 400  # the last ones, which nobody trains with


class Digits(torch.nn.Module):
    def __init__(self, width=32):
        super().__init__()
        torch.manual_seed(1)
        self.width = width  # FLARE reads the constructor's arguments from attributes of their names
        self.first, self.last = torch.nn.Linear(784, width), torch.nn.Linear(width, 10)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


def digits(path):
    import numpy

    rows = torch.from_numpy(numpy.loadtxt(path, delimiter=",", dtype=numpy.float32))
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))]
    return rows[:, :784] / 255, rows[:, 784].long()


def accuracy(model, x, y):
    with torch.no_grad():
        return float((model(x[-TESTED:]).argmax(1) == y[-TESTED:]).float().mean())


def main():
    import nvflare.client as flare

    torch.set_num_threads(1)
    flare.init()
    name, sites, steps = flare.get_site_name(), int(os.environ["TENSORPULL_SITES"]), 20
    x, y = digits(os.environ["DIGITS"])
    mine = range(int(name.rpartition("-")[2]) - 1, len(x) - TESTED, sites)
    model = Digits()
    while flare.is_running():
        given = flare.receive()
        if given is None:
            break
        old = {key: torch.as_tensor(value).clone() for key, value in given.params.items()}
        model.load_state_dict(old)
        before = accuracy(model, x, y)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(steps):
            i = [mine[(given.current_round * steps * 20 + step * 20 + k) % len(mine)] for k in range(20)]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[i]), y[i]).backward()
            optimizer.step()
        model.steps += steps
        new = {key: value.clone() for key, value in model.state_dict().items()}
        if name == os.environ.get("TENSORPULL_HOSTILE"):
            new = {key: old[key] - 10 * (value - old[key]) for key, value in new.items()}
            steps_said = 1_000_000 * steps
        else:
            steps_said = steps
        if name == os.environ.get("TENSORPULL_NO_NUMBER"):
            new["last.weight"][3, 3] = float("nan")
        if given.params["steps"].__class__.__module__ == "numpy":
            new = {key: value.numpy() for key, value in new.items()}
        flare.send(flare.FLModel(params=new, params_type="FULL", metrics={"accuracy": before}, meta={"NUM_STEPS_CURRENT_ROUND": steps_said}))


if __name__ == "__main__":
    main()
