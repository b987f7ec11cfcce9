// The scalars of kernels: a real type, or Complex of one, as in a PETSc that was configured with complex scalars. What kernels ask of a scalar beside
// sums and products is here for both. Included by common.cuh.
#pragma once

// Laid out as C's complex numbers, and aligned as their parts: a struct or a list of arguments has it at any word of 8 bytes.
template <class Real>
struct Complex {
  Real re, im;

  Complex() = default;
  __device__ __forceinline__ constexpr Complex(Real re, Real im = 0) : re(re), im(im) { }

  __device__ __forceinline__ Complex &operator+=(const Complex &b)
  {
    re += b.re;
    im += b.im;
    return *this;
  }
  __device__ __forceinline__ Complex &operator-=(const Complex &b)
  {
    re -= b.re;
    im -= b.im;
    return *this;
  }
  __device__ __forceinline__ Complex &operator*=(const Complex &b) { return *this = *this * b; }

  // friends, so that whole and real numbers become complex beside complex ones
  friend __device__ __forceinline__ Complex operator-(const Complex &a) { return {-a.re, -a.im}; }
  friend __device__ __forceinline__ Complex operator+(const Complex &a, const Complex &b) { return {a.re + b.re, a.im + b.im}; }
  friend __device__ __forceinline__ Complex operator-(const Complex &a, const Complex &b) { return {a.re - b.re, a.im - b.im}; }
  friend __device__ __forceinline__ Complex operator*(const Complex &a, const Complex &b)
  {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
  friend __device__ __forceinline__ bool operator==(const Complex &a, const Complex &b) { return a.re == b.re && a.im == b.im; }
  friend __device__ __forceinline__ bool operator!=(const Complex &a, const Complex &b) { return !(a == b); }
};

template <class T>
struct RealOf {
  typedef T type;
};
template <class Real>
struct RealOf<Complex<Real>> {
  typedef Real type;
};

template <class Real>
__device__ __forceinline__ Real real_part(Real number)
{
  return number;
}
template <class Real>
__device__ __forceinline__ Real real_part(const Complex<Real> &number)
{
  return number.re;
}

template <class Real>
__device__ __forceinline__ Real magnitude(Real number)
{
  return fabs(number);
}
template <class Real>
__device__ __forceinline__ Real magnitude(const Complex<Real> &number)
{
  return hypot(number.re, number.im);
}

// of the magnitude
template <class Real>
__device__ __forceinline__ Real square(Real number)
{
  return number * number;
}
template <class Real>
__device__ __forceinline__ Real square(const Complex<Real> &number)
{
  return number.re * number.re + number.im * number.im;
}

// Loads and stores of both parts at once: arrays of complex numbers begin at multiples of their size.

template <class Real>
struct PartsOf;
template <>
struct PartsOf<float> {
  typedef float2 type;
};
template <>
struct PartsOf<double> {
  typedef double2 type;
};

template <class Real>
__device__ __forceinline__ Complex<Real> __ldg(const Complex<Real> *p)
{
  const auto parts = __ldg((const typename PartsOf<Real>::type *)p);

  return {parts.x, parts.y};
}
template <class Real>
__device__ __forceinline__ Complex<Real> __ldcs(const Complex<Real> *p)
{
  const auto parts = __ldcs((const typename PartsOf<Real>::type *)p);

  return {parts.x, parts.y};
}
template <class Real>
__device__ __forceinline__ Complex<Real> __ldcg(const Complex<Real> *p)
{
  const auto parts = __ldcg((const typename PartsOf<Real>::type *)p);

  return {parts.x, parts.y};
}
template <class Real>
__device__ __forceinline__ void __stcs(Complex<Real> *p, const Complex<Real> &value)
{
  __stcs((typename PartsOf<Real>::type *)p, typename PartsOf<Real>::type{value.re, value.im});
}

template <class Real>
__device__ __forceinline__ Complex<Real> __shfl_xor_sync(unsigned mask, const Complex<Real> &value, int lanes)
{
  return {__shfl_xor_sync(mask, value.re, lanes), __shfl_xor_sync(mask, value.im, lanes)};
}
