// The pattern of a sum of up to three matrices whose rows and columns lie in different places of it, and what makes each of its entries
// (petsc_gpufmt/patterns/union.py). Columns of the sum are its places; those in [low, high) are part 0 of it, the others part 1.
#include "common/scan.cuh"
#include "common/search.cuh"

// Thread blocks of a multiprocessor at least, so that nothing spills
constexpr int MERGE_BLOCKS = sizeof(index_t) == 4 ? 4 : 3;

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

struct Summand {
  const index_t *__restrict__ rowptr, *__restrict__ colidx, *__restrict__ places;
  alignas(8) index_t first_row, first_entry; // their numbers among those of all summands
};

// What is summed, at most three matrices. Row i of the sum is made of rows shares[begins[i]] to shares[begins[i + 1] - 1], the rows of the
// summands counted through; begins null: of row i of each summand.
struct Sum {
  alignas(8) index_t nrows, ncols, low, high, count;
  const index_t *__restrict__ begins, *__restrict__ shares;
  Summand  a, b, c;
  index_t *positions; // a word for each share of all rows

  // Member by member: of such a copy the compiler makes two paths, one for rows without `shares`, which takes 13 registers less.
  __device__ __forceinline__ Sum copy() const { return {nrows, ncols, low, high, count, begins, shares, a, b, c, positions}; }

  __device__ __forceinline__ offset_t first_share(offset_t row) const { return begins ? (offset_t)__ldg(begins + row) : row * count; }

  __device__ __forceinline__ Piece operator()(offset_t row, offset_t share) const
  {
    const index_t  number  = begins ? __ldg(shares + share) : index_t(row);
    const offset_t summand = begins ? (number >= b.first_row) + (number >= c.first_row) : share - row * count;

    if (summand == 0) return piece_of(a, number);
    if (summand == 1) return piece_of(b, number - (begins ? b.first_row : 0));
    return piece_of(c, number - (begins ? c.first_row : 0));
  }

  static __device__ __forceinline__ Piece piece_of(const Summand &summand, index_t row)
  {
    return {summand.colidx, summand.places, __ldg(summand.rowptr + row), __ldg(summand.rowptr + row + 1), summand.first_entry};
  }
};

// How many shares of a row have entries, and one that has
__device__ __forceinline__ int nonempty_pieces(const Sum &sum, offset_t row, Piece &last)
{
  int count = 0;

  for (offset_t share = sum.first_share(row); share < sum.first_share(row + 1); share++) {
    const Piece piece = sum(row, share);

    if (piece.begin < piece.end) {
      last = piece;
      count++;
    }
  }
  return count;
}

// A row has a share of each matrix, as a rule.
constexpr int FEW_SHARES = 3;

// As below, of at most so many shares: what is next in each stays in registers.
template <class Output>
__device__ __forceinline__ void merge_few(const Sum &sum, offset_t row, offset_t first, int count, Output &output)
{
  Piece   pieces[FEW_SHARES] = {};
  index_t places[FEW_SHARES], next;

#pragma unroll
  for (int k = 0; k < FEW_SHARES; k++) {
    if (k < count) pieces[k] = sum(row, first + k);
    places[k] = pieces[k].begin < pieces[k].end ? pieces[k].place(pieces[k].begin) : sum.ncols;
  }
  while ((next = min(places[0], min(places[1], places[2]))) < sum.ncols) {
    output.begin(next);
#pragma unroll
    for (int k = 0; k < FEW_SHARES; k++) {
      if (places[k] != next) continue;
      output.add(pieces[k].first + pieces[k].begin++);
      places[k] = pieces[k].begin < pieces[k].end ? pieces[k].place(pieces[k].begin) : sum.ncols;
    }
  }
}

