// Goroutines, channels, maps, sorting, deferred functions and recovered panics.
package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sort"
	"strings"
	"sync"
)

type item struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

func primes(limit int) int {
	generate := func(out chan<- int) {
		for i := 2; i < limit; i++ {
			out <- i
		}
		close(out)
	}
	filter := func(in <-chan int, out chan<- int, prime int) {
		for i := range in {
			if i%prime != 0 {
				out <- i
			}
		}
		close(out)
	}
	found := 0
	source := make(chan int)
	go generate(source)
	for {
		prime, more := <-source
		if !more {
			return found
		}
		found++
		next := make(chan int)
		go filter(source, next, prime)
		source = next
	}
}

func careful(n int) (text string) {
	defer func() {
		if problem := recover(); problem != nil {
			text = fmt.Sprint("recovered: ", problem)
		}
	}()
	var none *item
	if n%2 == 0 {
		return none.Name
	}
	return fmt.Sprint(10 / (n - n))
}

func main() {
	counts := map[string]int{}
	var lock sync.Mutex
	var group sync.WaitGroup
	for worker := 0; worker < 16; worker++ {
		group.Add(1)
		go func(worker int) {
			defer group.Done()
			for i := 0; i < 2000; i++ {
				lock.Lock()
				counts[strings.Repeat("k", i%20)] += worker
				lock.Unlock()
			}
		}(worker)
	}
	group.Wait()
	items := []item{}
	for name, count := range counts {
		items = append(items, item{name, count})
	}
	sort.Slice(items, func(a, b int) bool { return items[a].Name < items[b].Name })
	text, _ := json.Marshal(items)
	fmt.Printf("%x\n", sha256.Sum256(text))
	fmt.Println(primes(600), careful(1), careful(2))
	big := make([][]byte, 0)
	for i := 0; i < 2000; i++ {
		big = append(big, make([]byte, 10000))
		if len(big) > 50 {
			big = big[25:]
		}
	}
	fmt.Println(len(big))
	out, err := exec.Command("echo", "a child").Output()
	fmt.Print(string(out), err, "\n")
	os.Exit(0)
}
