// Goroutines that come and go, threads blocked in system calls, and a garbage collector that is
// always busy. Works until its input ends.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

type node struct {
	left, right *node
	value       int
}

func tree(depth int) *node {
	if depth == 0 {
		return &node{value: 1}
	}
	return &node{tree(depth - 1), tree(depth - 1), 0}
}

func (n *node) sum() int {
	if n.left == nil {
		return n.value
	}
	return n.left.sum() + n.right.sum()
}

func check(holds bool, what string) {
	if !holds {
		fmt.Println("broken:", what)
		os.Exit(1)
	}
}

func main() {
	var finished atomic.Bool
	var workers sync.WaitGroup
	work := func(step func(round int)) {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for round := 0; round == 0 || !finished.Load(); round++ {
				step(round)
			}
		}()
	}
	work(func(int) { check(tree(10).sum() == 1024, "a tree lost leaves") })
	work(func(int) { runtime.GC() })
	work(func(round int) {
		results := make(chan int)
		for i := 0; i < 20; i++ {
			go func(i int) { results <- i + round }(i)
		}
		sum := 0
		for i := 0; i < 20; i++ {
			sum += <-results
		}
		check(sum == 190+20*round, "a goroutine was lost")
	})
	work(func(int) {
		start := time.Now()
		time.Sleep(time.Millisecond)
		check(time.Since(start) >= time.Millisecond, "a sleep was short")
	})
	work(func(int) {
		reader, writer, err := os.Pipe()
		check(err == nil, "no pipe")
		go func() { writer.Write([]byte("weft")); writer.Close() }()
		got, err := io.ReadAll(reader)
		check(err == nil && string(got) == "weft", "a pipe lost bytes")
		reader.Close()
	})

	fmt.Println("ready")
	rest, err := io.ReadAll(os.Stdin)
	check(err == nil && len(rest) == 0, "the input did not just end")
	finished.Store(true)
	workers.Wait()
	fmt.Println("all goroutines are home")
	os.Exit(7)
}
