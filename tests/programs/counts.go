// Go that counts itself; obeys the same lines as lockstep.h describes. Stacks grow: in every round a fresh
// goroutine goes deep, so that functions are begun again after they were found to have no room.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	tinyNumber = iota
	deepNumber
	switchingNumber
	panicsNumber
	recoversNumber
	deferredNumber
	closureNumber
	sendsNumber
	methodNumber
	counted
)

var names = [counted]string{
	"main.tiny", "main.deep", "main.switching", "main.panics", "main.recovers", "main.deferred",
	"main.callsClosure", "main.sends", "main.(*box).method",
}

// What one worker has counted. It is handed to every function, as goroutines have no variables of their own.
type tally [counted]uint64

//go:noinline
func tiny(t *tally, x uint64) uint64 {
	t[tinyNumber]++
	return x + 1
}

// A large frame: some hundred of them make a stack grow again and again.
//
//go:noinline
func deep(t *tally, depth int) int {
	t[deepNumber]++
	var space [64]int
	space[depth%64] = depth
	if depth > 0 {
		space[0] += deep(t, depth-1)
	}
	return space[0] + space[depth%64]
}

//go:noinline
func switching(t *tally, x uint64) string {
	t[switchingNumber]++
	switch x % 9 {
	case 0:
		return "zero"
	case 1:
		return "one"
	case 2:
		return "two"
	case 3:
		return "three"
	case 4:
		return "four"
	case 5:
		return "five"
	case 6:
		return "six"
	case 7:
		return "seven"
	}
	return "eight"
}

//go:noinline
func panics(t *tally, x uint64) uint64 {
	t[panicsNumber]++
	if x%3 == 0 {
		panic(x)
	}
	return x
}

//go:noinline
func deferred(t *tally, ended *int) {
	t[deferredNumber]++
	*ended++
}

//go:noinline
func recovers(t *tally, x uint64, ended *int) (result uint64) {
	t[recoversNumber]++
	defer func() {
		if value := recover(); value != nil {
			result = value.(uint64) + 1000
		}
	}()
	defer deferred(t, ended)
	return panics(t, x)
}

//go:noinline
func callsClosure(t *tally, f func(uint64) uint64, x uint64) uint64 {
	t[closureNumber]++
	return f(x)
}

//go:noinline
func sends(t *tally, channel chan<- uint64, x uint64) {
	t[sendsNumber]++
	channel <- x
}

type box struct{ value uint64 }

//go:noinline
func (b *box) method(t *tally, x uint64) uint64 {
	t[methodNumber]++
	return b.value + x
}

func check(holds bool, what string) {
	if !holds {
		fmt.Println("broken:", what)
		os.Exit(1)
	}
}

func oneRound(t *tally, number uint64) {
	n := number % 1000
	check(tiny(t, n) == n+1, "tiny")
	check(len(switching(t, n)) >= 3, "switching")
	ended := 0
	result := recovers(t, n, &ended)
	check(ended == 1 && (n%3 == 0 && result == n+1000 || n%3 != 0 && result == n), "recovers")
	check(callsClosure(t, func(x uint64) uint64 { return tiny(t, x) + n }, n) == 2*n+1, "callsClosure")
	check((&box{n}).method(t, 4) == n+4, "method")
	// The worker waits for the goroutine, so both may count in the same place.
	channel, left := make(chan uint64), make(chan bool)
	go func() {
		defer close(left)
		depth := 20 + int(n%200)
		got := deep(t, depth)
		if n%50 == 0 {
			runtime.GC()
		}
		sends(t, channel, uint64(got))
	}()
	check(<-channel > 0, "deep")
	<-left
}

type workers struct {
	threads int
	stop    atomic.Bool
	done    sync.WaitGroup
	lock    sync.Mutex
	counts  tally
	total   tally
}

func (w *workers) begin(rounds uint64) {
	w.counts = tally{}
	w.stop.Store(false)
	for i := 0; i < w.threads; i++ {
		w.done.Add(1)
		go func() {
			defer w.done.Done()
			var mine tally
			for i := uint64(0); rounds == 0 && !w.stop.Load() || i < rounds; i++ {
				oneRound(&mine, i)
			}
			w.lock.Lock()
			defer w.lock.Unlock()
			for i, count := range mine {
				w.counts[i] += count
			}
		}()
	}
}

func (w *workers) end() tally {
	w.done.Wait()
	for i, count := range w.counts {
		w.total[i] += count
	}
	counts := w.counts
	w.counts = tally{}
	return counts
}

func show(counts tally) {
	pairs := make([]string, counted)
	for i, count := range counts {
		pairs[i] = fmt.Sprintf("%q: %d", names[i], count)
	}
	fmt.Printf("{%s}\n", strings.Join(pairs, ", "))
}

func number(word string) int {
	value, err := strconv.Atoi(word)
	check(err == nil, "no number")
	return value
}

func main() {
	w := &workers{threads: 1}
	if len(os.Args) > 1 {
		w.threads = number(os.Args[1])
	}
	if len(os.Args) > 2 {
		w.begin(uint64(number(os.Args[2])))
		w.end()
	} else {
		fmt.Println("ready")
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			if words := strings.Fields(lines.Text()); words[0] == "batch" {
				w.begin(uint64(number(words[1])))
				show(w.end())
			} else if lines.Text() == "go" {
				w.begin(0)
				fmt.Println("going")
			} else {
				check(lines.Text() == "rest", "what is to be done?")
				w.stop.Store(true)
				show(w.end())
			}
		}
		w.stop.Store(true)
		w.end()
	}
	show(w.total)
	os.Exit(7)
}
