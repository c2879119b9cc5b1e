package structure_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// here is the directory of the module.
const here = "../.."

const module = "github.com/overwinter-dev/overwinter"

// Third-party packages, by their role.
const (
	echo     = "github.com/labstack/echo"
	modalSDK = "github.com/modal-labs"
	pgx      = "github.com/jackc/pgx"
	temporal = "go.temporal.io"
)

// importRule restricts the direct imports of a package and of those below it. Tests and SDKs may
// import any package. The table of ARCHITECTURE.md lists the imported packages of this module.
type importRule struct {
	pkg string
	// libraries are the only ones allowed; nil allows all.
	libraries []string
	// why is the reason for the restriction in libraries.
	why string
	// never are packages that are refused, including those below them, each with the reason.
	never map[string]string
}

// importRules is the table of ARCHITECTURE.md.
var importRules = []importRule{
	{
		pkg:       "internal/session",
		libraries: []string{"github.com/google/uuid"},
		why:       "the domain defines a session and is independent of engine, store and transport",
	},
	{
		pkg:       "internal/breaker",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/checkpoint",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/deadline",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/fork",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/presence",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/problem",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/receipt",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/usage",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/bundle",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/run",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/agentmessage",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/backlog",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/listing",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/transcript",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/attachment",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/workspacefile",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/manifest",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/portable",
		libraries: []string{},
		why:       "an archive is read where it comes from a stranger: nothing but the standard library reads it",
	},
	{
		pkg: "internal/portable/worktree",
		never: map[string]string{
			ours("api"):               "files are moved in sandboxes and on the machines of users, which have no api",
			ours("internal/postgres"): "it runs in sandboxes and on users' machines, which have no database",
		},
	},
	{
		pkg:       "internal/profile",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/permission",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/purge",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/question",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/image",
		libraries: []string{},
		why:       "a part of the domain, which knows no engine, store or transport",
	},
	{
		pkg:       "internal/contract",
		libraries: []string{},
		why:       "the contract is read by the workflow and by those who reach it, and depends on neither",
	},
	{
		pkg:       "internal/conversation",
		libraries: []string{"github.com/google/uuid"},
		why:       "the domain defines a conversation and is independent of agents, stores and transports",
	},
	{
		pkg: "workflows",
		never: map[string]string{
			pgx:                                   "a workflow reaches the database through activities: replay must not",
			ours("internal/postgres"):             "a workflow reaches the database through activities: replay must not",
			echo:                                  "workflows know nothing of HTTP",
			"net/http":                            "workflow code does no I/O: replay must not",
			"math/rand":                           "randomness comes from workflow.SideEffect: replay would get other numbers",
			"os":                                  "workflow code reads no files and no environment: replay would read others",
			modalSDK:                              "a workflow reaches sandboxes through activities",
			ours("internal/sandbox/driver"):       "a workflow reaches sandboxes through activities",
			ours("internal/sandbox/modalsandbox"): "a workflow reaches sandboxes through activities",
			ours("internal/sandbox/memsandbox"):   "a workflow reaches sandboxes through activities",
		},
	},
	{
		pkg: "activities",
		never: map[string]string{
			ours("api"):                           "what happens goes to clients through the event log",
			ours("workflows"):                     "workflows call activities; the other way round is a cycle of decisions",
			ours("internal/postgres"):             "activities declare the store that they need; cmd gives them one",
			ours("internal/sandbox/modalsandbox"): "activities work with every sandbox; cmd chooses the driver",
		},
	},
	{
		pkg: "internal/turn",
		never: map[string]string{
			temporal:                              "a turn is executed without the engine; activities map its errors",
			ours("internal/contract"):             "a turn is executed without the engine; activities map its errors",
			ours("activities"):                    "activities call turns",
			ours("internal/postgres"):             "turns declare the store that they need",
			ours("internal/sandbox/modalsandbox"): "turns work with every sandbox; cmd chooses the driver",
		},
	},
	{
		pkg: "internal/export",
		never: map[string]string{
			temporal: "a history is JSON in a file",
			pgx:      "its caller passes stored data",
			echo:     "a file knows nothing of HTTP",
		},
	},
	{
		pkg: "internal/why",
		never: map[string]string{
			temporal: "its caller passes the history",
			pgx:      "its caller passes stored data",
			echo:     "an explanation knows nothing of HTTP",
		},
	},
	{
		pkg: "worker",
		never: map[string]string{
			ours("api"):                           "a worker never talks to a client",
			ours("internal/postgres"):             "the worker runs the parts that it receives; cmd builds it",
			ours("internal/sandbox/driver"):       "the worker runs the parts that it receives; cmd builds it",
			ours("internal/sandbox/modalsandbox"): "the worker runs the parts that it receives; cmd builds it",
			ours("internal/sandbox/memsandbox"):   "the worker runs the parts that it receives; cmd builds it",
			modalSDK:                              "the worker runs the parts that it receives; cmd builds it",
		},
	},
	{
		pkg: "internal/sessionclient",
		never: map[string]string{
			ours("api"):               "the engine's client does not know who calls it",
			ours("activities"):        "a workflow is reached by its messages, which internal/contract names",
			ours("workflows"):         "a workflow is reached by its messages, which internal/contract names",
			ours("internal/postgres"): "rows are written by the caller, before it signals",
		},
	},
	{
		pkg: "api",
		never: map[string]string{
			temporal:                              "the api declares the signaler that it needs; cmd gives it one",
			pgx:                                   "the api declares the store that it needs; cmd gives it one",
			ours("internal/postgres"):             "the api declares the store that it needs; cmd gives it one",
			modalSDK:                              "the api never talks to a sandbox",
			ours("internal/sandbox/driver"):       "the api never talks to a sandbox",
			ours("internal/sandbox/modalsandbox"): "the api never talks to a sandbox",
			ours("internal/sandbox/memsandbox"):   "the api never talks to a sandbox",
			ours("workflows"):                     "commands go through the signaler",
		},
	},
	{
		pkg:       "client",
		libraries: []string{"github.com/google/uuid", "github.com/sethvargo/go-retry"},
		why:       "programs of others import the client with everything that it imports",
	},
	{
		pkg: "internal/runner/server",
		never: map[string]string{
			ours("internal/runner/command"):   "serve and a command may be of different releases: they share the protocol alone",
			ours("internal/runner/workspace"): "the server starts nothing but the agent, and diffs of the workspace start git",
		},
	},
	{
		pkg: "internal/runner/command",
		never: map[string]string{
			ours("internal/runner/server"):  "serve and a command may be of different releases: they share the protocol alone",
			ours("internal/runner/journal"): "the journal is the server's",
			ours("internal/runner/process"): "the agent is the server's",
			ours("internal/runner/follow"):  "the server follows files; a command looks once",
		},
	},
	{
		pkg: "internal/runner/process",
		never: map[string]string{
			ours("internal/runner/journal"): "the process hands out frames; the server keeps them",
			ours("internal/runner/follow"):  "the process knows no files",
			ours("internal/runner/server"):  "the server starts processes",
		},
	},
	{
		pkg: "internal/runner/follow",
		never: map[string]string{
			ours("internal/runner/journal"): "it sends data and stores none",
			ours("internal/runner/process"): "files are read whichever agent writes them",
			ours("internal/runner/server"):  "the server has a follower for each link",
		},
	},
	{
		pkg: "internal/postgres",
		never: map[string]string{
			ours("api"):               "the store does not know who asks",
			ours("workflows"):         "the store does not know who asks",
			ours("internal/contract"): "the truth of a row does not hang on the engine",
			temporal:                  "the truth of a row does not hang on the engine",
		},
	},
	// The following applies to the whole module.
	{
		pkg:   ".",
		never: map[string]string{ours("cmd"): "programs wire packages; no package builds on a program"},
	},
}

