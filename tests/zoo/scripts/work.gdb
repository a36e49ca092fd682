set pagination off
set confirm off
break f1
run
info args
next
next
print x
print s->sum
backtrace
delete
watch s->sum
continue
continue
delete
continue
