"""The example with a microcontroller, with a wire between device and server that this program has in its hands.

Usage: microcontroller.py FOLDER DIGITS.csv CASE; FOLDER has server, clients and firmware. TENSORPULL_POWER_CUTS: how many (20). TENSORPULL_LINE_SEEDS: a twentieth of
them are lines with noise, three transfers at each of three rates (at least one). TENSORPULL_MCU_SEED: of the faults (1).
"""
import os
import pty
import random
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import tty
from pathlib import Path

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402

BUILT, DATA = (Path(a).resolve() for a in sys.argv[1:3])
SEED = int(os.environ.get("TENSORPULL_MCU_SEED", 1))
HEADER_BYTES = 304  # of the model's image
CHUNK_BYTES = 512
LONGEST_BOOT = 300  # seconds; a device that is left alone takes 30 for six rounds


def frames(datagram):
    """The frames of a datagram of the layout that our encoders write."""
    while len(datagram) >= 80:
        n = 8 + 8 * int.from_bytes(datagram[4:8], "little")
        yield datagram[:n]
        datagram = datagram[n:]


def uncobs(frame):
    """The datagram without its CRC32C, which is not checked: this wire knows what it has changed. None: it was cut."""
    out, at = bytearray(), 0
    while at < len(frame):
        code = frame[at]
        if code == 0 or at + code > len(frame):
            return None
        out += frame[at + 1:at + code]
        at += code
        if code < 255 and at < len(frame):
            out.append(0)
    return bytes(out[:-4]) if len(out) > 84 - 1 and len(out) % 8 == 4 else None


class Requests:
    """Which bytes of models the device has asked for, since it was started and in all."""

    def __init__(self):
        self.rest = b""
        self.log = []  # of (ref, version, offset, length), and None where the device was started

    def saw(self, data):
        *whole, self.rest = (self.rest + data).split(b"\0")
        for one in whole:
            for f in frames(uncobs(one) or b""):
                word = lambda i: int.from_bytes(f[i:i + 8], "little")
                if f[20] == 2 and word(24) == 1:  # pull, of a model
                    entry = (word(32), word(40), word(48), word(64))
                    if not self.log or self.log[-1] != entry:
                        self.log.append(entry)

    def cut(self):
        self.rest = b""
        self.log.append(None)

    def judge(self):
        """Asserts that after each power cut at most one chunk was fetched again, and returns how often a transfer went on behind its first bytes."""
        went_on = 0
        before = {}  # the newest request of each version that was not for what is needed to be told again
        newest, first = None, False
        for entry in self.log:
            if entry is None:
                first = True
                continue
            round_, version, offset, length = entry
            if first and newest is not None and newest[:2] == entry[:2] and newest[2] >= HEADER_BYTES:
                # everything before the newest request had landed
                data_again = max(0, newest[2] - HEADER_BYTES) if offset < HEADER_BYTES else newest[2] - offset
                assert data_again <= CHUNK_BYTES, ("fetched again", data_again, newest, entry)
                went_on += offset > HEADER_BYTES
            first = False
            newest = entry
        return went_on


class Counted:
    """Bytes on the line in both directions, of pulls of updates: what is asked before one is there is not counted."""
    KINDS = (2, 3, 4, 5, 6, 10)  # pull, chunk, end, confirm, confirmed, description

    def __init__(self):
        self.rest, self.updates = {}, 0

    def saw(self, way, data):
        *whole, self.rest[way] = (self.rest.get(way, b"") + data).split(b"\0")
        for one in whole:
            f = next(frames(uncobs(one) or b""), None)
            if f and f[20] in self.KINDS and int.from_bytes(f[24:32], "little") == 2:
                self.updates += len(one) + 1


class Noise:
    """Loses, flips and inserts bytes, one in `one_in`."""

    def __init__(self, one_in, seed):
        self.random, self.one_in, self.left, self.faults = random.Random(seed), one_in, 0, 0
        self.left = self.pause()

    def pause(self):
        return int(self.random.expovariate(1 / self.one_in))

    def __call__(self, data):
        out, at = bytearray(), 0
        while len(data) - at > self.left:
            out += data[at:at + self.left]
            at += self.left
            fault = self.random.randrange(3)
            if fault == 0:
                at += 1  # lost
            elif fault == 1:
                out.append(data[at] ^ 1 << self.random.randrange(8))
                at += 1
            else:
                out.append(self.random.randrange(256))
            self.faults += 1
            self.left = self.pause()
        self.left -= len(data) - at
        return bytes(out + data[at:])


