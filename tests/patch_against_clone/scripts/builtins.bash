# Builtins only: nothing is forked, so that nothing depends on when a child ends.
set -u
declare -A counted
declare -a order
while read -r -a words; do
    for word in "${words[@]:0:3}"; do
        counted[$word]=$((${counted[$word]:-0} + 1))
    done
done < text.txt
for word in "${!counted[@]}"; do ((counted[$word] > 9)) && order+=("$word:${counted[$word]}"); done
printf '%s\n' "${order[@]}"
collatz() {
    local n=$1 steps=0
    while ((n != 1)); do ((n % 2 ? (n = 3 * n + 1) : (n /= 2), ++steps)); done
    REPLY=$steps
}
longest=0
for ((i = 1; i < 60; i++)); do
    collatz "$i"
    if ((REPLY > longest)); then longest=$REPLY; fi
done
echo "longest $longest"
fib() { if (($1 < 2)); then REPLY=$1; else local a; fib $(($1 - 1)); a=$REPLY; fib $(($1 - 2)); REPLY=$((a + REPLY)); fi; }
fib 10
trap 'echo "trapped USR1"' USR1
kill -USR1 $$
trap 'echo leaving' EXIT
text=abcdefghijklmnopqrstuvwxyz
echo "${text//[aeiou]/_} ${#text} ${text:5:7} ${text^^} ${text#*d} ${text%%x*} ${text/m/M}" {a..e}{1..3}
[[ "2026-11-15" =~ ^([0-9]+)-([0-9]+) ]] && echo "${BASH_REMATCH[2]}"
mapfile -t lines < text.txt
printf '%5d %-8s %q %x\n' "${#lines[@]}" "${lines[-1]:0:8}" "a b" 255
for file in tree/*/*/*.c; do case $file in *part[0-3]*) echo "${file##*/}" ;; *) : ;; esac; done
shopt -s extglob nullglob globstar
echo tree/**/*.@(c|log) !(text.txt)
read -r first second <<< "here string"
echo "$first" "$second" 2>&1 > out.txt
getopts "ab:" option -a && echo "$option"
select_none() { local -n other=$1; other+=" more"; }
value=some; select_none value; echo "$value"
eval 'for x in 1 2 3; do until [ "$x" -ge 3 ]; do x=$((x + 1)); done; done'
set -- one two three; shift; echo "$@" "$#" "${*@Q}"
printf -v padded '%010.3f' 3.14159; echo "$padded"
declare -p order counted > /dev/null; type collatz > /dev/null; alias ll='ls -l'; unalias ll; hash -r; umask 022
