//go:build tools

// Package tools pins the control plane of the oldest Kubernetes that is supported, so that `go build` can make its programs by name.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
)
