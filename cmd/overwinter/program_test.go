package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
)

func TestVersionIsOneLine(t *testing.T) {
	t.Parallel()
	r := run(t.Context(), "version")
	require.Equal(t, exitDone, r.code)
	require.Regexp(t, `^overwinter \d+\.\d+\.\d+ go1\.\S+ \w+/\w+\n$`, r.stdout)
	require.Empty(t, r.stderr)
}

// TestBuildStatesItsCommit builds the program as the Makefile does, with another commit.
func TestBuildStatesItsCommit(t *testing.T) {
	t.Parallel()
	dry := exec.CommandContext(t.Context(), "make", "-n", "-o", "bin/overwinter-temporal", "programs", "COMMIT=0123456789ab")
	dry.Dir = filepath.Join("..", "..")
	steps, err := dry.Output()
	require.NoError(t, err)
	flags := regexp.MustCompile(`-ldflags '(-X \S+)' -o bin/overwinter `).FindSubmatch(steps)
	require.NotNil(t, flags, "make programs prints: %s", steps)
	program := filepath.Join(t.TempDir(), "overwinter")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags", string(flags[1]), "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	line, err := exec.CommandContext(t.Context(), program, "version").Output()
	require.NoError(t, err)
	require.Regexp(t, `^overwinter `+regexp.QuoteMeta(release)+`\+0123456789ab go1\.`, string(line))
}

// TestChangelogKnowsRelease checks that the release has a section, or is being prepared in
// Unreleased.
func TestChangelogKnowsRelease(t *testing.T) {
	t.Parallel()
	changelog, err := os.ReadFile(filepath.Join("..", "..", "CHANGELOG.md"))
	require.NoError(t, err)
	section := regexp.MustCompile(`(?m)^## (.+)$`).FindSubmatch(changelog)
	require.NotNil(t, section)
	if name := string(section[1]); name != "Unreleased" {
		require.Contains(t, name, release)
	}
}

func TestHelpExitsWithZero(t *testing.T) {
	t.Parallel()
	r := run(t.Context(), "dev", "--help")
	require.Equal(t, exitDone, r.code)
	require.Contains(t, r.stdout, "--api-address")
	require.Empty(t, r.stderr)
}

func TestUsageErrorExitsWithTwo(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"no command":      {},
		"unknown command": {"hibernate-everything"},
		"unknown flag":    {"version", "--loud"},
		"bad level":       {"--log-level=loud", "version"},
		"bad format":      {"--log-format=xml", "version"},
		"half of a pair":  {"dev", "--modal-token-id=x"},
		"bad isolation":   {"local-modal", "--isolation=walls"},
		"the same in dev": {"dev", "--isolation=walls"},
		"bad address":     {"dev", "--api-address=8080", "--runner-binary=/bin/true"},
	} {
		r := run(t.Context(), args...)
		require.Equal(t, exitUsage, r.code, name)
		require.Empty(t, r.stdout, name)
		require.Regexp(t, `^overwinter: [^\n]+\n$`, r.stderr, name)
	}
}

func TestFailureExitsWithOne(t *testing.T) {
	t.Parallel()
	r := run(t.Context(), "migrate", "status", "--database-url=postgres://nobody@127.0.0.1:1/nothing?connect_timeout=1")
	require.Equal(t, exitFailed, r.code)
	require.Empty(t, r.stdout)
	require.Regexp(t, `^overwinter: [^\n]+\n$`, r.stderr)
}

func TestMigrates(t *testing.T) {
	t.Parallel()
	url := "--database-url=" + postgrestest.EmptyURL(t)
	r := run(t.Context(), "migrate", "status", url)
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "pending")

	today := time.Now().UTC().Format(time.DateOnly)
	r = run(t.Context(), "migrate", "up", url)
	require.Equal(t, exitDone, r.code, r.stderr)
	tomorrow := time.Now().UTC().Format(time.DateOnly) // mostly today
	r = run(t.Context(), "migrate", "up", url)
	require.Equal(t, exitDone, r.code, "twice is fine: %s", r.stderr)

	r = run(t.Context(), "migrate", "status", url)
	require.Equal(t, exitDone, r.code, r.stderr)
	require.NotContains(t, r.stdout, "pending")
	require.Regexp(t, today+"|"+tomorrow, r.stdout)
}

func TestSecondSignalKills(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	signals := make(chan os.Signal, 2)
	killed := make(chan struct{})
	go killAtSecond(ctx, signals, func() { close(killed) })
	signals <- os.Interrupt
	select {
	case <-killed:
		require.Fail(t, "killed at the first")
	case <-time.After(20 * time.Millisecond):
	}
	signals <- os.Interrupt
	<-killed
	cancel()

	returned := make(chan struct{})
	go func() {
		defer close(returned)
		killAtSecond(ctx, make(chan os.Signal), func() { t.Error("killed without a second signal") })
	}()
	<-returned
}

func TestDurationsAreLoggedInMilliseconds(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{"json": `"took_ms":1.5,"n":1}`, "text": "took_ms=1.5 n=1"} {
		var out bytes.Buffer
		program{stderr: &out}.logger(&commands{LogFormat: format}).Info("done", slog.Duration("took", 1500*time.Microsecond), slog.Int("n", 1))
		require.Contains(t, out.String(), want)
	}
}
