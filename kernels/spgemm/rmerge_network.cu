// Columns of rows of C = A B where rows of A and B are short (spgemm/rmerge.py): a thread takes a row of B into LENGTH registers, and
// WIDTH threads merge theirs by Batcher's bitonic network: runs of 1, 2, 4, ... threads, each comparison on its own, so that none waits for
// the one before as the steps of rmerge.cu do. There are two passes, `lengths` and `columns`. With WIDTH = LENGTH = 8 a warp makes 4 rows
// with 48 shuffles and about 300 comparisons.
#include "spgemm/census.cuh"

constexpr int     THREADS   = 128;
constexpr index_t NO_COLUMN = sizeof(index_t) == 4 ? index_t(0x7fffffff) : index_t(0x7fffffffffffffff); // above all columns

// Sorted columns of WIDTH threads, LENGTH in each; rows are those of this team.
template <int WIDTH, int LENGTH>
struct MergedRows {
  index_t columns[LENGTH];
  int     count; // of columns that are the first of their kind
  bool    is_first[LENGTH];
  int     terms; // entries of this thread's row of B
  bool    falls; // whether one of its columns is not above the one before it

  // row i of A, of `nrows`; empty if there is none
  __device__ __forceinline__ MergedRows(offset_t i, index_t nrows, const index_t *__restrict__ A_rowptr, const index_t *__restrict__ A_columns,
                                        const index_t *__restrict__ B_rowptr, const index_t *__restrict__ B_columns)
  {
    const int lane  = threadIdx.x % WIDTH;
    index_t   begin = 0, length = 0;

    if (i < nrows) {
      const offset_t entry = (offset_t)A_rowptr[i] + lane;

      if (entry < A_rowptr[i + 1]) {
        const index_t k = __ldg(A_columns + entry);

        begin  = __ldg(B_rowptr + k);
        length = __ldg(B_rowptr + k + 1) - begin;
      }
    }
#pragma unroll
    for (int r = 0; r < LENGTH; r++) columns[r] = r < length ? __ldg(B_columns + begin + r) : NO_COLUMN;
    terms = (int)length;
    falls = false;
#pragma unroll
    for (int r = 1; r < LENGTH; r++) falls |= r < length && columns[r] <= columns[r - 1];
#pragma unroll
    for (int run = 1; run < WIDTH; run *= 2) {
      index_t other[LENGTH];

#pragma unroll
      for (int r = 0; r < LENGTH; r++) other[r] = __shfl_xor_sync(FULL_WARP, columns[LENGTH - 1 - r], 2 * run - 1); // one run backwards
#pragma unroll
      for (int r = 0; r < LENGTH; r++) columns[r] = lane & run ? max(columns[r], other[r]) : min(columns[r], other[r]);
#pragma unroll
      for (int distance = run / 2; distance > 0; distance /= 2)
#pragma unroll
        for (int r = 0; r < LENGTH; r++) {
          const index_t theirs = __shfl_xor_sync(FULL_WARP, columns[r], distance);

          columns[r] = lane & distance ? max(columns[r], theirs) : min(columns[r], theirs);
        }
#pragma unroll
      for (int distance = LENGTH / 2; distance > 0; distance /= 2)
#pragma unroll
        for (int r = 0; r < LENGTH; r++)
          if (!(r & distance)) {
            const index_t low = min(columns[r], columns[r | distance]);

            columns[r | distance] = max(columns[r], columns[r | distance]);
            columns[r]            = low;
          }
    }
    index_t before = __shfl_up_sync(FULL_WARP, columns[LENGTH - 1], 1);

    if (lane == 0) before = NO_COLUMN; // no column of a thread that has any
    count = 0;
#pragma unroll
    for (int r = 0; r < LENGTH; r++) {
      is_first[r] = columns[r] != NO_COLUMN && columns[r] != before;
      count += is_first[r];
      before = columns[r];
    }
  }
};

// lengths[i] = columns of row i of C; terms[i] = products that it sums; control->falls is set where a row of B that A meets is not sorted
template <int WIDTH, int LENGTH>
__global__ void __launch_bounds__(THREADS)
  rmerge_network_lengths(index_t nrows, const index_t *__restrict__ A_rowptr, const index_t *__restrict__ A_columns,
                         const index_t *__restrict__ B_rowptr, const index_t *__restrict__ B_columns, offset_t *__restrict__ lengths,
                         offset_t *__restrict__ terms, Control *__restrict__ control)
{
  const offset_t                  i = ((offset_t)blockIdx.x * THREADS + threadIdx.x) / WIDTH;
  const MergedRows<WIDTH, LENGTH> merged(i, nrows, A_rowptr, A_columns, B_rowptr, B_columns);
  const int                       both = group_sum(merged.terms << 16 | merged.count, WIDTH); // neither is more than WIDTH LENGTH

  if (i < nrows && threadIdx.x % WIDTH == 0) {
    lengths[i] = both & 0xffff;
    terms[i]   = both >> 16;
  }
  if (merged.falls) control->falls = 1; // all threads that write, write the same
}

// The columns of all rows. Those of the rows of a warp are neighbours: they go through shared memory and are written together.
template <int WIDTH, int LENGTH>
__global__ void __launch_bounds__(THREADS)
  rmerge_network_columns(index_t nrows, const index_t *__restrict__ A_rowptr, const index_t *__restrict__ A_columns,
                         const index_t *__restrict__ B_rowptr, const index_t *__restrict__ B_columns, const index_t *__restrict__ C_rowptr,
                         index_t *__restrict__ C_columns)
{
  __shared__ index_t              columns_of_warps[THREADS / WARP][WARP * LENGTH];
  const int                       lane   = threadIdx.x % WARP;
  index_t *const                  staged = columns_of_warps[threadIdx.x / WARP];
  const offset_t                  i = ((offset_t)blockIdx.x * THREADS + threadIdx.x) / WIDTH, first = i - lane / WIDTH;
  const MergedRows<WIDTH, LENGTH> merged(i, nrows, A_rowptr, A_columns, B_rowptr, B_columns);
  const int                       upto  = sum_up_to_lane(merged.count); // columns of the lanes up to this one
  int                             place = upto - merged.count;

#pragma unroll
  for (int r = 0; r < LENGTH; r++)
    if (merged.is_first[r]) staged[place++] = merged.columns[r];
  const int count = __shfl_sync(FULL_WARP, upto, WARP - 1);

  __syncwarp();
  if (first < nrows) C_columns += C_rowptr[first];
#pragma unroll 4
  for (int c = lane; c < count; c += WARP) C_columns[c] = staged[c];
}
