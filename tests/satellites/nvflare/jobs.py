"""Jobs of NVIDIA FLARE with its own processes, whose models travel by tensorpull: jobs.py [--list] [CASE...]. Without a case: those of the ordinary run,
or all of them if TENSORPULL_NVFLARE_ALL is 1.

A case looks at how the job ends, at the final model, and at the way that the log states for each transfer. Models of the tests are small, so all cases but small_model set
NVFLARE_TENSORPULL_LEAST_BYTES=0.

Needs nvflare and torch; without them it ends with 77, which ctest takes for skipped. Processes are ended that have this run's folder in their command line
or their environment.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path += [os.path.join(os.path.dirname(__file__), "..", name) for name in ("../support", "python")]
import processes  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import recipes  # noqa: E402

BY_US, BY_FLARE = r"tensorpull: ref=\S+ from \S+ by tensorpull: done", r"tensorpull: ref=\S+ from \S+ by FLARE's chunks: done"
UPDATE_BY_US, UPDATE_BY_FLARE = BY_US.replace("from ", "from site-"), BY_FLARE.replace("from ", "from site-")
OURS = "tensorpull.nvflare.decomposers.tensor.TensorDecomposer"
CASES = {}
ORDINARY = ["poc", "signed_models", "where_one_site_cannot_import_it", "recipe_fedavg", "devices"]
ARRAYS = ("--format", "numpy")  #: FLARE's own default
#: Warnings of the two ends when the other one has no package.
GAVE_BACK, NO_OFFER = "gave the offer back, so it has no tensorpull", "it offers nothing, so it has no tensorpull"


def case(f):
    CASES[f.__name__] = f
    return f


def until(what, seconds, why):
    """These limits only end a test that hangs."""
    assert processes.eventually(what, seconds), why


class Job:
    def __init__(self, *arguments, poc=False, clients=2, rounds=2, program=None, **environment):
        self.folder = tempfile.mkdtemp(prefix="tensorpull-nvflare-")
        self.port = processes.OwnPort()
        self.clients, self.rounds, self.poc, self.large = clients, rounds, poc, "--large" in arguments
        self.last_word = "" if program else "ENDED"
        self.counted = range(1, clients + 1)  # whose updates are in the model
        self.frozen, self.lost = environment.get("TENSORPULL_FROZEN"), 0  # elements whose bits nobody changed, and that are others in the end
        command = [sys.executable, os.path.join(HERE, "job.py"), "--folder", self.folder, "--clients", str(clients), "--rounds", str(rounds), *arguments]
        if program:  # of an example
            command = [sys.executable, program, "--workspace", self.folder, "--rounds", str(rounds), *arguments]
        env = {**os.environ, "NVFLARE_POC_WORKSPACE": self.folder, "OMP_NUM_THREADS": "1", "HOME": self.folder}
        env["NVFLARE_TENSORPULL_LEAST_BYTES"] = "0"  # most models of these tests are small
        env.update({name: value.replace("FOLDER", self.folder) for name, value in environment.items()})
        if not program:
            env["PYTHONPATH"] = os.pathsep.join([HERE, os.path.join(HERE, "missing"), *filter(None, [env.get("PYTHONPATH")])])
        if poc:
            command += ["--poc", self._project()]
        self.console = open(os.path.join(self.folder, "console.txt"), "w+")
        self.process = processes.Program(
            command, env=env, cwd=self.folder if not program else os.path.dirname(program), stdin=subprocess.PIPE, stdout=self.console, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip

    def _project(self):
        sites = [{"name": f"site-{i + 1}", "type": "client", "org": "nvidia"} for i in range(self.clients)]
        people = [{"name": "admin@nvidia.com", "type": "admin", "org": "nvidia", "role": "project_admin"}]
        server = {"name": "server", "type": "server", "org": "nvidia", "fed_learn_port": self.port.number, "default_host": "localhost"}
        builders = [
            {"path": "nvflare.lighter.impl.workspace.WorkspaceBuilder", "args": {"template_file": ["master_template.yml", "aws_template.yml", "azure_template.yml"]}},
            {"path": "nvflare.lighter.impl.static_file.StaticFileBuilder", "args": {"config_folder": "config"}},
            {"path": "nvflare.lighter.impl.cert.CertBuilder"},
            {"path": "nvflare.lighter.impl.signature.SignatureBuilder"},
        ]
        path = os.path.join(self.folder, "given.yml")
        with open(path, "w") as f:  # JSON is YAML
            json.dump({"api_version": 3, "name": "project", "description": "tests", "participants": [server, *sites, *people], "builders": builders}, f)
        return path

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None and kind is not KeyboardInterrupt:
            print(self.said()[-6000:], file=sys.stderr)
            for path in glob.glob(f"{glob.escape(self.folder)}/**/log.txt", recursive=True):
                with open(path, errors="replace") as f:
                    lines = [line for line in f if re.search("tensorpull|ERROR|WARN", line)]
                print(f"== {path}\n{''.join(lines)[-3000:]}", file=sys.stderr)
        for sig in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.processes():
                try:
                    os.kill(pid, sig)
                except ProcessLookupError:
                    pass
            processes.eventually(lambda: not self.processes(), 5 if sig == signal.SIGTERM else 1)
        self.process.wait(10)
        self.process.stdin.close()
        self.console.close()
        if not os.environ.get("TENSORPULL_KEEP"):
            shutil.rmtree(self.folder, ignore_errors=True)

    def processes(self, *words):
        """Those of this run, and nobody else's: the name of its folder is in their command line or in their environment."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f, open(f"/proc/{pid}/environ", "rb") as e, open(f"/proc/{pid}/stat") as s:
                    text, around, state = f.read().decode(errors="replace").replace("\0", " "), e.read().decode(errors="replace"), s.read().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state != "Z" and int(pid) != os.getpid() and (self.folder in text or self.folder in around) and all(w in text for w in words):
                found.append(int(pid))
        return found

    def said(self):
        self.console.flush()
        with open(self.console.name, errors="replace") as f:
            return f.read()

    def logs(self, site="*"):
        text = ""
        for path in glob.glob(f"{glob.escape(self.folder)}/**/log.txt", recursive=True):
            if site == "*" or f"/{site}/" in path:
                with open(path, errors="replace") as f:
                    text += f.read()
        return text

    def count(self, pattern, site="*"):
        return len(set(re.findall(f".*{pattern}.*", self.logs(site))))

    def ask(self, word, answer, seconds=300):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.hear(answer, seconds)

    def hear(self, answer, seconds=300):
        until(lambda: re.search(f"^{answer}( .*)?$", self.said(), re.M) or self.process.poll() is not None, seconds, f"no {answer}")
        found = re.findall(f"^{answer}(?: (.*))?$", self.said(), re.M)
        assert found, f"job.py ended with {self.process.poll()} before {answer}"
        return json.loads(found[-1]) if found[-1] else None

    def runs_to_its_end(self, seconds=300):
        until(lambda: self.process.poll() is not None, seconds, "it does not end")
        assert self.last_word in self.said() and self.process.returncode == 0, self.process.returncode

    def results(self, seconds=300):
        """Of the jobs in POC, each of which has one."""
        self.hear("JOBS")
        results = self.ask("results", "RESULTS", seconds)
        assert results and all(results), results
        return results

    def ends(self, seconds=300):
        """It ran to its end, and the model is what it has to be."""
        if self.poc:
            for result in self.results(seconds):
                self.check(glob.glob(f"{glob.escape(result)}/**/FL_global_model.pt", recursive=True))
            self.ask("stop", "STOPPED")
        else:
            self.runs_to_its_end(seconds)
            self.check(glob.glob(f"{glob.escape(self.folder)}/**/FL_global_model.pt", recursive=True))

    def check(self, found):
        import torch

        import model

        assert found, "there is no model at the end"
        got = torch.load(found[0], weights_only=False)
        got = got.get("model", got)
        hasher = hashlib.sha256()
        grows = self.rounds * 1e-3 * sum(self.counted) / len(self.counted)
        for name, value in model.Model(**(model.LARGE if self.large else model.SMALL)).state_dict().items():
            hasher.update(name.encode() + torch.as_tensor(got[name]).numpy().tobytes())
            if self.frozen and name.startswith(self.frozen):
                self.lost += int((torch.as_tensor(got[name]).view(torch.int32) != value.view(torch.int32)).sum())
                assert torch.allclose(torch.as_tensor(got[name]), value, atol=1e-5), f"{name} is wrong"
            else:
                assert torch.allclose(torch.as_tensor(got[name]), value + grows, atol=1e-5), f"{name} is wrong"
        self.digest = hasher.hexdigest()

    def between_sites(self, pattern=UPDATE_BY_US):
        """Transfers from one site to another."""
        return sum(self.count(pattern, f"site-{i + 1}") for i in range(self.clients))

    def all_by_us(self, jobs=1):
        each = self.clients * self.rounds * jobs
        assert self.count(UPDATE_BY_US) == each, f"{self.count(UPDATE_BY_US)} updates of {each} by tensorpull"
        assert self.count(BY_US) >= 2 * each, f"{self.count(BY_US)} transfers of {2 * each} by tensorpull"
        assert not self.count(BY_FLARE), "some went by FLARE's chunks"


