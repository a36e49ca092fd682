// Eight handlers reserve goods in one inventory, and ask the warehouse while they hold it.
package main

import (
	"sync"
	"sync/atomic"
	"time"
)

type inventory struct {
	lock  sync.Mutex
	goods map[int]int
}

//go:noinline
func askWarehouse(number int) int {
	time.Sleep(2 * time.Millisecond)
	return number & 7
}

//go:noinline
func (i *inventory) reserve(number int) {
	i.lock.Lock()
	i.goods[number%1000] += askWarehouse(number)
	i.lock.Unlock()
}

func main() {
	operations := counter()
	stock := &inventory{goods: map[int]int{}}
	for handler := 0; handler < 8; handler++ {
		go func(number int) {
			for ; ; number += 8 {
				stock.reserve(number)
				atomic.AddUint64(operations, 1)
			}
		}(handler)
	}
	select {}
}