// echoHome is the only package that may import echo.
const echoHome = "api"

// Packages below internal/agent that are not agents: any package may import them.
var notAgents = []string{"agenttest", "bridged", "catalog", "jsonscan", "ledger", "npm", "stdio", "translate"}

// runnerAgents are the programs of agents inside a sandbox.
const runnerAgents = "internal/runner/agents"

func ours(pkg string) string { return module + "/" + pkg }

func TestImports(t *testing.T) {
	t.Parallel()
	files, err := readImports(os.DirFS(here))
	require.NoError(t, err)
	for _, rule := range importRules {
		t.Run(rule.pkg, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, rule.violations(files))
		})
	}
	t.Run("echo", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, echoOutsideItsHome(files))
	})
	t.Run("agents", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, agentsOutsideTheCatalog(files))
		require.Empty(t, programsOutsideTheRunner(files))
	})
}

// TestRunnerHasNoTranslators reads the runner's dependencies from the go tool. Adapters,
// translators and parsers use package agent, so without that package the runner contains none of
// them; of an agent's own packages it may import those that both halves read.
func TestRunnerHasNoTranslators(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ours("cmd/overwinter-runner")).Output()
	require.NoError(t, err)
	packages := strings.Fields(string(out))
	require.Contains(t, packages, ours("internal/runner/agents/codexbridge"))
	require.Contains(t, packages, ours("internal/agent/codex/codexformat"))
	require.Empty(t, workerPackages(packages))
	require.Equal(t, []string{ours("internal/agent"), ours("internal/agent/codex"), ours("internal/agent/npm")}, workerPackages([]string{
		"fmt", ours("internal/agent"), ours("internal/agent/codex"), ours("internal/agent/codex/codexformat"), ours("internal/agent/npm"),
		ours("internal/agent/stdio"), ours("internal/agenttool"), ours("internal/runner/agents"),
	}))
}

