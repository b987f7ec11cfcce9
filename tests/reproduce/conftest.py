"""The scripts of examples/reproduce/, and their modules but `report`, which benchmarks/ has by the same name."""

import importlib.util
import sys

import pytest
from reproduced import SCRIPTS


@pytest.fixture(scope="session")
def report():
    """examples/reproduce/report.py as a module."""
    spec = importlib.util.spec_from_file_location("reproduce_report", SCRIPTS / "report.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
