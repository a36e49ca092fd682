# Sums and words of a text that is read again and again, and primes; prints them.
{ for (i = 1; i <= NF; i++) { count[$i]++; letters += length($i) } if ($0 ~ /ka.*la/) found++ }
END {
    for (word in count) if (count[word] > top) top = count[word]
    for (i = 2; i <= 100000; i++) if (!(i in composite)) {
        primes++
        for (j = i * 2; j <= 100000; j += i) composite[j] = 1
    }
    print NR, letters, found, top, primes
}
