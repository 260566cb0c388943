// Takes part in an election by client-go's leader election, as Go programs on Kubernetes do, with a Lease as the lock. It prints a line for
// each change. While it leads, it works: it holds a lock on a file, so that a test sees whether two ever lead at once, it labels its pod, and
// it notes each few milliseconds that it acts.
//
//	elector --kubeconfig FILE --namespace NAME --name LEASE --identity NAME [--pod NAME] [--file FILE] [--acts FILE]
//	elector --work [--acts FILE] [--listen ADDRESS]
//
// With --work it takes part in no election: it is the command that others run, or what listens in a pod. SIGUSR1 makes its work hang, and
// only that: the election goes on.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// How often it notes that it acts.
const period = 5 * time.Millisecond

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	kubeconfig := flag.String("kubeconfig", "", "the kubeconfig file")
	namespace := flag.String("namespace", "", "the namespace of the Lease")
	name := flag.String("name", "", "the name of the Lease")
	identity := flag.String("identity", "", "the name of this candidate")
	duration := flag.Duration("duration", 15*time.Second, "the duration of the Lease")
	deadline := flag.Duration("renew-deadline", 0, "how long the leader tries to renew it (default: two thirds of the duration)")
	retry := flag.Duration("retry-period", 0, "from one attempt to the next (default: an eighth of the duration)")
	file := flag.String("file", "", "the file to lock while it leads")
	pod := flag.String("pod", "", "its own pod, which is labelled role=leader while it leads, and role=follower else")
	acts := flag.String("acts", "", "the file that gets a line for each few milliseconds in which it acts: the time in nanoseconds")
	work := flag.Bool("work", false, "take part in no election, and act at once")
	listen := flag.String("listen", "", "with --work: answer HTTP requests here")
	version := flag.Bool("version", false, "print the version and exit")
	flag.Parse()
	if *version {
		fmt.Println("elector v0.36.3")
		return nil
	}
	ending, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	hangs := hanging()
	act, err := actor(*acts, hangs)
	if err != nil {
		return err
	}
	if *work {
		if *listen != "" {
			go serve(*listen, hangs)
		}
		act(ending)
		return nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	lock := func() bool { return true }
	if *file != "" {
		locked, err := os.OpenFile(*file, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return err
		}
		lock = func() bool { return syscall.Flock(int(locked.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil }
		defer syscall.Flock(int(locked.Fd()), syscall.LOCK_UN)
	}
	if *deadline == 0 {
		*deadline = *duration * 2 / 3
	}
	if *retry == 0 {
		*retry = *duration / 8
	}
	var working sync.WaitGroup
	leaderelection.RunOrDie(ending, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: *namespace, Name: *name},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: *identity},
		},
		LeaseDuration:   *duration,
		RenewDeadline:   *deadline,
		RetryPeriod:     *retry,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				working.Add(1)
				defer working.Done()
				if !lock() {
					fmt.Println("TWO LEAD")
					return
				}
				fmt.Println("leads")
				if *pod != "" && !mark(leading, client, *namespace, *pod) {
					return
				}
				act(leading)
			},
			OnStoppedLeading: func() { fmt.Println("leads no more") },
			OnNewLeader:      func(leader string) { fmt.Println("leader", leader) },
		},
	})
	working.Wait()
	return nil
}

// Labels the pod as the leader, after it has taken the label off all others. It tries again until it succeeds or leads no more.
func mark(leading context.Context, client kubernetes.Interface, namespace, pod string) bool {
	pods := client.CoreV1().Pods(namespace)
	label := func(name, role string) error {
		patch := fmt.Appendf(nil, `{"metadata": {"labels": {"role": %q}}}`, role)
		_, err := pods.Patch(leading, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	for leading.Err() == nil {
		leaders, err := pods.List(leading, metav1.ListOptions{LabelSelector: "role=leader"})
		if err == nil {
			for _, other := range leaders.Items {
				if other.Name != pod {
					err = errors.Join(err, label(other.Name, "follower"))
				}
			}
		}
		if err == nil {
			err = label(pod, "leader")
		}
		if err == nil {
			return true
		}
		time.Sleep(100 * time.Millisecond)
	}
	return false
}

// Returns a channel that is closed by SIGUSR1.
func hanging() <-chan struct{} {
	told, hangs := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(told, syscall.SIGUSR1)
	go func() {
		<-told
		close(hangs)
	}()
	return hangs
}

// Returns what to do as the leader: to note that it acts until the context ends. It hangs for ever when it is told to.
func actor(path string, hangs <-chan struct{}) (func(context.Context), error) {
	if path == "" {
		return func(leading context.Context) { <-leading.Done() }, nil
	}
	acts, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return func(leading context.Context) {
		for {
			// As one write, so that no line is ever half written.
			fmt.Fprintf(acts, "%d\n", time.Now().UnixNano())
			select {
			case <-leading.Done():
				return
			case <-hangs:
				<-leading.Done()
				return
			case <-time.After(period):
			}
		}
	}, nil
}

// Answers each request, until it hangs.
func serve(address string, hangs <-chan struct{}) {
	handler := http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		select {
		case <-hangs:
			<-request.Context().Done()
		default:
			fmt.Fprintln(answer, "well")
		}
	})
	fmt.Fprintln(os.Stderr, http.ListenAndServe(address, handler))
	os.Exit(1)
}
