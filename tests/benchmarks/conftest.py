"""All tests of this folder measure shortly."""

from short_measurements import short_measurements  # noqa: F401
