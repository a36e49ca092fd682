// Adds up the sales of four regions at once, each on a thread of its own. One region sells the most.
package main

import (
	"runtime"
	"sync"
	"sync/atomic"
)

var sales = [4]int{30000, 1000, 1500, 800}

//go:noinline
func addRegion(region, size int) uint64 {
	sum := uint64(region)
	for i := 0; i < size*200; i++ {
		sum = sum*6364136223846793005 + 1442695040888963407
		sum ^= sum >> 29
	}
	return sum
}

func main() {
	operations := counter()
	var starts [4]chan bool
	var ended sync.WaitGroup
	var total uint64
	for region := range sales {
		starts[region] = make(chan bool)
		go func(region int) {
			runtime.LockOSThread()
			for range starts[region] {
				atomic.AddUint64(&total, addRegion(region, sales[region]))
				ended.Done()
			}
		}(region)
	}
	for {
		ended.Add(len(sales))
		for _, start := range starts {
			start <- true
		}
		ended.Wait()
		atomic.AddUint64(operations, 1)
	}
}
