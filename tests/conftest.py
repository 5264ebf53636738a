import os
import subprocess
import sys

import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--slow"):
        return
    slow = [item for item in items if "slow" in item.keywords]
    if slow:                           # deselected, which pytest's summary line counts: not skipped in silence
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if "slow" not in item.keywords]


@pytest.fixture
def typed():
    """`typed(line)` runs a line that a report gives to be typed in a shell, in a process that sees these tests."""
    def run(line):
        path = {"PYTHONPATH": ":".join(filter(None, sys.path))}
        return subprocess.run([sys.executable, *line.split()[1:]], capture_output=True, text=True, timeout=60, env=path)
    return run
