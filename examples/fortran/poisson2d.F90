! Poisson's equation -div(grad u) = f in the unit square, u = 0 on its boundary, five-point differences.
! -n <points>: interior points in each direction (default 64); every other option is PETSc's, for example
!   mpiexec -n 2 ./poisson2d -n 200 -mat_type pjds -ksp_type cg -pc_type gamg
#include <petsc/finclude/petscksp.h>

program poisson2d
  use petscksp
  implicit none
  external petscgpufmtinitialize

  PetscInt :: n = 64, row, first, last, i, j, iterations
  PetscInt, parameter :: one = 1
  PetscScalar, parameter :: four = 4.0, minus_one = -1.0
  PetscScalar scale
  PetscReal x_grid, y_grid, error_norm, tolerance
  PetscBool found
  PetscMPIInt rank
  PetscErrorCode ierr
  Mat A
  Vec u, b, x
  KSP ksp
  character(len=80) matrix_type

  PetscCallA(PetscInitialize(ierr))
  PetscCallA(petscgpufmtinitialize(ierr))
  PetscCallA(PetscOptionsGetInt(PETSC_NULL_OPTIONS, PETSC_NULL_CHARACTER, '-n', n, found, ierr))

  ! The matrix, scaled by h^2: 4 on the diagonal, -1 for each neighbour inside the square.
  PetscCallA(MatCreate(PETSC_COMM_WORLD, A, ierr))
  PetscCallA(MatSetSizes(A, PETSC_DECIDE, PETSC_DECIDE, n*n, n*n, ierr))
  PetscCallA(MatSetFromOptions(A, ierr))
  PetscCallA(MatSetUp(A, ierr))
  PetscCallA(MatGetOwnershipRange(A, first, last, ierr))
  do row = first, last - 1
    i = mod(row, n)
    j = row/n
    PetscCallA(MatSetValues(A, one, [row], one, [row], [four], INSERT_VALUES, ierr))
    if (i > 0) then
      PetscCallA(MatSetValues(A, one, [row], one, [row - 1], [minus_one], INSERT_VALUES, ierr))
    end if
    if (i < n - 1) then
      PetscCallA(MatSetValues(A, one, [row], one, [row + 1], [minus_one], INSERT_VALUES, ierr))
    end if
    if (j > 0) then
      PetscCallA(MatSetValues(A, one, [row], one, [row - n], [minus_one], INSERT_VALUES, ierr))
    end if
    if (j < n - 1) then
      PetscCallA(MatSetValues(A, one, [row], one, [row + n], [minus_one], INSERT_VALUES, ierr))
    end if
  end do
  PetscCallA(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY, ierr))
  PetscCallA(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY, ierr))

  ! The solution u = sin(pi x) sin(pi y), and h^2 f with f = 2 pi^2 u.
  PetscCallA(MatCreateVecs(A, x, b, ierr))
  PetscCallA(VecDuplicate(x, u, ierr))
  do row = first, last - 1
    x_grid = real(mod(row, n) + 1, PETSC_REAL_KIND)/real(n + 1, PETSC_REAL_KIND)
    y_grid = real(row/n + 1, PETSC_REAL_KIND)/real(n + 1, PETSC_REAL_KIND)
    scale = sin(PETSC_PI*x_grid)*sin(PETSC_PI*y_grid)
    PetscCallA(VecSetValues(u, one, [row], [scale], INSERT_VALUES, ierr))
  end do
  PetscCallA(VecAssemblyBegin(u, ierr))
  PetscCallA(VecAssemblyEnd(u, ierr))
  PetscCallA(VecCopy(u, b, ierr))
  scale = 2*PETSC_PI**2/real(n + 1, PETSC_REAL_KIND)**2
  PetscCallA(VecScale(b, scale, ierr))

  tolerance = 1.e-8
  PetscCallA(KSPCreate(PETSC_COMM_WORLD, ksp, ierr))
  PetscCallA(KSPSetOperators(ksp, A, A, ierr))
  PetscCallA(KSPSetTolerances(ksp, tolerance, PETSC_CURRENT_REAL, PETSC_CURRENT_REAL, PETSC_CURRENT_INTEGER, ierr))
  PetscCallA(KSPSetErrorIfNotConverged(ksp, PETSC_TRUE, ierr))
  PetscCallA(KSPSetFromOptions(ksp, ierr))
  PetscCallA(KSPSolve(ksp, b, x, ierr))

  PetscCallA(KSPGetIterationNumber(ksp, iterations, ierr))
  PetscCallA(MatGetType(A, matrix_type, ierr))
  PetscCallA(VecAXPY(x, minus_one, u, ierr))
  PetscCallA(VecNorm(x, NORM_INFINITY, error_norm, ierr))
  PetscCallMPIA(MPI_Comm_rank(PETSC_COMM_WORLD, rank, ierr))
  if (rank == 0) then
    print '(3a, i0, a, es13.6)', 'matrix type ', trim(matrix_type), ', iterations ', iterations, ', error ', error_norm
  end if

  PetscCallA(KSPDestroy(ksp, ierr))
  PetscCallA(VecDestroy(u, ierr))
  PetscCallA(VecDestroy(b, ierr))
  PetscCallA(VecDestroy(x, ierr))
  PetscCallA(MatDestroy(A, ierr))
  PetscCallA(PetscFinalize(ierr))
end program
