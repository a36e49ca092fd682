// More goroutines than processors, each in a loop without calls: the runtime interrupts them wherever
// they are, and they go on from there, a good while later. Works until its input ends.
package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
)

//go:noinline
func spin(start uint64, rounds int) uint64 {
	a, b, c := start, uint64(1), uint64(2)
	for i := 0; i < rounds; i++ {
		a ^= b
		b += c
		c ^= a
		a++
		b ^= 5
		c += b
		if a&1 == 0 {
			a += c
		}
	}
	return a ^ b ^ c
}

// As many results as the registers hold.
//
//go:noinline
func many(x uint64) (a, b, c, d, e, f, g, h, i uint64) {
	return x, x + 1, x + 2, x + 3, x + 4, x + 5, x + 6, x + 7, x + 8
}

func manyAreRight(x uint64) bool {
	a, b, c, d, e, f, g, h, i := many(x)
	return a+b+c+d+e+f+g+h+i == 9*x+36
}

func main() {
	const rounds = 3000000
	var ended atomic.Bool
	var all sync.WaitGroup
	right := spin(7, rounds)
	for i := 0; i < 16; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for !ended.Load() {
				if spin(7, rounds) != right {
					fmt.Println("broken: spin")
					os.Exit(1)
				}
				for x := uint64(0); x < 1000; x++ {
					if !manyAreRight(x) {
						fmt.Println("broken: many")
						os.Exit(1)
					}
				}
			}
		}()
	}
	fmt.Println("here")
	io.Copy(io.Discard, os.Stdin)
	ended.Store(true)
	all.Wait()
	fmt.Println("well")
}
