package client_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/client"
)

// TestAnotherModuleCanUseEverything builds and runs a program of another module, without a network.
// The program is the one in docs/clients.md and uses every exported name of the package.
func TestAnotherModuleCanUseEverything(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	// The versions and sums are copied from this module, so that no lookups are needed.
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	text := regexp.MustCompile(`(?m)^module .*$`).ReplaceAllString(string(mod), "module example.com/program")
	require.NotContains(t, text, "replace ")
	write("go.mod", text+"\nrequire github.com/overwinter-dev/overwinter v0.0.0\nreplace github.com/overwinter-dev/overwinter => "+root+"\n")
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	write("go.sum", string(sums))

	document, err := os.ReadFile(filepath.Join(root, "docs", "clients.md"))
	require.NoError(t, err)
	_, program, found := strings.Cut(string(document), "```go\n")
	require.True(t, found)
	program, _, _ = strings.Cut(program, "```\n")
	write("main.go", program)
	types, values := exported(t)
	require.Contains(t, types, "Session")
	require.Contains(t, values, "CodeInvalid")
	all := "package main\n\nimport \"github.com/overwinter-dev/overwinter/client\"\n\nvar (\n"
	for _, name := range types {
		all += "\t_ *client." + name + "\n"
	}
	for _, name := range values {
		all += "\t_ = client." + name + "\n"
	}
	write("all.go", strings.Replace(all, "client.Page\n", "client.Page[client.Session]\n", 1)+")\n")

	address, stop := exampleServer()
	defer stop()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "program", ".")
	build.Dir, build.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false", "GOPROXY=off", "GOWORK=off")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	run := exec.CommandContext(t.Context(), filepath.Join(dir, "program"))
	run.Env = append(os.Environ(), "OVERWINTER_API_URL="+address, "OVERWINTER_API_KEY="+key)
	out, err = run.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, "You said: Hello\n", string(out))
}

// exported lists the names that the package exports: types, and constants and functions.
func exported(t *testing.T) (types, values []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range parsed.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.IsExported() {
					values = append(values, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						if s.Name.IsExported() {
							types = append(types, s.Name.Name)
						}
					case *ast.ValueSpec:
						for _, name := range s.Names {
							if name.IsExported() {
								values = append(values, name.Name)
							}
						}
					}
				}
			}
		}
	}
	return types, values
}

// TestExportedAPIHasNoInternalTypes checks all types that are reachable from a Client, because
// other modules cannot name types of internal packages.
func TestExportedAPIHasNoInternalTypes(t *testing.T) {
	t.Parallel()
	seen := map[reflect.Type]bool{}
	var look func(reflect.Type)
	look = func(at reflect.Type) {
		if seen[at] {
			return
		}
		seen[at] = true
		require.NotContains(t, at.PkgPath(), "/internal/", "%s", at)
		for method := range at.Methods() {
			look(method.Type)
		}
		switch at.Kind() {
		case reflect.Func:
			for in := range at.Ins() {
				look(in)
			}
			for out := range at.Outs() {
				look(out)
			}
		case reflect.Map:
			look(at.Key())
			look(at.Elem())
		case reflect.Pointer, reflect.Slice, reflect.Array:
			look(at.Elem())
		case reflect.Struct:
			for f := range at.Fields() {
				if f.IsExported() {
					look(f.Type)
				}
			}
		}
	}
	look(reflect.TypeFor[*client.Client]())
	look(reflect.TypeFor[*client.Error]())
	require.Contains(t, seen, reflect.TypeFor[client.Block]())
}
