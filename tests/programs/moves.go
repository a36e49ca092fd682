// Moves bytes through a pipe by the system calls of Go's own runtime, and prints how many it has moved
// before: that line is moved as well.
package main

import (
	"fmt"
	"os"
)

func main() {
	reader, writer, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	data := make([]byte, 100)
	moved := 0
	for round := 0; round < 1000; round++ {
		written, _ := writer.Write(data[:1+round%100])
		read, _ := reader.Read(data)
		moved += written + read
	}
	fmt.Println(moved)
}
