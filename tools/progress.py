"""Progress lines of the set-up: one a step with the time it took, and a sign of life during long ones."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

HEARTBEAT_SECONDS = 20
TAIL_LINES = 25


class SetupError(Exception):
    """A step of the set-up could not be done; the message is one line that says what to change."""


def announce(text):
    print(f"set-up: {text}", flush=True)


@contextlib.contextmanager
def step(title):
    """Announces a step, and how long it took when it ends well."""
    start = time.monotonic()
    announce(f"{title} ...")
    yield
    announce(f"{title}: done in {time.monotonic() - start:.0f} s")


def run(command, log, env=None, count=None, hint=""):
    """Runs a command with its output in the file `log`, and says every so often that it is alive.

    `count` is a text to count in the log as a measure of progress. Raises SetupError, after printing the end of
    the log, if the command fails; `hint` is appended to the message.
    """
    command = [str(word) for word in command]
    log = Path(log)
    log.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=env)
        while True:
            try:
                status = process.wait(timeout=HEARTBEAT_SECONDS)
                break
            except subprocess.TimeoutExpired:
                done = f", {read(log).count(count)} files compiled" if count else ""
                announce(f"  ... {time.monotonic() - start:.0f} s{done}")
            except BaseException:
                process.terminate()
                raise
    if status != 0:
        print("\n".join(read(log).splitlines()[-TAIL_LINES:]), file=sys.stderr)
        raise SetupError(
            f"'{' '.join(command)}' ended with status {status}; its output is in {log}{hint and '; '}{hint}"
        )


def read(log):
    return log.read_text(errors="replace")
