"""Runs the benchmarks and writes the report. Called by bench/run.sh, which installs and builds."""

import argparse
import json
import os
import sys
import time

import others
import report
import transfers
from jobs import Runner

SUITES = {
    "transfers": transfers.transfers,
    "chunks": transfers.chunks,
    "recipients": transfers.recipients,
    "tls": others.tls,
    "tensors": transfers.tensors,
    "latency": transfers.latency,
    "local": others.one_process,
    "udp": others.udp,
    "wan": others.wan,
    "changes": others.changes,
    "unix_socket": others.unix_socket,
    "nats": others.nats,
    "http": others.http,
    "hostile": others.hostile,
    "serial": others.serial,
    "shared_memory": others.shared_memory,
    "flatness": others.flatness,
    "guide": others.guide,
    "micro": others.micro,
    "profile": others.profile,
    "compile": others.compile_time,
}
QUICK = ["transfers", "chunks", "recipients", "tensors", "latency", "micro"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, help="the folder of the programs")
    parser.add_argument("--python", help="an interpreter that has nvflare and torch; without it those are left out")
    parser.add_argument("--report", required=True, help="the folder to write to")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="every suite once, in its smallest form")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", action="append", choices=list(SUITES))
    parser.add_argument("--guide-bytes", type=int)
    parser.add_argument("--rounds", type=int, help="at most so many")
    parser.add_argument("--all", action="store_true", help="also the rounds of NVIDIA FLARE in the suite flatness; of --only wan every row")
    options = parser.parse_args()
    if options.smoke:
        options.rounds = 1
    quick = options.quick or options.smoke

    os.makedirs(options.report, exist_ok=True)
    shown = (
        ([f"--rounds {options.rounds}"] if options.rounds else [])
        + [f"--only {name}" for name in options.only or []]
        + (["--smoke"] if options.smoke else ["--quick"] if options.quick else [])
        + (["--all"] if options.all else [])
    )
    about = report.machine()
    say = lambda text: print(f"== {text}", file=sys.stderr, flush=True)
    say(f"{about['processor']}, {about['memory']}, {about['system']}, {about['compiler']}, load {about['load_before']:.2f}")
    sections = []
    failed = False
    with open(os.path.join(options.report, "log.txt"), "w") as log:
        run = Runner(options.build, options.python, log, options.rounds, options.all)
        chosen = options.only or list(QUICK if options.quick else SUITES)
        for k, name in enumerate(chosen):
            start = time.monotonic()
            more = {"size": options.guide_bytes} if name == "guide" else {}
            if name == "wan":
                more = {"everything": options.all and bool(options.only)}  # it takes hours, so only if it was asked for by name
            try:
                section = SUITES[name](run, quick, options.report, say, **more)
            except Exception as why:  # one suite that cannot run leaves the others their figures
                failed = True
                say(f"{name}: {why}")
                section = report.Section(name, name, [f"Failed: {why}"])
            section.seconds = time.monotonic() - start
            for failure in (r.get("failure") for r in section.raw if isinstance(r, dict)):
                if failure:
                    failed = True
                    say(f"{name}: {failure}")
            sections.append(section)
            report.write(options.report, about, sections, shown, chosen[k + 1:])
            if not options.json:
                for table in section.tables:
                    print(table.plain() + "\n")
                for text in section.text:
                    print(text + "\n")
                sys.stdout.flush()
            say(f"{name}: {section.seconds:.0f} s")
    if options.json:
        json.dump(report.as_json(about, sections), sys.stdout, indent=1)
        print()
    else:
        for section in sections:
            for what, wanted, measured, met in section.targets:
                print(f"{'reached' if met else 'MISSED '}  {what}: {measured} ({wanted})")
    say(f"the report is in {options.report}")
    return 1 if failed else 0


sys.exit(main())
