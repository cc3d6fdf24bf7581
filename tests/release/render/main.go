// Renders the chart as Helm does, by text/template and Sprig, which Helm is made of: render CHART NAME
// NAMESPACE [VALUE=…]. It knows the functions that our templates use and nothing else of Helm.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"sigs.k8s.io/yaml"
)

func main() {
	chart, release, namespace := os.Args[1], os.Args[2], os.Args[3]
	values := map[string]any{}
	text, _ := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err := yaml.Unmarshal(text, &values); err != nil {
		panic(err)
	}
	for _, set := range os.Args[4:] {
		name, value, _ := strings.Cut(set, "=")
		parts := strings.Split(name, ".")
		at := values
		for _, p := range parts[:len(parts)-1] {
			at = at[p].(map[string]any)
		}
		var v any
		yaml.Unmarshal([]byte(value), &v)
		at[parts[len(parts)-1]] = v
	}
	funcs := sprig.TxtFuncMap()
	funcs["toYaml"] = func(v any) string { t, _ := yaml.Marshal(v); return strings.TrimSuffix(string(t), "\n") }
	data := map[string]any{"Values": values, "Release": map[string]any{"Name": release, "Namespace": namespace}}
	files, _ := filepath.Glob(filepath.Join(chart, "templates", "*.yaml"))
	for _, f := range files {
		t := template.Must(template.New(filepath.Base(f)).Option("missingkey=error").Funcs(funcs).ParseFiles(f))
		fmt.Println("---")
		if err := t.Execute(os.Stdout, data); err != nil {
			panic(err)
		}
	}
}
