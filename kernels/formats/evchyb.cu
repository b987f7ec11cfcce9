// Kernels of EVC-HYB (formats/evchyb/evchyb.py). Guo, Gropp, Olson, section 2, algorithm 1 and listings 1 and 2.
//
// Stored entries lie in slices of whole groups of 32. A slice of the ELL part holds 32 rows, column by column: entry j of its row `lane`
// is entry `lane` of group j. A slice of the vCSR part is a segment of one row, 32 neighbouring entries in each group. So a warp reads
// both in the same way, a group at a time, and only what follows differs: in the ELL part each lane has the sum of a row, in the vCSR
// part the lanes add up.
// Slice s occupies entries slice_offsets[s] .. slice_offsets[s + 1] of `slice_offsets` [nslices + 1]; the ELL part comes first.
//
// Threads: blockDim = (32, WARPS). A team of 1 to WARPS neighbouring warps shares a slice. The first nlong_blocks blocks have slices of
// the vCSR part, the longest first. BATCH: entries that a thread loads before it uses the first.
#include "formats/columns.cuh"
#include "formats/evchyb.cuh"

// Threads of a multiprocessor that run at once: 32 registers for each suffice for a batch of 4, 64 for one of 8. As many entries are on
// their way in both, but fewer threads share the first-level cache, and each waits half as often.
__device__ constexpr int blocks_at_once(int warps, int batch)
{
  return (batch > 4 ? 1024 : 2048) / (warps * HEIGHT);
}

// 16 bytes at once
__device__ __forceinline__ Task load_task(const Task *__restrict__ task)
{
  const longlong2 words = __ldg((const longlong2 *)task);

  return {words.x, (int)words.y, (int)(words.y >> 32)};
}

// What rows the slices have
struct SliceRows {
  alignas(8) index_t nell;                  // slices of the ELL part
  const index_t *__restrict__ row_perm;     // [32 nell] row of each lane of the ELL part; null if row s * 32 + lane
  const index_t *__restrict__ segment_row;  // [nsegments] row of each segment: slice nell + i is segment i
  const RowSegments *__restrict__ segments; // [nsegments] where the row of each segment has its first one, and how many

  __device__ __forceinline__ index_t row_of_lane(offset_t slice, int lane) const
  {
    return row_perm ? __ldg(row_perm + slice * HEIGHT + lane) : index_t(slice * HEIGHT + lane);
  }

  __device__ __forceinline__ RowSegments segments_of_row(offset_t segment) const
  {
    return {__ldg(&segments[segment].first), __ldg(&segments[segment].count)};
  }
};

struct EvcHyb {
  alignas(8) index_t nlong_blocks;
  const Task *__restrict__ tasks; // [blocks * WARPS] what each warp does; the teams of a block are equally large
  SliceRows     rows;
  StoredColumns columns;            // of the stored entries
  const scalar_t *__restrict__ val; // [nstored] 0 in padding
  scalar_t *partials;               // [nsegments] sums of the segments of split rows, between the blocks of one product
  int      *tickets;                // [nsegments] of the first segment of a row: segments that are summed; 0 between products
};

// Which of its operands a product does not read, as if all entries were 1: to time what it takes without them (section 3.3)
enum Constant { CONSTANT_X = 1, CONSTANT_A = 2, CONSTANT_BOTH = CONSTANT_X | CONSTANT_A };

template <int CONSTANT>
struct ConstantOperand { // the row of A x, with 1 in place of the entries of x, of A, or of both
  const scalar_t *__restrict__ x;

  __device__ __forceinline__ void add(scalar_t &sum, scalar_t value, index_t column, index_t) const
  {
    const scalar_t a = CONSTANT & CONSTANT_A ? scalar_t(1) : value;

    if constexpr (CONSTANT & CONSTANT_X) sum += a;
    else sum += a * (column >= 0 ? __ldg(x + column) : scalar_t(0));
  }
};

// Which arrays of the matrix a sum with an operand reads
template <class Operand>
struct Reads {
  static constexpr bool columns = true, values = true;
};

template <int CONSTANT>
struct Reads<ConstantOperand<CONSTANT>> {
  static constexpr bool columns = !(CONSTANT & CONSTANT_X), values = !(CONSTANT & CONSTANT_A);
};

