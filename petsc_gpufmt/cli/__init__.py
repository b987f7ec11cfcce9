"""The command line: ``python -m petsc_gpufmt``."""
