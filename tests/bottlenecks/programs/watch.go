// Watches a folder of settings for changes by looking at each file again and again.
package main

import (
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
)

//go:noinline
func changedAt(path string) int64 {
	var status syscall.Stat_t
	if err := syscall.Stat(path, &status); err != nil {
		panic(err)
	}
	return status.Mtim.Nano()
}

func main() {
	operations := counter()
	paths := []string{}
	for i := 0; i < 50; i++ {
		path := filepath.Join(os.Args[2], "setting"+strconv.Itoa(i))
		if err := os.WriteFile(path, []byte("value"), 0o600); err != nil {
			panic(err)
		}
		paths = append(paths, path)
	}
	newest := int64(0)
	for {
		for _, path := range paths {
			if at := changedAt(path); at > newest {
				newest = at
			}
		}
		atomic.AddUint64(operations, 1)
	}
}
