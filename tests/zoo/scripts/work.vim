set nocompatible
%s/\<ka\(\w*\)\>/\1ak/ge
g/^ba/m0
normal gg0qaywPjq200@a
sort u
let total = 0
for line in getline(1, '$')
  let total += len(split(line)) * strlen(line)
endfor
function! Fib(n)
  return a:n < 2 ? a:n : Fib(a:n - 1) + Fib(a:n - 2)
endfunction
call append('$', 'total ' . total . ' fib ' . Fib(16))
w! out.txt
qa!
