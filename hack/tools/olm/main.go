// Makes a bundle for the Operator Lifecycle Manager from the rendered chart, and checks it with the library that operator-sdk uses.
//
//	olm -chart DIRECTORY -icon FILE -out DIRECTORY < rendered.yaml
//
// The bundle installs what the chart does, except for what that manager does not install: it prints these kinds.
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/lib/version"
	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/api/pkg/validation"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// The kinds besides the operator's own objects that the manager installs from a bundle.
var installable = []string{"ClusterRole", "PodDisruptionBudget", "PriorityClass", "PrometheusRule", "Service", "ServiceMonitor"}

// The parts of Chart.yaml that matter here.
type chart struct {
	Version     string
	Description string
	Home        string
	KubeVersion string
	Keywords    []string
	Maintainers []struct{ Name, URL string }
	Annotations map[string]string
}

func main() {
	source := flag.String("chart", "", "the chart's directory")
	picture := flag.String("icon", "", "the file of the icon, an SVG")
	out := flag.String("out", "", "the bundle's directory, which is made")
	flag.Parse()
	if err := run(*source, *picture, *out); err != nil {
		fmt.Fprintln(os.Stderr, "olm:", err)
		os.Exit(1)
	}
}

func run(source, picture, out string) error {
	var about chart
	text, err := os.ReadFile(filepath.Join(source, "Chart.yaml"))
	if err == nil {
		err = yaml.Unmarshal(text, &about)
	}
	if err != nil {
		return err
	}
	icon, err := os.ReadFile(picture)
	if err != nil {
		return err
	}
	objects, err := read(os.Stdin)
	if err != nil {
		return err
	}
	csv, rest, left, err := assemble(about, icon, objects)
	if err != nil {
		return err
	}
	if err := write(out, csv, rest); err != nil {
		return err
	}
	if len(left) > 0 {
		fmt.Printf("not in the bundle, because the manager does not install them: %s\n", strings.Join(left, ", "))
	}
	return check(out)
}

func read(from io.Reader) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(from, 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// Returns the operator's own manifest, the other objects of the bundle, and the kinds that are left out.
func assemble(about chart, icon []byte, objects []*unstructured.Unstructured) (*v1alpha1.ClusterServiceVersion, []*unstructured.Unstructured, []string, error) {
	var (
		deployments []v1alpha1.StrategyDeploymentSpec
		owned       []v1alpha1.CRDDescription
		roles       = map[string]rbacv1.ClusterRole{}
		bound       []string
		account     string
		image       string
		rest        []*unstructured.Unstructured
		left        []string
	)
	convert := func(object *unstructured.Unstructured, into any) error {
		return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into)
	}
	for _, object := range objects {
		switch kind := object.GetKind(); kind {
		case "Deployment":
			var deployment appsv1.Deployment
			if err := convert(object, &deployment); err != nil {
				return nil, nil, nil, err
			}
			localize(&deployment)
			account, image = deployment.Spec.Template.Spec.ServiceAccountName, deployment.Spec.Template.Spec.Containers[0].Image
			deployments = append(deployments, v1alpha1.StrategyDeploymentSpec{
				Name: deployment.Name, Spec: deployment.Spec, Label: deployment.Labels,
			})
		case "CustomResourceDefinition":
			var crd apiextensionsv1.CustomResourceDefinition
			if err := convert(object, &crd); err != nil {
				return nil, nil, nil, err
			}
			owned = append(owned, v1alpha1.CRDDescription{
				Name: crd.Name, Kind: crd.Spec.Names.Kind, Version: crd.Spec.Versions[0].Name,
				DisplayName: crd.Spec.Names.Kind, Description: crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Description,
			})
			rest = append(rest, object)
		case "ClusterRoleBinding":
			var binding rbacv1.ClusterRoleBinding
			if err := convert(object, &binding); err != nil {
				return nil, nil, nil, err
			}
			if slices.ContainsFunc(binding.Subjects, func(subject rbacv1.Subject) bool { return subject.Kind != "ServiceAccount" }) {
				// It is for people.
				rest = append(rest, object)
			} else {
				bound = append(bound, binding.RoleRef.Name)
			}
		case "ServiceAccount":
			// The manager makes it.
		default:
			if kind == "ClusterRole" {
				var role rbacv1.ClusterRole
				if err := convert(object, &role); err != nil {
					return nil, nil, nil, err
				}
				roles[role.Name] = role
			}
			if slices.Contains(installable, kind) {
				object.SetNamespace("")
				rest = append(rest, object)
			} else if !slices.Contains(left, kind) {
				left = append(left, kind)
			}
		}
	}
	if len(deployments) != 1 {
		return nil, nil, nil, fmt.Errorf("there are %d Deployments, and not one", len(deployments))
	}
	rights := v1alpha1.StrategyDeploymentPermissions{ServiceAccountName: account}
	for _, name := range bound {
		rights.Rules = append(rights.Rules, roles[name].Rules...)
	}
	rest = slices.DeleteFunc(rest, func(object *unstructured.Unstructured) bool {
		return object.GetKind() == "ClusterRole" && slices.Contains(bound, object.GetName())
	})
	csv, err := describe(about, icon, image, owned, v1alpha1.StrategyDetailsDeployment{
		DeploymentSpecs: deployments, ClusterPermissions: []v1alpha1.StrategyDeploymentPermissions{rights},
	})
	return csv, rest, left, err
}

