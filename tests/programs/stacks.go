// Waits in nested calls for its input; prints "ready" before.
package main

import (
	"fmt"
	"syscall"
)

//go:noinline
func innermost(depth int) int {
	if depth > 0 {
		return innermost(depth-1) + 1
	}
	var line [1]byte
	fmt.Println("ready")
	count, _ := syscall.Read(0, line[:])
	return count
}

//go:noinline
func outer() int { return innermost(5) + 1 }

func main() {
	outer()
	fmt.Println("done")
}
