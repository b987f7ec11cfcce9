"""Storage formats, one module each."""
