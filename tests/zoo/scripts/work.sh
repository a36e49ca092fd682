# Forks, here documents, traps and arithmetic, for the plainest of shells.
total=0
i=0
while [ $i -lt 100 ]; do
    total=$((total + $(/bin/echo $i)))
    i=$((i + 1))
done
echo "total $total"
trap 'echo "signal came"' TERM
kill -TERM $$
fib() { if [ "$1" -lt 2 ]; then echo "$1"; else echo $(($(fib $(($1 - 1))) + $(fib $(($1 - 2))))); fi; }
fib 8
while read -r a b; do echo "$b and $a"; done <<END
one two
three four
END
(sleep 10 & kill -9 $!; wait $! 2>/dev/null; echo "killed: $?")
yes | head -n 1000 | wc -l
echo "${HOME##*/} ${total%50}"
exit 0
