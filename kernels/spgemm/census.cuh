// What kernels of sparse products C = A B count, and how (petsc_gpufmt/spgemm/census.py has the same fields).
#pragma once
#include "common/scan.cuh"

constexpr int BINS = 16; // at most

struct Census { // of the rows of a bin
  count_t rows;
  count_t work;    // sum of words or terms
  count_t entries; // sum of the lengths of A's rows
};

// All zeros at first. Maxima and sums are of integers: the order in which blocks add to them does not matter.
struct Control {
  count_t terms, most_terms;           // products a_ik b_kj: all, and of the row with most
  count_t longest_left, longest_right; // entries of rows of A, and of the rows of B that they meet
  count_t falls;                       // whether a column of a row of B is not above the one before it
  count_t nnz, longest;                // entries of C, and of its longest row
  count_t carried;                     // a number that the host waits for as well
  count_t ticket;                      // tiles of rows that blocks have taken
  Census  words[BINS], lengths[BINS];  // rows by how many words of B meet them; rows of C by length
  count_t parts[BINS];                 // parts of long rows of C, by the length of A's row
  count_t word_cursors[BINS], length_cursors[BINS], part_cursors[BINS];
};

// Bin of a row of `size`: 0 above `largest`, else the last of 1 .. nbins - 2 whose bound largest / 2^(bin - 1), rounded up, is not below
// it; nbins - 1 for an empty row.
__device__ __forceinline__ int bin_of(offset_t size, int largest, int nbins)
{
  int bin = 0;

  if (size == 0) return nbins - 1;
  while (bin < nbins - 2 && size <= (largest + (1 << bin) - 1) >> bin) bin++;
  return bin;
}

constexpr int LONGEST_FACTOR = 1 << 13; // rows of A by length: above this, up to it, up to half of it, ...

// Adds the rows of a warp to its own `census`, bin after bin of those that there are, nearly always one. All threads of the warp call it,
// those without a row with `valid` false; only every SPACING-th may have one.
template <int SPACING>
__device__ __forceinline__ void count_rows(Census *census, bool valid, int bin, offset_t work, offset_t entries)
{
  for (unsigned rest = __ballot_sync(FULL_WARP, valid); rest;) {
    const int      this_bin = __shfl_sync(FULL_WARP, bin, __ffs(rest) - 1);
    const bool     mine     = valid && bin == this_bin;
    const unsigned votes    = __ballot_sync(FULL_WARP, mine);
    offset_t       sum = mine ? work : 0, length = mine ? entries : 0;

#pragma unroll
    for (int distance = WARP / 2; distance >= SPACING; distance /= 2) {
      sum += __shfl_xor_sync(FULL_WARP, sum, distance);
      length += __shfl_xor_sync(FULL_WARP, length, distance);
    }
    if (threadIdx.x % WARP == 0) {
      census[this_bin].rows += __popc(votes);
      census[this_bin].work += (count_t)sum;
      census[this_bin].entries += (count_t)length;
    }
    rest &= ~votes;
  }
}

// Each warp of a block has a census of its own: atomics on 64 bits of shared memory are loops. All threads of the block call these.
template <int NWARPS>
__device__ __forceinline__ void clear_census(Census (*of_warps)[BINS])
{
  for (int i = threadIdx.x; i < NWARPS * BINS; i += NWARPS * WARP) of_warps[i / BINS][i % BINS] = {0, 0, 0};
  __syncthreads();
}

template <int NWARPS>
__device__ __forceinline__ void add_census(Census *all, const Census (*of_warps)[BINS])
{
  __syncthreads();
  if (threadIdx.x >= BINS) return;
  Census sum = {0, 0, 0};

  for (int warp = 0; warp < NWARPS; warp++) {
    const Census of_warp = of_warps[warp][threadIdx.x];

    sum.rows += of_warp.rows;
    sum.work += of_warp.work;
    sum.entries += of_warp.entries;
  }
  if (sum.rows == 0) return;
  atomicAdd(&all[threadIdx.x].rows, sum.rows);
  atomicAdd(&all[threadIdx.x].work, sum.work);
  atomicAdd(&all[threadIdx.x].entries, sum.entries);
}

// What each thread has seen of rows, and how a block adds it to Control.
struct Seen {
  offset_t terms, most_terms, longest_left, longest_right;

  __device__ __forceinline__ void add(offset_t row_terms, offset_t left, offset_t right)
  {
    terms += row_terms;
    most_terms    = max(most_terms, row_terms);
    longest_left  = max(longest_left, left);
    longest_right = max(longest_right, right);
  }

  // of all threads of a warp in its first
  __device__ __forceinline__ void reduce()
  {
    terms         = group_sum(terms);
    most_terms    = group_max(most_terms);
    longest_left  = group_max(longest_left);
    longest_right = group_max(longest_right);
  }

  // All threads of the block call it; `parts` is shared and has an entry for each warp.
  template <int NWARPS>
  __device__ __forceinline__ void add_to(Control *control, Seen *parts)
  {
    reduce();
    if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = *this;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int warp = 1; warp < NWARPS; warp++) {
      terms += parts[warp].terms;
      most_terms    = max(most_terms, parts[warp].most_terms);
      longest_left  = max(longest_left, parts[warp].longest_left);
      longest_right = max(longest_right, parts[warp].longest_right);
    }
    atomicAdd(&control->terms, (count_t)terms);
    atomicMax(&control->most_terms, (count_t)most_terms);
    atomicMax(&control->longest_left, (count_t)longest_left);
    atomicMax(&control->longest_right, (count_t)longest_right);
  }
};
