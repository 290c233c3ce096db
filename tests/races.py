#!/usr/bin/env python3
"""Forms by which a test comes to depend on luck: races.py TREE names each place that has one, and fails if there is one. Each has a helper in tests/support instead.

C++
- threads: std::thread, std::jthread, std::async, pthread_create: joined_thread cannot begin before what it borrows (threads.hpp).
- members: something is declared behind a joined_thread of a class, so it goes while the thread runs.
- sleeps: sleep_for and its like: eventually() waits for what happens, be_slow() is for what is slow on purpose (waiting.hpp).
- children: fork, waitpid: child_process has a limit (child_process.hpp).
- ports: an address with a number that somebody has made up: own_port (own_port.hpp).
- answers: an HTTP server of a fixture is given what borrows from the test: answering (satellites/http/http_server.hpp).
- names: a file in the temporary folder under a name that another run has, too: own_folder (own_folder.hpp).
Python
- waits: a call of subprocess, a wait or a join without a limit, time.sleep: processes.py.
`--test` shows that each rule finds what it is for."""
import ast
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from format_rules import tokens_of  # noqa: E402

#: The helpers themselves, and what is no test: programs that a page shows, files that must not compile, and the build of a whole tree.
HELPERS = {"threads": ("tests/support/threads.hpp", "tests/support/painted_stack.hpp", "tests/support/delays.cpp"), "sleeps": ("tests/support/waiting.hpp", "tests/support/time_limit.cpp"),
           "children": ("tests/support/child_process.hpp", "tests/support/time_limit.cpp"), "names": ("tests/support/own_folder.hpp",),
           "waits": ("tests/support/processes.py",)}  # fmt: skip
NO_TESTS = re.compile(r"tests/((satellites/\w+/)?(snippets|compile_fail|fuzz)/.*|without\.py)")
#: Files in which addresses are text that nobody connects to; and programs of FLARE's, which have no tests/support.
ADDRESSES = re.compile(r"tests/(.*/(address|link_url|http_text|proxy|nats_tls|nats_link|tcp_download|http_owner_browser|federated)\.test\.cpp|wire/.*)")
OF_FLARE = ("tests/satellites/nvflare/client.py", "tests/satellites/nvflare/lies.py", "tests/satellites/nvflare/ranks.py")

MADE_UP = re.compile(r"(127\.0\.0\.1|localhost|\[::1\]):[1-9]")
COMMON = re.compile(r"\bTempDir\(\)|\btemp_directory_path\(\)|\bgetpid\(\)")


def words(text, tokens, *wanted):
    for i, (kind, token, at) in enumerate(tokens):
        if kind == "word" and token in wanted:
            yield i, token, at


def after(tokens, i, n=1):
    return tokens[i + n][1] if i + n < len(tokens) else ""


def threads(text, tokens):
    for i, token, at in words(text, tokens, "jthread", "thread", "async", "pthread_create"):
        if token in ("jthread", "pthread_create") or (i > 1 and (tokens[i - 2][1], tokens[i - 1][1]) == ("std", "::") and after(tokens, i) != "::"):
            yield at, f"a thread by itself: {token}"


def members(text, tokens):
    for i, token, at in words(text, tokens, "joined_thread", "joined_threads"):
        if not after(tokens, i).endswith("_") or after(tokens, i, 2) not in (";", "{"):
            continue
        depth, j = 0, i
        while j < len(tokens) and (depth or tokens[j][1] != ";"):
            depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(tokens[j][1], 0)
            j += 1
        if after(tokens, j) != "}":
            yield at, f"something is declared behind the thread {after(tokens, i)}"


def sleeps(text, tokens):
    for _, token, at in words(text, tokens, "sleep_for", "sleep_until", "usleep", "nanosleep"):
        yield at, f"a sleep: {token}"


def children(text, tokens):
    for i, token, at in words(text, tokens, "fork", "vfork", "waitpid"):
        if after(tokens, i) == "(" and tokens[i - 1][1] not in (".", "->") and not (token == "waitpid" and "WNOHANG" in text[at:text.index("\n", at)]):
            yield at, f"a process by itself: {token}"


def ports(text, tokens):
    for kind, token, at in tokens:
        if kind == "string" and MADE_UP.search(token):
            yield at, f"a port that somebody has made up: {token}"
    for i, token, at in words(text, tokens, "local", "sin_port"):
        number = after(tokens, i, 2) if token == "local" else after(tokens, i, 4)
        if re.match("[1-9]", number):
            yield at, f"a port that somebody has made up: {number}"


def answers(text, tokens):
    for i, token, at in words(text, tokens, "instead"):
        if [after(tokens, i, n) for n in (1, 2, 3)] == ["=", "[", "&"]:
            yield at, "an answer that borrows from the test, at a server that outlives it"


