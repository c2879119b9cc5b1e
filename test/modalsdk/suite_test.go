package modalsdk

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/localmodaltest"
)

const (
	sdk      = "github.com/modal-labs/modal-client/go"
	document = "../../docs/modal-sdk-tests.md"
	// waitLimit bounds one run of the suite's program. The longest takes less than a minute on an
	// idle machine.
	waitLimit = 8 * time.Minute
	// parallel is the number of concurrent tests of the suite: most of them wait for sandboxes and
	// timers.
	parallel = "6"
)

// impatient are tests of the suite that allow a call only a fraction of a second, which may be too
// short on a busy machine. They are repeated without the others.
var impatient = []string{"TestClientRespectsContextDeadline"}

var expectedFailures = flag.Bool("expected-failures", false, "also run the tests that are expected to fail")

func TestMain(m *testing.M) {
	localmodal.ReexecMain()
	os.Exit(m.Run())
}

func TestModalsOwnTestsPass(t *testing.T) {
	t.Parallel()
	program := build(t)
	server := localmodaltest.Start(t, localmodal.Options{})
	// Objects that the suite expects in its environment. The credentials are invented, because no
	// registry is contacted.
	for name, values := range map[string]map[string]string{
		"libmodal-test-secret":                {"a": "1", "b": "2", "c": "hello world"},
		"libmodal-aws-ecr-test":               {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"},
		"libmodal-gcp-artifact-registry-test": {"REGISTRY_USERNAME": "none", "REGISTRY_PASSWORD": "none", "SERVICE_ACCOUNT_JSON": "{}"},
	} {
		require.NoError(t, server.PutSecret("libmodal", name, values))
	}
	s := suite{program: program, server: server, home: t.TempDir()}

	all := s.list(t)
	failing := s.failing(t, all)
	t.Logf("%d tests, %d of them expected to fail", len(all), len(failing))

	output := s.run(t, "-test.skip="+exactly(failing), "-test.parallel="+parallel)
	results := resultsIn(output)
	var broken []string
	for _, name := range all {
		result := results[name]
		if result == "FAIL" && slices.Contains(impatient, name) {
			result = resultsIn(s.run(t, "-test.run="+exactly([]string{name})))[name]
		}
		if !slices.Contains(failing, name) && result != "PASS" {
			broken = append(broken, fmt.Sprintf("%s: %s", name, cmp.Or(result, "did not end")))
		}
	}
	require.Empty(t, broken, "%s", output)

	if !*expectedFailures {
		return
	}
	for _, name := range failing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A separate process: some end in a panic.
			output := s.run(t, "-test.run="+exactly([]string{name}))
			require.Contains(t, output, "--- FAIL: "+name, "it passes now: remove it from %s", document)
		})
	}
}

// build compiles the suite as Modal does: in its module, with the versions in its go.mod.
func build(t *testing.T) string {
	t.Helper()
	dir := strings.TrimSpace(command(t, "go", "list", "-m", "-f", "{{.Dir}}", sdk))
	program := filepath.Join(t.TempDir(), "suite")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-mod=readonly", "-c", "-o", program, "./test")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "PWD="+dir)
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return program
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), name, args...).Output()
	require.NoError(t, err, "%s %s", name, strings.Join(args, " "))
	return string(output)
}

type suite struct {
	program string
	server  *localmodal.Server
	home    string
}

func (s suite) list(t *testing.T) []string {
	t.Helper()
	all := strings.Fields(command(t, s.program, "-test.list=."))
	require.Greater(t, len(all), 200)
	return all
}

// run returns the output of the program, whether or not its tests passed.
func (s suite) run(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.program, append([]string{"-test.v", "-test.timeout=" + waitLimit.String()}, args...)...)
	cmd.Dir = s.home
	token := s.server.Token()
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.home, "TMPDIR=" + s.home, "MODAL_CONFIG_PATH=" + filepath.Join(s.home, "none.toml"),
		"MODAL_SERVER_URL=" + s.server.URL(), "MODAL_TOKEN_ID=" + token.ID, "MODAL_TOKEN_SECRET=" + token.Secret,
	}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	require.NoError(t, ctx.Err(), "the suite did not end: %v\n%s", err, output.String())
	return output.String()
}

// exactly returns the pattern that matches these names.
func exactly(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }

var resultPattern = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\w+) `)

// resultsIn reads the results of tests; those of subtests are indented.
func resultsIn(output string) map[string]string {
	results := map[string]string{}
	for _, match := range resultPattern.FindAllStringSubmatch(output, -1) {
		results[match[2]] = match[1]
	}
	return results
}

var (
	rowPattern   = regexp.MustCompile(`(?m)^\| (\x60Test.*?) \| (.*?) \| (.*?) \|$`)
	namePattern  = regexp.MustCompile(`\x60(Test\w+)\x60`)
	countPattern = regexp.MustCompile(`(\d+)\s+tests,\s+of\s+which\s+(\d+)\s+fail\s+on\s+every\s+machine`)
)

// failing reads the tests that fail on this machine from the document, and checks its other
// statements.
func (s suite) failing(t *testing.T, all []string) []string {
	t.Helper()
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	holds := s.conditions(t)
	var failing []string
	everywhere, seen := 0, map[string]bool{}
	for _, row := range rowPattern.FindAllStringSubmatch(string(text), -1) {
		applies, known := holds[row[2]]
		require.True(t, known, "unknown condition %q", row[2])
		require.NotEmpty(t, strings.TrimSpace(row[3]), "no reason: %s", row[1])
		for _, match := range namePattern.FindAllStringSubmatch(row[1], -1) {
			name := match[1]
			require.Contains(t, all, name, "the suite has no such test")
			require.False(t, seen[name], "%s is listed twice", name)
			seen[name] = true
			if row[2] == always {
				everywhere++
			}
			if applies {
				failing = append(failing, name)
			}
		}
	}
	count := countPattern.FindStringSubmatch(string(text))
	require.NotNil(t, count, "the document does not say how many tests there are")
	require.Equal(t, fmt.Sprint(len(all)), count[1])
	require.Equal(t, fmt.Sprint(everywhere), count[2])
	return failing
}

const always = "always"

// conditions returns the conditions in the document, and whether they apply to this machine.
func (s suite) conditions(t *testing.T) map[string]bool {
	t.Helper()
	python := slices.ContainsFunc(strings.Split(box.DefaultPath, ":"), func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "python"))
		return err == nil && strings.HasPrefix(dir, "/usr/")
	})
	shared := slices.ContainsFunc(s.server.Lacks(), func(l box.Lack) bool { return l.Ability == box.OwnNetwork })
	unblocked := slices.ContainsFunc(s.server.Lacks(), func(l box.Lack) bool { return l.Ability == box.BlockedNetwork })
	return map[string]bool{
		always:                       true,
		"where there is no `python`": !python,
		"where `sh` is dash":         shellStatus(t) == 2,
		"where sandboxes have no separate network": shared || unblocked,
	}
}

// shellStatus returns the exit code of this machine's shell, which sandboxes use, if it cannot
// write a file.
func shellStatus(t *testing.T) int {
	t.Helper()
	err := exec.CommandContext(t.Context(), "/bin/sh", "-c", "echo test >/nowhere/test").Run()
	exit, ok := err.(*exec.ExitError) //nolint:errorlint // of Run itself
	require.True(t, ok, "%v", err)
	return exit.ExitCode()
}