@case
def simulator():
    """Both ways by tensorpull."""
    with Job() as job:
        job.ends()
        job.all_by_us()


@case
def json_component():
    """A job of JSON files that were written by hand, with FLARE's component that registers the decomposer."""
    with Job("--json") as job:
        job.ends()
        job.all_by_us()


@case
def poc():
    """Processes of their own with the certificates of the startup kit: TLS, and no port at the clients."""
    with Job(poc=True, rounds=1) as job:
        job.ends()
        job.all_by_us()
        assert job.count("pulls from tls://"), "it was not TLS"


@case
def arrays_in_poc():
    """FLARE's own default format, with processes and certificates of their own."""
    with Job(*ARRAYS, poc=True, rounds=1) as job:
        job.ends()
        job.all_by_us()
        assert job.count("pulls from tls://"), "it was not TLS"


def signs(folder, trusted="ours"):
    """The environment of a server that has the key `ours`, and of sites that trust that of this name."""
    from authority import signing_keys

    keys = signing_keys(pathlib.Path(folder), "ours", "other")
    return {"NVFLARE_TENSORPULL_KEY": f"{keys}/ours.pem", "NVFLARE_TENSORPULL_FEDERATION": "hospitals", "NVFLARE_TENSORPULL_KEYS": f"{keys}/{trusted}.line"}


def with_proofs(f):
    """A case that a build without OpenSSL cannot run."""

    def run():
        from tensorpull import _native

        return f() if _native.has_proofs else print("left out: this build has no proofs")

    CASES[f.__name__] = run
    return f


@with_proofs
def signed_models():
    """Processes of their own, whose server signs each round's model; sites that trust its key prove it."""
    with tempfile.TemporaryDirectory() as folder, Job(poc=True, **signs(folder)) as job:
        job.ends()
        job.all_by_us()
        assert job.count("and proved") == 4, "a model was not proved"


@with_proofs
def a_signed_model_reaches_an_external_trainer():
    with tempfile.TemporaryDirectory() as folder, Job("--external", **signs(folder)) as job:
        job.ends()
        assert job.count("and proved") == 4 and not job.count("FLARE's chunks"), "a model was not proved"


@with_proofs
def models_that_no_trusted_key_has_signed():
    """Sites refuse them by name, whatever else FLARE would carry them by; no site trains."""
    for trusted, given, why in (("other", True, "no trusted key has signed this reference"), ("ours", False, "it is not signed")):
        for how in ((), ("--external",)):
            with tempfile.TemporaryDirectory() as folder:
                around = signs(folder, trusted)
                if not given:
                    del around["NVFLARE_TENSORPULL_KEY"]
                with Job(*how, **around, rounds=1) as job:
                    until(lambda job=job, why=why: job.process.poll() is not None or job.count(why), 300, "no site refuses")
                    assert job.count(why) and not job.count(BY_US) and not job.count(BY_FLARE), job.logs()[-3000:]


def each_format(f):
    """A case for tensors, and one for arrays."""
    CASES[f.__name__] = lambda: f()
    CASES[f"{f.__name__}_with_arrays"] = lambda: f(*ARRAYS)
    return f


@each_format
def bit_for_bit(*format_):
    """The final model of two sites is the same as without tensorpull."""
    digests = []
    for decomposer in ("none", OURS):
        with Job("--server", decomposer, "--site", decomposer, *format_) as job:
            job.ends()
            digests.append(job.digest)
    assert digests[0] == digests[1], digests


@each_format
def a_task_has_one_digest(*format_):
    """The sites of a task share the pass over the model's bytes."""
    with Job("--server", "lies.Telling", "--site", OURS, *format_, clients=3) as job:
        job.ends()
        job.all_by_us()
        told = job.count("published with its first digest"), job.count("published with a known digest")
        assert told == (2, 4), told


@each_format
def fallback_where_only_the_server_has_it(*format_):
    """Sites with an older version, or without this package, go on with FLARE's chunks."""
    with Job("--site", "none", *format_, rounds=1) as job:
        job.ends()
        assert not job.count(BY_US)
        assert job.count(UPDATE_BY_FLARE) == 2
        assert job.count(f"WARNING - tensorpull: .* go to .*{GAVE_BACK}") == 2 and job.count(f"WARNING - tensorpull: .* come from site-.*{NO_OFFER}") == 2


