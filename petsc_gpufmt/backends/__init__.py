"""Where plans are made and run: host and device, compilation of kernels, CuPy and the native library."""
