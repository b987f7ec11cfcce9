"""A rank that is killed, and jobs that end in another way than they should, which the attack has to find."""

import sys

import pytest

from reliability import killed_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


def test_the_job_is_gone():
    (row,) = killed_ranks.run(0.05, 0, lambda line: None)
    assert row.tried == 1 and not row.failures, row


def test_the_attack_finds_a_job_that_goes_on():
    program = "import os, time; os.write(1, b'process %d\\n' % os.getpid()); time.sleep(30)"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}]); import time; time.sleep(30)"
    assert killed_ranks.kill_one([sys.executable, "-c", child], 2, 1, 0.0, seconds=1.0).startswith("the job goes on")


SAYS = "import os, time; os.write(1, b'process %d\\n' % os.getpid()); {}time.sleep({})"


def test_the_attack_finds_a_job_that_ends_as_if_nothing_were():
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SAYS.format('', 1)!r}])"
    assert killed_ranks.kill_one([sys.executable, "-c", child], 2, 1, 0.0) == "the exit status is 0"


def test_the_attack_finds_a_process_that_is_left():
    program = SAYS.format("[os.close(k) for k in range(3)]; ", 60)
    started = f"subprocess.Popen([sys.executable, '-c', {program!r}], start_new_session=True)"
    child = f"import subprocess, sys, time; {started}; time.sleep(2); sys.exit(3)"
    found = killed_ranks.kill_one([sys.executable, "-c", child], 2, 1, 0.0, seconds=20.0)
    assert found == "1 processes are left"
