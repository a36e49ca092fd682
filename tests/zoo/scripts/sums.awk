# Sums by group, and what lies outside.
{ sum[$3] += $4; square[$3] += $4 * $4; n[$3]++; if ($4 > top[$3]) top[$3] = $4 }
END {
    for (i = 0; i < 40; i++) {
        g = "group" i
        mean = sum[g] / n[g]
        printf "%s %d %.4f %.4f %.2f\n", g, n[g], mean, sqrt(square[g] / n[g] - mean * mean), top[g]
    }
}
