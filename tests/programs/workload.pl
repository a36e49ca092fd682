# Regular expressions, hashes, closures and signals. Works until its input ends.
use strict;
use warnings;
use IO::Select;

$| = 1;
my ($ticks, $rounds, @broken) = (0, 0);
local $SIG{ALRM} = sub { $ticks++ };
use Time::HiRes qw(setitimer ITIMER_REAL);
setitimer(ITIMER_REAL, 0.002, 0.002);

my $input = IO::Select->new(\*STDIN);
print "ready\n";
until ($rounds && $ticks && $input->can_read(0)) {
    my %count;
    $count{$_}++ for map { length } ("warp and weft " x 50) =~ /(\w+)/g;
    push @broken, "words" unless $count{4} == 100 && $count{3} == 50;
    my @sorted = sort { $a <=> $b } map { ($_ * 7919) % 1009 } 0 .. 1008;
    push @broken, "order" if grep { $sorted[$_] != $_ } 0 .. 1008;
    my $caught = eval { die { code => $rounds }; 1 } ? -1 : $@->{code};
    push @broken, "exception" unless $caught == $rounds;
    $rounds++;
}
setitimer(ITIMER_REAL, 0);
push @broken, "input" if defined(my $line = <STDIN>);
print "broken: @broken\n";
exit 7;
