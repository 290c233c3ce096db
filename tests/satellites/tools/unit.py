"""The unit of systemd for send: systemd-analyze finds nothing wrong with it, and the program takes its command line.

usage: unit.py SYSTEMD_ANALYZE UNIT SEND
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "support"))
import processes  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent))
from tools import noise, safetensors

analyze, unit, send = map(os.path.abspath, sys.argv[1:])
text = Path(unit).read_text()
with tempfile.TemporaryDirectory() as folder:
    # verify looks for the program of ExecStart
    assert "/usr/local/bin/send " in text
    copy = Path(folder, Path(unit).name)
    copy.write_text(text.replace("/usr/local/bin/send ", send + " "))
    done = processes.run([analyze, "verify", "--man=no", str(copy)], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if copy.name in line]
    assert not said, said
    if done.returncode != 0:
        print("systemd-analyze cannot verify here:", done.stderr)
    # the command with the file of settings that the unit's own comment shows
    settings = dict(re.findall(r"^#   (\w+)=(\S+)$", text, re.M))
    assert settings.keys() == {"MODEL", "REF", "LISTEN", "HTTP"}, settings
    model = Path(folder, "model.safetensors")
    model.write_bytes(safetensors([("w", "U8", [1000], noise(1000))]))
    settings.update(MODEL=str(model), LISTEN="127.0.0.1:0", HTTP="127.0.0.1:0")
    line = re.search(r"^ExecStart=\S+ (.*)$", text, re.M)[1]
    words = [re.sub(r"\$\{(\w+)\}", lambda m: settings[m[1]], word) for word in line.split()]
    with processes.Program([send, *words], stdout=subprocess.PIPE, text=True) as sender:
        published = json.loads(sender.stdout.readline())
        assert published["ref"].startswith(settings["REF"]), published
        with urllib.request.urlopen(published["url"].partition("/v1/")[0] + "/healthz", timeout=20) as answer:
            assert answer.status == 200 and answer.read() == b"ok\n"
        processes.be_slow(0.1)
        sender.terminate()
        sender.communicate(timeout=30)
        accepted = {0, *map(int, re.search(r"^SuccessExitStatus=(.*)$", text, re.M)[1].split())}
        assert sender.returncode in accepted, sender.returncode
