"""The tools with few descriptors, little memory, a full disk, devices that take 1 to 16 bytes at a time, and clocks that jump: they serve whom they can,
say what is scarce, and recover.

usage: scarcity.py FOLDER_OF_PROGRAMS [CASE]

Each case is a table. What a row leaves to chance comes from its seed, which a failure prints.
"""
import errno
import json
import os
import random
import resource
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import tools
from tools import Sender, command, noise, parsed, run, safetensors, write

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "support"))
import processes  # noqa: E402

MODEL = safetensors([("w", "U8", [20_000], noise(20_000))])
PATIENCE = ("--wait", 60)  # only a hang takes so long

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

static unsigned long number(void) {  /* xorshift, from the seed */
  static __thread unsigned long state;
  if (state == 0) state = strtoul(getenv("SCARCE_SEED"), 0, 10) * 2654435761u + 1;
  state ^= state << 13; state ^= state >> 7; state ^= state << 17;
  return state;
}
/* How many bytes one call moves: files are not devices. */
static size_t some(int fd, size_t asked) {
  struct stat s;
  const char* most = getenv("SCARCE_BYTES");
  if (most == 0 || asked == 0 || fstat(fd, &s) != 0 || S_ISREG(s.st_mode) || S_ISDIR(s.st_mode)) return asked;
  int type = SOCK_STREAM;
  socklen_t length = sizeof type;
  if (S_ISSOCK(s.st_mode) && (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM)) return asked;
  size_t n = 1 + number() % strtoul(most, 0, 10);
  return n < asked ? n : asked;
}
static size_t cut(int fd, struct iovec* out, const struct iovec* in, size_t count) {
  size_t all = 0, n = 0;
  for (size_t i = 0; i < count; ++i) all += in[i].iov_len;
  size_t left = some(fd, all);
  for (size_t i = 0; i < count && i < 1024; ++i) {
    out[n] = in[i];
    if (out[n].iov_len > left) out[n].iov_len = left;
    left -= out[n++].iov_len;
    if (left == 0) break;
  }
  return n;
}
ssize_t write(int fd, const void* p, size_t n) { REAL(ssize_t, write, int, const void*, size_t); return real(fd, p, some(fd, n)); }
ssize_t read(int fd, void* p, size_t n) { REAL(ssize_t, read, int, void*, size_t); return real(fd, p, some(fd, n)); }
ssize_t send(int fd, const void* p, size_t n, int f) { REAL(ssize_t, send, int, const void*, size_t, int); return real(fd, p, some(fd, n), f); }
ssize_t recv(int fd, void* p, size_t n, int f) { REAL(ssize_t, recv, int, void*, size_t, int); return real(fd, p, some(fd, n), f); }
ssize_t writev(int fd, const struct iovec* v, int n) {
  REAL(ssize_t, writev, int, const struct iovec*, int);
  struct iovec fewer[1024];
  return real(fd, fewer, (int)cut(fd, fewer, v, (size_t)n));
}
ssize_t readv(int fd, const struct iovec* v, int n) {
  REAL(ssize_t, readv, int, const struct iovec*, int);
  struct iovec fewer[1024];
  return real(fd, fewer, (int)cut(fd, fewer, v, (size_t)n));
}
ssize_t sendmsg(int fd, const struct msghdr* m, int f) {
  REAL(ssize_t, sendmsg, int, const struct msghdr*, int);
  struct iovec fewer[1024];
  struct msghdr less = *m;
  less.msg_iov = fewer;
  less.msg_iovlen = cut(fd, fewer, m->msg_iov, m->msg_iovlen);
  return real(fd, &less, f);
}
ssize_t recvmsg(int fd, struct msghdr* m, int f) {
  REAL(ssize_t, recvmsg, int, struct msghdr*, int);
  struct iovec fewer[1024];
  struct msghdr less = *m;
  less.msg_iov = fewer;
  less.msg_iovlen = cut(fd, fewer, m->msg_iov, m->msg_iovlen);
  const ssize_t n = real(fd, &less, f);
  m->msg_controllen = less.msg_controllen, m->msg_flags = less.msg_flags, m->msg_namelen = less.msg_namelen;
  return n;
}
/* The time of day is another one whenever it is asked; the machine slept once for so many seconds. */
int clock_gettime(clockid_t which, struct timespec* t) {
  REAL(int, clock_gettime, clockid_t, struct timespec*);
  const int how = real(which, t);
  if (which == CLOCK_REALTIME && getenv("SCARCE_DAY")) t->tv_sec = (time_t)(number() % 4000000000ul);
  if (which == CLOCK_MONOTONIC && getenv("SCARCE_SLEPT")) {
    static __thread time_t begin;
    if (begin == 0) begin = t->tv_sec + 1;
    if (t->tv_sec > begin) t->tv_sec += strtol(getenv("SCARCE_SLEPT"), 0, 10);
  }
  return how;
}
/* A file system with neither locks nor hard links nor flags of rename, and with names of 143 bytes at most. */
static int lacks(int why) { if (!getenv("SCARCE_FILES")) return 0; errno = why; return 1; }
int flock(int fd, int how) { REAL(int, flock, int, int); return lacks(ENOSYS) ? -1 : real(fd, how); }
int linkat(int a, const char* from, int b, const char* to, int f) { REAL(int, linkat, int, const char*, int, const char*, int); return lacks(EPERM) ? -1 : real(a, from, b, to, f); }
int renameat2(int a, const char* from, int b, const char* to, unsigned f) {
  REAL(int, renameat2, int, const char*, int, const char*, unsigned);
  return f != 0 && lacks(EINVAL) ? -1 : real(a, from, b, to, f);
}
int openat(int a, const char* name, int flags, ...) {
  REAL(int, openat, int, const char*, int, ...);
  va_list more;
  va_start(more, flags);
  const int mode = flags & O_CREAT ? va_arg(more, int) : 0;
  va_end(more);
  return strlen(name) > 143 && lacks(ENAMETOOLONG) ? -1 : real(a, name, flags, mode);
}
time_t time(time_t* t) { struct timespec now; clock_gettime(CLOCK_REALTIME, &now); if (t) *t = now.tv_sec; return now.tv_sec; }
int gettimeofday(struct timeval* restrict t, void* restrict zone) {
  (void)zone;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  t->tv_sec = now.tv_sec, t->tv_usec = now.tv_nsec / 1000;
  return 0;
}
"""


def shim():
    """The library that is loaded before the C library; none: it cannot be had here."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        print("there is no C compiler for the library that makes devices and clocks scarce: left out")
        return None
    if b"libasan" in (needs := processes.run(["ldd", tools.command("send")[0]], capture_output=True).stdout) or b"libtsan" in needs:
        print("a sanitizer wants to be the first library: left out")
        return None
    write("shim.c", SHIM.encode())
    processes.run([compiler, "-O1", "-shared", "-fPIC", "-w", "-o", "shim.so", "shim.c", "-ldl"], check=True)
    return os.path.abspath("shim.so")


