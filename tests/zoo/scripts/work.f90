! Products and sums of matrices, and a relaxation.
program work
  implicit none
  integer, parameter :: n = 200
  real(8) :: a(n, n), b(n, n), c(n, n), u(n, n), v(n, n)
  integer :: i, j, k
  do j = 1, n
    do i = 1, n
      a(i, j) = mod(i * j, 17) * 0.5d0
      b(i, j) = mod(i + 3 * j, 11) - 5.0d0
      u(i, j) = mod(i * i + j, 13)
    end do
  end do
  c = matmul(a, b)
  print '(a, f16.4, f16.4)', 'product ', sum(c), maxval(abs(c))
  do k = 1, 100
    v = u
    do j = 2, n - 1
      do i = 2, n - 1
        u(i, j) = 0.25d0 * (v(i - 1, j) + v(i + 1, j) + v(i, j - 1) + v(i, j + 1))
      end do
    end do
  end do
  print '(a, f16.8)', 'relaxed ', sum(u)
  print '(a, i0)', 'inside ', count(u > 6.0d0)
end program work
