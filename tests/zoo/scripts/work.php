<?php
// Arrays, expressions, objects, generators and hashes.
$text = file_get_contents($argv[1]);
$count = array_count_values(preg_split('/\s+/', trim($text)));
uksort($count, fn($a, $b) => $count[$b] <=> $count[$a] ?: strcmp($a, $b));
print_r(array_slice($count, 0, 5));
echo preg_match_all('/\b(\w\w)\w*\1\b/', $text), " ", hash('sha256', $text), "\n";
function fib(int $n): int { return $n < 2 ? $n : fib($n - 1) + fib($n - 2); }
echo fib(25), "\n";
function squares(int $n) { for ($i = 0; $i < $n; $i++) yield $i => $i * $i; }
$sum = 0;
foreach (squares(200000) as $i => $square) $sum += $square % 97 ^ $i;
echo $sum, "\n";
final class Point {
    public function __construct(public readonly float $x, public readonly float $y) {}
    public function add(Point $o): Point { return new Point($this->x + $o->x, $this->y + $o->y); }
}
$at = new Point(0, 0);
for ($i = 0; $i < 100000; $i++) $at = $at->add(new Point($i, -$i));
echo $at->x, " ", $at->y, "\n";
try { intdiv(1, 0); } catch (DivisionByZeroError $e) { echo $e->getMessage(), "\n"; }
$numbers = range(1, 20000);
usort($numbers, fn($a, $b) => $a * 7919 % 10007 <=> $b * 7919 % 10007);
echo md5(json_encode($numbers)), " ", strrev("weft"), " ", sprintf("%.8f", pi()), "\n";