def few(kind, most):
    """What a child does to itself before it becomes the program."""
    return lambda: resource.setrlimit(kind, (most, most))


class Strangers:
    """Connections that say nothing, and that are made again when the other end closes them."""

    def __init__(self, address, count):
        self.address, self.count, self.peers, self.ends = address, count, [], False
        self.thread = threading.Thread(target=self.run, daemon=True)

    def one(self):
        if self.address.startswith("unix:"):
            peer, to = socket.socket(socket.AF_UNIX), self.address[5:]
        else:
            host, _, port = self.address.rpartition(":")
            peer, to = socket.socket(), (host, int(port))
        peer.setblocking(False)
        try:
            peer.connect(to)
        except BlockingIOError:
            pass
        except OSError:
            peer.close()
            return
        self.peers.append(peer)

    def run(self):
        while not self.ends:
            while len(self.peers) < self.count and not self.ends:
                before = len(self.peers)
                self.one()
                if len(self.peers) == before:
                    break
            poll = select.poll()
            for peer in self.peers:
                poll.register(peer, select.POLLIN)
            gone = {fd for fd, _ in poll.poll(100)}
            for peer in [p for p in self.peers if p.fileno() in gone]:
                self.peers.remove(peer)
                peer.close()

    def __enter__(self):
        self.thread.start()
        processes.eventually(lambda: len(self.peers) >= self.count, 2)  # an owner may have no room for all of them
        return self

    def __exit__(self, *_):
        self.ends = True
        self.thread.join()
        for peer in self.peers:
            peer.close()


