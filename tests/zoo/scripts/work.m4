changequote([, ])dnl
define([fib], [ifelse(eval($1 < 2), 1, $1, [eval(fib(eval($1 - 1)) + fib(eval($1 - 2)))])])dnl
define([loop], [ifelse(eval($1 > $2), 1, [], [$3($1)
loop(incr($1), $2, [$3])])])dnl
loop(1, 16, [fib])
define([reverse], [ifelse(len([$1]), 0, [], [reverse(substr([$1], 1))substr([$1], 0, 1)])])dnl
reverse([a woven text])
patsubst([one two three], [\w+], [<\&>]) eval(2 ** 20) format([%08.3f], 3.14159)