// workerPackages are the packages at and below internal/agent that belong only to workers.
func workerPackages(packages []string) []string {
	return slices.DeleteFunc(slices.Clone(packages), func(pkg string) bool {
		name, ok := strings.CutPrefix(pkg, ours("internal/agent"))
		return !ok || name != "" && name[0] != '/' || name == "/stdio" || name == "/jsonscan" || name == "/ledger" || strings.Count(name, "/") == 2 && strings.HasSuffix(name, "format")
	})
}

// TestForbiddenImportsAreFound checks each rule with a package that violates each of its bans once.
func TestForbiddenImportsAreFound(t *testing.T) {
	t.Parallel()
	for _, rule := range importRules {
		t.Run(rule.pkg, func(t *testing.T) {
			t.Parallel()
			file := path.Join(rule.pkg, "deep/below.go")
			require.Len(t, rule.violations(nil), 1, "a package that is not there")

			fine := []string{"fmt", "encoding/json", ours(path.Join(rule.pkg, "deep")), "github.com/google/uuid", "osfoo.example/x"}
			if rule.libraries != nil {
				fine = append(fine[:3:3], rule.libraries...)
				require.Len(t, rule.violations(imports{file: {"golang.org/x/sync"}}), 1)
				require.Len(t, rule.violations(imports{file: {"github.com/google/uuids"}}), 1)
			}
			require.Empty(t, rule.violations(imports{file: fine}))
			for banned, why := range rule.never {
				for _, imported := range []string{banned, banned + "/v9"} {
					require.Equal(t, []string{fmt.Sprintf("%s imports %s: %s", file, imported, why)},
						rule.violations(imports{file: {"fmt", imported}}))
				}
				require.Empty(t, rule.violations(imports{file: {banned + "ish"}}))
			}
		})
	}
	require.Len(t, agentsOutsideTheCatalog(imports{
		"activities/a.go":              {ours("internal/agent/codex"), ours("internal/agent/stdio"), ours("internal/agent")},
		"internal/agent/catalog/b.go":  {ours("internal/agent/codex")},
		"internal/agent/claude/c.go":   {ours("internal/agent/stdio"), ours("internal/agent/npm")},
		"internal/runner/agents/c.go":  {ours("internal/agent/codex/codexformat"), ours("internal/agent/codex")},
		"internal/agent/opencode/d.go": {ours("internal/agent/codex/deep")},
		"bench/e.go":                   {ours("internal/agent/codex")},
	}), 3, "an agent, twice, and another agent")
	require.Len(t, programsOutsideTheRunner(imports{
		"activities/a.go":                         {ours("internal/runner/bridge"), ours("internal/runner")},
		"internal/agent/codex/b.go":               {ours("internal/runner/agents/codexbridge")},
		"internal/runner/server/c.go":             {ours("internal/runner/agents")},
		"internal/runner/agents/codexbridge/d.go": {ours("internal/runner/bridge")},
		"cmd/overwinter-runner/e.go":              {ours("internal/runner/agents")},
	}), 3)
	require.Len(t, echoOutsideItsHome(imports{"worker/a.go": {echo + "/v4"}, "api/b.go": {echo + "/v4"}}), 1)
}

