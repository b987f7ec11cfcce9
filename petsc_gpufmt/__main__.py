"""``python -m petsc_gpufmt``."""

import sys

from petsc_gpufmt.cli.main import program

sys.exit(program())
