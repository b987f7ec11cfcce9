"""The halo exchange of parallel products with vectors, where kernels do it."""
