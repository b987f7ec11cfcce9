// Entries that lie in segments, the rows of a pattern in the making, and that are put in order there: by runs and pieces in shared memory, long
// segments by merging pieces. An Entry has a Key, by which key() orders it; no two entries of a segment have the same.
//   begins [nsegments + 1] where the segments begin in `entries`
#pragma once
#include "common/scan.cuh"
#include "common/search.cuh"

constexpr int BATCH = 4; // entries a thread of kernels over entries

__device__ __forceinline__ int count_up(int *counter, int number)
{
  return atomicAdd(counter, number);
}

__device__ __forceinline__ long long count_up(long long *counter, long long number)
{
  return (long long)atomicAdd((unsigned long long *)counter, (unsigned long long)number);
}

// The last of `nsegments` whose beginning is not above `position`: the one that `position` lies in. A warp calls it.
__device__ __forceinline__ offset_t segment_by_warp(const index_t *__restrict__ begins, offset_t nsegments, offset_t position)
{
  offset_t low = 0, high = nsegments;

  while (high - low > 1) {
    const offset_t step = (high - low + WARP - 1) / WARP, probed = low + threadIdx.x % WARP * step;
    const unsigned not_above = __ballot_sync(FULL_WARP, probed < high && __ldg(begins + min(probed, high - 1)) <= position);

    low += (__popc(not_above) - 1) * step;
    high = min(high, low + step);
  }
  return low;
}

// The segments that the first and the last position of a block lie in, into found [2]. All threads of the block call it.
__device__ __forceinline__ void segments_of_block(const index_t *__restrict__ begins, offset_t nsegments, offset_t first, offset_t last,
                                                  offset_t *found)
{
  const int warp = threadIdx.x / WARP;

  if (warp < 2) {
    const offset_t segment = segment_by_warp(begins, nsegments, warp ? last : first);

    if (threadIdx.x % WARP == 0) found[warp] = segment;
  }
  __syncthreads();
}

// Where the first piece of PIECE entries begins that does not begin before `position`, in the segment from `begin` to `end` or after it.
template <int PIECE>
__device__ __forceinline__ offset_t piece_from(offset_t position, offset_t begin, offset_t end)
{
  return min(end, begin + (position - begin + PIECE - 1) / PIECE * PIECE);
}

