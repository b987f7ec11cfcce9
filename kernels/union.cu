// The pattern of a sum of up to three matrices whose rows and columns lie in different places of it, and what makes each of its entries
// (petsc_gpufmt/union.py). Columns of the sum are its places; those in [low, high) are part 0 of it, the others part 1.
#include "search.cuh"

constexpr int FILL_BLOCKS = sizeof(index_t) == 4 ? 4 : 3; // of a multiprocessor at least, so that nothing spills

// A row of a summand that belongs to a row of the sum
struct Piece {
  const index_t *__restrict__ colidx, *__restrict__ places;
  index_t begin, end, first; // of its entries in the summand; number of the summand's first entry among those of all

  __device__ __forceinline__ index_t place(offset_t entry) const { return __ldg(places + __ldg(colidx + entry)); }

  // how many places of the row are below `bound`
  __device__ __forceinline__ index_t below(index_t bound) const
  {
    return partition_point(begin, end, [&](index_t entry) { return place(entry) < bound; }) - begin;
  }
};

// Row i of the sum is made of rows shares[begins[i]] to shares[begins[i + 1] - 1], the rows of the summands counted through; begins null: of
// row i of each summand.
struct Summands {
  index_t count;
  const index_t *__restrict__ begins, *__restrict__ shares;
  index_t second_row, third_row, second_entry, third_entry; // numbers of the first rows and entries of b and c
  const index_t *__restrict__ a_rowptr, *__restrict__ a_colidx, *__restrict__ a_places;
  const index_t *__restrict__ b_rowptr, *__restrict__ b_colidx, *__restrict__ b_places;
  const index_t *__restrict__ c_rowptr, *__restrict__ c_colidx, *__restrict__ c_places;

  __device__ __forceinline__ offset_t first_share(offset_t row) const { return begins ? (offset_t)__ldg(begins + row) : row * count; }

  __device__ __forceinline__ Piece operator()(offset_t row, offset_t share) const
  {
    const index_t  number  = begins ? __ldg(shares + share) : index_t(row);
    const offset_t summand = begins ? (number >= second_row) + (number >= third_row) : share - row * count;

    if (summand == 0) return {a_colidx, a_places, __ldg(a_rowptr + number), __ldg(a_rowptr + number + 1), 0};
    if (summand == 1) {
      const index_t own = number - (begins ? second_row : 0);

      return {b_colidx, b_places, __ldg(b_rowptr + own), __ldg(b_rowptr + own + 1), second_entry};
    }
    const index_t own = number - (begins ? third_row : 0);

    return {c_colidx, c_places, __ldg(c_rowptr + own), __ldg(c_rowptr + own + 1), third_entry};
  }
};

// How many shares of a row have entries, and one that has
__device__ __forceinline__ int nonempty_pieces(const Summands &summands, offset_t row, Piece &last)
{
  int count = 0;

  for (offset_t share = summands.first_share(row); share < summands.first_share(row + 1); share++) {
    const Piece piece = summands(row, share);

    if (piece.begin < piece.end) {
      last = piece;
      count++;
    }
  }
  return count;
}

// Calls output.begin(place) for each entry of a row, in ascending order, and output.add(entry) for each of its terms, in the order of the
// shares. `positions` has a word for each share of all rows.
template <class Output>
__device__ __forceinline__ void merge_row(const Summands &summands, offset_t row, index_t ncols, index_t *positions, Output &output)
{
  const offset_t first = summands.first_share(row), last = summands.first_share(row + 1);

  for (offset_t share = first; share < last; share++) positions[share] = summands(row, share).begin;
  for (;;) {
    index_t next = ncols;

    for (offset_t share = first; share < last; share++) {
      const Piece piece = summands(row, share);

      if (positions[share] < piece.end) next = min(next, piece.place(positions[share]));
    }
    if (next == ncols) break;
    output.begin(next);
    for (offset_t share = first; share < last; share++) {
      const Piece piece = summands(row, share);

      if (positions[share] < piece.end && piece.place(positions[share]) == next) output.add(piece.first + positions[share]++);
    }
  }
}

struct Counter {
  index_t low, high;
  index_t entries[2], terms[2];
  bool    outer;

  __device__ __forceinline__ void begin(index_t place)
  {
    outer = place < low || place >= high;
    if (outer) entries[1]++;
    else entries[0]++;
  }
  __device__ __forceinline__ void add(index_t)
  {
    if (outer) terms[1]++;
    else terms[0]++;
  }
};

// Where the next entry of a part goes. `begins` null: each entry has one term.
struct PartWriter {
  index_t *__restrict__ colidx, *__restrict__ begins, *__restrict__ index;
  index_t entry, term;

  __device__ __forceinline__ void begin(index_t column)
  {
    colidx[entry] = column;
    if (begins) begins[entry] = term;
    entry++;
  }
  __device__ __forceinline__ void add(index_t number) { index[term++] = number; }
};

struct Writer {
  PartWriter parts[2];
  index_t    low, high;
  index_t *__restrict__ occurs;
  bool outer;

  __device__ __forceinline__ void begin(index_t place)
  {
    outer = place < low || place >= high;
    if (outer) {
      parts[1].begin(place);
      occurs[place] = 1; // all threads that write, write the same
    } else parts[0].begin(place - low);
  }
  __device__ __forceinline__ void add(index_t number)
  {
    if (outer) parts[1].add(number);
    else parts[0].add(number);
  }
};

