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

  x[threadIdx.x] = unwritten[threadIdx.x];
  unwritten[threadIdx.x] = 1;
}