def all_receive(lines, patience=PATIENCE, **options):
    """Starts a recv for each (address, reference, words); all of them get the model."""
    running = [processes.Program(command("recv", address, ref, "-o", f"got-{i}", "--force", "--restart", "--json", *patience, *words), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, **options) for i, (address, ref, words) in enumerate(lines)]
    for i, recv in enumerate(running):
        out, err = recv.communicate(timeout=300)
        assert recv.returncode == 0 and Path(f"got-{i}").read_bytes() == MODEL, (i, recv.args, out, err)


def herd(sender, count=12):
    return [(sender.address, sender.ref, ("--name", f"site-{i}")) for i in range(count)]


def few_descriptors_of_an_owner():
    """More strangers and recipients than descriptors: everybody is served, nothing is lost, and the program says what is scarce."""
    write("model.safetensors", MODEL)
    for listen in ("127.0.0.1:0", "unix:here"):
        for most in (16, 32, 64, 256):
            with Sender("model.safetensors", "--listen", listen, "--recipients", 12, preexec_fn=few(resource.RLIMIT_NOFILE, most)) as sender:
                with Strangers(sender.address, 2 * most):
                    all_receive(herd(sender))
                events = sender.end()
            assert events[-1]["outcome"] == "done" and events[-1]["completed"] == 12, (listen, most, events)
            assert {"event": "scarce", "what": "descriptors", "limit": most} in events, (listen, most, events)


def few_descriptors_beside_http():
    write("model.safetensors", MODEL)
    for most in (24, 32, 64, 256):
        with Sender("model.safetensors", "--http", "0", "--recipients", 12, preexec_fn=few(resource.RLIMIT_NOFILE, most)) as sender:
            url = sender.published[0]["url"]
            write("key", sender.ref.encode())
            with Strangers(sender.address, most), Strangers(url.split("/")[2], most), ExitStack() as running:
                over_http = [running.enter_context(processes.Program(command("recv", url, "-o", f"http-{i}", "--force", "--restart", "--bearer-file", "key", *PATIENCE),
                                                                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)) for i in range(6)]
                all_receive(herd(sender, 6))
                for i, recv in enumerate(over_http):
                    err = recv.communicate(timeout=300)[1]
                    assert recv.returncode == 0 and Path(f"http-{i}").read_bytes() == MODEL, (most, err)
            assert sender.end()[-1]["completed"] == 12


def few_descriptors_of_a_replica():
    """The herd and the strangers are a replica's, which needs a second descriptor for each of them."""
    write("model.safetensors", MODEL)
    for most in (32, 64, 256):
        with Sender("model.safetensors", "--recipients", 12) as first:
            with Sender("model.safetensors", "--ref", first.ref, "--replica-of", first.address, preexec_fn=few(resource.RLIMIT_NOFILE, most)) as replica:
                with Strangers(replica.address, 2 * most):
                    # what strangers hold back is not served late, as if it had only to wait for them
                    all_receive(herd(replica), ("--timeout", 12, "--retries", 0))
            assert first.end()[-1]["completed"] == 12, most


def few_descriptors_of_a_recipient():
    write("model.safetensors", MODEL)
    with Sender("model.safetensors", "--http", "0") as sender:
        write("key", sender.ref.encode())
        for words in ([sender.address, sender.ref], [sender.published[0]["url"], "--bearer-file", "key"]):
            served = 0
            for most in (5, 6, 7, 8, 10, 32):
                done = subprocess.run(command("recv", *words, "-o", "copy", "--force", "--restart", "--retries", 0), capture_output=True, text=True, timeout=120,
                                      preexec_fn=few(resource.RLIMIT_NOFILE, most))
                if done.returncode == 0:
                    served += 1
                    assert Path("copy").read_bytes() == MODEL
                else:
                    assert done.returncode in (1, 3) and "Too many open files" in done.stderr or done.returncode == 127, (words, most, done)
            assert served >= 3, words


