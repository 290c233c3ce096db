"""What the tests share: an owner that serves, generated dicts, and the rule about skipping."""

from __future__ import annotations

import os

import pytest

import tensorpull

#: Set where nothing may be left out (tests/run.sh): a skipped test is a failed one, unless its reason says that it is "optional: ".
NOTHING_IS_SKIPPED = os.environ.get("TENSORPULL_NOTHING_IS_SKIPPED") == "1"


@pytest.fixture
def owner():
    with tensorpull.Downloader() as made:
        made.start()
        yield made


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.skipped and NOTHING_IS_SKIPPED and "optional: " not in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped: {report.longrepr}"


def pytest_collectreport(report):
    if report.skipped and NOTHING_IS_SKIPPED:
        raise pytest.UsageError(f"{report.nodeid} was skipped: {report.longrepr}")
