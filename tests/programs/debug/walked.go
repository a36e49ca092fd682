// Slices, maps, interfaces, closures, defers, panics and goroutines, for tests/gdb to walk through.
package main

import (
	"errors"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

type shape interface{ area() float64 }

type circle struct{ radius float64 }

type square struct{ side float64 }

func (c circle) area() float64 { return 3.14 * c.radius * c.radius }

func (s *square) area() float64 { return s.side * s.side }

var total int64

func largest(values []int) (found int) {
	for _, value := range values {
		if value > found {
			found = value
		}
	}
	return found
}

func parse(text string) (int, error) {
	if strings.HasPrefix(text, "x") {
		return 0, errors.New("no number: " + text)
	}
	return strconv.Atoi(text)
}

func guarded(number int) (result int) {
	defer func() {
		if problem := recover(); problem != nil {
			result = -1
		}
	}()
	return 100 / (number % 5)
}

func produce(numbers chan<- int, count int) {
	for i := 0; i < count; i++ {
		numbers <- i * i
	}
	close(numbers)
}

func consume(numbers <-chan int) int {
	sum := 0
	for number := range numbers {
		sum += number
	}
	return sum
}

func fibonacci(n int) int {
	if n < 2 {
		return n
	}
	return fibonacci(n-1) + fibonacci(n-2)
}

func doRound(round int) {
	shapes := []shape{circle{float64(round)}, &square{2.5}}
	area := 0.0
	for _, one := range shapes {
		area += one.area()
	}
	counts := map[string]int{}
	for _, word := range strings.Fields("one two one three") {
		counts[word]++
	}
	scaled := func(number int) int { return number*round + len(counts) }
	parsed, err := parse("x" + strconv.Itoa(round))
	if err != nil {
		parsed, _ = parse("12")
	}
	sum := scaled(3) + parsed + largest([]int{3, round % 11, 5}) + guarded(round)
	if round%8 == 0 {
		numbers := make(chan int, 2)
		go produce(numbers, 5)
		sum += consume(numbers)
	}
	total += int64(area) + int64(sum) + int64(fibonacci(round%6))
}

func main() {
	debug.SetGCPercent(-1)
	rounds := 10
	if len(os.Args) > 1 {
		rounds, _ = strconv.Atoi(os.Args[1])
	}
	for round := 0; round < rounds; round++ {
		doRound(round)
	}
	println(total)
}
