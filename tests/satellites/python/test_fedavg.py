"""examples/python/examples/fedavg.py: four clients that dial out, one of which is killed while its update is pulled."""

from __future__ import annotations

import pathlib
import re
import signal
import subprocess
import sys

PROGRAM = pathlib.Path(__file__).resolve().parents[3] / "examples" / "python" / "examples" / "fedavg.py"


def test_a_client_dies_in_the_middle_and_the_rounds_go_on():
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    *lines, statuses = done.stdout.splitlines()
    assert statuses == str([0, 0, 0, -signal.SIGKILL])
    told = [re.fullmatch(r"(\d)  (client-\d)  (?:loss ([0-9.]+)|(the connection was lost.*, after (\d+) bytes .connection_lost.))", line) for line in lines]
    assert all(told), done.stdout
    rounds = {number: {one[2]: one for one in told if one[1] == str(number)} for number in range(1, 9)}
    for number, those in rounds.items():
        assert sorted(those) == [f"client-{n}" for n in range(1, 5 if number <= 3 else 4)], done.stdout
        assert [name for name, one in those.items() if one[4]] == (["client-4"] if number == 3 else [])
    assert 0 < int(rounds[3]["client-4"][5]) < 512 * 512 * 4, "in the middle of its update"
    losses = [float(those["client-1"][3]) for those in rounds.values()]
    assert losses == sorted(losses, reverse=True) and losses[0] > 400 and losses[3] < losses[2] / 2 and losses[-1] < 0.05, "and what the others have learned is in the model"