// Takes the namespace from where the manager puts the operator, because a bundle is made for any namespace.
func localize(deployment *appsv1.Deployment) {
	const name = "POD_NAMESPACE"
	deployment.Namespace = ""
	container := &deployment.Spec.Template.Spec.Containers[0]
	for i, argument := range container.Args {
		if strings.HasPrefix(argument, "--lease-namespace=") {
			container.Args[i] = "--lease-namespace=$(" + name + ")"
		}
	}
	field := &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}
	container.Env = append(container.Env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: field}})
}

func describe(about chart, icon []byte, image string, owned []v1alpha1.CRDDescription, strategy v1alpha1.StrategyDetailsDeployment) (*v1alpha1.ClusterServiceVersion, error) {
	var examples []any
	if err := yaml.Unmarshal([]byte(about.Annotations["artifacthub.io/crdsExamples"]), &examples); err != nil {
		return nil, err
	}
	shown, err := json.Marshal(examples)
	if err != nil {
		return nil, err
	}
	number, err := semver.Parse(about.Version)
	if err != nil {
		return nil, err
	}
	mode := func(kind v1alpha1.InstallModeType) v1alpha1.InstallMode {
		return v1alpha1.InstallMode{Type: kind, Supported: kind == v1alpha1.InstallModeTypeAllNamespaces}
	}
	csv := &v1alpha1.ClusterServiceVersion{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.ClusterServiceVersionAPIVersion, Kind: v1alpha1.ClusterServiceVersionKind},
		ObjectMeta: metav1.ObjectMeta{
			Name: "lictor.v" + about.Version,
			Annotations: map[string]string{
				"alm-examples":   string(shown),
				"capabilities":   about.Annotations["artifacthub.io/operatorCapabilities"],
				"categories":     "Networking",
				"containerImage": image,
				"description":    about.Description,
				"repository":     about.Home,
			},
			Labels: map[string]string{"operatorframework.io/arch.amd64": "supported", "operatorframework.io/arch.arm64": "supported"},
		},
		Spec: v1alpha1.ClusterServiceVersionSpec{
			DisplayName:    "lictor",
			Description:    about.Description + ".\n\nApply a `LeaderElection`, and one ready pod of the group gets the label `role: leader`.",
			Version:        version.OperatorVersion{Version: number},
			MinKubeVersion: strings.TrimSuffix(strings.TrimPrefix(about.KubeVersion, ">="), "-0"),
			Maturity:       "alpha",
			Keywords:       about.Keywords,
			Provider:       v1alpha1.AppLink{Name: "lictor", URL: about.Home},
			Links:          []v1alpha1.AppLink{{Name: "Documentation", URL: about.Home}},
			Icon:           []v1alpha1.Icon{{Data: base64.StdEncoding.EncodeToString(icon), MediaType: "image/svg+xml"}},
			InstallModes: []v1alpha1.InstallMode{
				mode(v1alpha1.InstallModeTypeOwnNamespace), mode(v1alpha1.InstallModeTypeSingleNamespace),
				mode(v1alpha1.InstallModeTypeMultiNamespace), mode(v1alpha1.InstallModeTypeAllNamespaces),
			},
			InstallStrategy:           v1alpha1.NamedInstallStrategy{StrategyName: v1alpha1.InstallStrategyNameDeployment, StrategySpec: strategy},
			CustomResourceDefinitions: v1alpha1.CustomResourceDefinitions{Owned: owned},
		},
	}
	return csv, nil
}

func write(out string, csv *v1alpha1.ClusterServiceVersion, rest []*unstructured.Unstructured) error {
	for _, directory := range []string{"manifests", "metadata"} {
		if err := os.MkdirAll(filepath.Join(out, directory), 0o755); err != nil {
			return err
		}
	}
	put := func(name string, object any) error {
		text, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		// What is not set yet, and what only the manager sets.
		text = bytes.ReplaceAll(text, []byte("  creationTimestamp: null\n"), nil)
		return os.WriteFile(filepath.Join(out, name), text, 0o644)
	}
	// The manager alone writes its status.
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(csv)
	if err != nil {
		return err
	}
	delete(fields, "status")
	if err := put("manifests/lictor.clusterserviceversion.yaml", fields); err != nil {
		return err
	}
	for _, object := range rest {
		name := strings.ToLower(object.GetName() + "." + object.GetKind() + ".yaml")
		if err := put("manifests/"+name, object.Object); err != nil {
			return err
		}
	}
	return put("metadata/annotations.yaml", map[string]any{"annotations": map[string]string{
		"operators.operatorframework.io.bundle.mediatype.v1":       "registry+v1",
		"operators.operatorframework.io.bundle.manifests.v1":       "manifests/",
		"operators.operatorframework.io.bundle.metadata.v1":        "metadata/",
		"operators.operatorframework.io.bundle.package.v1":         "lictor",
		"operators.operatorframework.io.bundle.channels.v1":        "candidate",
		"operators.operatorframework.io.bundle.channel.default.v1": "candidate",
	}})
}

// Fails if the library finds an error, and prints what it warns of.
func check(directory string) error {
	bundle, err := manifests.GetBundleFromDir(directory)
	if err != nil {
		return err
	}
	validators := append(slices.Clone(validation.DefaultBundleValidators), validation.OperatorHubV2Validator, validation.GoodPracticesValidator)
	wrong := 0
	for _, result := range validators.Validate(bundle.ObjectsToValidate()...) {
		for _, problem := range result.Errors {
			fmt.Fprintln(os.Stderr, problem.Error())
			wrong++
		}
		for _, warning := range result.Warnings {
			fmt.Println(warning.Error())
		}
	}
	if wrong > 0 {
		return fmt.Errorf("the bundle has %d errors", wrong)
	}
	return nil
}
