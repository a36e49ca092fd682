# Words counted in a hash, expressions and sorting, as often as told; prints sums.
use strict;
use warnings;
my ($rounds, $total, $seed) = ($ARGV[0], 0, 7);
for my $round (1 .. $rounds) {
    my (%count, @words);
    for (1 .. 20000) {
        $seed = ($seed * 16807) % 2147483647;
        push @words, sprintf '%s%d', chr(97 + $seed % 26), $seed % 997;
    }
    $count{$_}++ for @words;
    my $text = join ' ', sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
    $total++ while $text =~ /\b[aeiou](\d)\d*\1\b/g;
    (my $changed = $text) =~ s/([a-m])(\d+)/$2$1/g;
    $total += length($changed) + ($changed =~ tr/0-4//);
}
print "$total\n";
