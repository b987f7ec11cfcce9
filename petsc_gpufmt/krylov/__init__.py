"""What Krylov solvers do with vectors beside products and preconditioners."""
