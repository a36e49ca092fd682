// An HTTP server that has little to do.
package main

import (
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
)

func main() {
	operations := counter()
	http.HandleFunc("/", func(answer http.ResponseWriter, request *http.Request) {
		fmt.Fprintf(answer, "hello, %s\n", request.URL.Path)
		atomic.AddUint64(operations, 1)
	})
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[2], nil))
}