class Wire(threading.Thread):
    """Between the tty of the server and the socket of the emulator, which comes and goes."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.main, self.tty = pty.openpty()
        tty.setraw(self.tty)
        self.path = str(folder / "line")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(1)
        self.device = None
        self.to_device = self.to_server = lambda data: data
        self.requests, self.counted = Requests(), Counted()
        self.passed = 0        # bytes of chunks, since the device was started: of long frames what is behind their first 200 bytes
        self.long = {}         # how long the frame is of which a part has passed, by direction
        self.cut_at = None     # power is cut when so many have passed
        self.cut = lambda: None
        self.failed = None
        self.start()

    def server_name(self):
        return os.ttyname(self.tty)

    def run(self):
        try:
            while True:
                ends = [self.main, self.listener] + ([self.device] if self.device else [])
                for ready in select.select(ends, [], [])[0]:
                    if ready is self.listener:
                        self.device, self.passed, self.long = self.listener.accept()[0], 0, {}
                    elif ready is self.main:
                        data = os.read(self.main, 4096)
                        if self.device:  # without a device they are lost
                            self.hand_on(self.to_device(data))
                    elif ready is self.device:
                        self.from_device()
        except Exception as e:  # the case fails, and says why
            self.failed = e
            raise

    def hand_on(self, data):
        try:
            self.device.sendall(data)
        except OSError:
            pass
        self.count("to the device", data)

    def from_device(self):
        try:
            data = self.device.recv(4096)
        except OSError:
            data = b""
        if not data:
            self.device.close()
            self.device = None
            self.requests.cut()
            return
        self.requests.saw(data)
        out = self.to_server(data)
        while out:
            out = out[os.write(self.main, out):]
        self.count("to the server", data)

    def count(self, way, data):
        self.counted.saw(way, data)
        for i, piece in enumerate(data.split(b"\0")):
            before = self.long.get(way, 0) if i == 0 else 0
            self.long[way] = before + len(piece)
            self.passed += max(0, self.long[way] - 200) - max(0, before - 200)
        if self.cut_at is not None and self.passed >= self.cut_at:
            self.cut_at = None
            self.cut()


def make_key(file):
    """A private key, and the line of a device that trusts it."""
    processes.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", file], check=True)
    public = processes.run(["openssl", "pkey", "-in", file, "-pubout"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return f"digits {public.splitlines()[1]}\n"


def signed(folder, key, round_, federation="digits", version=1, root="11" * 32):
    """The text of a signed reference."""
    text = (f"tensorpull reference 1\nfederation {federation}\nround {round_}\nexpires 1\nmodel {1:016x}{round_:016x}{version:016x}\nschema {0:016x}\ntree {0:048x}\n"
            f"root {root}\nbytes 32636\nnote \n").encode()
    (folder / "unsigned").write_bytes(text)
    processes.run(["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", key, "-in", folder / "unsigned", "-out", folder / "signature"], check=True)
    return text + b"signature " + (folder / "signature").read_bytes().hex().encode() + b"\n"


class Run:
    """One server with its clients, and a device that can be started again and again. It lives in a folder of its own."""

    def __init__(self, folder, rounds, firmware, update=None):
        self.folder, self.rounds, self.firmware = folder, rounds, firmware
        self.update = update or ("8-bits" if "8_bits" in firmware else "whole")
        self.wire = Wire(folder)
        self.device = None
        self.digits, self.key, self.trusted = folder / "digits", folder / "key.pem", folder / "trusted"
        self.proves = "proved" in firmware
        if self.proves:
            self.trusted.write_text(make_key(self.key))
        processes.run([BUILT / "microcontroller_digits", DATA, "1", self.digits], check=True)
        self.said = open(folder / "device", "ab")
        self.start_server()

    def start_server(self):
        port = self.folder / "port"
        port.unlink(missing_ok=True)
        options = ["--data", DATA, "--rounds", str(self.rounds), "--seed", "1"]
        signs = ["--sign", self.key] if self.proves else []
        self.server = processes.Program([BUILT / "microcontroller_server", *options, *signs, "--update", self.update, "--line", self.wire.server_name(), "--port-file", port],
                                       stdout=open(self.folder / "server", "wb"), stderr=subprocess.STDOUT)
        assert processes.eventually(lambda: port.exists() or self.server.poll() is not None) and self.server.poll() is None, self.transcript("server")
        self.clients = processes.Program([BUILT / "microcontroller_clients", *options, "--connect", "127.0.0.1:" + port.read_text().strip()],
                                        stderr=open(self.folder / "clients", "ab"))

    def stop_server(self):
        for process in (self.server, self.clients):
            process.kill()
            process.wait()

    def start_device(self):
        self.device = processes.Program(
            ["qemu-system-arm", "-M", "lm3s6965evb", "-display", "none", "-monitor", "none", "-kernel", BUILT / self.firmware, "-append", f"|{self.folder / 'flash'}|{self.rounds}|{self.trusted}",
             "-device", f"loader,file={self.digits},addr=0x10000,force-raw=on", "-semihosting-config", "enable=on,target=native",
             "-chardev", f"socket,id=line,path={self.wire.path}", "-serial", "chardev:line", "-serial", "stdio"],
            stdin=subprocess.DEVNULL, stdout=self.said, stderr=open(self.folder / "emulator", "ab"))

    def wait_for_device(self, seconds=float("inf")):
        """Until it has ended, or until the time is over: then its power is cut. A server that gives up fails the case."""
        over = time.monotonic() + seconds
        stalled = time.monotonic() + LONGEST_BOOT
        while self.device.poll() is None:
            assert time.monotonic() < stalled, self.states() + self.everything()
            assert self.server.poll() in (None, 0) and self.clients.poll() in (None, 0), self.everything()
            if time.monotonic() > over:
                self.cut_power()
                self.device.wait()
            processes.be_slow(0.01)
        return self.device.returncode

    def states(self):
        """Where everybody is that nobody hears of: a run that stalls says more than that its time is over."""
        said = ["", f"nothing has ended for {LONGEST_BOOT} s; the wire is at"]
        said += traceback.format_stack(sys._current_frames()[self.wire.ident])
        for who, process in (("server", self.server), ("clients", self.clients), ("device", self.device)):
            for thread in sorted(Path(f"/proc/{process.pid}/task").glob("*")):
                try:
                    said.append(f"{who}: {(thread / 'stat').read_text().split(') ')[1][0]} in {(thread / 'wchan').read_text()}, {(thread / 'syscall').read_text().strip()}")
                except OSError as e:
                    said.append(f"{who}: {e}")
        return "\n".join(said) + "\n"

    def cut_power(self):
        self.device.kill()

    def transcript(self, who):
        return (self.folder / who).read_text(errors="replace")

    def everything(self):
        return "\n".join(f"--- {who}\n{self.transcript(who)}" for who in ("server", "device", "emulator") if (self.folder / who).exists())

    def finish(self):
        """Waits for a device that is left alone, and asserts that all went well and that both say the same of each model and each update."""
        assert self.wait_for_device() == 0 and self.server.wait() == 0 and self.clients.wait() == 0, self.everything()
        # in 8 bits the device measures its model, and the server what comes of it
        right = r": \d+ of \d+ right"
        said = f"(round \\d+: (?:model|update) [0-9a-f]{{16}}{right})" if self.update == "whole" else f"(round \\d+: (?:model [0-9a-f]{{16}}{right}|update [0-9a-f]{{16}}))"
        measured = {who: set(re.findall(said, self.transcript(who))) for who in ("server", "device")}
        assert len(measured["server"]) == 2 * self.rounds + 1, self.everything()
        assert measured["device"] <= measured["server"], self.everything()  # a device whose power was cut may not have come to say all
        assert self.transcript("server").count("the device's counts") == self.rounds, self.everything()
        assert "FAULT" not in self.transcript("device") and self.wire.failed is None, (self.wire.failed, self.everything())

    def digests(self, who):
        return re.findall(r"(round \d+: (?:model|update) [0-9a-f]{16})", self.transcript(who))

    def right(self):
        return [int(n) for n in re.findall(r"round \d+: model [0-9a-f]{16}: (\d+) of", self.transcript("server"))]

    def close(self):
        for process in (self.device, self.server, self.clients):
            if process and process.poll() is None:
                process.kill()
                process.wait()


class Played(Run):
    """The device is played by the clients' program, at a pseudo-terminal."""

    def start_device(self):
        main, line = pty.openpty()
        tty.setraw(line)
        end = socket.socket(socket.AF_UNIX)
        end.connect(self.wire.path)

        def hand_on(read, write):
            try:
                while data := read(4096):
                    write(data)
            except OSError:
                pass
        for way in ((lambda n: os.read(main, n), end.sendall), (end.recv, lambda data: os.write(main, data))):
            threading.Thread(target=hand_on, args=way, daemon=True).start()
        self.device = processes.Program([BUILT / "microcontroller_clients", "--data", DATA, "--rounds", str(self.rounds), "--update", self.update, "--line", os.ttyname(line)],
                                       stdout=self.said, stderr=open(self.folder / "emulator", "ab"))


