// Column indices of sliced storage, full or in 16 bits (formats/common/columns.py says how they are stored and chosen).
//
// Stored entries lie in groups of HEIGHT neighbours: one column of a slice, or HEIGHT neighbouring entries of one row. Entry `lane` of
// `group` is at group * HEIGHT + lane; a slice begins with a group. A thread makes a reader for its slice and loads several entries
// before it asks for the first column, so that the loads do not wait for each other:
//
//   const ColumnReader<INDEX_MODE, HEIGHT> columns(stored, slice, begin);
//   Raw raw[BATCH];  for k: raw[k] = columns.load(begin / HEIGHT + j + k, lane), or columns.padding() where there is no entry;
//                    for k: operand.add(sum, value[k], columns.column(raw[k]), row);
#pragma once
#include "common/common.cuh"

enum IndexMode { INDEX_FULL, INDEX_SHORT, INDEX_MIXED };

constexpr unsigned short SHORT_PADDING = 0xFFFF;

struct StoredColumns {
  const index_t *__restrict__ col;               // full columns, -1 in padding: of all entries (INDEX_FULL), of those in wide slices (INDEX_MIXED)
  const unsigned short *__restrict__ col_offset; // column - base of its group, SHORT_PADDING in padding; not set in wide slices
  const index_t *__restrict__ col_base;          // smallest column of each group
  const offset_t *__restrict__ wide_offset;      // where the full columns of each slice begin in col, -1 for a slice of short ones
};

template <int INDEX_MODE, int HEIGHT>
class ColumnReader { // INDEX_SHORT, INDEX_MIXED
public:
  struct Raw {
    unsigned short offset;
    index_t        base;
  };

  // `begin`: position of the first entry of `slice`
  __device__ __forceinline__ ColumnReader(const StoredColumns &columns, offset_t slice, offset_t begin) : stored(columns)
  {
    if constexpr (INDEX_MODE == INDEX_MIXED) {
      const offset_t wide = __ldg(columns.wide_offset + slice);

      if (wide >= 0) shift = wide - begin;
      is_wide = wide >= 0;
    }
  }

  __device__ __forceinline__ Raw load(offset_t group, int lane) const
  {
    if constexpr (INDEX_MODE == INDEX_MIXED)
      if (is_wide) return {0, load_once(stored.col + shift + group * HEIGHT + lane)};
    return {load_once(stored.col_offset + group * HEIGHT + lane), __ldg(stored.col_base + group)};
  }

  static __device__ __forceinline__ Raw padding() { return {SHORT_PADDING, 0}; }

  static __device__ __forceinline__ index_t column(const Raw &raw) { return raw.offset == SHORT_PADDING ? index_t(-1) : raw.base + raw.offset; }

private:
  const StoredColumns stored;
  offset_t            shift   = 0;
  bool                is_wide = false;
};

template <int HEIGHT>
class ColumnReader<INDEX_FULL, HEIGHT> {
public:
  typedef index_t Raw;

  __device__ __forceinline__ ColumnReader(const StoredColumns &columns, offset_t, offset_t) : col(columns.col) { }

  __device__ __forceinline__ Raw load(offset_t group, int lane) const { return load_once(col + group * HEIGHT + lane); }

  static __device__ __forceinline__ Raw padding() { return -1; }

  static __device__ __forceinline__ index_t column(Raw raw) { return raw; }

private:
  const index_t *__restrict__ col;
};

// The columns of every STEP-th group for one lane, from the stored entry at `position` on, as pointers: the loads of a batch are at
// distances that the compiler knows, which spares their arithmetic. Of a matrix with INDEX_MIXED each slice has one of the two cursors.
template <int INDEX_MODE, int HEIGHT, int STEP>
class ColumnCursor;

template <int HEIGHT, int STEP>
class ColumnCursor<INDEX_FULL, HEIGHT, STEP> {
public:
  typedef index_t Raw;

  __device__ __forceinline__ ColumnCursor(const index_t *__restrict__ col, offset_t position) : col(col + position) { }

  __device__ __forceinline__ Raw load(int k) const { return load_once(col + k * (HEIGHT * STEP)); }

  __device__ __forceinline__ void advance(int k) { col += k * (HEIGHT * STEP); }

  static __device__ __forceinline__ Raw padding() { return -1; }

  static __device__ __forceinline__ index_t column(Raw raw) { return raw; }

private:
  const index_t *__restrict__ col;
};

template <int HEIGHT, int STEP>
class ColumnCursor<INDEX_SHORT, HEIGHT, STEP> {
public:
  struct Raw {
    unsigned short offset;
    index_t        base;
  };

  __device__ __forceinline__ ColumnCursor(const unsigned short *__restrict__ col_offset, const index_t *__restrict__ col_base, offset_t position)
    : offset(col_offset + position), base(col_base + (unsigned long long)position / HEIGHT)
  { }

  __device__ __forceinline__ Raw load(int k) const { return {load_once(offset + k * (HEIGHT * STEP)), __ldg(base + k * STEP)}; }

  __device__ __forceinline__ void advance(int k) { offset += k * (HEIGHT * STEP), base += k * STEP; }

  static __device__ __forceinline__ Raw padding() { return {SHORT_PADDING, 0}; }

  static __device__ __forceinline__ index_t column(const Raw &raw) { return raw.offset == SHORT_PADDING ? index_t(-1) : raw.base + raw.offset; }

private:
  const unsigned short *__restrict__ offset;
  const index_t *__restrict__ base;
};
