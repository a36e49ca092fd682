# Arrays, patterns, sorting and a coprocess.
typeset -A squares
for n in {1..2000}; do squares[$n]=$((n * n)); done
print -l ${(onv)squares} | tail -n 3
words=(${=:-the quick brown fox jumps over the lazy dog})
print ${(oj:,:)words:u} ${#words} ${(L)words[2,4]}
print ${words:#*o*}
zmodload zsh/mathfunc
printf '%.6f\n' $((sin(1) * exp(2)))
coproc tr a-z A-Z
print -p "to a coprocess"
exec {fd}>&p
coproc :
print ${$(echo one two three)[2]}
for n in 3 5 7; do (exit $n) & wait $!; print "child $?"; done