// Sum over `count` groups from `group` on, in this order. BATCH are loaded before the first is used, the rest in one predicated batch.
template <int BATCH, int INDEX_MODE, class Operand>
__device__ __forceinline__ scalar_t partial_sum(const ColumnReader<INDEX_MODE, HEIGHT> &columns, const scalar_t *__restrict__ val, offset_t group,
                                                int count, int lane, index_t row, const Operand operand)
{
  typedef typename ColumnReader<INDEX_MODE, HEIGHT>::Raw Raw;
  constexpr bool                                         reads_columns = Reads<Operand>::columns, reads_values = Reads<Operand>::values;
  scalar_t                                               sum = 0;

#pragma unroll 1
  for (; count >= BATCH; count -= BATCH, group += BATCH) {
    Raw      c[BATCH];
    scalar_t v[BATCH];

#pragma unroll
    for (int k = 0; k < BATCH; k++) {
      c[k] = reads_columns ? columns.load(group + k, lane) : columns.padding();
      v[k] = reads_values ? load_once(val + (group + k) * HEIGHT + lane) : scalar_t(0);
    }
#pragma unroll
    for (int k = 0; k < BATCH; k++) operand.add(sum, v[k], columns.column(c[k]), row);
  }
  if (count > 0) {
    Raw      c[BATCH - 1];
    scalar_t v[BATCH - 1];

#pragma unroll
    for (int k = 0; k < BATCH - 1; k++) {
      c[k] = reads_columns && k < count ? columns.load(group + k, lane) : columns.padding();
      v[k] = reads_values && k < count ? load_once(val + (group + k) * HEIGHT + lane) : scalar_t(0);
    }
#pragma unroll
    for (int k = 0; k < BATCH - 1; k++) // a value of 0 adds nothing, and no column no entry of x; a constant adds itself
      if ((reads_columns && reads_values) || k < count) operand.add(sum, v[k], columns.column(c[k]), row);
  }
  return sum;
}

// Adds up the segments of a row in the warp that is last with its own: it alone returns true, with the sum of the row in `sum`. The
// segments are added in the same order whichever was last.
__device__ __forceinline__ bool last_of_row(const EvcHyb &A, int segment, int lane, scalar_t &sum)
{
  const RowSegments row  = A.rows.segments_of_row(segment);
  int               last = 0;

  if (lane == 0) {
    A.partials[segment] = sum;
    __threadfence();
    last = atomicAdd(A.tickets + row.first, 1) == row.count - 1;
  }
  if (!__shfl_sync(FULL_WARP, last, 0)) return false;
  __threadfence();
  sum = 0;
  for (int i = lane; i < row.count; i += HEIGHT) sum += __ldcg(A.partials + row.first + i);
  sum = group_sum(sum);
  if (lane == 0) A.tickets[row.first] = 0;
  return true;
}

// Bytes: of each stored entry its column and value; of each row two scalars, and an index where rows are sorted; 16 for each task, which
// is half a byte a row where a warp has a slice. Deterministic: fixed trees of sums, no atomics on floating-point.
template <int WARPS, int BATCH, int INDEX_MODE, class Operand>
__device__ __forceinline__ void product(const EvcHyb &A, const Operand operand, scalar_t alpha, scalar_t beta, const scalar_t *y, scalar_t *z)
{
  __shared__ scalar_t shared[WARPS][HEIGHT];
  const bool          is_long = blockIdx.x < A.nlong_blocks;
  const int           lane = threadIdx.x, warp = threadIdx.y;
  const Task          task     = load_task(A.tasks + (offset_t)blockIdx.x * WARPS + warp);
  const int           log_team = task.shape & 15, team = 1 << log_team, share = warp & (team - 1), width = task.shape >> 5;
  index_t             row = 0;

  if (task.slice >= 0) {
    row = is_long ? __ldg(A.rows.segment_row + (task.slice - A.rows.nell)) : A.rows.row_of_lane(task.slice, lane);
  }
  const ColumnReader<INDEX_MODE, HEIGHT> columns(A.columns, task.slice < 0 ? 0 : task.slice, task.begin);
  const int                              count = (width + team - 1) >> log_team, first = share * count; // a warp's groups are neighbours
  scalar_t sum = partial_sum<BATCH, INDEX_MODE>(columns, A.val, task.begin / HEIGHT + first, width - first < count ? width - first : count, lane, row,
                                                operand);

  if (is_long) {
    sum = group_sum(sum);
    if (team > 1) {
      if (lane == 0) shared[0][warp] = sum;
      __syncthreads();
      if (share == 0) sum = group_sum(lane < team ? shared[0][warp + lane] : scalar_t(0));
    }
  } else if (team > 1) {
    shared[warp][lane] = sum;
    __syncthreads();
    if (share == 0)
      for (int i = 1; i < team; i++) sum += shared[warp + i][lane];
  }
  if (share != 0 || task.slice < 0) return;
  if (is_long) {
    if (task.shape & 16 && !last_of_row(A, task.slice - A.rows.nell, lane, sum)) return;
    if (lane != 0) return;
  }
  // an empty slice has nothing to add: most slices of an off-diagonal block are empty, and z is y there
  if (width || y != z || beta != 1) store_result(row, sum, alpha, beta, y, z);
}

// z = alpha A x + beta y; y is not read if beta is 0, and z may be y
template <int WARPS, int BATCH, int INDEX_MODE>
__global__ void __launch_bounds__((WARPS * HEIGHT), blocks_at_once(WARPS, BATCH))
  evchyb_spmv(const EvcHyb A, const scalar_t *__restrict__ x, scalar_t alpha, scalar_t beta, const scalar_t *y, scalar_t *z)
{
  product<WARPS, BATCH, INDEX_MODE>(A, VectorOperand{x}, alpha, beta, y, z);
}

