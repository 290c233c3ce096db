#!/usr/bin/env python3
"""Prints which cases of the fault catalogue ran and passed: fault_table.py REPORT.xml...

A test covers the case that its name carries (`F18_...`, `.L11_...`), and a name carries at most one: a test of several cases would hide which of
them it checks. Cases without a test need a line in the list of exceptions. Status: 0; 1: a case failed, has neither test nor reason, or has both, or
a name carries several; 2: the report cannot be read."""
import pathlib
import re
import sys
import xml.etree.ElementTree as tree

LAST = {"F": 18, "R": 14, "L": 12, "S": 10, "N": 2, "T": 10, "C": 7, "D": 5, "Q": 6, "M": 5, "U": 1, "X": 6}
TITLES = {"F": "framing", "R": "requests", "L": "landing", "S": "safetensors files", "N": "npy files", "T": "time and loss", "C": "concurrency", "D": "disk", "Q": "resources", "M": "shared memory", "U": "Unix sockets", "X": "TLS"}
CASE = re.compile(r"(?<![A-Za-z0-9])([FRLSNTCDQMUX])([1-9][0-9]?)(?=_|$)")


def cases_of(name):
    return [letter + number for letter, number in CASE.findall(name) if int(number) <= LAST[letter]]


def exceptions(path):
    reasons = {}
    for line in path.read_text().splitlines():
        found = re.fullmatch(r"([FRLSNTCDQMUX][0-9]+) +(missing|not applicable): +(\S.*)", line)
        if found:
            reasons[found[1]] = (found[2], found[3])
        elif line.strip() and not line.startswith("#"):
            sys.exit(f"fault_table.py: not an exception: {line}")
    return reasons


def main(reports, listed):
    tests = []
    for report in reports:
        try:
            tests += tree.parse(report).getroot().iter("testcase")
        except (OSError, tree.ParseError) as why:
            print(f"fault_table.py: {report}: {why}", file=sys.stderr)
            return 2
    ran, failed, skipped, crowded = {}, {}, {}, []
    for test in tests:
        name, status = test.get("name", ""), test.get("status", "run")
        if test.find("failure") is not None or status == "fail":
            kind = failed
        else:
            kind = ran if status == "run" and test.find("skipped") is None else skipped
        cases = cases_of(name)
        if len(cases) > 1:
            crowded.append(name)
        for case in cases[:1]:
            kind.setdefault(case, []).append(name)
    reasons = exceptions(listed)
    bad = len(crowded)
    for name in crowded:
        print(f"{name}: carries several cases; each needs a test of its own")
    print("Fault catalogue (tests by the case in their names)")
    for letter, last in LAST.items():
        passed, lines = [], []
        for case in (f"{letter}{n}" for n in range(1, last + 1)):
            if case in failed:
                lines.append(f"  {case}: FAILED: {', '.join(failed[case])}")
                bad += 1
            elif case in ran:
                passed.append(f"{case} ({len(ran[case])})")
                if case in reasons:
                    lines.append(f"  {case}: has a test; take it off {listed.name}")
                    bad += 1
            elif case in reasons:
                lines.append(f"  {case}: {reasons[case][0]}: {reasons[case][1]}")
            elif case in skipped:
                lines.append(f"  {case}: skipped on this machine: {', '.join(skipped[case])}")
            else:
                lines.append(f"  {case}: MISSING, without a reason in {listed.name}")
                bad += 1
        print(f"{letter} {TITLES[letter]}: {len(passed)} of {last} passed: {' '.join(passed)}")
        print("".join(line + "\n" for line in lines), end="")
    return 1 if bad else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:], pathlib.Path(__file__).parent / "fault_exceptions.txt"))