// imports has the import paths of the files that are not tests, by the file's slash-separated path.
type imports map[string][]string

// agentsOutsideTheCatalog lists packages other than the catalog and the agent's own that name an
// agent, and packages other than agents that use the parts of bridges.
func agentsOutsideTheCatalog(files imports) []string {
	var found []string
	agents := ours("internal/agent")
	for _, file := range slices.Sorted(maps.Keys(files)) {
		for _, imported := range files[file] {
			name, _, _ := strings.Cut(strings.TrimPrefix(imported, agents+"/"), "/")
			own := under(ours(file), path.Join(agents, name))
			switch {
			case !under(imported, agents) || imported == agents || own:
			case strings.HasSuffix(imported, "format") && under(file, runnerAgents): // read by both halves
			case name == "acp" && under(file, "internal/agent"): // an agent may use that protocol
			case under(file, "test"), under(file, "bench"), under(file, "tools"): // they run particular agents
			case !slices.Contains(notAgents, name) && !under(file, "internal/agent/catalog"):
				found = append(found, fmt.Sprintf("%s imports %s: nothing but the catalog names an agent", file, imported))
			}
		}
	}
	return found
}

// programsOutsideTheRunner lists packages other than the runner that import the programs of agents
// inside a sandbox, or their shared code.
func programsOutsideTheRunner(files imports) []string {
	var found []string
	for _, file := range slices.Sorted(maps.Keys(files)) {
		for _, imported := range files[file] {
			program := under(imported, ours(runnerAgents)) || under(imported, ours("internal/runner/bridge"))
			if program && !under(file, runnerAgents) && !under(file, "cmd/overwinter-runner") {
				found = append(found, fmt.Sprintf("%s imports %s: only the runner has the programs of agents", file, imported))
			}
		}
	}
	return found
}

// readImports reads the files of this module, without those of nested modules and those that the go
// tool ignores. It ignores build tags.
func readImports(root fs.FS) (imports, error) {
	files := imports{}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return skipDir(root, name)
		case filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly)
		if err != nil {
			return err
		}
		files[name] = []string{}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			files[name] = append(files[name], imported)
		}
		return nil
	})
	return files, err
}

// skipDir returns fs.SkipDir for a directory that is not part of the module.
func skipDir(root fs.FS, name string) error {
	if name == "." {
		return nil
	}
	base := path.Base(name)
	if base == "testdata" || base == "node_modules" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return fs.SkipDir
	}
	if _, err := fs.Stat(root, path.Join(name, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

// violations returns the violations of the rule in the files, a sentence each, in order.
func (r importRule) violations(files imports) []string {
	var found []string
	exists := false
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if !under(file, r.pkg) {
			continue
		}
		exists = true
		for _, imported := range files[file] {
			if r.libraries != nil && !r.allows(imported) {
				found = append(found, fmt.Sprintf("%s imports %s: %s", file, imported, r.why))
			}
			for _, banned := range slices.Sorted(maps.Keys(r.never)) {
				// A program may consist of several packages.
				if under(imported, banned) && !under(ours(file), banned) {
					found = append(found, fmt.Sprintf("%s imports %s: %s", file, imported, r.never[banned]))
				}
			}
		}
	}
	if !exists {
		found = append(found, fmt.Sprintf("package %s of the table does not exist", r.pkg))
	}
	return found
}

// allows reports whether libraries permits the import.
func (r importRule) allows(imported string) bool {
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return true // the standard library
	}
	return under(imported, module) || slices.ContainsFunc(r.libraries, func(allowed string) bool {
		return under(imported, allowed)
	})
}

// echoOutsideItsHome returns the files outside the api that import echo.
func echoOutsideItsHome(files imports) []string {
	var found []string
	for _, file := range slices.Sorted(maps.Keys(files)) {
		for _, imported := range files[file] {
			if under(imported, echo) && !under(file, echoHome) {
				found = append(found, fmt.Sprintf("%s imports %s: HTTP stays inside %s", file, imported, echoHome))
			}
		}
	}
	return found
}

// under reports whether name is the package or file pkg, or one below it.
func under(name, pkg string) bool {
	return pkg == "." || name == pkg || strings.HasPrefix(name, pkg+"/")
}
