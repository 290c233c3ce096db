#!/usr/bin/env python3
"""Shows that fault_table.py counts a case only if a test of its own ran and passed."""
import contextlib
import io
import pathlib
import tempfile

import fault_table

ALL = [f"Suite.{letter}{n}_x" for letter, last in fault_table.LAST.items() for n in range(1, last + 1)]
REPORTS = [  # tests by their state, exceptions, the status, what is said
    ({name: "run" for name in ALL}, "", 0, "F framing: 18 of 18 passed"),
    ({name: "run" for name in ALL if "F7_" not in name}, "", 1, "F7: MISSING"),
    ({name: "run" for name in ALL if "F7_" not in name}, "F7 not applicable: a reason", 0, "F7: not applicable: a reason"),
    ({name: "run" for name in ALL}, "F7 missing: a reason", 1, "F7: has a test"),
    ({name: "fail" if "C3_" in name else "run" for name in ALL}, "", 1, "C3: FAILED"),
    ({name: "disabled" if "C3_" in name else "run" for name in ALL}, "", 0, "C3: skipped on this machine"),
    ({name: "run" for name in ALL if "T6_" not in name} | {"Suite.T7_T6_both": "run"}, "", 1, "T7_T6_both: carries several cases"),
    ({name: "run" for name in ALL if "F2_" not in name} | {"Suite.F1_to_F5_all": "run"}, "", 1, "F2: MISSING"),
    ({name: "run" for name in ALL} | {"Suite.adds_F32_numbers": "run"}, "", 0, "D disk"),
]


def main():
    for tests, exceptions, status, said in REPORTS:
        with tempfile.TemporaryDirectory() as folder:
            report, listed = pathlib.Path(folder, "report.xml"), pathlib.Path(folder, "exceptions.txt")
            cases = "".join(f'<testcase name="{name}" status="{how}">{"<failure/>" if how == "fail" else ""}</testcase>' for name, how in tests.items())
            report.write_text(f"<testsuite>{cases}</testsuite>")
            listed.write_text(exceptions)
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                got = fault_table.main([report], listed)
            assert got == status and said in out.getvalue(), (said, got, out.getvalue())
    print(f"{len(REPORTS)} reports are judged as they should be")


main()
