# Functions, arrays, pipes, subshells, substitutions, traps, jobs and a coprocess.
set -u
number=$1
declare -A counted
while read -r -a words; do
    for word in "${words[@]:0:4}"; do
        counted[$word]=$((${counted[$word]:-0} + 1))
    done
done < <(head -n 600 text.txt)
for word in "${!counted[@]}"; do
    echo "$word ${counted[$word]}"
done | sort -k2,2nr -k1,1 | head -n 15

collatz() {
    local n=$1 steps=0
    while ((n != 1)); do
        ((n % 2 ? (n = 3 * n + 1) : (n /= 2), ++steps))
    done
    echo $steps
}
longest=0
for ((i = 1; i < number / 10; i++)); do
    steps=$(collatz "$i")
    ((steps > longest)) && longest=$steps
done
echo "longest $longest"

trap 'echo "trapped USR1"' USR1
kill -USR1 $$
trap 'echo leaving' EXIT
sum=0
jobs=()
for child in 1 2 3 4; do
    (exit $((child * 3))) &
    jobs+=($!)
done
for job in "${jobs[@]}"; do
    wait "$job"
    sum=$((sum + $?))
done
echo "children said $sum"

coproc upper { while read -r line; do echo "${line^^}"; done; }
echo "to a coprocess" >&"${upper[1]}"
read -r answer <&"${upper[0]}"
echo "$answer"
text=$(printf '%s,' {a..z})
echo "${text//[aeiou]/_} ${#text} ${text:5:7}"
[[ "2026-11-15" =~ ^([0-9]+)-([0-9]+) ]] && echo "${BASH_REMATCH[2]}"
mapfile -t lines <text.txt
printf '%s\n' "${#lines[@]}" "${lines[-1]}"
cat <<END | tr a-z A-Z | rev
a here document of $number
END
set -o pipefail
false | true || echo "the pipe failed with ${PIPESTATUS[*]}"
