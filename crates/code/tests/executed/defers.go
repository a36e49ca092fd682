// Goroutines, defers and recovered panics, for the tracer.
package main

import (
	"fmt"
	"sort"
	"strings"
	"sync"
)

//go:noinline
func choose(x int) (r int) {
	defer func() {
		if e := recover(); e != nil {
			r = -len(fmt.Sprint(e))
		}
	}()
	switch x % 11 {
	case 0:
		return x + 1
	case 1:
		return x * 3
	case 2:
		panic("two")
	case 3:
		return x ^ 7
	case 4:
		return x << 2
	case 5:
		var p *int
		return *p
	case 6:
		return x - 9
	case 7:
		return x / (x - x%11 - x + 7)
	case 8:
		return x & 3
	}
	return x
}

//go:noinline
func deep(n int) int {
	var room [64]int
	if n == 0 {
		return room[0]
	}
	room[n%64] = deep(n-1) + 1
	return room[n%64]
}

func main() {
	var group sync.WaitGroup
	results := make(chan string, 8)
	for i := 0; i < 4; i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			total := deep(20 * i)
			for x := 0; x < 22; x++ {
				total += choose(x)
			}
			results <- strings.Repeat(fmt.Sprint(total, " "), 2)
		}(i)
	}
	group.Wait()
	close(results)
	var all []string
	for r := range results {
		all = append(all, r)
	}
	sort.Strings(all)
	fmt.Println(all, map[string]int{"a": 1})
}
