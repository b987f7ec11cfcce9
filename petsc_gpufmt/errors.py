"""Exceptions of the package. Each knows the PETSc error code that the library raises for it."""


class GpufmtError(Exception):
    """A plan could not be made. The text says what was asked, what was found and what to change."""

    petsc_code = 76  # PETSC_ERR_LIB


class UnsupportedError(GpufmtError):
    """The request cannot be served with the software or hardware at hand."""

    petsc_code = 56  # PETSC_ERR_SUP


class LibraryError(UnsupportedError, ImportError):
    """The native library cannot be used, so neither can the package: `import petsc_gpufmt` fails."""

    def __init__(self, text: str):
        # by the name `python -m petsc_gpufmt` knows it for a failed import, and shows the text alone
        super().__init__(text, name="petsc_gpufmt")


class OptionError(GpufmtError):
    """An option has a value that the format does not take."""

    petsc_code = 95  # PETSC_ERR_USER_INPUT


class DistributionError(GpufmtError, ValueError):
    """Rows cannot be dealt to ranks as it was asked for, or ranks do not ask for the same: raised on all ranks."""

    petsc_code = 62  # PETSC_ERR_ARG_WRONG


class PatternError(GpufmtError):
    """The sparsity pattern is not a valid CSR pattern, or coordinates lie outside of the matrix."""

    petsc_code = 64  # PETSC_ERR_ARG_CORRUPT


class IndexOverflowError(GpufmtError):
    """A count does not fit the index type."""

    petsc_code = 84  # PETSC_ERR_INT_OVERFLOW


class OutOfMemoryError(GpufmtError):
    """Memory ran out, on the host or on the device."""

    petsc_code = 55  # PETSC_ERR_MEM
