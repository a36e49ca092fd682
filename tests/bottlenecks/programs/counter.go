package main

import (
	"os"
	"syscall"
	"unsafe"
)

// counter is the number in the file that the first argument names.
func counter() *uint64 {
	file, err := os.OpenFile(os.Args[1], os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	memory, err := syscall.Mmap(int(file.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	file.Close()
	return (*uint64)(unsafe.Pointer(&memory[0]))
}