def little_memory():
    """Whatever is left to it, a program does its work or says that there is too little memory. It never crashes."""
    write("model.safetensors", safetensors([(f"layer.{i}.weight", "F32", [16], noise(64, i % 200)) for i in range(2_000)]))
    data = Path("model.safetensors").read_bytes()
    if b"libasan" in (needs := processes.run(["ldd", command("send")[0]], capture_output=True).stdout) or b"libtsan" in needs:
        print("a sanitizer takes more address space than any limit leaves: left out")
        return
    chance = random.Random(7)
    with Sender("model.safetensors") as sender:
        rows = {"inspect": ["model.safetensors"], "send": ["model.safetensors", "--idle", 0.05], "recv": [sender.address, sender.ref, "-o", "copy", "--force", "--restart", "--retries", 0]}
        for tool, words in rows.items():
            does, says = 0, 0
            least, most = os.path.getsize(command(tool)[0]) + (1 << 20), 64 << 20  # with less than its own code the system kills it before it begins
            for step in range(40):
                limit = (least + (most - least) * step // 40) + chance.randrange(1 << 18)
                done = subprocess.run(command(tool, *words), capture_output=True, timeout=120, preexec_fn=few(resource.RLIMIT_AS, limit))
                if done.returncode == 127 or b"error while loading shared libraries" in done.stderr:
                    continue  # the program has not begun
                if done.returncode == (3 if tool == "send" else 0):
                    does += 1
                    assert tool != "recv" or parsed(Path("copy").read_bytes()) == parsed(data), limit
                else:
                    says += 1
                    assert done.returncode in (1, 3) and b"memory" in done.stderr.lower(), (tool, limit, done)
            assert does >= 5, (tool, does, says)


def a_disk_that_is_full_for_a_while():
    """What has come stays, and goes on when there is room again."""
    write("model.safetensors", safetensors([("w", "U8", [2 << 20], noise(2 << 20))]))
    os.mkdir("small")
    if os.geteuid() != 0 or processes.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", "small"], capture_output=True).returncode != 0:
        print("no file system of 3 MiB can be mounted here: left out")
        return
    try:
        with Sender("model.safetensors") as sender:
            words = [sender.address, sender.ref, "-o", "small/copy"]
            write("small/other", bytes((2 << 20) + (512 << 10)))
            _, err = run("recv", *words, status=3)
            assert "the disk is full" in err, err
            os.unlink("small/other")
            run("recv", *words, *(["--resume"] if os.path.exists("small/.copy.part") else []))
            assert Path("small/copy").read_bytes() == Path("model.safetensors").read_bytes()
            os.unlink("small/copy")
            # in the middle of it
            path = tools.SlowPath(sender.port, 16 << 20)
            path.hold_at(1 << 20)
            recv = processes.Program(command("recv", path.address, *words[1:], "--chunk", "64K"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            path.wait_for_hold()
            try:
                write("small/other", bytes(3 << 20))
            except OSError as full:
                assert full.errno == errno.ENOSPC
            path.go_on()
            _, err = recv.communicate(timeout=60)
            assert recv.returncode == 3 and "the disk is full" in err and os.path.exists("small/.copy.part"), err
            os.unlink("small/other")
            done = json.loads(run(*shlex.split(err.splitlines()[-1]), "--json")[0])
            assert done["resumed_bytes"] > 1 << 19 and Path("small/copy").read_bytes() == Path("model.safetensors").read_bytes(), done
    finally:
        processes.run(["umount", "-l", "small"], check=True)


def over_every_link(environment, links):
    """A model goes over each link, while both programs have this environment."""
    write("model.safetensors", MODEL)
    env = {**os.environ, **environment}
    for link in links:
        if link.startswith("shm:") and "shared_memory" in tools.satellites_that_are_not_here():
            continue
        where = recv_at = link
        if link == "serial":
            where, recv_at = ("serial:" + name for name in tools.serial_ends(16))
        words = ["--http", "0"] if link == "http" else ["--listen", where]
        with Sender("model.safetensors", "--recipients", 1, *words, env=env) as sender:
            to = [recv_at if link == "serial" else sender.address, sender.ref]
            if link == "http":
                write("key", sender.ref.encode())
                to = [sender.published[0]["url"], "--bearer-file", "key"]
            done = subprocess.run(command("recv", *to, "-o", "copy", "--force", "--restart", "--json", *PATIENCE), capture_output=True, text=True, timeout=300, env=env)
            assert done.returncode == 0 and Path("copy").read_bytes() == MODEL, (link, environment, done)
            assert sender.end()[-1]["completed"] == 1, (link, environment)


def devices_that_take_little_at_a_time():
    if (library := shim()) is None:
        return
    for seed, most in enumerate((1, 3, 16), 1):
        over_every_link({"LD_PRELOAD": library, "SCARCE_SEED": str(seed), "SCARCE_BYTES": str(most)}, ("127.0.0.1:0", "unix:here", "http", "serial", "shm:there"))


def a_time_of_day_that_jumps():
    if (library := shim()) is None:
        return
    for seed in (1, 2):
        over_every_link({"LD_PRELOAD": library, "SCARCE_SEED": str(seed), "SCARCE_DAY": "1"}, ("127.0.0.1:0", "unix:here", "http", "udp://127.0.0.1:0", "shm:there"))


def a_file_system_that_has_little():
    """Files arrive where there are neither locks nor links, also in two parts, and what is not guarded is said once."""
    if (library := shim()) is None:
        return
    model = safetensors([("w", "U8", [500_000], noise(500_000))])
    write("model.safetensors", model)
    env, name = {**os.environ, "LD_PRELOAD": library, "SCARCE_FILES": "1"}, "n" * 131 + ".safetensors"
    assert len(name) == 143
    with Sender("model.safetensors") as sender:
        path = tools.SlowPath(sender.port, 1 << 30)
        path.hold_at(100_000)
        to = ["-o", name, "--chunk", "10K", *PATIENCE]
        first = processes.Program(command("recv", path.address, sender.ref, *to), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env)
        path.wait_for_hold()
        first.send_signal(signal.SIGINT)
        err = first.communicate(timeout=60)[1]
        assert first.returncode == 130 and err.count("there are no locks on files here") == 1, err
        done = subprocess.run(command("recv", sender.address, sender.ref, *to, "--resume", "--json"), capture_output=True, text=True, timeout=300, env=env)
        assert done.returncode == 0 and Path(name).read_bytes() == model, done
        again = subprocess.run(command("recv", sender.address, sender.ref, *to), capture_output=True, text=True, timeout=300, env=env)
        assert again.returncode == 3 and "exists already" in again.stderr and Path(name).read_bytes() == model, again


def a_machine_that_has_slept():
    """An hour passes at once for the sender, while a slow recipient is under way."""
    if (library := shim()) is None:
        return
    write("model.safetensors", MODEL)
    env = {**os.environ, "LD_PRELOAD": library, "SCARCE_SEED": "1", "SCARCE_SLEPT": "3600"}
    with Sender("model.safetensors", "--recipients", 1, env=env) as sender:
        path = tools.SlowPath(sender.port, 6_000)
        done = subprocess.run(command("recv", path.address, sender.ref, "-o", "copy", "--json", "--chunk", "1K", *PATIENCE), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and Path("copy").read_bytes() == MODEL, done
        assert sender.end()[-1]["completed"] == 1
    with Sender("model.safetensors", "--recipients", 1) as sender:
        path = tools.SlowPath(sender.port, 6_000)
        done = subprocess.run(command("recv", path.address, sender.ref, "-o", "copy", "--force", "--restart", "--json", "--chunk", "1K", *PATIENCE), capture_output=True, text=True, timeout=300, env=env)
        assert done.returncode == 0 and Path("copy").read_bytes() == MODEL, done


CASES = [few_descriptors_of_an_owner, few_descriptors_beside_http, few_descriptors_of_a_replica, few_descriptors_of_a_recipient, little_memory,
         a_disk_that_is_full_for_a_while, devices_that_take_little_at_a_time, a_time_of_day_that_jumps, a_machine_that_has_slept, a_file_system_that_has_little]
OF_SATELLITES = {"replica": (few_descriptors_of_a_replica,),
                 "http": (few_descriptors_beside_http, few_descriptors_of_a_recipient, devices_that_take_little_at_a_time, a_time_of_day_that_jumps)}

if __name__ == "__main__":
    processes.limit(540)
    tools.BIN = os.path.abspath(sys.argv[1])
    chosen = [case for case in CASES if sys.argv[2:] in ([], [case.__name__])]
    assert chosen, "no such case"
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    for case in chosen:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                if not tools.lacks(case, OF_SATELLITES):
                    case()
            finally:
                os.chdir("/")
        print("%s: %.2f s" % (case.__name__, time.monotonic() - began), flush=True)
