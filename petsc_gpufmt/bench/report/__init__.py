"""A page of results: its tables, one file for each kind of benchmark, and its pictures."""
