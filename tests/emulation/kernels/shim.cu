// Kernels that are right or wrong in a known way, for the tests of the emulation.

// sum[block] = sum of x over the block's THREADS entries, by halves through shared memory
template <int THREADS>
__global__ void __launch_bounds__(THREADS) block_sum(const SCALAR *__restrict__ x, SCALAR *__restrict__ sum)
{
  __shared__ SCALAR partial[THREADS];

  partial[threadIdx.x] = __ldg(x + blockIdx.x * blockDim.x + threadIdx.x);
  for (INDEX half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
  }
  if (threadIdx.x == 0) sum[blockIdx.x] = partial[0];
}

// x[i] = place of thread i in the grid, counted along x, then y, then z
__global__ void thread_places(INDEX *x)
{
  const INDEX block  = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const INDEX thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const INDEX place  = block * blockDim.x * blockDim.y * blockDim.z + thread;

  x[place] = place;
}

// wrong: thread 0 leaves before the barrier
__global__ void leave_before_barrier(SCALAR *x)
{
  if (threadIdx.x == 0) return;
  __syncthreads();
  x[threadIdx.x] = 0;
}

// wrong: thread 0 goes to a barrier of its own
__global__ void part_at_barriers(SCALAR *x)
{
  if (threadIdx.x == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  x[threadIdx.x] = 0;
}

// wrong for an array x of other than blockDim.x entries beginning at x[shift]
__global__ void write_shifted(INDEX shift, SCALAR *x)
{
  x[(long long)threadIdx.x + shift] = 0;
}

// wrong: what is in shared memory before the block has written to it is unknown
__global__ void read_unwritten_shared(SCALAR *x)
{
  __shared__ SCALAR unwritten[32];

  x[threadIdx.x]         = unwritten[threadIdx.x];
  unwritten[threadIdx.x] = 1;
}

// sum[warp] = sum of x over the warp's 32 entries, by halves without shared memory
__global__ void warp_sum(const SCALAR *x, SCALAR *sum)
{
  const INDEX i = blockIdx.x * blockDim.x + threadIdx.x;
  SCALAR      s = x[i];

  for (INDEX delta = 16; delta > 0; delta /= 2) s += __shfl_down_sync(0xffffffff, s, delta);
  if (i % 32 == 0) sum[i / 32] = s;
}

// y[i] of 4 x 32 entries = what thread i gets by each of the shuffles in segments of WIDTH threads
template <int WIDTH>
__global__ void shuffles(const long long *x, long long *y)
{
  const INDEX i = threadIdx.x;

  y[i]      = __shfl_sync(0xffffffff, x[i], 3, WIDTH);
  y[i + 32] = __shfl_up_sync(0xffffffff, x[i], 2, WIDTH);
  y[i + 64] = __shfl_down_sync(0xffffffff, x[i], 2, WIDTH);
  y[i + 96] = __shfl_xor_sync(0xffffffff, x[i], 5, WIDTH);
}

// y[i] = ballot of "x > 0" among the even or odd threads of the warp, that i belongs to; + 1 where any, + 2 where all are
__global__ void votes(const INDEX *x, long long *y)
{
  const INDEX i      = threadIdx.x;
  long long   result = 0;

  if (i % 2) {
    result = 4ll * __ballot_sync(0xaaaaaaaa, x[i] > 0);
    result += __any_sync(0xaaaaaaaa, x[i] > 0) + 2 * __all_sync(0xaaaaaaaa, x[i] > 0);
  } else {
    result = 4ll * __ballot_sync(0x55555555, x[i] > 0);
    result += __any_sync(0x55555555, x[i] > 0) + 2 * __all_sync(0x55555555, x[i] > 0);
  }
  y[i] = result;
}

// x[i] = value of the next thread, through shared memory of the warp, and by a vote of the threads that have not left
__global__ void some_leave(INDEX *x)
{
  __shared__ INDEX shared[64];

  if (threadIdx.x % 32 >= 20) return;
  shared[threadIdx.x] = 100 + threadIdx.x;
  __syncwarp();
  x[threadIdx.x] = shared[threadIdx.x % 32 == 19 ? threadIdx.x : threadIdx.x + 1];
  x[threadIdx.x] += 1000 * __popc(__ballot_sync(0xffffffff, 1));
}

// sum[0] = sum of x over the grid: warps, then the block by a barrier, then the last block by a ticket, which is 0 again at the end
__global__ void grid_sum(const SCALAR *x, SCALAR *block_sums, unsigned *ticket, SCALAR *sum)
{
  __shared__ SCALAR warp_sums[32];
  __shared__ bool   last;
  SCALAR            s = x[blockIdx.x * blockDim.x + threadIdx.x];

  for (INDEX lanes = 16; lanes > 0; lanes /= 2) s += __shfl_xor_sync(0xffffffff, s, lanes);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0) {
    s = 0;
    for (INDEX w = 0; w < blockDim.x / 32; w++) s += warp_sums[w];
    block_sums[blockIdx.x] = s;
    __threadfence();
    last = atomicAdd(ticket, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    s = 0;
    for (INDEX b = 0; b < gridDim.x; b++) s += __ldcg(block_sums + b);
    *sum    = s;
    *ticket = 0;
  }
}

// counts[0..5] of type WORD: number, smallest, largest, last of the threads i of a block, the one that came first, bits of their halves
template <class Word>
__device__ void count_threads(Word *counts)
{
  const Word i = threadIdx.x;

  atomicAdd(counts, Word(1));
  atomicMin(counts + 1, i);
  atomicMax(counts + 2, i);
  atomicExch(counts + 3, i);
  atomicCAS(counts + 4, Word(77), i);
  atomicOr(counts + 5, Word(i / 2));
}

__global__ void atomics(int *a, unsigned *b, long long *c, unsigned long long *d)
{
  count_threads(a);
  count_threads(b);
  count_threads(c);
  count_threads(d);
}

// y = some arithmetic of x
__global__ void arithmetic(int x, int *y)
{
  y[0] = __popc(x);
  y[1] = __ffs(x);
  y[2] = __clz(x);
  y[3] = min(x, 5);
  y[4] = max(5, x);
  __stcs(y + 5, __ldca(y + 4));
}

// value of a thread that takes no part
__global__ void shuffle_from_outside(SCALAR *x)
{
  if (threadIdx.x < 16) x[threadIdx.x] = __shfl_sync(0x0000ffff, SCALAR(1), 16 + threadIdx.x);
}

// wrong: thread 0 goes to a barrier that is not in the mask's threads' way
__global__ void warp_operation_against_barrier(SCALAR *x)
{
  if (threadIdx.x == 0) __syncthreads();
  else __syncwarp();
  x[threadIdx.x] = 0;
}

// wrong: odd threads take part in another operation
__global__ void part_at_warp_operations(SCALAR *x)
{
  if (threadIdx.x % 2) x[threadIdx.x] = __shfl_sync(0xffffffff, x[threadIdx.x], 0);
  else x[threadIdx.x] = __shfl_sync(0xffffffff, x[threadIdx.x], 1);
}

// wrong: threads name different masks
__global__ void different_masks(SCALAR *x)
{
  __syncwarp(threadIdx.x % 2 ? 0xffffffff : 0x55555557);
  x[threadIdx.x] = 0;
}

// wrong: thread 3 is not in the mask that it gives
__global__ void outside_own_mask(SCALAR *x)
{
  __syncwarp(0xfffffff7);
  x[threadIdx.x] = 0;
}
