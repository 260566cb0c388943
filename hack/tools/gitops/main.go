// Does with rendered manifests what GitOps tools do with them: Argo CD's sync, by its own engine, and the health of each object
// as Argo CD and Flux read it.
//
//	gitops sync NAMESPACE <MANIFESTS      applies what is new or changed, deletes what is in the manifests no more; one line for each
//	                                      object: PHASE KIND NAME RESULT. With nothing on its standard input it removes the application
//	gitops health <OBJECTS                one line for each object: KIND NAME, Argo CD's health, and kstatus
//	gitops --version
//
// Both read the cluster from KUBECONFIG.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"time"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/cache"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/engine"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/health"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync/common"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube"
	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
)

// The annotation by which Argo CD finds what belongs to an application.
const tracking = "argocd.argoproj.io/tracking-id"

const engineModule = "github.com/argoproj/argo-cd/gitops-engine"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gitops:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	switch {
	case len(arguments) == 1 && arguments[0] == "--version":
		return version()
	case len(arguments) == 2 && arguments[0] == "sync":
		return synchronize(ctx, arguments[1])
	case len(arguments) == 1 && arguments[0] == "health":
		return tell()
	}
	return errors.New("gitops sync NAMESPACE | gitops health | gitops --version")
}

func version() error {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == engineModule {
			fmt.Println(module.Version)
		}
	}
	return nil
}

func manifests() ([]*unstructured.Unstructured, error) {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return nil, err
	}
	return kube.SplitYAML(text)
}

func synchronize(ctx context.Context, namespace string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	targets, err := manifests()
	if err != nil {
		return err
	}
	for _, target := range targets {
		annotations := target.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[tracking] = namespace
		target.SetAnnotations(annotations)
	}
	clusterCache := cache.NewClusterCache(config, cache.SetPopulateResourceInfoHandler(
		func(object *unstructured.Unstructured, _ bool) (any, bool) {
			application := object.GetAnnotations()[tracking]
			return application, application != ""
		}))
	argo := engine.NewEngine(config, clusterCache)
	end, err := argo.Run()
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	managed := func(resource *cache.Resource) bool { return resource.Info == namespace }
	// Argo CD's default: CreateNamespace is an option there, and the namespace of an application exists.
	results, err := argo.Sync(ctx, targets, managed, "a revision", namespace, sync.WithPrune(true))
	for _, result := range results {
		fmt.Printf("%s %s %s %s %s\n", result.SyncPhase, result.ResourceKey.Kind, result.ResourceKey.Name, result.Status, result.Message)
	}
	if err != nil {
		return err
	}
	for _, result := range results {
		if result.Status == common.ResultCodeSyncFailed || result.HookPhase == common.OperationFailed || result.HookPhase == common.OperationError {
			return fmt.Errorf("%s %s: %s", result.ResourceKey.Kind, result.ResourceKey.Name, result.Message)
		}
	}
	return nil
}

func tell() error {
	objects, err := manifests()
	if err != nil {
		return err
	}
	for _, object := range objects {
		argo := "-"
		read, err := health.GetResourceHealth(object, nil)
		if err != nil {
			return err
		}
		if read != nil {
			argo = string(read.Status)
		}
		flux, err := status.Compute(object)
		if err != nil {
			return err
		}
		fmt.Printf("%s %s %s %s %s\n", object.GetKind(), object.GetName(), argo, flux.Status, flux.Message)
	}
	return nil
}
