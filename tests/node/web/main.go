// Answers every request with the name of its pod. As most programs do, it ends on SIGTERM at once.
package main

import (
	"io"
	"log"
	"net/http"
	"os"
)

func main() {
	name, err := os.Hostname()
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(":8080", http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(answer, name)
	})))
}
