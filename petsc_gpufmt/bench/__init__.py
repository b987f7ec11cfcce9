"""Benchmarks of the matrix types: ``python -m petsc_gpufmt bench``."""
