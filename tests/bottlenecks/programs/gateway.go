// For each request it asks a service for the record and makes a page of it.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"sync/atomic"
)

//go:noinline
func askRecord(connection net.Conn, answers *bufio.Reader, number int) string {
	fmt.Fprintf(connection, "record %d\n", number)
	answer, err := answers.ReadString('\n')
	if err != nil {
		panic(err)
	}
	return answer
}

//go:noinline
func renderPage(record string) uint64 {
	hash := uint64(14695981039346656037)
	for round := 0; round < 400000; round++ {
		for i := 0; i < len(record); i++ {
			hash = (hash ^ uint64(record[i])) * 1099511628211
		}
	}
	return hash
}

func main() {
	operations := counter()
	connection, err := net.Dial("tcp", "127.0.0.1:"+os.Args[2])
	if err != nil {
		panic(err)
	}
	answers := bufio.NewReader(connection)
	var sum uint64
	for number := 0; ; number++ {
		sum += renderPage(askRecord(connection, answers, number))
		atomic.AddUint64(operations, 1)
	}
}
