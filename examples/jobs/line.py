"""Runs a program on a machine that reaches itself over a long line: line.py MILLISECONDS MBIT [--far] PROGRAM [ARGUMENT...]. Its status is the program's.

The program is alone in a network namespace, in which packets to 127.0.0.0/8 leave through a TUN device. Each one waits at a bottleneck of MBIT Mbit/s, takes half of
MILLISECONDS after it, and is local when it comes back. All packets share the bottleneck, in both directions; one is dropped if it would wait there for longer than MILLISECONDS.
With --far the line is on the way to 127.1.0.1 and back alone, each direction has a bottleneck of its own, and a packet may wait twice as long.
It needs root (or user namespaces, as `unshare -rn` makes them) and Debian's iproute2. It ends with the program, the program is ended with it, and nothing is left behind.
What a signal has ended has the status that a shell gives it: 128 and the signal's number.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import itertools
import os
import select
import signal
import struct
import subprocess
import sys
import time

NEW_NETWORK = 0x40000000  # CLONE_NEWNET
TUNSETIFF, TUN_WITHOUT_HEADER = 0x400454CA, 0x1001
PR_SET_PDEATHSIG = 1


def open_line(far: bool) -> int:
    """This process is in a namespace of its own then, and its packets to itself can be read from this descriptor."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "a network namespace: " + os.strerror(ctypes.get_errno()))
    packets = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(packets, TUNSETIFF, struct.pack("16sH22x", b"line", TUN_WITHOUT_HEADER))
    for words in (
        "link set lo up", "link set line up mtu 1500 txqueuelen 10000",
        f"route add {'127.1.0.0/16' if far else '127.0.0.0/8'} dev line src {'127.1.0.2' if far else '127.0.0.1'} table 100",
        # what this machine sends goes by the line first; what comes out of the line is local
        "rule add pref 10 iif lo lookup 100", "rule add pref 20 lookup local", "rule del pref 0",
    ):  # fmt: skip
        subprocess.run(["ip", *words.split()], check=True)
    for setting, value in (("route_localnet", "1"), ("accept_local", "1"), ("rp_filter", "0")):
        for device in ("all", "line"):
            with open(f"/proc/sys/net/ipv4/conf/{device}/{setting}", "w") as f:
                f.write(value)
    if os.path.exists("/proc/sys/net/ipv6/conf/all/disable_ipv6"):
        with open("/proc/sys/net/ipv6/conf/all/disable_ipv6", "w") as f:
            f.write("1")  # [::1] would be a way around the line
    return packets


def carry(packets: int, delay: float, bytes_per_second: float, far: bool, child: int) -> int:
    """Until the child ends: its status."""
    poller = select.poll()
    poller.register(packets, select.POLLIN)
    ended = os.pidfd_open(child)
    poller.register(ended, select.POLLIN)
    queue: "list[tuple[float, int, bytes]]" = []
    numbers = itertools.count()
    free: "dict[bytes, float]" = {}
    most = (4 if far else 2) * delay
    while True:
        wait = max(0.0, queue[0][0] - time.monotonic()) if queue else 1.0
        if ended in (fd for fd, _ in poller.poll(wait * 1000)):
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            return status if status >= 0 else 128 - status  # a signal, as a shell says it
        for _ in range(64):
            try:
                packet = os.read(packets, 65536)
            except BlockingIOError:
                break
            now, way = time.monotonic(), packet[16:20] if far else b""  # to whom
            if free.get(way, 0.0) - now > most:
                continue
            free[way] = max(free.get(way, 0.0), now) + len(packet) / bytes_per_second
            heapq.heappush(queue, (free[way] + delay, next(numbers), packet))
        while queue and queue[0][0] <= time.monotonic():
            os.write(packets, heapq.heappop(queue)[2])


def main() -> int:
    if len(sys.argv) < (5 if "--far" in sys.argv[3:4] else 4):
        print((__doc__ or "").splitlines()[0], file=sys.stderr)
        return 2
    milliseconds, mbit, far = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "--far"
    program = sys.argv[4 if far else 3 :]
    packets = open_line(far)
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # without this process it would wait for packets for ever
        try:
            os.execvp(program[0], program)
        except OSError as why:
            print(f"line.py: {program[0]}: {why.strerror}", file=sys.stderr, flush=True)
            os._exit(127)
    return carry(packets, milliseconds / 2000, mbit * 125_000, far, child)


if __name__ == "__main__":
    sys.exit(main())
