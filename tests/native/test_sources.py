"""The C sources compile without warnings for builds of PETSc that are not at hand; for this one the wheel does."""

import re
import subprocess
from pathlib import Path

import pytest
from petsc_config import find_petsc

ROOT = Path(__file__).resolve().parents[2]
SOURCE_FOLDERS = (ROOT / "petsc_gpufmt" / "native", ROOT / "kernels" / "host")

# what the petscconf.h of another configuration says: macros to remove, macros to add
BUILDS = {
    "single": (("USE_REAL_DOUBLE",), ("USE_REAL_SINGLE",)),
    "complex": ((), ("USE_COMPLEX", "HAVE_COMPLEX")),
    "complex single": (("USE_REAL_DOUBLE",), ("USE_REAL_SINGLE", "USE_COMPLEX", "HAVE_COMPLEX")),
    "int64": ((), ("USE_64BIT_INDICES",)),
    "debug": ((), ("USE_DEBUG",)),
    "cuda": ((), ("HAVE_CUDA", "HAVE_DEVICE")),
}


def configured_otherwise(petscconf: str, removed: tuple, added: tuple) -> str:
    for name in removed:
        petscconf = re.sub(rf"^#define PETSC_{name} .*$", "", petscconf, flags=re.MULTILINE)
    missing = [name for name in added if f"#define PETSC_{name} " not in petscconf]
    return petscconf + "".join(f"\n#define PETSC_{name} 1\n" for name in missing)


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
def test_sources_compile_for_every_petsc_build(build, tmp_path):
    petsc = find_petsc()
    original = (petsc.build_directory / "include" / "petscconf.h").read_text()
    (tmp_path / "petscconf.h").write_text(configured_otherwise(original, *BUILDS[build]))
    sources = sorted(str(source) for folder in SOURCE_FOLDERS for source in folder.rglob("*.c"))
    assert sources
    command = [*petsc.compiler, "-std=gnu11", "-fsyntax-only", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]
    command += [f"-I{tmp_path}", *(f"-I{folder}" for folder in SOURCE_FOLDERS), *petsc.include_flags]
    done = subprocess.run([*command, *sources], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
