/* BLAKE2b (RFC 7693), as Python's hashlib has it: in C since files of kernels are read beside Python. */
#include "runtime/runtime.h"

enum { BLOCK = 128, ROUNDS = 12, ORDERS = 10 };

static const uint64_t initial[8] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
                                    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};

static const unsigned char order[ORDERS][16] = {
  {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15},
  {14, 10, 4,  8,  9,  15, 13, 6,  1,  12, 0,  2,  11, 7,  5,  3 },
  {11, 8,  12, 0,  5,  2,  15, 13, 10, 14, 3,  6,  7,  1,  9,  4 },
  {7,  9,  3,  1,  13, 12, 11, 14, 2,  6,  5,  10, 4,  0,  15, 8 },
  {9,  0,  5,  7,  2,  4,  10, 15, 14, 1,  11, 12, 6,  8,  3,  13},
  {2,  12, 6,  10, 0,  11, 8,  3,  4,  13, 7,  5,  15, 14, 1,  9 },
  {12, 5,  1,  15, 14, 13, 4,  10, 0,  7,  6,  3,  9,  2,  8,  11},
  {13, 11, 7,  14, 12, 1,  3,  9,  5,  0,  15, 4,  8,  6,  2,  10},
  {6,  15, 14, 9,  11, 3,  0,  8,  12, 2,  13, 7,  1,  4,  10, 5 },
  {10, 2,  8,  4,  7,  6,  1,  5,  15, 11, 9,  14, 3,  12, 13, 0 },
};

static inline uint64_t Rotated(uint64_t word, int right)
{
  return word >> right | word << (64 - right);
}

static inline void Mix(uint64_t v[16], int a, int b, int c, int d, uint64_t x, uint64_t y)
{
  v[a] += v[b] + x;
  v[d] = Rotated(v[d] ^ v[a], 32);
  v[c] += v[d];
  v[b] = Rotated(v[b] ^ v[c], 24);
  v[a] += v[b] + y;
  v[d] = Rotated(v[d] ^ v[a], 16);
  v[c] += v[d];
  v[b] = Rotated(v[b] ^ v[c], 63);
}

static inline void Round(uint64_t v[16], const uint64_t m[16], const unsigned char s[16])
{
  for (int k = 0; k < 4; k++) Mix(v, k, k + 4, k + 8, k + 12, m[s[2 * k]], m[s[2 * k + 1]]);
  for (int k = 0; k < 4; k++) Mix(v, k, (k + 1) % 4 + 4, (k + 2) % 4 + 8, (k + 3) % 4 + 12, m[s[8 + 2 * k]], m[s[9 + 2 * k]]);
}

/* a block, with `count` bytes up to its end */
static void Compress(uint64_t h[8], const void *block, uint64_t count, bool last)
{
  uint64_t v[16], m[16];

  memcpy(m, block, BLOCK);
  for (int k = 0; k < 8; k++) {
    v[k]     = h[k];
    v[k + 8] = initial[k];
  }
  v[12] ^= count;
  if (last) v[14] = ~v[14];
  for (int r = 0; r < ROUNDS; r++) Round(v, m, order[r % ORDERS]);
  for (int k = 0; k < 8; k++) h[k] ^= v[k] ^ v[k + 8];
}

/* That of bytes under a key of at most 64 bytes: hashlib.blake2b(bytes, key=key, digest_size=32). */
void GpufmtBlake2b(const char key[], size_t key_length, const char bytes[], size_t nbytes, unsigned char digest[GPUFMT_DIGEST_BYTES])
{
  unsigned char block[BLOCK] = {0};
  uint64_t      h[8], count = 0;

  memcpy(h, initial, sizeof(h));
  h[0] ^= 0x01010000 ^ (uint64_t)key_length << 8 ^ GPUFMT_DIGEST_BYTES;
  if (key_length) {
    memcpy(block, key, key_length);
    count = BLOCK;
    Compress(h, block, count, !nbytes);
  }
  for (; nbytes > BLOCK; bytes += BLOCK, nbytes -= BLOCK) Compress(h, bytes, count += BLOCK, false);
  if (nbytes || !key_length) {
    memset(block, 0, BLOCK);
    memcpy(block, bytes, nbytes);
    Compress(h, block, count + nbytes, true);
  }
  memcpy(digest, h, GPUFMT_DIGEST_BYTES);
}