@each_format
def fallback_where_only_the_sites_have_it(*format_):
    with Job("--server", "none", *format_, rounds=1) as job:
        job.ends()
        assert not job.count(BY_US)
        assert job.count(f"WARNING - tensorpull: .* go to .*{GAVE_BACK}") == 2 and job.count(f"WARNING - tensorpull: .* come from server.*{NO_OFFER}") == 2


@each_format
def fallback_where_one_of_two_sites_has_it(*format_):
    decomposer = "lies.NotAtTheSecondSite"
    with Job("--server", decomposer, "--site", decomposer, *format_) as job:
        job.ends()
        assert job.count(BY_US, "site-1") == 2 and job.count(UPDATE_BY_US) == 2 and job.count(UPDATE_BY_FLARE) == 2
        assert not job.count("tensorpull: ref", "site-2")


CANNOT_IMPORT = "WARNING - tensorpull: models travel by FLARE's chunks in this process, which cannot import"


def without_it_at_the_second_site(job, sampled=None):
    """It is the one whose models go by FLARE's chunks, and each end gives one warning. `sampled`: the sites of each round, if they are not all."""
    rounds = sampled or [[f"site-{i + 1}" for i in range(job.clients)]] * job.rounds
    there, missing = sum(site != "site-2" for sites in rounds for site in sites), sum("site-2" in sites for sites in rounds)
    assert job.count(UPDATE_BY_US) == there and job.count(BY_US) == 2 * there and not job.count("tensorpull: ref", "site-2")
    assert job.count(UPDATE_BY_FLARE) == job.count(UPDATE_BY_FLARE.replace("site-", "site-2")) == missing
    one = 1 if missing else 0
    assert job.count(f"WARNING - tensorpull: .* go to .*{GAVE_BACK}") == job.count(f"WARNING - tensorpull: .* come from site-2.*{NO_OFFER}") == one
    assert job.count(CANNOT_IMPORT, "site-2")


@each_format
def where_one_site_cannot_import_it(*format_):
    """Without the package, or with one that is broken, a site goes on with FLARE's chunks, and so does the job."""
    with Job("--site", "wherever it is", *format_, TENSORPULL_NOT_AT="site-2") as job:
        job.ends()
        without_it_at_the_second_site(job)


@case
def where_one_site_has_no_compiler():
    """An installation without its compiled half."""
    with Job("--site", "wherever it is", TENSORPULL_NOT_AT="site-2", TENSORPULL_LACKS="tensorpull._native") as job:
        job.ends()
        without_it_at_the_second_site(job)


def with_fewer_sites_in_each_round(poc):
    with Job("--site", "wherever it is", "--min-clients", "2", poc=poc, clients=3, rounds=3, TENSORPULL_NOT_AT="site-2") as job:
        sampled = []

        def the_sites():
            sampled[:] = [re.findall(r"site-\d", chosen) for chosen in re.findall(r"Sampled clients: \[(.*)\]", job.logs("server"))]
            return len(sampled) == 3

        until(the_sites, 300, "it has not begun three rounds")
        job.counted = [int(site[-1]) for sites in sampled for site in sites]
        job.ends()
        assert all(len(sites) == 2 for sites in sampled), sampled
        without_it_at_the_second_site(job, sampled)


@case
def where_one_site_cannot_import_it_in_poc():
    """With certificates, and with fewer sites in each round than there are."""
    with_fewer_sites_in_each_round(poc=True)


@case
def where_one_site_cannot_import_it_and_fewer_take_part():
    with_fewer_sites_in_each_round(poc=False)


@case
def where_one_site_has_no_torch():
    """NumPy's arrays travel by tensorpull all the same."""
    with Job("--recipe", "numpy_fedavg", "--site", "wherever it is", TENSORPULL_NOT_AT="site-2", TENSORPULL_LACKS="torch") as job:
        job.runs_to_its_end()
        assert job.count(BY_US) == 8 and not job.count(BY_FLARE)
        assert job.count("NumPy's arrays are offered and pulled", "site-2") and not job.count("PyTorch's tensors are offered and pulled", "site-2")


def another_version(name, by, **where):
    def run():
        with Job("--server", "lies.AnotherVersionAtTheSecondSite", "--site", "lies.AnotherVersionAtTheSecondSite", TENSORPULL_VERSION=by, **where) as job:
            job.ends()
            assert job.count(BY_US, "site-1") == job.rounds and job.count(UPDATE_BY_US) == job.rounds and not job.count(BY_US, "site-2")
            assert job.count(BY_FLARE, "site-2") == job.count(UPDATE_BY_FLARE) == job.rounds
            for owner in ("server", "site-2"):  # one warning at each end; the server's log of a job may have moved by now
                assert job.count(f"WARNING - tensorpull: what comes from {owner}.*its version is not known here") == 1, owner

    CASES[f"where_one_site_is_{name}"] = run


another_version("older", "-1")
another_version("newer", "1")
another_version("newer_in_poc", "1", poc=True)


@each_format
def switched_off(*format_):
    with Job("--settings", '{"tensorpull_enabled": false}', *format_, rounds=1) as job:
        job.ends()
        assert not job.count(BY_US) and job.count(BY_FLARE)


@each_format
def chunk_size_0(*format_):
    """FLARE's word for: in the message itself. Nothing is downloaded then. At the server alone, sites still let their updates be downloaded, but not by tensorpull."""
    zero = '{"np_download_chunk_size": 0, "tensor_download_chunk_size": 0}'
    for where, updates in (("--settings", 0), ("--server-settings", 2)):
        with Job(where, zero, *format_, rounds=1) as job:
            job.ends()
            assert not job.count(BY_US) and job.count(BY_FLARE) == job.count(UPDATE_BY_FLARE) == updates and not job.count("WARNING - tensorpull")


@each_format
def chunk_size_of_64_kib(*format_):
    """The size of FLARE's chunks; what is pulled by tensorpull has none of them."""
    with Job("--settings", '{"np_download_chunk_size": 65536, "tensor_download_chunk_size": 65536}', *format_, rounds=1) as job:
        job.ends()
        job.all_by_us()


def recipe(name):
    """A row of the page's table of recipes."""

    def run():
        row = recipes.ROWS[name]
        if row.needs and importlib.util.find_spec(row.needs) is None:
            print(f"recipe_{name}: skipped: there is no {row.needs}", flush=True)
            return
        decomposer = f"tensorpull.nvflare.decomposers.{row.decomposer}"
        with Job("--recipe", name, "--server", decomposer, "--site", decomposer) as job:
            job.runs_to_its_end()
            between, updates, all_ = job.between_sites(), job.count(UPDATE_BY_US), job.count(BY_US)
            assert (all_ - updates, updates - between, between) == (row.tasks, row.updates, row.between_sites), (all_ - updates, updates - between, between)
            assert (row.chunks or not job.count(BY_FLARE)) and not job.count(" - ERROR - ")

    CASES[f"recipe_{name}"] = run