class Folder:
    def __enter__(self):
        self.path = Path(tempfile.mkdtemp(prefix="mcu"))
        return self.path

    def __exit__(self, kind, *_):
        if kind is None:
            shutil.rmtree(self.path)


def power_cuts(firmware="in_flash.elf"):
    """QEMU is killed at random moments and started again with the same flash. Never a wrong byte, never more than one chunk fetched again."""
    wanted = int(os.environ.get("TENSORPULL_POWER_CUTS", 20))
    chance = random.Random(SEED)
    cuts = went_on = 0
    while cuts < wanted:
        with Folder() as folder:
            run = Run(folder, min(6, (wanted - cuts) // 4 + 1), firmware)
            try:
                run.wire.cut = run.cut_power
                while True:
                    by_time = cuts < wanted and chance.randrange(4) == 0
                    run.wire.cut_at = chance.randrange(40_000) if cuts < wanted and not by_time else None
                    run.start_device()
                    if run.wait_for_device(chance.random() * 2 if by_time else float("inf")) != -9:
                        break
                    cuts += 1
                run.wire.cut_at = None
                run.finish()
                went_on += run.wire.requests.judge()
            finally:
                run.close()
    print(f"{cuts} power cuts; {went_on} times a transfer went on")
    assert went_on >= wanted // 10


def power_cuts_in_8_bits():
    """The base of an update lies in flash, into which the next model lands."""
    power_cuts("in_flash_8_bits.elf")


def a_build_without_flash_begins_at_byte_0():
    with Folder() as folder:
        run = Run(folder, 1, "in_memory.elf")
        try:
            run.wire.cut = run.cut_power
            run.wire.cut_at = 10_000
            run.start_device()
            assert run.wait_for_device() == -9, run.everything()
            run.start_device()
            run.finish()
            assert run.transcript("device").count("round 1: pulls from byte 0 of") == 2, run.everything()
            cut = run.wire.requests.log.index(None)
            assert run.wire.requests.log[cut - 1][2] > 0 and run.wire.requests.log[cut + 1][2] == 0, run.wire.requests.log
        finally:
            run.close()


def the_server_is_started_again():
    """A server that is killed while the device pulls, and started again with the same model, costs the device nothing that has landed."""
    with Folder() as folder:
        run = Run(folder, 1, "in_memory.elf")
        try:
            gone = threading.Event()

            def kill_server():
                run.server.kill(), run.clients.kill()
                gone.set()
            run.wire.cut, run.wire.cut_at = kill_server, 10_000
            run.start_device()
            assert gone.wait(300)
            run.server.wait(), run.clients.wait()
            run.start_server()
            run.finish()
            assert run.transcript("device").count("round 1: pulls from byte 0 of") == 1, run.everything()
            offsets = [offset for round_, _, offset, _ in filter(None, run.wire.requests.log) if round_ == 1]
            assert offsets == sorted(offsets), offsets
        finally:
            run.close()


def a_line_that_lies():
    """Bytes are lost, changed and inserted in both directions. Every transfer completes, and nothing wrong lands: device and server agree on all digests."""
    for seed in range(SEED, SEED + max(1, int(os.environ.get("TENSORPULL_LINE_SEEDS", 2)) // 20)):
        for one_in, firmware in ((100_000, "in_memory.elf"), (10_000, "in_memory.elf"), (1_000, "in_memory.elf"), (1_000, "in_flash_8_bits.elf")):
            with Folder() as folder:
                run = Run(folder, 1, firmware)
                try:
                    run.wire.to_device, run.wire.to_server = Noise(one_in, seed * 10), Noise(one_in, seed * 10 + 1)
                    run.start_device()
                    run.finish()
                    faults = run.wire.to_device.faults + run.wire.to_server.faults
                    print(f"seed {seed}, one byte in {one_in}: {faults} faults, and everything arrived as it was", flush=True)
                    assert faults > 0 or one_in == 100_000
                finally:
                    run.close()


def power_cuts_of_a_device_that_proves():
    """What lies in flash is proved before a transfer goes on."""
    power_cuts("in_flash_proved.elf")


class Liar:
    """Has the server's end of the line, and publishes a text as the signed reference of a round, beside a model of zeros."""

    def __init__(self, run, text, of_round):
        file = run.folder / "text"
        file.write_bytes(text)
        self.run = run
        self.before = len(run.transcript("device"))
        self.process = processes.Program([BUILT / "microcontroller_liar", run.wire.server_name(), file, str(of_round)], stdout=subprocess.PIPE, text=True)
        self.version = int(self.process.stdout.readline(), 16)

    def __enter__(self):
        return self

    def hears(self, words):
        """Waits until the device has said this of it."""
        said = lambda: self.run.transcript("device")[self.before:]  # noqa: E731
        assert processes.eventually(lambda: words in said() or self.run.device.poll() is not None, LONGEST_BOOT), (words, self.run.everything())
        assert words in said() and "the root is right" not in said() and self.run.device.poll() is None, (words, self.run.everything())

    def refused(self, round_, name):
        self.hears(f"round {round_}: a signed reference is refused: {name}\n")

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def a_device_believes_its_key_alone():
    """Whoever is at the line has nothing that it takes, be it signed by another, for another, or nearly right; and the honest server that follows is believed."""
    with Folder() as folder:
        run = Run(folder, 2, "in_flash_proved.elf")
        try:
            run.stop_server()
            given = run.trusted.read_text()
            for useless in ("", given[:-1], given.replace("MCow", "MCow=")):
                run.trusted.write_text(useless)
                run.start_device()
                assert run.device.wait(LONGEST_BOOT) == 1 and run.transcript("device").endswith("its flash or its key cannot be used\n"), run.everything()
            run.trusted.write_text(given)
            run.start_device()
            right = signed(folder, run.key, 1)
            make_key(folder / "other.pem")
            flipped = bytearray(right)
            flipped[right.index(b"root ") + 5] ^= 1
            for text, refused in ((signed(folder, folder / "other.pem", 1), "signature"),
                                  (signed(folder, run.key, 1, federation="banks"), "signature"),
                                  (bytes(flipped), "signature"),
                                  (right[:-1], "it is none"),
                                  (right[:200], "it is none"),
                                  (b"", "it is none"),
                                  (right + b"\n", "it is none"),
                                  (signed(folder, run.key, 2), "round")):
                with Liar(run, text, 1) as liar:
                    liar.refused(1, refused)
            with Liar(run, right.ljust(513, b"\n"), 1) as liar:
                liar.hears("round 1: the model on the other side has another schema")
            # the key's own word for a model of which somebody has other bytes, with the right digest
            with Liar(run, b"", 1) as liar:
                version = liar.version
            with Liar(run, signed(folder, run.key, 1, version=version), 1) as liar:
                liar.hears("round 1: the digest of the received bytes differs from the published one")
            run.start_server()
            run.finish()
            assert run.transcript("device").count("the root is right") == 3, run.everything()
        finally:
            run.close()


def a_device_takes_no_earlier_round_again():
    """Not after a power cut, and not if its model is gone: the last round that it has taken lies beside that. A device that is given another key begins again."""
    with Folder() as folder:
        run = Run(folder, 3, "in_flash_proved.elf")
        try:
            run.start_device()
            assert processes.eventually(lambda: "round 2: update" in run.transcript("device") or run.device.poll() is not None, LONGEST_BOOT), run.everything()
            run.stop_server()
            old = signed(folder, run.key, 1)
            with Liar(run, old, 3) as liar:
                liar.refused(3, "round")
            for model_is_gone in (False, True):
                run.cut_power()
                run.device.wait()
                if model_is_gone:
                    with open(folder / "flash", "r+b") as flash:
                        flash.write(b"\xff" * 2048)
                run.start_device()
                with Liar(run, old, 1) as liar:
                    liar.refused(1, "round")
            run.cut_power()
            run.device.wait()
            run.trusted.write_text(make_key(folder / "next.pem"))
            run.start_device()
            with Liar(run, old, 1) as liar:
                liar.refused(1, "signature")
            with Liar(run, signed(folder, folder / "next.pem", 1, version=liar.version), 1) as liar:
                liar.hears("round 1: the digest of the received bytes differs from the published one")
        finally:
            run.close()


def a_board_verifies_signatures():
    """Those of RFC 8032, and none that differs in a bit. The figures are on the example's page: instructions by the emulator's count, whatever this machine does meanwhile."""
    told = processes.run(["qemu-system-arm", "-M", "lm3s6965evb", "-display", "none", "-monitor", "none", "-kernel", BUILT / "verifier.elf", "-icount", "shift=0",
                          "-semihosting-config", "enable=on,target=native", "-serial", "null", "-serial", "stdio"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, text=True).stdout
    times, ms, stack = map(int, re.fullmatch(r"verifier: (\d+) verifications in (\d+) ms, (\d+) bytes of stack\n", told).groups())
    print(f"{ms / times} million instructions for a verification, {stack} bytes of stack")
    assert ms / times < 3 and stack < 2560, told


def an_update_in_8_bits():
    """It takes a quarter of the line, the model learns as well, and the firmware publishes the bytes of the whole library. The figures are on the example's page."""
    rounds, bytes_of, right = 3, {}, {}
    for firmware, kind in (("in_flash.elf", Run), ("in_flash_8_bits.elf", Run), ("in_flash_8_bits.elf", Played)):
        with Folder() as folder:
            run = kind(folder, rounds, firmware)
            try:
                run.start_device()
                run.finish()
                on_line = run.wire.counted.updates / rounds
                print(f"{'played' if kind is Played else 'emulated'}, {run.update}: {on_line:.0f} bytes on the line for an update, {on_line * 10 / 115200:.2f} s at 115,200 baud; right: {run.right()}", flush=True)
                if kind is Run:
                    bytes_of[run.update], right[run.update] = on_line, run.right()
                    digests = run.digests("device")
                else:
                    assert run.digests("device") == digests, (digests, run.everything())
            finally:
                run.close()
    assert 0.2 < bytes_of["8-bits"] / bytes_of["whole"] < 0.3, bytes_of
    assert right["8-bits"][-1] >= right["whole"][-1] - 8, right


def a_server_refuses_the_other_kind_by_name():
    for firmware, expected in (("in_flash.elf", "8-bits"), ("in_flash_8_bits.elf", "whole")):
        with Folder() as folder:
            run = Run(folder, 1, firmware, expected)
            try:
                run.start_device()
                assert run.server.wait(300) == 1, run.everything()
                assert "the device: the model on the other side has another schema" in run.transcript("server"), run.everything()
                assert "counts" not in run.transcript("server"), run.everything()
            finally:
                run.close()


def main():
    cases = {f.__name__: f for f in (power_cuts, power_cuts_in_8_bits, an_update_in_8_bits, a_server_refuses_the_other_kind_by_name, power_cuts_of_a_device_that_proves, a_board_verifies_signatures, a_device_believes_its_key_alone, a_device_takes_no_earlier_round_again, a_build_without_flash_begins_at_byte_0, the_server_is_started_again, a_line_that_lies)}
    processes.limit(3500)
    cases[sys.argv[3]]()


main()