// Calls output.begin(place) for each entry of a row, in ascending order, and output.add(entry) for each of its terms, in the order of the
// shares.
template <class Output>
__device__ __forceinline__ void merge_row(const Sum &sum, offset_t row, Output &output)
{
  const offset_t first = sum.first_share(row), last = sum.first_share(row + 1);

  if (last - first <= FEW_SHARES) {
    merge_few(sum, row, first, int(last - first), output);
    return;
  }
  for (offset_t share = first; share < last; share++) sum.positions[share] = sum(row, share).begin;
  for (;;) {
    index_t next = sum.ncols;

    for (offset_t share = first; share < last; share++) {
      const Piece piece = sum(row, share);

      if (sum.positions[share] < piece.end) next = min(next, piece.place(sum.positions[share]));
    }
    if (next == sum.ncols) break;
    output.begin(next);
    for (offset_t share = first; share < last; share++) {
      const Piece piece = sum(row, share);

      if (sum.positions[share] < piece.end && piece.place(sum.positions[share]) == next) output.add(piece.first + sum.positions[share]++);
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

// A part of the sum: entries of each row, and how many terms they have beyond one each
struct PartCounts {
  index_t *__restrict__ lengths, *__restrict__ more;
};

struct Part {
  const index_t *__restrict__ rowptr, *__restrict__ more; // more: how many terms those before each row have beyond one each; null: none
  index_t *__restrict__ colidx, *__restrict__ begins, *__restrict__ index; // begins null: each entry has one term
};

// Where the next entry of a part goes
struct PartWriter {
  const Part &part;
  index_t     entry, term;

  __device__ __forceinline__ void begin(index_t column)
  {
    part.colidx[entry] = column;
    if (part.begins) part.begins[entry] = term;
    entry++;
  }
  __device__ __forceinline__ void add(index_t number) { part.index[term++] = number; }
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

// lengths[i + 1] = entries of row i in each part, more[i + 1] = how many terms they have beyond one each; word 0 of these arrays becomes 0.
// A thread a row.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS, MERGE_BLOCKS) union_count(const Sum given, const PartCounts part0, const PartCounts part1)
{
  const Sum      sum     = given.copy();
  const offset_t row     = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;
  Counter        counter = {
    sum.low, sum.high, {0, 0},
      {0, 0},
      false
  };
  Piece piece;

  if (row >= sum.nrows) return;
  const int npieces = nonempty_pieces(sum, row, piece);

  if (npieces > 1) merge_row(sum, row, counter);
  else if (npieces == 1) {
    const index_t length = piece.end - piece.begin, inner = sum.low || sum.high < sum.ncols ? piece.below(sum.high) - piece.below(sum.low) : length;

    counter.entries[0] = counter.terms[0] = inner;
    counter.entries[1] = counter.terms[1] = length - inner;
  }
  if (row == 0) part0.lengths[0] = part1.lengths[0] = part0.more[0] = part1.more[0] = 0;
  part0.lengths[row + 1] = counter.entries[0];
  part1.lengths[row + 1] = counter.entries[1];
  part0.more[row + 1]    = counter.terms[0] - counter.entries[0];
  part1.more[row + 1]    = counter.terms[1] - counter.entries[1];
}

// What prefix sums of ARRAYS arrays have counted: the sum of all numbers of each, and tiles that blocks have taken. All zeros at first; a zero
// for each tile of each array follows.
template <int ARRAYS>
struct Totals {
  count_t totals[ARRAYS], tickets[ARRAYS];

  __device__ __forceinline__ count_t *states(offset_t tile) { return (count_t *)(this + 1) + tile; }
};

// Sums up to each row in the place of the four arrays of union_count; every fourth block has those of one. A warp adds up ITEMS times 32 rows.
template <int ITEMS>
__global__ void __launch_bounds__(SCAN_THREADS) union_row_pointers(offset_t nrows, const PartCounts part0, const PartCounts part1, Totals<4> *control)
{
  __shared__ BlockScan scan;
  const int            k       = (int)(blockIdx.x % 4);
  index_t *const       of_rows = (k == 0 ? part0.lengths : k == 1 ? part0.more : k == 2 ? part1.lengths : part1.more) + 1;

  prefix_sums<ITEMS>(
    scan, control->tickets + k, control->states((offset_t)k * (gridDim.x / 4)), nrows, [&](offset_t row) { return of_rows[row]; },
    [&](offset_t row, count_t, count_t up_to) {
      of_rows[row] = (index_t)up_to;
      if (row == nrows - 1) control->totals[k] = up_to;
    });
}

// Numbers the columns that occur, in their order, in the place of `occurs` [ncols]; ghosts[number] = column. A warp adds up ITEMS times 32.
template <int ITEMS>
__global__ void __launch_bounds__(SCAN_THREADS)
  union_number_columns(offset_t ncols, index_t *occurs, index_t *__restrict__ ghosts, Totals<1> *control)
{
  __shared__ BlockScan scan;

  prefix_sums<ITEMS>(
    scan, control->tickets, control->states(0), ncols, [&](offset_t column) { return occurs[column]; },
    [&](offset_t column, count_t before, count_t up_to) {
      occurs[column] = (index_t)before;
      if (up_to > before) ghosts[before] = (index_t)column;
      if (column == ncols - 1) control->totals[0] = up_to;
    });
}

// colidx[k] = numbers[colidx[k]]. A thread an entry.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) union_renumber(index_t nnz, const index_t *__restrict__ numbers, index_t *__restrict__ colidx)
{
  const offset_t k = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (k < nnz) colidx[k] = __ldg(numbers + colidx[k]);
}

// places[c] = c + shift for columns first to last - 1, those of the others are the next of `others`. A thread a column.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  union_places(index_t ncols, index_t first, index_t last, index_t shift, const index_t *__restrict__ others, index_t *__restrict__ places)
{
  const offset_t c = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (c < ncols) places[c] = c < first ? __ldg(others + c) : c < last ? (index_t)c + shift : __ldg(others + (c - (last - first)));
}

// To which rows of the sum the rows of a summand belong: those of `given`, or, if that is null, rows first to last - 1 to rows 0, 1, ...; or the
// others, if `outside`. -1: to none.
struct RowsOf {
  alignas(8) index_t nrows, first, last, outside;
  const index_t *__restrict__ given;

  __device__ __forceinline__ index_t target(index_t row) const
  {
    const bool within = row >= first && row < last;

    if (given) return __ldg(given + row);
    if (outside) return within ? -1 : row < first ? row : row - (last - first);
    return within ? row - first : -1;
  }
};

// The rows of all summands, counted through, as a matrix with one entry each: in the column of the row of the sum that it belongs to, or in
// columns from `nrows` on, each of which at most `share` have, if to none. A thread a row.
struct Targets {
  alignas(8) index_t nrows, end, share; // rows of the sum, and of all summands
  RowsOf a, b, c;
};

template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) union_targets(const Targets targets, index_t *__restrict__ rowptr, index_t *__restrict__ colidx)
{
  const offset_t number = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (number > targets.end) return;
  rowptr[number] = (index_t)number;
  if (number == targets.end) return;
  const index_t in_a = (index_t)number, in_b = in_a - targets.a.nrows, in_c = in_b - targets.b.nrows;
  const index_t target = in_b < 0 ? targets.a.target(in_a) : in_c < 0 ? targets.b.target(in_b) : targets.c.target(in_c);

  colidx[number] = target >= 0 ? target : targets.nrows + (index_t)number / targets.share;
}

// The entries and terms of both parts. occurs[place] = 1 for the columns of part 1. TEAM threads a row: most rows are those of one summand
// alone; others are merged by one.
template <int BLOCK_THREADS, int TEAM>
__global__ void __launch_bounds__(BLOCK_THREADS, MERGE_BLOCKS)
  union_fill(const Sum given, const Part part0, const Part part1, index_t *__restrict__ occurs)
{
  const Sum      sum  = given.copy();
  const offset_t row  = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / TEAM;
  const int      lane = threadIdx.x % TEAM;
  Piece          piece;

  if (row >= sum.nrows) return;
  const index_t entry0 = __ldg(part0.rowptr + row), entry1 = __ldg(part1.rowptr + row), end0 = __ldg(part0.rowptr + row + 1),
                end1    = __ldg(part1.rowptr + row + 1);
  const index_t before0 = part0.more ? __ldg(part0.more + row) : 0, before1 = part1.more ? __ldg(part1.more + row) : 0;
  const int     npieces = nonempty_pieces(sum, row, piece);

  if (npieces > 1) {
    if (lane == 0) {
      Writer writer = {
        {{part0, entry0, entry0 + before0}, {part1, entry1, entry1 + before1}},
        sum.low, sum.high, occurs, false
      };

      merge_row(sum, row, writer);
    }
  } else if (npieces == 1) {
    const index_t inner = end0 - entry0, lower = entry1 < end1 ? piece.below(sum.low) : 0;

    for (offset_t k = lane; k < piece.end - piece.begin; k += TEAM) {
      const index_t place = piece.place(piece.begin + k), number = piece.first + piece.begin + (index_t)k;

      if (place >= sum.low && place < sum.high) {
        const offset_t entry = entry0 + k - lower;

        part0.colidx[entry]          = place - sum.low;
        part0.index[entry + before0] = number;
        if (part0.begins) part0.begins[entry] = (index_t)entry + before0;
      } else {
        const offset_t entry = entry1 + k - (place < sum.low ? 0 : inner);

        part1.colidx[entry]          = place;
        part1.index[entry + before1] = number;
        occurs[place]                = 1; // all threads that write, write the same
        if (part1.begins) part1.begins[entry] = (index_t)entry + before1;
      }
    }
  }
  if (row == sum.nrows - 1 && lane == 0) {
    if (part0.begins) part0.begins[end0] = end0 + __ldg(part0.more + sum.nrows);
    if (part1.begins) part1.begins[end1] = end1 + __ldg(part1.more + sum.nrows);
  }
}
