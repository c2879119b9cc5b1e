package main

import (
	"bufio"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

// maxInit bounds how much our packages may allocate before main. Every command starts the program
// again: a wake runs four to six commands and the bridge of the agent.
const maxInit = 128 << 10

var initialized = regexp.MustCompile(`^init (\S+) @.* (\d+) bytes, (\d+) allocs$`)

// TestProgramDoesLittleBeforeMain adds up the allocations that the Go runtime reports for the
// initialization of our packages.
func TestProgramDoesLittleBeforeMain(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), self, "--help")
	command.Env = append(os.Environ(), asRunner+"=1", "GODEBUG=inittrace=1")
	stderr := &strings.Builder{}
	command.Stderr = stderr
	require.NoError(t, command.Run(), stderr)
	total, packages := 0, 0
	for lines := bufio.NewScanner(strings.NewReader(stderr.String())); lines.Scan(); {
		found := initialized.FindStringSubmatch(lines.Text())
		if found == nil || !strings.HasPrefix(found[1], "github.com/overwinter-dev/overwinter/") {
			continue
		}
		bytes, err := strconv.Atoi(found[2])
		require.NoError(t, err)
		t.Log(lines.Text())
		total, packages = total+bytes, packages+1
	}
	require.Positive(t, packages, stderr)
	require.Less(t, total, maxInit, "bytes; internal/lazyregexp compiles regular expressions at their first use")
}

// TestCommandIsParsedWithItsGrammarOnly checks that a start builds the grammar of the command in its arguments, and that of
// all commands if there is none.
func TestCommandIsParsedWithItsGrammarOnly(t *testing.T) {
	t.Parallel()
	for _, c := range commands {
		require.Len(t, grammar([]string{c.name, "--help"}), 1, c.name)
		var out, errs strings.Builder
		p := &program{stdin: strings.NewReader(""), stdout: &out, stderr: &errs}
		require.Equal(t, runner.ExitUsage, p.run(t.Context(), []string{c.name, "--nothing"}))
		require.Contains(t, errs.String(), "unknown flag --nothing")
	}
	for _, args := range [][]string{nil, {"--help"}, {"nothing"}, {"--help", "serve"}} {
		require.Len(t, grammar(args), len(commands), args)
	}
}
