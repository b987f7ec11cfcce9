"""Requests of the library in, plans out."""
