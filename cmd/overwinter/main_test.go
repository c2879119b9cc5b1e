package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/overwinter-dev/overwinter/internal/localmodal"
)

// TestMain lets this program be the init of local sandboxes, as main does.
func TestMain(m *testing.M) {
	localmodal.ReexecMain()
	if os.Getenv(protectedChild) != "" {
		os.Exit(reportProtection())
	}
	m.Run()
}

// result has the output and exit code of a run of the program.
type result struct {
	code           int
	stdout, stderr string
}

// run runs the program in this process.
func run(ctx context.Context, args ...string) result {
	var stdout, stderr bytes.Buffer
	code := program{args: args, stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr}.Run(ctx)
	return result{code: code, stdout: stdout.String(), stderr: stderr.String()}
}