for name in recipes.ROWS:
    recipe(name)


@case
def swarm_without_the_door():
    """It is switched off: FLARE's chunks carry what sites send to each other, as without this package."""
    with Job("--recipe", "swarm", "--settings", '{"tensorpull_pairs": 0}') as job:
        job.runs_to_its_end()
        assert not job.count(BY_US) and job.between_sites(UPDATE_BY_FLARE) == 6 and not job.count(" - ERROR - ")


@case
def swarm_where_only_the_sites_have_it():
    """The server has no door: it is asked once by each site, and FLARE's chunks go on."""
    with Job("--recipe", "swarm", "--server", "none") as job:
        job.runs_to_its_end()
        assert not job.count(BY_US) and job.between_sites(UPDATE_BY_FLARE) == 6


@case
def swarm_in_poc():
    """TLS to the door, and each site shows its certificate."""
    with Job("--recipe", "swarm", poc=True, TENSORPULL_NOT_PRIVATE="1") as job:
        job.results()
        job.ask("stop", "STOPPED")
        assert job.between_sites() == 6 and not job.count(BY_FLARE) and job.count("pulls from tls://") == 6


@case
def swarm_that_flare_encrypts():
    """From site to site, as FLARE does with certificates unless a job turns it off: TLS between the two sites, through the door of the server's process."""
    with Job("--recipe", "swarm", poc=True) as job:
        job.results()
        job.ask("stop", "STOPPED")
        assert job.between_sites() == 6 and not job.count(BY_FLARE) and job.count("through the door") == 6


@case
def external_swarm_that_flare_encrypts():
    """The trainer has no certificate: its job process shows its own. An update for the trainer's own site does not leave it."""
    with Job("--recipe", "external_swarm", poc=True) as job:
        job.results()
        job.ask("stop", "STOPPED")
        assert job.between_sites() == 6 and job.count("through the door") == 6 and job.count(BY_US.replace(r"from \S+", r"from \S+client_api_trainer\S+")) == 2