def names(text, tokens):
    code = text
    for m in COMMON.finditer(code):
        if any(at <= m.start() < at + len(token) for kind, token, at in tokens if kind == "string"):
            continue
        before = text[text.rfind("\n", 0, m.start()) + 1 : m.start()]
        if m[0] == "getpid()" and ("to_string" not in before or "/proc/" in before):
            continue
        yield m.start(), f"a name that another run may have, too: {m[0]}"


def waits(tree):
    """(line, what) of a program in Python."""
    for n in ast.walk(tree):
        if not isinstance(n, ast.Call):
            continue
        called, limited = ast.unparse(n.func), any(k.arg == "timeout" for k in n.keywords)
        if called in ("subprocess.run", "subprocess.check_output", "subprocess.check_call", "subprocess.call") and not limited:
            yield n.lineno, f"{called} without a limit"
        elif called == "subprocess.Popen":
            yield n.lineno, "a process by itself: Popen"
        elif called == "threading.Thread" and not any(k.arg == "daemon" for k in n.keywords):
            yield n.lineno, "a thread by itself: Thread"
        elif called == "time.sleep":
            yield n.lineno, "a sleep: time.sleep"


CXX = {"threads": threads, "members": members, "sleeps": sleeps, "children": children, "ports": ports, "answers": answers, "names": names}


def found(text, rule):
    if rule == "waits":
        return sorted(waits(ast.parse(text)))
    return sorted((text.count("\n", 0, at) + 1, what) for at, what in CXX[rule](text, tokens_of(text)))


def rules_for(path):
    if NO_TESTS.fullmatch(path):
        return []
    rules = ["waits"] if path.endswith(".py") else list(CXX)
    off = {rule for rule, files in HELPERS.items() if path in files}
    if ADDRESSES.fullmatch(path):
        off.add("ports")
    if path in OF_FLARE:
        off.add("waits")
    return [rule for rule in rules if rule not in off]


def test():
    wrong = {
        "threads": ["std::jthread a([&] {});", "std::thread a(f);", "auto a = std::async(f);", "std::vector<std::jthread> all;", "pthread_create(&a, 0, f, 0);"],
        "members": ["class a { joined_thread thread_; int later_; };", "struct a { joined_thread thread_{[this] { f(); }}; std::string s; };"],
        "sleeps": ["std::this_thread::sleep_for(1s);", "::usleep(5);", "sleep_until(end);"],
        "children": ["const pid_t a = ::fork();", "::waitpid(a, &status, 0);"],
        "ports": ["connect(\"127.0.0.1:8002\");", "f(\"tcp://localhost:1\");", "f(local(1));", "at.sin_port = htons(1);"],
        "answers": ["server.instead = [&](int) {};", "server.instead = [&, n](int) {};"],
        "names": ["auto a = testing::TempDir() + \"x\";", "f(\"x\" + std::to_string(::getpid()));"],
        "waits": ["import subprocess\nsubprocess.run(['a'])", "subprocess.Popen(['a'])", "threading.Thread(target=f)", "time.sleep(1)"],
    }
    right = {
        "threads": ["joined_thread a([&] {});", "std::this_thread::yield();", "// std::thread", "int thread = 1;", "std::thread::id a;"],
        "members": ["class a { int before_; joined_thread thread_; };", "joined_thread a([&] {}); int b;", "struct a { joined_thread thread_{[this] { f(); }}; };"],
        "sleeps": ["be_slow(1s);", "f(\"sleep_for\");"],
        "children": ["random_.fork()", "::waitpid(-1, nullptr, WNOHANG);\n", "child_process a(f);"],
        "ports": ["open(\"127.0.0.1:0\");", "local(port);", "f(local(0));", "at.sin_port = htons(port);"],
        "answers": ["server.instead = [this](int) {};", "const answering here(server, [&](int) {});"],
        "names": ["own_folder folder;", "EXPECT_EQ(who.process, ::getpid());"],
        "waits": ["subprocess.run(['a'], timeout=5)", "processes.Program(['a'])", "threading.Thread(target=f, daemon=True)", "asyncio.sleep(1)"],
    }
    for rule in wrong:
        for text in wrong[rule]:
            assert found(text + "\n", rule), f"{rule} does not find: {text}"
        for text in right[rule]:
            assert not found(text + "\n", rule), f"{rule} takes for wrong: {text}"
    print("each rule finds what it is for")
    return 0


def main():
    if sys.argv[1:] == ["--test"]:
        return test()
    root, count = Path(sys.argv[1]), 0
    for file in sorted(f for f in (root / "tests").rglob("*") if f.suffix in (".cpp", ".hpp", ".py")):
        path = file.relative_to(root).as_posix()
        for rule in rules_for(path):
            for line, what in found(file.read_text(), rule):
                print(f"{path}:{line}: {what}")
                count += 1
    print("no test depends on luck in a form that is known" if count == 0 else f"{count} places; the helpers are in tests/support")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
