// Asks a service for the price of each order, over one connection.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"sync/atomic"
)

//go:noinline
func askPrice(connection net.Conn, answers *bufio.Reader, order int) string {
	fmt.Fprintf(connection, "price of %d\n", order)
	answer, err := answers.ReadString('\n')
	if err != nil {
		panic(err)
	}
	return answer
}

func main() {
	operations := counter()
	connection, err := net.Dial("tcp", "127.0.0.1:"+os.Args[2])
	if err != nil {
		panic(err)
	}
	answers := bufio.NewReader(connection)
	for order := 0; ; order++ {
		askPrice(connection, answers, order)
		atomic.AddUint64(operations, 1)
	}
}
