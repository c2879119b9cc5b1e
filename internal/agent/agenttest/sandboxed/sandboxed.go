// Package sandboxed runs the tests of an agent's package again in a sandbox of the local Modal, at
// isolation level namespaces with its own network, like the sandboxes of sessions.
//
// The test's binary starts the server and a model server, and copies itself, its testdata and the
// agent's program into volumes of the sandbox, where it runs again. No proxy variable is set: the
// conformance suite reaches the model server through host.overwinter.internal on a listed port, and
// all other servers of tests listen on the sandbox's loopback interface.
//
//	machine                                sandbox
//	test binary ── copies itself ────────▶ test binary ── starts ──▶ agent
//	model server ◀── host.overwinter.internal:port ──────────────────┘
//
// Test runs a few scenarios, so that it can be part of every run of the package's tests. With
// -sandboxed-all it runs every test of the package and installs the agent with npm through the
// sandbox's network. If the user is root, it then repeats this as an ordinary user of the machine.
package sandboxed

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/npm"
	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/localmodaltest"
	"github.com/overwinter-dev/overwinter/internal/memorytest"
)

var (
	all = flag.Bool("sandboxed-all", false, "run every test of the package in a sandbox, as this user and as an ordinary one")
	// A whole package takes minutes, and finding a failure takes many runs.
	only = flag.String("sandboxed-run", "", "with -sandboxed-all, run only tests that match this pattern of go test -run")
)

// Paths in the sandbox.
const (
	home     = "/root"
	packages = home + "/.cache/overwinter" // npmtest's cache
	inside   = "/sandboxed"                // the binary and its testdata
)

// modelsURL names the environment variable with the URL of the model server, which is set only in
// the sandbox.
const modelsURL = "OVERWINTER_TEST_MODELS_URL"

// ordinary is the user and group id of a user without privileges.
const ordinary = 65534

// short matches the scenarios of the short run: the agent reaches its model, and runs and
// terminates a tool.
const short = "AnswersHello|WritesFileWithTool|InterruptedInTool"

// limit bounds one run in a sandbox.
const limit = 30 * time.Minute

// ModelsURL returns the base URL of a model server with the scripts. In a sandbox this is the
// server outside; otherwise it starts a server that ends with the test.
func ModelsURL(t *testing.T, scripts map[string][]modelserver.Step) string {
	t.Helper()
	if u := os.Getenv(modelsURL); u != "" {
		return u
	}
	server := modelserver.New(scripts)
	t.Cleanup(server.Close)
	return server.URL()
}

// packaged is an adapter whose agent is installed by npm.
type packaged interface{ Packages() []npm.Package }

// Options configures the tests that run in the sandbox.
type Options struct {
	Adapter agent.Adapter
	// Scripts are the scripts of the conformance suite's model server; nil if it has none.
	Scripts map[string][]modelserver.Step
	// Suites are the names of the tests that call agenttest.Run.
	Suites []string
}

// Test runs tests of this binary in a sandbox. Its TestMain must call localmodal.ReexecMain first.
func Test(t *testing.T, o Options) {
	t.Helper()
	if os.Getenv(modelsURL) != "" {
		t.Skip("this runs in the sandbox")
	}
	if *all && os.Geteuid() == 0 {
		t.Run("AsAnOrdinaryUser", asAnOrdinaryUser)
	}
	t.Run("AsThisUser", func(t *testing.T) { run(t, o) })
}

func run(t *testing.T, o Options) {
	models := modelserver.New(o.Scripts)
	t.Cleanup(models.Close)
	address, err := url.Parse(models.URL())
	require.NoError(t, err)
	ports, err := hostports.Parse(address.Port())
	require.NoError(t, err)
	dir := memorytest.Dir(t)
	t.Cleanup(func() { require.NoError(t, localmodaltest.Unlock(dir)) })
	server, err := localmodal.New(localmodal.Options{
		DataDir: dir, Isolation: box.Namespaces, Network: box.OwnedNetwork, HostPorts: ports,
	})
	if unsupported := (*box.UnsupportedError)(nil); errors.As(err, &unsupported) && !*all {
		t.Skipf("this machine has no sandboxes of the level namespaces: %v", err)
	}
	require.NoError(t, err)
	localmodaltest.Run(t, server)

	s := start(t, server, volumes{dir, o.directories(t)})
	if p, ok := o.Adapter.(packaged); ok && *all {
		for _, p := range p.Packages() {
			s.must(t, p.Install(p.Directory(packages))...)
		}
	}
	out := s.exec(t, map[string]string{
		"HOME": home, "LANG": "C.UTF-8", modelsURL: fmt.Sprintf("http://%s:%s", hostports.Name, address.Port()),
	}, append([]string{inside + "/test"}, o.arguments()...)...)
	require.Zero(t, out.code, "%s\n%s", failures(out.stdout), out.stderr)
	passed := passes.FindAllString(out.stdout, -1)
	for _, suite := range o.Suites {
		if *only != "" {
			break
		}
		require.Contains(t, out.stdout, "--- PASS: "+suite+"/", "the suite ran in the sandbox")
	}
	if o.Scripts != nil && *only == "" {
		require.NotEmpty(t, models.Requests(), "the agent used the model server outside")
	}
	t.Logf("%d tests passed in the sandbox", len(passed))
	for _, line := range skips.FindAllString(out.stdout, -1) {
		t.Log(strings.Join(strings.Fields(line), " "))
	}
}

