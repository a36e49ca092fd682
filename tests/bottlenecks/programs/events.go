// Keeps the last events by their keys; each event is decoded into a tree of its own.
package main

import (
	"strconv"
	"sync/atomic"
)

type field struct {
	name  string
	value *string
	next  *field
}

//go:noinline
func decodeEvent(number int) *field {
	var first *field
	for i := 0; i < 12; i++ {
		value := strconv.Itoa(number * i)
		first = &field{name: "field" + value, value: &value, next: first}
	}
	return first
}

func main() {
	operations := counter()
	last := make(map[int]*field)
	for number := 0; ; number++ {
		last[number%20000] = decodeEvent(number)
		if number%100 == 0 {
			atomic.AddUint64(operations, 1)
		}
	}
}
