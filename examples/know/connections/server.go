// Answers every request with the name of its pod. When the pod does not lead any more, it lets its connections go, so that clients
// connect again and reach the next leader. No request is cut off.
//
//	go run server.go [DIRECTORY [ADDRESS]]
//
// DIRECTORY is where the downwardAPI volume is mounted, by default /etc/podinfo. ADDRESS is where it listens, by default :8080.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// leadingTerm returns the term if this pod leads, else 0. It is the same as in ../go/leader.go.
func leadingTerm(directory string) int64 {
	for range 3 {
		// Kubelet never writes to a file that can be seen. It writes both files to a new directory, lets the link ..data point to
		// it, and deletes the old directory. So follow the link once, and read both files there: they belong together.
		version, _ := filepath.EvalSymlinks(filepath.Join(directory, "..data"))
		role, noRole := os.ReadFile(filepath.Join(version, "role"))
		text, noTerm := os.ReadFile(filepath.Join(version, "term"))
		if version == "" || noRole != nil || noTerm != nil {
			continue // Kubelet has just deleted that directory, and there is a newer one; or there are no such files.
		}
		if term, err := strconv.ParseInt(string(text), 10, 64); err == nil && string(role) == "leader" {
			return term
		}
		return 0
	}
	return 0
}

// changed is called with the term when this pod begins to lead, and with 0 when it stops.
func changed(server *http.Server, term int64) {
	// Without keep-alive, the server closes the connections that are idle. On the others it answers with `Connection: close`,
	// and closes them after that.
	server.SetKeepAlivesEnabled(term != 0)
	if term == 0 {
		fmt.Println("not leading")
	} else {
		fmt.Println("leading in term", term)
	}
}

func main() {
	directory, address := "/etc/podinfo", ":8080"
	if len(os.Args) > 1 {
		directory = os.Args[1]
	}
	if len(os.Args) > 2 {
		address = os.Args[2]
	}
	name, err := os.Hostname()
	if err != nil {
		log.Fatal(err)
	}
	// Put your program in the place of this handler. It is also called on pods that do not lead: a readiness probe calls it, and so do
	// clients that have not heard of a switch yet. What only the leader may do, protect by the term: docs/know-that-you-lead.md.
	server := &http.Server{Addr: address, Handler: http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(answer, name)
	})}
	go func() {
		if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			log.Fatal(err)
		}
	}()
	// Kubelet does not change the files of a pod that is being deleted: SIGTERM is how it learns that it leads no longer.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	for before := int64(-1); ; {
		term := leadingTerm(directory)
		if term != before {
			changed(server, term)
		}
		before = term
		select {
		case <-stop:
			changed(server, 0)
			ends, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			_ = server.Shutdown(ends) // waits for the requests that have begun
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}
