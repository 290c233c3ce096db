"""The devices of examples/jobs/nvflare_devices, without FLARE: which of their updates are in a round's average."""

from __future__ import annotations

import os
import pathlib
import sys
import time

import numpy as np
import pytest
import processes

torch = pytest.importorskip("torch")
FIGURES = 5  # examples/jobs/federated/network.hpp
ROOT = str(pathlib.Path(__file__).resolve().parents[4])


@pytest.fixture(scope="module")
def parts():
    """`devices` of the example, and `misbehaving` of tests/satellites/nvflare."""
    sys.path[:0] = folders = [os.path.join(ROOT, "examples", "jobs", "nvflare_devices"), os.path.join(ROOT, "tests", "satellites", "nvflare")]
    try:
        import devices
        import misbehaving

        yield devices, misbehaving
    finally:
        for folder in folders:
            sys.path.remove(folder)


class Site:
    """With the connection of a process of clients, which says when all of a round's clients have gone."""

    def __init__(self, devices, tensorpull):
        self.said, self.ended = [], True
        self.devices = devices.Devices("127.0.0.1:0", None, 1, say=self.said.append)
        self.address = f"127.0.0.1:{self.devices.port}"
        self.model = {"client": {"hidden_weight": torch.ones(5, 3), "hidden_bias": torch.zeros(5)}, "board": {"w": torch.ones(2)}}
        self.clients = tensorpull.Session(self.address)
        self.clients.send(FIGURES)
        assert processes.eventually(lambda: self.devices._control)  # or another process could be the first

    def round(self, number):
        """Begins it. A function that ends it, and says what has come of it; `late`: the time is over before that."""
        got = []
        thread = processes.JoinedThread(target=lambda: got.append(self.devices.round(number, self.model, 600)))
        thread.start()
        if not self.ended:  # the clients still have connections of the round before
            assert self.clients.receive(0.3) is None
            self.clients.send(FIGURES)
        self.ended = False
        assert self.clients.receive(60).body == bytes([number, 0, 0, 0, 1, 0, 0, 0])

        def result(late=False):
            if late:
                with self.devices._changed:
                    self.devices._end = time.monotonic()
                    self.devices._changed.notify_all()
            else:
                self.clients.send(FIGURES)
                self.ended = True
            thread.join()
            return got[0]

        return result


@pytest.fixture
def site(parts):
    made = Site(parts[0], parts[1].tensorpull)
    with made.devices:
        yield made


def filled(model, value):
    return {name: np.full_like(t, value) for name, t in model.items()}


def test_updates_are_averaged_by_images_and_a_client_counts_once(site, parts):
    result = site.round(1)
    for client, value, images in ((1, 2, 100), (2, 6, 300), (2, 100, 300)):
        one = parts[1].Client(site.address, None, 1, client)
        one.serves(one.says(filled(one.model, value), images))
    got = result()
    assert got.counted == ["client 1", "client 2"] and got.weight == 400, site.said
    assert torch.equal(got.model["client.hidden_weight"], torch.full((5, 3), 5.0)) and torch.equal(got.model["client.hidden_bias"], torch.full((5,), 5.0))
    assert torch.equal(got.model["board.w"], site.model["board"]["w"])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_update_that_is_not_finite_is_left_out_by_name(site, parts, value):
    result = site.round(1)
    for client in (1, 2):
        one = parts[1].Client(site.address, None, 1, client)
        one.serves(one.says(filled(one.model, value if client == 1 else 2)))
    got = result()
    assert got.counted == ["client 2"] and list(got.left_out) == ["client 1"], (got.left_out, site.said)
    assert torch.equal(got.model["client.hidden_weight"], torch.full((5, 3), 2.0))


def test_a_device_that_is_too_slow_is_left_out_and_comes_in_the_next_round(site, parts):
    result = site.round(1)
    slow = parts[1].Client(site.address, None, 1, 1)
    late = parts[1].Client(site.address, None, 1, 2)
    late.says(filled(late.model, 3))  # and does not serve
    got = result(late=True)
    assert got.counted == [] and set(got.left_out) == {"client 1", "client 2"}, site.said
    assert all("in time" in why for why in got.left_out.values()), got.left_out
    for one in (slow, late):
        one.session.close()
    result = site.round(2)
    with pytest.raises(parts[1].tensorpull.Error):
        parts[1].Client(site.address, None, 1, 1)  # that round is over
    one = parts[1].Client(site.address, None, 2, 1)
    one.serves(one.says(filled(one.model, 3)))
    got = result()
    assert got.counted == ["client 1"] and torch.equal(got.model["client.hidden_bias"], torch.full((5,), 3.0))


def test_a_second_process_of_clients_is_turned_away(site, parts):
    with parts[1].tensorpull.Session(site.address) as second:
        second.send(FIGURES)
        with pytest.raises(parts[1].tensorpull.Error):
            second.receive(60)
    assert site.round(1)().counted == []
