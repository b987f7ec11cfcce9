"""Recipe for Spack, in a repository of one's own: packages/py_petsc_gpufmt/package.py.

The source distribution is made by `python -m build --sdist` and lies in the folder in which spack is called.
"""

import os

from spack.package import depends_on, license, on_package_attributes, run_after, variant, version
from spack_repo.builtin.build_systems.python import PythonPackage


class PyPetscGpufmt(PythonPackage):
    """Sparse-matrix storage formats for GPUs as plug-in matrix types for PETSc"""

    homepage = "https://petsc.org"
    manual_download = True
    url = f"file://{os.getcwd()}/petsc_gpufmt-0.1.0.tar.gz"

    license("BSD-2-Clause")

    version("0.1.0")

    variant("bench", default=False, description="Commands analyze, bench, model and tune")
    variant("plot", default=False, description="Pictures of the command analyze")
    variant("cuda", default=False, description="CuPy, which compiles kernels")

    depends_on("c", type="build")
    depends_on("python@3.10:", type=("build", "link", "run"))
    depends_on("py-setuptools@66:", type="build")
    depends_on("py-wheel", type="build")
    depends_on("py-numpy", type=("build", "run"))
    # the library has the structs of one minor release, and libpetsc's path in it
    for _minor in ("3.24", "3.25", "3.26"):
        depends_on(f"petsc@{_minor} +shared", when=f"^py-petsc4py@{_minor}", type=("build", "link", "run"))
    depends_on("py-petsc4py@3.24:3.26", type=("build", "run"))
    depends_on("petsc +cuda", when="+cuda")
    depends_on("py-cupy +cuda", when="+cuda", type=("build", "run"))
    depends_on("py-scipy", when="+bench", type="run")
    depends_on("py-scipy", when="+plot", type="run")
    depends_on("py-matplotlib", when="+plot", type="run")

    def setup_build_environment(self, env):
        env.set("PETSC_DIR", self.spec["petsc"].prefix)
        env.unset("PETSC_ARCH")
        env.set("MPICC", self.spec["mpi"].mpicc if "^mpi" in self.spec else self["c"].cc)
        if not self.spec.satisfies("+cuda"):
            env.set("PETSC_GPUFMT_ARCH", "none")

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        self.spec["python"].command("-m", "petsc_gpufmt", "info")
