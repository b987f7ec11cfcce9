"""The device kernels on the host: a C++ compiler and a shim for CUDA's words; the threads of a block are fibers."""
