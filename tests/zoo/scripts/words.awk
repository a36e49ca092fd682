# Words by how often they come, and primes.
{
    for (i = 1; i <= NF; i++) count[$i]++
    gsub(/[aeiou]+/, "-")
    if (length($0) > longest) longest = length($0)
    if (match($0, /k-l-[a-z]*/)) found += RSTART
}
END {
    for (word in count) { different++; if (count[word] > 1000) often = often + count[word] }
    print different, often, longest, found
    for (i = 2; i <= 60000; i++) if (!(i in composite)) {
        primes++
        for (j = i * 2; j <= 60000; j += i) composite[j] = 1
    }
    print primes, substr("abcdefgh", 3, 4), index("hello", "l"), toupper("weft"), int(-3.7), 2 ^ 40
}
