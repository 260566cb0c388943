// Says when this pod begins to lead, and when it stops: by asking `lictor observe`, or another leader-elector sidecar.
//
//	go run leader.go [URL [NAME]]
//
// URL is where the sidecar answers, by default http://localhost:4040. NAME is this pod's, by default the host's name.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

var client = http.Client{Timeout: 2 * time.Second}

// leads returns whether this pod leads. Whoever gets no answer does not lead.
func leads(url, name string) bool {
	response, err := client.Get(url)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	var answer struct {
		Name string `json:"name"`
	}
	err = json.NewDecoder(response.Body).Decode(&answer)
	return err == nil && response.StatusCode == http.StatusOK && answer.Name == name
}

// changed: put your program here. Begin, or stop at once.
func changed(leads bool) {
	if leads {
		fmt.Println("leading")
	} else {
		fmt.Println("not leading")
	}
}

func main() {
	url := "http://localhost:4040"
	name, _ := os.Hostname()
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if len(os.Args) > 2 {
		name = os.Args[2]
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	for before, first := false, true; ; first = false {
		now := leads(url, name)
		if now != before || first {
			changed(now)
		}
		before = now
		select {
		case <-stop:
			changed(false)
			return
		case <-time.After(time.Second):
		}
	}
}
