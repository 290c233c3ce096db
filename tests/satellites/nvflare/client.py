"""Training whose result can be told beforehand: every parameter grows by a thousandth of the site's number. TENSORPULL_FROZEN: those whose names begin
with that stay as they are, and the site says that it took as many steps as its number."""

import os
import time

import nvflare.client as flare


def wait_for_the_others(round_, number):
    """All updates come at the same time: the most that a server has to hold. TENSORPULL_BARRIER: a folder, and how many sites."""
    folder, _, sites = os.environ.get("TENSORPULL_BARRIER", "").rpartition(":")
    if folder:
        open(os.path.join(folder, f"barrier-{round_}-{number}"), "w").close()
        end = time.monotonic() + 300
        while not all(os.path.exists(os.path.join(folder, f"barrier-{round_}-{i + 1}")) for i in range(int(sites))):
            assert time.monotonic() < end, f"round {round_}: another site has not come"
            time.sleep(0.005)  # noqa: this program is FLARE's, and has no tests/support


def main():
    flare.init()
    frozen = os.environ.get("TENSORPULL_FROZEN", "")
    number = int(flare.get_site_name().rpartition("-")[2])
    while flare.is_running():
        model = flare.receive()
        if model is None:
            break
        grown = {name: value if frozen and name.startswith(frozen) else value + 1e-3 * number for name, value in model.params.items()}
        wait_for_the_others(model.current_round, number)
        flare.send(flare.FLModel(params=grown, params_type="FULL", metrics={"accuracy": 0.5}, meta={"NUM_STEPS_CURRENT_ROUND": number if frozen else 1}))


if __name__ == "__main__":
    main()
