"""Runs of the scripts of examples/reproduce/, whose modules can be imported where this one is."""

import json
import re
import sys
from pathlib import Path

import launch

SCRIPTS = Path(__file__).parents[2] / "examples" / "reproduce"
sys.path.append(str(SCRIPTS))


def run_script(script, *arguments, status=0):
    """What a script prints."""
    finished = launch.run([sys.executable, script if isinstance(script, Path) else SCRIPTS / script, *arguments])
    assert finished.status == status or (status is None and finished.status), str(finished)
    return finished.output


def measured_parts(script, folder, *arguments):
    """Part -> (what -> case) of a small run on the host, and the text of its page."""
    results = folder / f"{Path(script).stem}.json"
    run_script(script, "--small", "--host", "--json", results, "--page", *arguments)
    runs = {run["name"]: run for run in json.loads(results.read_text())["runs"]}
    cases = {name: {case["what"]: case for case in run["cases"]} for name, run in runs.items()}
    text = results.with_suffix(".md").read_text()
    pictures = re.findall(r"!\[.*\]\((.*\.svg)\)", text)
    assert len(pictures) == sum(len(run["charts"]) for run in runs.values())
    assert all("<svg" in (folder / name).read_text() for name in pictures)
    return cases, text