// lengths0[i + 1], lengths1[i + 1] = entries of row i in each part, more0[i + 1], more1[i + 1] = how many terms they have beyond one each;
// word 0 of these arrays becomes 0. several[k] = 1 if a row of part k has more. A thread a row.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  union_count(index_t nrows, index_t ncols, index_t low, index_t high, index_t count, const index_t *__restrict__ begins, const index_t *__restrict__ shares, index_t second_row, index_t third_row, index_t second_entry, index_t third_entry, const index_t *__restrict__ a_rowptr,
              const index_t *__restrict__ a_colidx, const index_t *__restrict__ a_places, const index_t *__restrict__ b_rowptr, const index_t *__restrict__ b_colidx, const index_t *__restrict__ b_places, const index_t *__restrict__ c_rowptr, const index_t *__restrict__ c_colidx,
              const index_t *__restrict__ c_places, index_t *positions, index_t *__restrict__ lengths0, index_t *__restrict__ lengths1, index_t *__restrict__ more0, index_t *__restrict__ more1, index_t *__restrict__ several)
{
  const Summands summands = {count, begins, shares, second_row, third_row, second_entry, third_entry, a_rowptr, a_colidx, a_places, b_rowptr, b_colidx, b_places, c_rowptr, c_colidx, c_places};
  const offset_t row      = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;
  Counter        counter  = {low, high, {0, 0}, {0, 0}, false};
  Piece          piece;

  if (row >= nrows) return;
  const int npieces = nonempty_pieces(summands, row, piece);

  if (npieces > 1) merge_row(summands, row, ncols, positions, counter);
  else if (npieces == 1) {
    const index_t length = piece.end - piece.begin, inner = low || high < ncols ? piece.below(high) - piece.below(low) : length;

    counter.entries[0] = counter.terms[0] = inner;
    counter.entries[1] = counter.terms[1] = length - inner;
  }
  if (row == 0) lengths0[0] = lengths1[0] = more0[0] = more1[0] = 0;
  lengths0[row + 1] = counter.entries[0];
  lengths1[row + 1] = counter.entries[1];
  more0[row + 1]    = counter.terms[0] - counter.entries[0];
  more1[row + 1]    = counter.terms[1] - counter.entries[1];
  if (more0[row + 1]) several[0] = 1;
  if (more1[row + 1]) several[1] = 1;
}

// The entries and terms of both parts, given their row pointers and how many terms those before each row have beyond one each (null: none).
// occurs[place] = 1 for the columns of part 1. TEAM threads a row: most rows are those of one summand alone; others are merged by one.
template <int BLOCK_THREADS, int TEAM>
__global__ void __launch_bounds__(BLOCK_THREADS, FILL_BLOCKS)
  union_fill(index_t nrows, index_t ncols, index_t low, index_t high, index_t count, const index_t *__restrict__ begins, const index_t *__restrict__ shares, index_t second_row, index_t third_row, index_t second_entry, index_t third_entry, const index_t *__restrict__ a_rowptr,
              const index_t *__restrict__ a_colidx, const index_t *__restrict__ a_places, const index_t *__restrict__ b_rowptr, const index_t *__restrict__ b_colidx, const index_t *__restrict__ b_places, const index_t *__restrict__ c_rowptr, const index_t *__restrict__ c_colidx,
              const index_t *__restrict__ c_places, index_t *positions, const index_t *__restrict__ rowptr0, const index_t *__restrict__ rowptr1, const index_t *__restrict__ more0, const index_t *__restrict__ more1, index_t *__restrict__ colidx0, index_t *__restrict__ begins0, index_t *__restrict__ index0,
             index_t *__restrict__ colidx1, index_t *__restrict__ begins1, index_t *__restrict__ index1, index_t *__restrict__ occurs)
{
  const Summands summands = {count, begins, shares, second_row, third_row, second_entry, third_entry, a_rowptr, a_colidx, a_places, b_rowptr, b_colidx, b_places, c_rowptr, c_colidx, c_places};
  const offset_t row      = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / TEAM;
  const int      lane     = threadIdx.x % TEAM;
  Piece          piece;

  if (row >= nrows) return;
  const index_t entry0 = __ldg(rowptr0 + row), entry1 = __ldg(rowptr1 + row), end0 = __ldg(rowptr0 + row + 1), end1 = __ldg(rowptr1 + row + 1);
  const index_t before0 = more0 ? __ldg(more0 + row) : 0, before1 = more1 ? __ldg(more1 + row) : 0;
  const int     npieces = nonempty_pieces(summands, row, piece);

  if (npieces > 1) {
    if (lane == 0) {
      Writer writer = {{{colidx0, begins0, index0, entry0, entry0 + before0}, {colidx1, begins1, index1, entry1, entry1 + before1}}, low, high, occurs, false};

      merge_row(summands, row, ncols, positions, writer);
    }
  } else if (npieces == 1) {
    const index_t inner = end0 - entry0, lower = entry1 < end1 ? piece.below(low) : 0;

    for (offset_t k = lane; k < piece.end - piece.begin; k += TEAM) {
      const index_t place = piece.place(piece.begin + k), number = piece.first + piece.begin + (index_t)k;

      if (place >= low && place < high) {
        const offset_t entry = entry0 + k - lower;

        colidx0[entry]          = place - low;
        index0[entry + before0] = number;
        if (begins0) begins0[entry] = (index_t)entry + before0;
      } else {
        const offset_t entry = entry1 + k - (place < low ? 0 : inner);

        colidx1[entry]          = place;
        index1[entry + before1] = number;
        occurs[place]           = 1; // all threads that write, write the same
        if (begins1) begins1[entry] = (index_t)entry + before1;
      }
    }
  }
  if (row == nrows - 1 && lane == 0) {
    if (begins0) begins0[end0] = end0 + __ldg(more0 + nrows);
    if (begins1) begins1[end1] = end1 + __ldg(more1 + nrows);
  }
}
