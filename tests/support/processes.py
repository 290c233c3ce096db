"""Programs, threads and ports of a test in Python: nothing is waited for without end, and no port is hoped for."""
import faulthandler
import os
import socket
import subprocess
import sys
import threading
import time

#: What a busy machine may need for what takes a moment.
AMPLE = 60.0


def limit(seconds, file=sys.stderr):
    """Ends this program after so long, and says where each of its threads is: that is what it waits for. None: not any more."""
    if seconds is None:
        faulthandler.cancel_dump_traceback_later()
    else:
        faulthandler.dump_traceback_later(seconds, exit=True, file=file)


class Program(subprocess.Popen):
    """A program that a test starts. At the end of a `with` it is killed."""

    def wait(self, timeout=AMPLE):
        return super().wait(timeout)

    def communicate(self, input=None, timeout=AMPLE):
        return super().communicate(input, timeout)

    def __exit__(self, *_):
        self.kill()
        self.wait()
        for pipe in filter(None, (self.stdin, self.stdout, self.stderr)):
            try:
                pipe.close()
            except BrokenPipeError:  # what it has not read
                pass


class Server(Program):
    """One that has processes of its own, as nginx has: it is asked to end, since a program that is killed leaves them behind."""

    def __exit__(self, *exception):
        self.terminate()
        self.wait()
        super().__exit__(*exception)


def run(command, timeout=2 * AMPLE, **options):
    """subprocess.run, with a limit."""
    return subprocess.run(command, timeout=timeout, **options)


class JoinedThread(threading.Thread):
    """One that has to end: join() says what has not."""

    def join(self, timeout=AMPLE):
        super().join(timeout)
        assert not self.is_alive(), f"{self.name} has not ended after {timeout} seconds"


def eventually(true, seconds=AMPLE):
    """Waits until it is true; False: it was not within the time."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def be_slow(seconds):
    """For a peer or a callback that is slow. It is no way to wait for anything."""
    time.sleep(seconds)


class OwnPort:
    """A TCP port of 127.0.0.1 that is this program's: a socket that does not listen has it. A server that is told its number gets it, since servers say SO_REUSEADDR, and
    the system gives it to nobody else. While nobody listens a connection is refused."""

    def __init__(self):
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self.number = self._held.getsockname()[1]
        self.address = f"127.0.0.1:{self.number}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._held.close()


def accepts(port):
    """Whether somebody listens at this port of 127.0.0.1, or at the Unix socket of this path: its file is there a moment sooner."""
    try:
        if isinstance(port, int):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        else:
            with socket.socket(socket.AF_UNIX) as caller:
                caller.settimeout(1)
                caller.connect(port)
        return True
    except OSError:
        return False


class Answers(threading.Thread):
    """Reads once from each that comes to `at`, gives one answer, and closes. `came`: how many."""

    def __init__(self, answer):
        super().__init__(daemon=True)
        self.answer, self.came, self.listener = answer, 0, socket.create_server(("127.0.0.1", 0))
        self.at = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            peer, _ = self.listener.accept()
            self.came += 1
            try:
                with peer:
                    peer.recv(65536)
                    peer.sendall(self.answer)
                    peer.shutdown(socket.SHUT_WR)
                    while peer.recv(65536):
                        pass
            except OSError:
                pass


def found(name):
    """The path of a server's program, also in Debian's folder for them; None: it is not installed."""
    for folder in [*os.environ["PATH"].split(os.pathsep), "/usr/sbin"]:
        if os.access(path := os.path.join(folder, name), os.X_OK):
            return path
    return None