// Puts each segment in order, and of a segment longer than PIECE its pieces: put(place, entry, is_piece), which may write to `entries`. A block
// takes the pieces that begin in its window, and that may end after it, into shared memory; a thread has ITEMS entries. Runs of RUN entries are
// sorted by counting smaller ones, then runs are merged pair after pair: an entry's place is its place in its own run and that in the other,
// found by binary search.
template <int BLOCK_THREADS, int ITEMS, int PIECE, class Entry, class Put>
__device__ __forceinline__ void sort_segments(offset_t nentries, offset_t nsegments, const index_t *__restrict__ begins, const Entry *entries,
                                              const Put put)
{
  constexpr int                  CAPACITY = BLOCK_THREADS * ITEMS, WINDOW = CAPACITY - PIECE + 1, RUN = 32;
  __shared__ typename Entry::Key keys[CAPACITY];
  __shared__ offset_t            segments[2], bounds[2];
  __shared__ int                 longest_piece;
  const offset_t                 window_begin = (offset_t)blockIdx.x * WINDOW, window_end = min(window_begin + WINDOW, nentries);
  Entry                          entry[ITEMS];
  int                            place[ITEMS], begin[ITEMS], end[ITEMS]; // of the entry, and of its piece, in `keys`; end is 0 without an entry
  unsigned                       in_long_segment = 0;                    // a bit for each item

  if (threadIdx.x == 0) longest_piece = 0;
  segments_of_block(begins, nsegments, window_begin, min(window_end, nentries - 1), segments);
  if (threadIdx.x < 2) {
    const offset_t segment = segments[threadIdx.x], position = threadIdx.x ? window_end : window_begin;

    bounds[threadIdx.x] = piece_from<PIECE>(position, begins[segment], begins[segment + 1]);
  }
  __syncthreads();
  const offset_t base = bounds[0];

#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const offset_t position = base + i * BLOCK_THREADS + threadIdx.x;

    begin[i] = end[i] = 0;
    if (position < bounds[1]) entry[i] = entries[position];
  }
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const offset_t position = base + i * BLOCK_THREADS + threadIdx.x;

    if (position >= bounds[1]) continue;
    const offset_t segment = segment_of(begins, segments[0], segments[1], position), segment_begin = __ldg(begins + segment),
                   segment_end = __ldg(begins + segment + 1);
    const offset_t piece_begin = segment_begin + (position - segment_begin) / PIECE * PIECE;

    place[i]       = (int)(position - base);
    begin[i]       = (int)(piece_begin - base);
    end[i]         = (int)(min(piece_begin + PIECE, segment_end) - base);
    keys[place[i]] = entry[i].key();
    if (place[i] == begin[i] && end[i] - begin[i] > RUN) atomicMax(&longest_piece, end[i] - begin[i]);
    if (segment_end - segment_begin > PIECE) in_long_segment |= 1u << i;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    if (end[i] == 0) continue;
    const int run = begin[i] + (place[i] - begin[i]) / RUN * RUN, run_end = min(run + RUN, end[i]);

    place[i] = run;
    for (int j = run; j < run_end; j++) place[i] += keys[j] < entry[i].key();
  }
  for (int width = RUN; width < longest_piece; width *= 2) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
      if (end[i] - begin[i] > width) keys[place[i]] = entry[i].key();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
      if (end[i] - begin[i] <= width) continue;
      const int in_piece = place[i] - begin[i], in_run = in_piece & (width - 1), other = begin[i] + ((in_piece - in_run) ^ width);
      const int first = min(other, end[i]);

      place[i] = begin[i] + (in_piece & -2 * width) + in_run - first;
      place[i] += partition_point(first, min(other + width, end[i]), [&](int p) { return keys[p] < entry[i].key(); });
    }
  }
#pragma unroll
  for (int i = 0; i < ITEMS; i++)
    if (end[i] != 0) put(base + place[i], entry[i], (bool)(in_long_segment >> i & 1));
}

// Merges pairs of pieces of `width` entries, a power of two, in order each, of segments longer than that: put(place, entry, is_piece), where
// pieces are twice as long. keep(position) for the entries of other segments. A thread does BATCH entries, one after another.
template <int BLOCK_THREADS, class Entry, class Put, class Keep>
__device__ __forceinline__ void merge_segments(offset_t nentries, offset_t nsegments, const index_t *__restrict__ begins, offset_t width,
                                               const Entry *__restrict__ entries, const Put put, const Keep keep)
{
  __shared__ offset_t segments[2];
  const offset_t      first_of_block = (offset_t)blockIdx.x * (BATCH * BLOCK_THREADS),
                      end_of_block   = min(first_of_block + BATCH * BLOCK_THREADS, nentries);

  segments_of_block(begins, nsegments, first_of_block, end_of_block - 1, segments);
  for (offset_t position = first_of_block + threadIdx.x; position < end_of_block; position += BLOCK_THREADS) {
    const offset_t segment = segment_of(begins, segments[0], segments[1], position), begin = __ldg(begins + segment),
                   end = __ldg(begins + segment + 1);

    if (end - begin <= width) {
      keep(position);
      continue;
    }
    const Entry    entry      = entries[position];
    const offset_t in_segment = position - begin, in_piece = in_segment & (width - 1), other = begin + ((in_segment - in_piece) ^ width);
    const offset_t first = min(other, end);
    offset_t       place = begin + (in_segment & -2 * width) + in_piece - first;

    place += partition_point(first, min(other + width, end), [&](offset_t p) { return entries[p].key() < entry.key(); });
    put(place, entry, end - begin > 2 * width);
  }
}
