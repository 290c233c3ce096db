"""The fixtures and the rules of the package's own tests, which lie beside."""

import importlib.util
import pathlib
import sys

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
sys.path.insert(0, str(PACKAGE))
described = importlib.util.spec_from_file_location("conftest_of_the_package", PACKAGE / "conftest.py")
package = importlib.util.module_from_spec(described)
described.loader.exec_module(package)
globals().update({name: value for name, value in vars(package).items() if not name.startswith("__")})


@pytest.fixture(autouse=True)
def nothing_was_said_before():
    """A process gives a warning once, and each test is a process of its own here."""
    transfer = sys.modules.get("tensorpull.nvflare._transfer")
    if transfer is not None:
        transfer._said.clear()
