// A server on a socket of its own: each line is a request, and the answer is how many there were.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"sync/atomic"
)

var requests atomic.Uint64

//go:noinline
func answer(connection net.Conn) error {
	_, err := fmt.Fprintln(connection, requests.Add(1))
	return err
}

func serve(connection net.Conn) {
	defer connection.Close()
	for lines := bufio.NewScanner(connection); lines.Scan(); {
		if answer(connection) != nil {
			return
		}
	}
}

func main() {
	// Who was killed has left it behind.
	os.Remove(os.Args[1])
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	for {
		connection, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		go serve(connection)
	}
}
