"""Blocked sparse rows."""
