// Says when this pod begins to lead, and when it stops. Only while it leads, it answers requests.
//
//	go run leader.go [DIRECTORY [ADDRESS]]
//
// DIRECTORY is where the downwardAPI volume is mounted, by default /etc/podinfo. ADDRESS is where the leader listens, by
// default :8080.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// leadingTerm returns the term if this pod leads, else 0.
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

// leader is a server that runs while this pod leads. Put your program in its place.
type leader struct {
	address string
	server  *http.Server
}

// changed begins to serve with this term, or stops at once if it is 0.
func (l *leader) changed(term int64) {
	if l.server != nil {
		_ = l.server.Close() // also closes the connections that are open
		l.server = nil
	}
	if term == 0 {
		fmt.Println("not leading")
		return
	}
	listener, err := net.Listen("tcp", l.address)
	if err != nil {
		log.Fatal(err)
	}
	l.server = &http.Server{Handler: http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(answer, "term %d\n", term)
	})}
	go l.server.Serve(listener)
	fmt.Println("leading in term", term)
}

func main() {
	directory, address := "/etc/podinfo", ":8080"
	if len(os.Args) > 1 {
		directory = os.Args[1]
	}
	if len(os.Args) > 2 {
		address = os.Args[2]
	}
	own := leader{address: address}
	// Kubelet does not change the files of a pod that is being deleted: SIGTERM is how it learns that it leads no longer.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	for before := int64(-1); ; {
		term := leadingTerm(directory)
		if term != before {
			own.changed(term)
		}
		before = term
		select {
		case <-stop:
			own.changed(0)
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}
