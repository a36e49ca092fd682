# Hashes, expressions, sorting, closures, formats, fork and pipes.
use strict;
use warnings;
use Time::HiRes qw(ualarm);
my (%count, %by_length);
open my $file, '<', $ARGV[0] or die;
while (my $line = <$file>) {
    chomp $line;
    $count{$_}++ for split / /, $line;
    while ($line =~ /\b(\w\w)(\w*)\1\b/g) { $by_length{length $2} .= $1 }
}
my @top = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
printf "%-10s %5d\n", $_, $count{$_} for @top[0 .. 9];
printf "%d:%d ", $_, length $by_length{$_} for sort { $a <=> $b } keys %by_length;
print "\n";
sub fib { my $n = shift; $n < 2 ? $n : fib($n - 1) + fib($n - 2) }
print fib(18), "\n";
my @closures = map { my $n = $_; sub { $n += shift } } 1 .. 10;
$_->(5) for @closures;
print join(',', map { $_->(1) } @closures), "\n";
(my $text = join ' ', @top[0 .. 50]) =~ tr/a-m/A-M/;
$text =~ s/(\w+)/\u$1/g;
print substr($text, 0, 60), "\n";
my $sum = 0;
for my $n (1 .. 4) {
    my $pid = fork // die;
    exit $n * 2 unless $pid;
    waitpid $pid, 0;
    $sum += $? >> 8;
}
print "children $sum\n";
$SIG{USR1} = sub { print "signal\n" };
$| = 1;
kill USR1 => $$;
eval { local $SIG{ALRM} = sub { die "alarm\n" }; ualarm 50_000; select undef, undef, undef, 5; };
print "ended by $@";
print pack('NnCa4', 1, 2, 3, 'abcd') eq "\0\0\0\1\0\2\3abcd" ? "packed\n" : "wrong\n";
print scalar(qx(echo from a child));
print sprintf('%.10g %e %x', 1 / 3, 12345.678, 255), "\n";
