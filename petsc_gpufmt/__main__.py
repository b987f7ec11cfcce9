"""``python -m petsc_gpufmt``."""

import signal
import sys

from petsc_gpufmt.cli.main import main

# leave as by an exception, so that programs that a benchmark started are ended too
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
sys.exit(main())
