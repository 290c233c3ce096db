"""A site of FedAvg whose data is at its devices: it gives them each round's model, and sends FLARE the average of what they make of it."""

import argparse
import os

import torch
from devices import Devices
from model import SHARES, Digits, Networks

import nvflare.client as flare
import tensorpull


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True, help="the digits, mnist_5k.csv")
    p.add_argument("--seed", type=int, default=1, help="that of the devices, with which they deal the digits")
    p.add_argument("--certificates", required=True, help="a folder with ca.pem, site.pem and site.key")
    p.add_argument("--listen", default="tls://127.0.0.1:0")
    p.add_argument("--port-file", required=True, help="the port is written there once the site listens")
    p.add_argument("--participants", type=int, default=10, help="clients in each round")
    p.add_argument("--line", help="the microcontroller's serial line")
    p.add_argument("--round-seconds", type=float, default=120.0, help="how long devices are waited for, in each round")
    a = p.parse_args()
    torch.set_num_threads(1)
    flare.init()
    digits, measured = Digits(a.data, a.seed), Networks()
    file = lambda name: os.path.join(a.certificates, name)  # noqa: E731
    ssl = tensorpull.TLS(ca_file=file("ca.pem"), cert_file=file("site.pem"), key_file=file("site.key"), require_client_certificates=True)
    with Devices(a.listen, ssl, a.participants, a.line, digits.training // SHARES, digits.training, say) as devices:
        with open(a.port_file + ".part", "w") as f:
            f.write(f"{devices.port}\n")
        os.replace(a.port_file + ".part", a.port_file)
        while flare.is_running():
            given = flare.receive()
            if given is None:
                break
            number, trains = given.current_round + 1, given.current_round + 1 < given.total_rounds
            model = {name: torch.as_tensor(value).contiguous() for name, value in given.params.items()}
            measured.load_state_dict(model)
            right = measured.count_right(digits)
            say(f"ACCURACY round={number} client={right['client']} board={right['board']} of {len(digits.labels)}")
            networks = {kind: {name.partition(".")[2]: t for name, t in model.items() if name.startswith(kind + ".")} for kind in ("client", "board")}
            done = devices.round(number, networks, a.round_seconds, trains)
            if trains:
                say(f"site: round {number}: {', '.join(done.counted) or 'NO DEVICE'} counted, with {done.weight:g} images; {len(done.left_out)} left out")
            share = {f"{kind}_accuracy": n / len(digits.labels) for kind, n in right.items()}
            flare.send(flare.FLModel(params=done.model, params_type="FULL", metrics=share, meta={"NUM_STEPS_CURRENT_ROUND": done.weight}))


if __name__ == "__main__":
    main()