@case
def swarm_memory():
    """Three sites, 84 MB, eight rounds: the server holds no model of theirs, and no more in the second half than in the first."""
    held = {}
    for decomposer in ("none", OURS):
        large = {"TENSORPULL_LARGE": "1", "TENSORPULL_SITES": "3", "TENSORPULL_ROUNDS": "8"}
        with Job("--recipe", "swarm", "--server", decomposer, "--site", decomposer, clients=3, **large) as job:
            seen = held[decomposer] = []
            while job.process.poll() is None:
                for pid in set(job.processes("simulator")) - set(job.processes("simulator_worker")):  # the server; the sites are workers
                    try:
                        with open(f"/proc/{pid}/status") as f:
                            seen.append(int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) >> 10)
                    except (OSError, TypeError):
                        pass
                processes.be_slow(0.1)
            job.runs_to_its_end()
            if decomposer == OURS:
                assert job.between_sites() and not job.count(BY_FLARE)
                passed = job.count("through the door")
    stock, ours = (max(seen) for seen in held.values())
    half = len(held[OURS]) // 2
    first, second = max(held[OURS][half // 2 : half]), max(held[OURS][half:])
    print(f"swarm_memory: MiB at most, without and with {stock, ours}; with, by halves {first, second}; {passed} models passed through", flush=True)
    assert second < first + 20 and ours < stock + 20, held


@case
def small_model():
    """Below the size that is worth an offer both ends are content with FLARE's chunks."""
    with Job(rounds=1, NVFLARE_TENSORPULL_LEAST_BYTES="2097152") as job:
        job.ends()
        assert not job.count(BY_US) and job.count(UPDATE_BY_FLARE) == 2
        assert not job.count("tensorpull: .* goes on with FLARE's chunks")


@case
def another_host_is_not_called():
    """The server says that it is elsewhere; its sites know where FLARE's server is."""
    with Job("--settings", '{"tensorpull_host": "192.0.2.1"}', rounds=1) as job:
        job.ends()
        assert not job.count(BY_US) and job.count("is not the FLARE server's")


def lie(name, reason):
    def run(*format_):
        with Job("--server", f"lies.{name}", "--site", f"lies.{name}", *format_, rounds=1) as job:
            job.ends()
            assert job.count(BY_FLARE), "nothing went by FLARE's chunks"
            assert job.count(reason), f"no {reason}"

    run.__name__ = f"lie_{re.sub('(?<=[a-z])(?=[A-Z])', '_', name).lower()}"
    each_format(run)


lie("AnotherAddress", "is not the FLARE server's")
lie("ForeignReference", "it is another model than FLARE's reference says")
lie("WrongVersion", "its version is not known here")
lie("WrongModel", "it is for another site")
lie("AnotherSchema", "its names are not those that FLARE gives")
lie("Exabyte", "its size is 1152921504606846976 bytes")
lie("Nonsense", "it is no offer")


@case
def disk_offload():
    """Updates land in files; FLARE's aggregation opens them."""
    with Job("--disk") as job:
        job.ends()
        job.all_by_us()


@case
def disk_offload_where_only_the_server_has_it():
    with Job("--disk", "--site", "none", rounds=1) as job:
        job.ends()
        assert not job.count(BY_US) and job.count(f"WARNING - tensorpull: .* come from site-.*{NO_OFFER}") == 2


@each_format
def port_that_dies_in_mid_transfer(*format_):
    with Job("--large", "--server", "lies.DyingInMidTransfer", "--settings", '{"tensorpull_bytes_per_second": 20000000}', *format_, rounds=1, clients=1) as job:
        job.ends()
        assert job.count("goes on with FLARE's chunks", "site-1"), "the model did not fall back"
        assert job.count(UPDATE_BY_US) == 1, "the update came another way"


@case
def longer_than_time_outs():
    """A pull of 21 s, where FLARE gives up a model that nobody asks for within 8 s."""
    settings = {"tensorpull_bytes_per_second": 4_000_000, "tensorpull_sign_of_life": 2.0, "tensor_min_download_timeout": 8.0, "streaming_idle_timeout": 8.0, "streaming_receiver_idle_timeout": 8.0}
    with Job("--large", "--settings", json.dumps(settings), rounds=1, clients=1) as job:
        job.ends()
        job.all_by_us()


@each_format
def external_trainer(*format_):
    """A trainer in a process of its own: its site's job process pulls and sends for it."""
    with Job("--external", *format_) as job:
        job.ends()
        job.all_by_us()


@case
def external_trainer_in_poc():
    """With certificates, of which the trainer has none: the job process pulls and sends over TLS."""
    with Job("--external", poc=True, rounds=1) as job:
        job.ends()
        job.all_by_us()
        assert job.count("pulls from tls://") == 2 and not job.count("WARNING - tensorpull")


@case
def external_trainer_that_cannot_import_it():
    """It goes on with FLARE's chunks, and so does the job."""
    with Job("--external", rounds=1, TENSORPULL_NOT_IN_TRAINERS="1") as job:
        job.ends()
        assert not job.count(BY_US) and job.count(UPDATE_BY_FLARE) == 2
        assert job.count("models travel by FLARE's chunks in this trainer: ModuleNotFoundError") == 2


@each_format
def external_trainer_without_memory_to_share(*format_):
    """The job process has the model, and FLARE's server has let go of it: FLARE's chunks bring it from the one process to the other."""
    with Job("--external", *format_, clients=1, rounds=2, TENSORPULL_NO_MEMORY="1") as job:
        job.ends()
        assert job.count("go on to the trainer by FLARE's chunks") >= 1 and job.count(UPDATE_BY_US) == 2


def figures(job, lines):
    """What each rank has noted, once there are so many lines."""
    path = os.path.join(job.folder, "figures")
    until(lambda: os.path.exists(path) and open(path).read().count("\n") >= lines or job.process.poll() is not None, 400, "the ranks have no model")
    with open(path) as f:
        return [json.loads(line) for line in f]


@each_format
def external_trainer_of_four_ranks(*format_):
    """All of them map the same pages, and what one writes no other sees."""
    with Job("--ranks", "4", *format_, clients=1, TENSORPULL_FIGURES="FOLDER/figures") as job:
        job.ends()
        job.all_by_us()
        noted = figures(job, 8)
        by_round = [noted[:4], noted[4:]]
        assert all({line["rank"] for line in of} == {0, 1, 2, 3} for of in by_round), noted
        if all(line["seen"] for line in noted):  # it needs a right of the system's administrator
            assert all(len({line["pages"] for line in of}) == 1 for of in by_round), noted
        else:
            print("external_trainer_of_four_ranks: the kernel does not show which pages", flush=True)


@case
def external_trainer_whose_rank_is_killed():
    """FLARE decides what becomes of the job. No memory of the trainer's stays with a process."""

    def mapping():
        found = []
        for pid in job.processes():
            try:
                with open(f"/proc/{pid}/maps") as f:
                    found += [pid] if "memfd:tensorpull" in f.read() else []
                found += [pid for fd in os.listdir(f"/proc/{pid}/fd") if "memfd:tensorpull" in os.readlink(f"/proc/{pid}/fd/{fd}")]
            except OSError:
                pass
        return set(found)

    with Job("--ranks", "4", clients=1, TENSORPULL_FIGURES="FOLDER/figures", TENSORPULL_WAIT="FOLDER/wait") as job:
        open(os.path.join(job.folder, "wait"), "w").close()
        ranks = figures(job, 4)
        had = mapping()
        assert len(had) == 5, (had, ranks)  # the ranks and the job process
        last = next(line["pid"] for line in ranks if line["rank"] == 2)
        os.kill(last, signal.SIGKILL)
        os.remove(os.path.join(job.folder, "wait"))
        until(lambda: not mapping(), 300, "a process has memory of the trainer's")


def pss(pids):
    """MB of memory of these processes together, each page counted once."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            total += next(int(line.split()[1]) for line in f if line.startswith("Pss:"))
    return total * 1024 / 1e6


@case
def external_trainer_memory():
    """Before training, four ranks and their site's job process hold little more than one model of 400 MB together, and at least four as FLARE's users send it on."""
    held = {}
    for stock in (True, False):
        for megabytes in (0, 400):
            more = {"TENSORPULL_STOCK": "1"} if stock else {}
            decomposer = "none" if stock else OURS
            what = ("--ranks", "4", "--megabytes", str(megabytes), "--server", decomposer, "--site", decomposer)
            with Job(*what, clients=1, rounds=1, TENSORPULL_FIGURES="FOLDER/figures", TENSORPULL_WAIT="FOLDER/wait", **more) as job:
                open(os.path.join(job.folder, "wait"), "w").close()
                ranks = [line["pid"] for line in figures(job, 4)]
                of_site = {*ranks, *job.processes("torch.distributed.run"), *job.processes("simulator_worker")}
                assert len(of_site) >= 6, of_site
                held[stock, megabytes] = pss(of_site)
    models = {stock: (held[stock, 400] - held[stock, 0]) / 400 for stock in (True, False)}
    print(f"external_trainer_memory: models of 400 MB that the site holds: {models[False]:.2f}, and {models[True]:.2f} without tensorpull; MB {held}", flush=True)
    assert models[False] <= 1.3 and models[True] >= 4, models


@case
def external_trainer_times():
    """With 400 MB and six rounds, in turns with stock: seconds from the job process's word that there is a task until the trainer has the model, and until the server has the update."""
    taken = {}
    for _ in range(int(os.environ.get("TENSORPULL_TURNS", 2))):
        for stock in (True, False):
            decomposer = "none" if stock else OURS
            with Job("--external", "--megabytes", "400", "--server", decomposer, "--site", decomposer, clients=1, rounds=6) as job:
                job.runs_to_its_end(900)
                told, had = (
                    [60 * int(m) + int(s) + int(ms) / 1000 for m, s, ms in re.findall(r" \d+:(\d+):(\d+),(\d+) .*" + word, job.logs("site-1"))]
                    for word in ("sending TASK_READY", "waiting for result")
                )
                taken.setdefault((stock, "to the trainer"), []).extend((b - a) % 3600 for a, b in zip(told, had))
                taken.setdefault((stock, "to the server"), []).extend(map(float, re.findall(r"download ref=\S+ done: elapsed=([\d.]+)s", job.logs("server"))))
    middle = {key: statistics.median(value) for key, value in taken.items()}
    for way in ("to the trainer", "to the server"):
        print(f"external_trainer_times: {way} {middle[False, way]:.2f} s, and {middle[True, way]:.2f} s without tensorpull; all {taken}", flush=True)
        assert middle[False, way] < middle[True, way], middle


SLOW = json.dumps({"tensorpull_bytes_per_second": 2_000_000})


@case
def client_kill():
    """FLARE decides what becomes of the job. Nothing of it stays, and the server goes on."""
    with Job("--large", "--settings", SLOW, poc=True, rounds=1) as job:
        (id_,) = job.hear("JOBS")
        until(lambda: job.count("tensorpull: .* pulls", "site-1"), 120, "nothing is pulled")
        for pid in job.processes(id_, "site-1"):
            os.kill(pid, signal.SIGKILL)
        until(lambda: job.count(BY_US, "site-2") or not job.processes(id_), 180, "the other site neither goes on nor ends")
        if job.processes(id_):
            job.ask("abort", "ABORTED")
        until(lambda: not job.processes(id_), 120, "processes of the job stay")
        assert job.ask("status", "STATUS")
        job.ask("stop", "STOPPED")


@case
def abort():
    with Job("--large", "--settings", SLOW, poc=True, rounds=1) as job:
        (id_,) = job.hear("JOBS")
        until(lambda: job.count("tensorpull: .* pulls", "site-1"), 120, "nothing is pulled")
        job.ask("abort", "ABORTED")
        until(lambda: not job.processes(id_), 120, "processes of the job stay")
        job.ask("stop", "STOPPED")


@case
def server_kill():
    """The sites hear it and end, as they do without tensorpull."""
    with Job("--large", "--settings", SLOW, poc=True, rounds=1) as job:
        (id_,) = job.hear("JOBS")
        until(lambda: job.count("tensorpull: .* pulls", "site-1"), 120, "nothing is pulled")
        killed = [pid for pid in job.processes(id_) if pid not in job.processes("site-")]
        assert killed
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        until(lambda: not job.processes(id_), 180, "processes of the job stay")
        job.ask("stop", "STOPPED")


@each_format
def what_did_not_change_keeps_its_bits(*format_):
    """With the aggregator of differences, of updates that come at once and of those that wait. With FLARE's own sum some of it changes."""
    lost = {}
    for more in ((), ("--differences",), ("--differences", *LAZY)):
        with Job(*more, *format_, clients=3, TENSORPULL_FROZEN="embedding") as job:
            job.counted = [1, 2, 2, 3, 3, 3]
            job.ends()
            lost[more] = job.lost
    assert [n == 0 for n in lost.values()] == [False, True, True], lost


LEFT_OUT = r"an update of site-4 is left out of this round: \S+ has infinities or NaNs"


def learnt(job):
    """The accuracy of the final model, its digest, and the steps that it has counted."""
    import torch

    import digits

    (path,) = glob.glob(f"{glob.escape(job.folder)}/**/FL_global_model.pt", recursive=True)
    got = torch.load(path, weights_only=False)
    got = {name: torch.as_tensor(value) for name, value in got.get("model", got).items()}
    model = digits.Digits()
    model.load_state_dict(got)
    hasher = hashlib.sha256(b"".join(name.encode() + value.numpy().tobytes() for name, value in sorted(got.items())))
    return digits.accuracy(model, *digits.digits(job.digits)), hasher.hexdigest(), int(got["steps"])


def learns(folder, *arguments, **environment):
    """Four sites, six rounds of digits: of DIGITS, or 2,400 that are made up."""
    import misbehaving

    path = os.environ.get("DIGITS")
    if not path:
        path = os.path.join(folder, "digits.csv")
        if not os.path.exists(path):
            misbehaving.write_digits(path, 2400)
    with Job("--digits", *arguments, clients=4, rounds=6, DIGITS=path, TENSORPULL_SITES="4", **environment) as job:
        job.digits = path
        job.runs_to_its_end()
        job.all_by_us()
        return (*learnt(job), job.count(LEFT_OUT), job.count("so the old model stays"))


HOSTILE = {"TENSORPULL_HOSTILE": "site-3"}


@case
def one_hostile_site_of_four():
    """It sends its step times -10. The mean of FLARE learns nothing then; what looks first learns what the mean of honest sites does."""
    with tempfile.TemporaryDirectory(prefix="tensorpull-hostile-") as folder:
        found = {
            "the mean, all honest": learns(folder),
            "the mean": learns(folder, **HOSTILE),
            "clip_norms": learns(folder, "--weighing", "clip_norms", **HOSTILE),
            "clip_norms, updates that wait": learns(folder, "--weighing", "clip_norms", *LAZY, **HOSTILE),
            "trimmed, arrays": learns(folder, "--weighing", "trimmed", *ARRAYS, **HOSTILE),
            "the three that are nearest to each other": learns(folder, "--weighing", "nearest", **HOSTILE),
        }
    for name, (right, digest, *_) in found.items():
        print(f"one_hostile_site_of_four: {name}: {right:.3f} {digest[:12]}", flush=True)
    honest = found.pop("the mean, all honest")[0]
    assert found.pop("the mean")[0] < 0.5 < honest - 0.2, "the mean is no measure"
    for name, (right, _, steps, left_out, stayed) in found.items():
        assert right > honest - 0.06 and steps == 120 and not left_out and not stayed, (name, right, steps)
    assert found["clip_norms"][1] == found["clip_norms, updates that wait"][1], "the order in which they come does not matter"


@case
def a_site_that_sends_what_is_no_number():
    """It is left out of each round by its name. A function whose weights are none leaves the old model, and the job goes on to its end."""
    with tempfile.TemporaryDirectory(prefix="tensorpull-hostile-") as folder:
        for more in (("--weighing", "clip_norms"), ("--weighing", "trimmed", *ARRAYS)):
            right, _, steps, left_out, stayed = learns(folder, *more, TENSORPULL_NO_NUMBER="site-4")
            print(f"a_site_that_sends_what_is_no_number: {more[1]}: {right:.3f}", flush=True)
            assert right > 0.7 and (steps, left_out, stayed) == (120, 6, 0), (right, steps, left_out, stayed)
        right, _, steps, left_out, stayed = learns(folder, "--weighing", "wrong")
        assert right < 0.3 and (steps, left_out, stayed) == (0, 0, 6), (right, steps, left_out, stayed)


@case
def weighing_in_poc():
    """In a process of its own, which makes the aggregator and its function of what the job's files say."""
    for kind, counted in (("longest", [1, 2]), ("clip_norms", [1])):  # shortened to the norm of the first site's
        with Job("--weighing", kind, *LAZY, poc=True) as job:
            job.counted = counted
            job.ends()
            job.all_by_us()
            assert job.count("tensorpull: weighed 2 updates") == 2


@case
def an_aggregator_with_a_sum_of_its_own():
    """A user's subclass of FLARE's WeightedAggregationHelper is left alone, also with updates that wait: the final model is the same, bit for bit."""
    digests = []
    for more in (("--server", "none", "--site", "none"), (), LAZY):
        with Job("--helper", *more) as job:
            job.ends()
            digests.append(job.digest)
            assert job.count(r"OwnHelper: \[\('site-1', \d+\), \('site-2', \d+\)\]") == 2
    assert len(set(digests)) == 1, digests


LAZY = ("--settings", '{"tensorpull_lazy": true}')
WAITED = "AwaitedTensors - INFO - tensorpull: .* pulls"


@case
def lazy_bit_for_bit():
    """Updates that stay with their sites until FLARE's sum asks: the final model of two sites is the same."""
    digests = []
    for more in ((), LAZY):
        with Job(*more) as job:
            job.ends()
            job.all_by_us()
            digests.append(job.digest)
            assert job.count(WAITED) == (4 if more else 0)
    assert digests[0] == digests[1], digests


@case
def lazy_in_poc():
    with Job(*LAZY, poc=True, rounds=1) as job:
        job.ends()
        job.all_by_us()
        assert job.count(WAITED) == 2


@case
def lazy_with_a_filter_and_an_aggregator_of_ones_own():
    """They get values."""
    with Job(*LAZY, "--readers") as job:
        job.ends()
        job.all_by_us()
        assert job.count(WAITED) == 4


@case
def lazy_owner_that_goes_away_half_way():
    """By FLARE's chunks it cannot be had either: nothing of its update is in the model, and the job goes on."""
    with Job("--large", *LAZY, "--server", "lies.GoneHalfWay", "--site", "lies.GoneHalfWay", rounds=1) as job:
        job.counted = [1]
        job.ends()
        assert job.count("the update of site-2.* could not be had, so nothing of it counts")


@case
def lazy_where_only_the_server_has_it():
    with Job(*LAZY, "--site", "none", rounds=1) as job:
        job.ends()
        assert not job.count(BY_US) and job.count(UPDATE_BY_FLARE) == 2


@case
def lazy_memory():
    """Four sites whose updates are there at the same time: the server holds one of them."""
    held = {}
    for more in ((), LAZY):
        with Job("--large", "--memory", *more, clients=4, rounds=3, TENSORPULL_BARRIER="FOLDER:4") as job:
            held[bool(more)] = max(by_round(job)[0].values())
            job.ends()
            job.all_by_us()
    print(f"lazy_memory: MiB without and with {held}")
    assert held[True] < held[False] - 60, held  # an update is 80 MiB


def less_than_all(job):
    """Models that came to a site as what has changed since the one before."""
    return sum(job.count(LESS, f"site-{i + 1}") for i in range(job.clients))


LESS = r"by tensorpull: done in \S+ s, \d+ bytes and \d+ less than all"
UPDATE_OF_LESS = r"from site-\S+ " + LESS


@each_format
def differences(*format_):
    """Three sites, of which two take part in each round: one that had the model of the round before pulls what has changed, and another one all. The final model is the same."""
    digests = []
    for mode in ("off", "coded"):
        with Job("--varying", "--settings", json.dumps({"tensorpull_differences": mode}), *format_, clients=3, rounds=5, TENSORPULL_EACH="2") as job:
            job.runs_to_its_end()
            rounds = [re.findall(r"site-\d", chosen) for chosen in re.findall(r"Sampled clients: \[(.*)\]", job.logs("server"))]
            assert len(rounds) == 5 and all(len(chosen) == 2 for chosen in rounds), rounds
            again = sum(len({*now} & {*before}) for before, now in zip(rounds, rounds[1:]))
            assert 0 < again < 8, rounds
            job.counted = [int(site[-1]) for chosen in rounds for site in chosen]
            job.check(glob.glob(f"{glob.escape(job.folder)}/**/FL_global_model.pt", recursive=True))
            digests.append(job.digest)
            assert job.count(UPDATE_BY_US) == 10 and job.count(BY_US) == 20 and not job.count(BY_FLARE)
            assert less_than_all(job) == (again if mode == "coded" else 0), (less_than_all(job), again)
            assert job.count(UPDATE_OF_LESS) == (10 if mode == "coded" else 0), job.count(UPDATE_OF_LESS)
    assert digests[0] == digests[1], digests


@case
def differences_in_poc():
    """Over TLS, in processes of their own."""
    with Job("--settings", '{"tensorpull_differences": "coded"}', poc=True) as job:
        job.ends()
        job.all_by_us()
        assert less_than_all(job) == 2 and job.count("the next model is a coded difference") == 1
        assert job.count(UPDATE_OF_LESS) == job.count("this update is a coded difference") == 4


@case
def differences_where_only_the_server_has_them():
    """Its sites keep nothing, so nothing is made for them."""
    with Job("--server-settings", '{"tensorpull_differences": "coded"}') as job:
        job.ends()
        job.all_by_us()
        assert not less_than_all(job) and not job.count("the next model is|this update is")


def by_round(job):
    """The most memory (MiB) and the most threads that the simulator's server had, by the number of rounds that had begun."""
    held, threads, seen = {}, {}, {}
    while job.process.poll() is None:
        begun = job.count(r"Round \d+ started")
        for pid in set(job.processes("simulator")) - set(job.processes("simulator_worker")):  # the server; the sites are workers
            try:
                with open(f"/proc/{pid}/status") as f:
                    text = f.read()
                if seen.get(pid) != begun:  # what was so far is of the round before; the kernel's own count of the most, from now on
                    with open(f"/proc/{pid}/clear_refs", "w") as f:
                        f.write("5")
                of, seen[pid] = seen.get(pid, begun), begun
                held[of] = max(held.get(of, 0), int(re.search(r"VmHWM:\s+(\d+)", text)[1]) >> 10)
                threads[of] = max(threads.get(of, 0), int(re.search(r"Threads:\s+(\d+)", text)[1]))
            except (OSError, TypeError):
                pass
        processes.be_slow(0.1)
    return held, threads


@case
def ten_rounds():
    """FLARE's server grows over fast rounds, with or without tensorpull. With it the server never holds a model more than without."""
    held = {}
    for decomposer in ("none", OURS):
        with Job("--large", "--server", decomposer, "--site", decomposer, rounds=10) as job:
            held[decomposer], _ = by_round(job)
            job.ends()
            if decomposer == OURS:
                job.all_by_us()
    print(f"ten_rounds: MiB by round {held}")
    stock, ours = (max(each.values()) for each in held.values())
    assert 84 < ours < stock + 84, held


def flat(clients, rounds, settings, *arguments):
    """The server's peak of each round and its threads. The number of participants is another one in each, and settings keep FLARE's threads for messages from growing."""
    short = {"NVFLARE_STREAMING_RETRY_TIMEOUT": "2", "NVFLARE_STREAMING_RETRY_WAIT": "1"}
    with Job("--large", "--memory", "--varying", "--settings", json.dumps(settings), *arguments, clients=clients, rounds=rounds, **short) as job:
        held, threads = by_round(job)
        job.runs_to_its_end(900)
        assert not job.count(BY_FLARE), "some went by FLARE's chunks"
        assert not job.count("this job collects them"), "turns ended"
    print(f"{clients} sites, {arguments}, {settings}: MiB {list(held.values())}, threads {list(threads.values())}", flush=True)
    return held, threads


@case
def a_flat_server():
    """84 MB, 45 rounds, another number of participants in each: from the sixth round on the server's peak is within 2 % of what it is in the middle, and its threads stay."""
    for clients, format_ in ((2, "numpy"), (4, "numpy"), (4, "pytorch")):
        held, threads = flat(clients, 45, {"tensorpull_updates": 1}, "--format", format_)
        late, late_threads = ([by[i] for i in by if 6 <= i <= 45] for by in (held, threads))
        middle = statistics.median(late)
        assert len(late) == 40 and all(abs(most - middle) <= 0.02 * middle for most in late), late
        # pools start a thread when none of theirs is idle; without the settings above there are three times as many in the end
        assert max(late_threads[20:]) <= 1.15 * max(late_threads[:20]), threads


@each_format
def updates_take_turns(*format_):
    """Four sites whose updates are there at the same time: with a bound the server holds one of them, and without it two more at least. The final model is the same within rounding."""
    most = {}
    for bound in (0, 1):
        settings = json.dumps({"tensorpull_updates": bound})
        with Job("--large", "--memory", "--settings", settings, *format_, clients=4, rounds=3, TENSORPULL_BARRIER="FOLDER:4") as job:
            most[bound] = max(by_round(job)[0].values())
            job.ends()
            job.all_by_us()
    print(f"updates_take_turns: MiB without and with a bound {most}")
    assert most[1] < most[0] - 2 * 80, most


@case
def two_jobs():
    with Job("--jobs", "2", poc=True, rounds=1) as job:
        job.ends()
        job.all_by_us(jobs=2)


DEVICES = os.path.abspath(os.path.join(HERE, "..", "..", "..", "examples", "jobs", "nvflare_devices"))


def job_with_devices(folder, *arguments, rounds):
    """The job of examples/jobs/nvflare_devices, with 2,400 digits that are made up: 1,400 to train with, of which each device has 140."""
    import misbehaving

    misbehaving.write_digits(os.path.join(folder, "digits.csv"), 2400)
    processes.run(["bash", os.path.join(DEVICES, "certificates.sh"), folder], check=True)
    files = ["--data", f"{folder}/digits.csv", "--certificates", folder, "--port-file", f"{folder}/port"]
    return Job(*files, *arguments, rounds=rounds, program=os.path.join(DEVICES, "job.py"))


def right_of(job):
    """The digits of 400 that the clients' network and the board's find right at the beginning of each round."""
    return [(int(client), int(board)) for client, board in re.findall(r"ACCURACY round=\d+ client=(\d+) board=(\d+) of 400", job.said())]


@case
def devices():
    """Clients in C++ over TLS and the microcontroller's model at a serial line are what trains; and devices that misbehave do not count."""
    import misbehaving

    import tensorpull

    programs = [os.environ.get(name) for name in ("TENSORPULL_FEDERATED_CLIENTS_TLS", "TENSORPULL_MICROCONTROLLER_CLIENTS")]
    if not all(programs):
        print("devices: skipped: it needs TENSORPULL_FEDERATED_CLIENTS_TLS and TENSORPULL_MICROCONTROLLER_CLIENTS", flush=True)
        return
    wire = misbehaving.Wire()
    with tempfile.TemporaryDirectory(prefix="tensorpull-devices-") as folder, job_with_devices(folder, "--participants", "3", "--line", wire.near, rounds=3) as job:
        until(lambda: os.path.exists(f"{folder}/port") or job.process.poll() is not None, 120, "the site does not listen")
        with open(f"{folder}/port") as f:
            server = f"127.0.0.1:{int(f.read())}"
        own = {"cert_file": f"{folder}/device.pem", "key_file": f"{folder}/device.key"}
        ca = f"{folder}/ca.pem"
        misbehaving.misbehave(f"tls://{server}", tensorpull.TLS(ca_file=ca, **own), tensorpull.TLS(ca_file=ca))
        shared = ["--data", f"{folder}/digits.csv"]
        running = [
            processes.Program(
                [programs[0], *shared, "--clients", "10", "--fixed", "3", "--connect", server, "--ca", ca, "--cert", own["cert_file"], "--key", own["key_file"]]
            ),
            processes.Program([programs[1], *shared, "--rounds", "3", "--line", wire.far], stdout=subprocess.PIPE, text=True),
        ]
        try:
            job.runs_to_its_end()
            board = running[1].communicate(timeout=60)[0]
            assert [p.wait(60) for p in running] == [0, 0]
        finally:
            for p in running:
                p.kill()
                p.wait()
        said, right = job.said(), right_of(job)
        for client, why in (
            (101, "hidden_bias.*schema_mismatch"), (102, "hidden_b.*schema_mismatch"), (103, "truncated|connection_lost"), (104, "images that nobody has"),
        ):
            assert re.search(f"round 1: client {client} does not count: .*({why})", said), client
        # 140 digits each; none of those that misbehaved is in the sum
        counted = re.findall(r"site: round (\d): (client \d, client \d, client \d, the board) counted, with 560 images; (\d) left out", said)
        assert [(number, left_out) for number, _, left_out in counted] == [("1", "5"), ("2", "0"), ("3", "0")], counted
        # the board measures the same bytes, and computes in another order
        own_right = [int(n) for n in re.findall(r"round \d: model \w+: (\d+) of 400", board)]
        assert len(right) == 4 and all(abs(n - m) <= 1 for n, (_, m) in zip(own_right, right)), (own_right, right)
        assert right[-1][0] > 300 and right[-1][0] > right[0][0] + 100 and right[-1][1] > right[0][1] + 100, right
        print(f"devices: right of 400: {right}", flush=True)


@case
def no_devices():
    """Nobody dials in, and nobody is at the line: the model goes back as it came, and says how little it weighs."""
    import misbehaving

    wire = misbehaving.Wire()
    with tempfile.TemporaryDirectory(prefix="tensorpull-devices-") as folder, job_with_devices(folder, "--line", wire.near, "--round-seconds", "2", rounds=1) as job:
        job.runs_to_its_end()
        said, right = job.said(), right_of(job)
        assert "round 1: the board does not count: it has not taken the model" in said
        assert "round 1: NO DEVICE counted, with 9.53674e-07 images; 1 left out" in said
        assert len(right) == 2 and right[0] == right[1], right


def main():
    p = argparse.ArgumentParser()
    p.add_argument("cases", nargs="*")
    p.add_argument("--list", action="store_true")
    a = p.parse_args()
    if a.list:
        print("\n".join(CASES))
        return 0
    for module in ("nvflare", "torch", "tensorpull"):
        if importlib.util.find_spec(module) is None:
            print(f"skipped: there is no {module}")
            return 77
    if " " in tempfile.gettempdir():
        print("skipped: FLARE's own simulator does not take a folder whose name has a space; set TMPDIR")
        return 77
    for name in a.cases or (CASES if os.environ.get("TENSORPULL_NVFLARE_ALL") == "1" else ORDINARY):
        began = time.monotonic()
        CASES[name]()
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    processes.limit(7000)
    sys.exit(main())
