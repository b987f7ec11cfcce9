/* Defects that sanitizers have to find; a number names each. */
#include <pthread.h>
#include <stdlib.h>

static int counter;

static void *Count(void *unused)
{
  (void)unused;
  for (int i = 0; i < 1000; i++) counter++;
  return NULL;
}

/* writes behind the end of an array of n numbers */
double Overflow(int n)
{
  volatile double *array = malloc(n * sizeof(*array));
  double           last;

  for (int i = 0; i <= n; i++) array[i] = i;
  last = array[n - 1];
  free((void *)array);
  return last;
}

/* reads an array that was given back */
double Freed(int n)
{
  volatile double *array = malloc(n * sizeof(*array));

  array[0] = n;
  free((void *)array);
  return array[0];
}

/* the next number, of the largest one too */
int Next(int n)
{
  return n + 1;
}

/* a number that begins in the middle of another one */
double Misaligned(int n)
{
  double array[2] = {n, n};

  return *(volatile double *)((char *)array + n % 7);
}

/* two threads count without a lock */
int Race(int n)
{
  pthread_t thread;

  counter = n;
  if (pthread_create(&thread, NULL, Count, NULL)) return -1;
  Count(NULL);
  pthread_join(thread, NULL);
  return counter;
}
