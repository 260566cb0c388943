// Takes part in an election by api.Lock of Consul's own library, as Go programs without Kubernetes do. It prints a line for each change.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/hashicorp/consul/api"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	address := flag.String("address", "127.0.0.1:8500", "the address of Consul")
	key := flag.String("key", "", "the key of the lock")
	value := flag.String("value", "", "what the holder writes into the key")
	ttl := flag.String("ttl", "10s", "the TTL of the session")
	version := flag.Bool("version", false, "print the version and exit")
	flag.Parse()
	if *version {
		fmt.Println("locker v1.33.2")
		return nil
	}
	client, err := api.NewClient(&api.Config{Address: *address})
	if err != nil {
		return err
	}
	// As a session of the library's own, but with no lock delay, and not bound to the health of Consul's agent.
	session, _, err := client.Session().CreateNoChecks(
		&api.SessionEntry{Name: "locker", TTL: *ttl, LockDelay: 1}, nil)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	renewed := make(chan error, 1)
	go func() { renewed <- client.Session().RenewPeriodic(*ttl, session, nil, ended) }()
	// This destroys the session.
	defer func() { close(ended); <-renewed }()
	lock, err := client.LockOpts(&api.LockOptions{Key: *key, Value: []byte(*value), Session: session})
	if err != nil {
		return err
	}
	asked, stop := make(chan struct{}), make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() { <-stop; close(asked) }()
	for {
		lost, err := lock.Lock(asked)
		if err != nil {
			return err
		}
		if lost == nil {
			return nil
		}
		fmt.Println("leads")
		select {
		case <-asked:
			fmt.Println("leads no more")
			return lock.Unlock()
		case <-lost:
			fmt.Println("leads no more")
			_ = lock.Unlock()
		}
	}
}