// z = A x with 1 in place of the entries of x, of A, or of both: what is replaced is not read, nor are columns where x is. Where A is,
// padding has no entry of x; where both are, it counts. Kernels of their own, for profilers tell them by their names.
template <int WARPS, int BATCH, int INDEX_MODE>
__global__ void __launch_bounds__((WARPS * HEIGHT), blocks_at_once(WARPS, BATCH))
  evchyb_without_x(const EvcHyb A, const scalar_t *__restrict__ x, scalar_t *z)
{
  product<WARPS, BATCH, INDEX_MODE>(A, ConstantOperand<CONSTANT_X>{x}, 1, 0, nullptr, z);
}

template <int WARPS, int BATCH, int INDEX_MODE>
__global__ void __launch_bounds__((WARPS * HEIGHT), blocks_at_once(WARPS, BATCH))
  evchyb_without_values(const EvcHyb A, const scalar_t *__restrict__ x, scalar_t *z)
{
  product<WARPS, BATCH, INDEX_MODE>(A, ConstantOperand<CONSTANT_A>{x}, 1, 0, nullptr, z);
}

template <int WARPS, int BATCH, int INDEX_MODE>
__global__ void __launch_bounds__((WARPS * HEIGHT), blocks_at_once(WARPS, BATCH))
  evchyb_without_both(const EvcHyb A, const scalar_t *__restrict__ x, scalar_t *z)
{
  product<WARPS, BATCH, INDEX_MODE>(A, ConstantOperand<CONSTANT_BOTH>{x}, 1, 0, nullptr, z);
}

// z[row] = A[row, row]
template <int WARPS, int BATCH, int INDEX_MODE>
__global__ void __launch_bounds__((WARPS * HEIGHT), blocks_at_once(WARPS, BATCH)) evchyb_diagonal(const EvcHyb A, scalar_t *z)
{
  product<WARPS, BATCH, INDEX_MODE>(A, DiagonalOperand{}, 1, 0, nullptr, z);
}

// Copies the entries of CSR rows into their slices and fills the padding. Entry k of the pattern is read at source[k], or at k if
// source is null. Threads: blockDim = (32, warps that share a slice, slices of the block). Writes are coalesced; reads are in the vCSR
// part, and in the ELL part what the lanes read of their rows lies in few cache lines.
template <class Entry>
__device__ __forceinline__ void fill(offset_t nslices, const offset_t *__restrict__ slice_offsets, const SliceRows &rows,
                                     const index_t *__restrict__ rowptr, const index_t *__restrict__ source, const Entry *__restrict__ entries,
                                     Entry *__restrict__ stored, Entry padding)
{
  const offset_t slice = (offset_t)blockIdx.x * blockDim.z + threadIdx.z;

  if (slice >= nslices) return;
  const offset_t begin = slice_offsets[slice], end = slice_offsets[slice + 1];
  offset_t       k, k_end, k_step;

  if (slice < rows.nell) {
    const offset_t row = rows.row_of_lane(slice, threadIdx.x);

    k      = rowptr[row] + threadIdx.y;
    k_end  = rowptr[row + 1];
    k_step = blockDim.y;
  } else {
    const offset_t segment = slice - rows.nell, row = __ldg(rows.segment_row + segment);

    k      = rowptr[row] + (begin - slice_offsets[rows.nell + rows.segments_of_row(segment).first]) + threadIdx.y * HEIGHT + threadIdx.x;
    k_end  = rowptr[row + 1];
    k_step = blockDim.y * HEIGHT;
  }
  for (offset_t p = begin + threadIdx.y * HEIGHT + threadIdx.x; p < end; p += blockDim.y * HEIGHT, k += k_step)
    stored[p] = k < k_end ? entries[source ? source[k] : k] : padding;
}

// structure pass: columns into the slices
__global__ void __launch_bounds__(128)
  evchyb_fill_columns(offset_t nslices, const offset_t *__restrict__ slice_offsets, const SliceRows rows, const index_t *__restrict__ rowptr,
                      const index_t *__restrict__ source, const index_t *__restrict__ entries, index_t *__restrict__ stored)
{
  fill<index_t>(nslices, slice_offsets, rows, rowptr, source, entries, stored, -1);
}

// value pass: the refresh after a change of values
__global__ void __launch_bounds__(128)
  evchyb_fill_values(offset_t nslices, const offset_t *__restrict__ slice_offsets, const SliceRows rows, const index_t *__restrict__ rowptr,
                     const index_t *__restrict__ source, const scalar_t *__restrict__ entries, scalar_t *__restrict__ stored)
{
  fill<scalar_t>(nslices, slice_offsets, rows, rowptr, source, entries, stored, 0);
}
