"""A site of FedAvg: trains on its share of the digits. Nothing here knows how models travel."""

import os

import torch
from model import Digits, accuracy, digits

import nvflare.client as flare


def main() -> None:
    torch.set_num_threads(1)
    flare.init()
    number, sites = int(flare.get_site_name().rpartition("-")[2]) - 1, int(os.environ["SITES"])
    x, y = digits()
    x, y, test = x[:4000][number::sites], y[:4000][number::sites], (x[4000:], y[4000:])
    model = Digits(int(os.environ["WIDTH"]))
    steps = int(os.environ["STEPS"])
    while flare.is_running():
        given = flare.receive()
        if given is None:
            break
        model.load_state_dict({name: torch.as_tensor(value) for name, value in given.params.items()})
        before = accuracy(model, *test)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(steps):
            i = torch.arange(step * 50, step * 50 + 50) % len(x)
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(model(x[i]), y[i]).backward()
            optimizer.step()
        print(f"ACCURACY round={given.current_round} {before:.4f}", flush=True)
        flare.send(flare.FLModel(params=model.state_dict(), params_type="FULL", metrics={"accuracy": before}, meta={"NUM_STEPS_CURRENT_ROUND": steps}))


if __name__ == "__main__":
    main()
