// Reads a Kubernetes List as JSON, and says of each object what kstatus and Argo CD take its health for: a line each, with name,
// kstatus, and the result of Argo CD's health check, whose script in Lua is the first argument. Argo CD runs such scripts with the
// same interpreter, without libraries that reach outside.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: health SCRIPT.lua <LIST.json")
	}
	script, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	var list struct {
		Items []map[string]any `json:"items"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&list); err != nil {
		return err
	}
	for _, item := range list.Items {
		object := &unstructured.Unstructured{Object: whole(item).(map[string]any)}
		computed, err := status.Compute(object)
		if err != nil {
			return err
		}
		health, message, err := check(string(script), object.Object)
		if err != nil {
			return fmt.Errorf("%s: %w", object.GetName(), err)
		}
		fmt.Printf("%s\t%s\t%s\t%s\n", object.GetName(), computed.Status, health, message)
	}
	return nil
}

// Numbers of JSON are doubles, and kstatus wants whole ones.
func whole(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			value[key] = whole(inner)
		}
	case []any:
		for at, inner := range value {
			value[at] = whole(inner)
		}
	case float64:
		if value == float64(int64(value)) {
			return int64(value)
		}
	}
	return value
}

func check(script string, object map[string]any) (string, string, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for _, library := range []struct {
		name string
		open lua.LGFunction
	}{{lua.LoadLibName, lua.OpenPackage}, {lua.BaseLibName, lua.OpenBase}, {lua.TabLibName, lua.OpenTable}} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(library.open), Protect: true}, lua.LString(library.name)); err != nil {
			return "", "", err
		}
	}
	state.SetGlobal("obj", value(state, object))
	if err := state.DoString(script); err != nil {
		return "", "", err
	}
	health, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return "", "", fmt.Errorf("the script returned %s, not a table", state.Get(-1).Type())
	}
	word, message := state.GetField(health, "status").String(), state.GetField(health, "message").String()
	switch word {
	case "Healthy", "Progressing", "Degraded", "Suspended":
		return word, message, nil
	}
	return "", "", fmt.Errorf("Argo CD knows no health %q", word)
}

func value(state *lua.LState, of any) lua.LValue {
	switch of := of.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, inner := range of {
			table.RawSetString(key, value(state, inner))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, inner := range of {
			table.Append(value(state, inner))
		}
		return table
	case string:
		return lua.LString(of)
	case int64:
		return lua.LNumber(of)
	case float64:
		return lua.LNumber(of)
	case bool:
		return lua.LBool(of)
	}
	return lua.LNil
}