var (
	passes = regexp.MustCompile(`(?m)^ *--- PASS: .*$`)
	skips  = regexp.MustCompile(`(?m)^ *--- SKIP: .*(\n +\S+\.go:\d+: .*)?$`)
)

// arguments returns the arguments of the binary in the sandbox.
func (o Options) arguments() []string {
	args := []string{"-test.v", "-test.timeout", limit.String()}
	switch {
	case !*all:
		args = append(args, "-test.run", "^("+strings.Join(o.Suites, "|")+")$/^("+short+")$")
	case *only != "":
		args = append(args, "-test.run", *only)
	}
	return args
}

// asAnOrdinaryUser runs the test as a user without privileges, in a copy of the binary that this user
// can reach.
func asAnOrdinaryUser(t *testing.T) {
	dir, err := os.MkdirTemp("", "ordinary-user-*") //nolint:usetesting // the other user must be able to traverse its parents
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	self, err := os.Executable()
	require.NoError(t, err)
	program := filepath.Join(dir, "ordinary.test")
	for _, argv := range [][]string{
		{"cp", self, program},
		{"chmod", "0755", program},
		{"sh", "-c", `! test -e testdata || cp -r testdata "$0"`, dir},
		{"chown", "-R", fmt.Sprintf("%d:%d", ordinary, ordinary), dir},
	} {
		out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
		require.NoError(t, err, "%v: %s", argv, out)
	}
	name, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.CommandContext(t.Context(), program, "-test.v", "-test.run", "^"+name+"$", "-sandboxed-all", "-sandboxed-run", *only)
	cmd.Dir = dir
	cmd.Env = []string{"TMPDIR=" + dir, "HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "tests passed in the sandbox")
	t.Logf("%s", out)
}

// sandbox is the sandbox that the tests run in.
type sandbox struct{ *modal.Sandbox }

func start(t *testing.T, server *localmodal.Server, v volumes) sandbox {
	t.Helper()
	client := localmodaltest.Client(t, server.URL(), server.Token())
	app, err := client.Apps.FromName(t.Context(), "conformance", &modal.AppFromNameParams{CreateIfMissing: true})
	require.NoError(t, err)
	image := client.Images.FromRegistry(npm.Image, nil)
	sb, err := client.Sandboxes.Create(t.Context(), app, image, &modal.SandboxCreateParams{Timeout: limit, Volumes: v.create(t, client)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sb.Detach()) })
	s := sandbox{sb}
	interfaces := s.must(t, "cat", "/proc/net/dev")
	require.Contains(t, interfaces, " eth0:", "the sandbox has its own network")
	require.Empty(t, s.must(t, "sh", "-c", "env | grep -i _proxy= || true"))
	return s
}

type result struct {
	code           int
	stdout, stderr string
}

func (s sandbox) exec(t *testing.T, env map[string]string, argv ...string) result {
	t.Helper()
	p, err := s.Exec(t.Context(), argv, &modal.SandboxExecParams{Env: env, Workdir: workdir(argv)})
	require.NoError(t, err)
	require.NoError(t, p.Stdin.Close())
	stderr := make(chan string, 1) // holds the one value
	go func() {
		text, err := io.ReadAll(p.Stderr)
		if err != nil {
			text = append(text, err.Error()...)
		}
		stderr <- string(text)
	}()
	stdout, err := io.ReadAll(p.Stdout)
	require.NoError(t, err)
	code, err := p.Wait(t.Context(), nil)
	require.NoError(t, err)
	return result{code, string(stdout), <-stderr}
}

// workdir returns the package's directory for commands that run its tests. For others it returns
// "", which selects the sandbox's default.
func workdir(argv []string) string {
	if strings.HasPrefix(argv[0], inside) {
		return inside
	}
	return ""
}

// must runs a command and returns its stdout. The command must succeed.
func (s sandbox) must(t *testing.T, argv ...string) string {
	t.Helper()
	r := s.exec(t, nil, argv...)
	require.Zero(t, r.code, "%v: %s", argv, r.stderr)
	return r.stdout
}

var (
	// header matches a line that names the test to which the following output belongs.
	header = regexp.MustCompile(`^=== (RUN|CONT|NAME|PAUSE) +(\S+)`)
	ended  = regexp.MustCompile(`^ *--- (PASS|SKIP|FAIL): (\S+) \(`)
)

// failures returns the output of go test -v without that of tests that passed or were skipped. A test
// logs its error before or after the line with its result, so lines are kept by test.
func failures(output string) string {
	passed := map[string]bool{}
	for line := range strings.Lines(output) {
		if m := ended.FindStringSubmatch(line); m != nil && m[1] != "FAIL" {
			passed[m[2]] = true
		}
	}
	var kept strings.Builder
	test, named := "", ""
	for line := range strings.Lines(output) {
		if m := header.FindStringSubmatch(line); m != nil {
			test = m[2]
			continue
		}
		if m := ended.FindStringSubmatch(line); m != nil {
			test, named = m[2], m[2]
		}
		if passed[test] {
			continue
		}
		if test != named {
			fmt.Fprintf(&kept, "=== NAME  %s\n", test)
			named = test
		}
		kept.WriteString(line)
	}
	return kept.String()
}
