# Lists, arrays, expressions, events, files and processes.
set file [open [lindex $argv 0]]
set text [read $file]
close $file
foreach word [split $text] { if {$word ne ""} { incr count($word) } }
set pairs {}
foreach {word n} [array get count] { lappend pairs [list $n $word] }
puts [lrange [lsort -decreasing -integer -index 0 [lsort -index 1 $pairs]] 0 4]
proc fib n { expr {$n < 2 ? $n : [fib [expr {$n - 1}]] + [fib [expr {$n - 2}]]} }
puts [fib 18]
puts [regexp -all {\m(\w\w)\w*\1\M} $text]
puts [expr {2 ** 200}] 
proc tick n { if {$n == 0} { set ::done 1 } else { after 1 [list tick [expr {$n - 1}]] } }
tick 20
vwait done
puts [exec echo from a child]
puts [dict size [dict create a 1 b 2 c 3]] 
puts [string map {a A e E} "a text to be changed"]
coroutine numbers apply {{} { yield; for {set i 0} {1} {incr i} { yield $i } }}
for {set i 0} {$i < 5000} {incr i} { set last [numbers] }
puts $last
