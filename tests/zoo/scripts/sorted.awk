# What only gawk has: sorting, functions by name, arrays of arrays, bits.
function by_count(i1, v1, i2, v2) { return v2 != v1 ? v2 - v1 : i1 < i2 ? -1 : 1 }
function twice(x) { return 2 * x }
{ for (i = 1; i <= NF; i++) { count[$i]++; at[NR % 5][$i]++ } }
END {
    PROCINFO["sorted_in"] = "by_count"
    for (word in count) { print word, count[word]; if (++shown == 20) break }
    f = "twice"
    print @f(21), length(at[3]), xor(12345, 54321), strtonum("0x1f"), gensub(/(a)(b)/, "\\2\\1", "g", "abab")
    print strftime("%Y-%m-%d %H:%M:%S", 1000000000, 1)
}
