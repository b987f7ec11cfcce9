"""Files as MatView of PETSc writes them."""

from petsc4py import PETSc


def write_petsc_binary(path, matrix, block_size=1):
    """A SciPy matrix as a matrix of type aij in a binary file; returns the path."""
    csr = matrix.tocsr()
    indices = [a.astype(PETSc.IntType) for a in (csr.indptr, csr.indices)]
    written = PETSc.Mat().createAIJ(
        csr.shape, bsize=block_size, csr=(*indices, csr.data.astype(PETSc.ScalarType)), comm=PETSc.COMM_SELF
    )
    viewer = PETSc.Viewer().createBinary(str(path), "w", comm=PETSc.COMM_SELF)
    written.view(viewer)
    viewer.destroy()
    written.destroy()
    return path
