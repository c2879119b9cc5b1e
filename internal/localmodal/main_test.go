package localmodal_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/localmodal"
)

func TestMain(m *testing.M) {
	localmodal.ReexecMain()
	if dir := os.Getenv(childServer); dir != "" {
		if err := runChildServer(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	leaktest.Main(tests{m})
}

// tests stops the shared server after the tests.
type tests struct{ *testing.M }

func (t tests) Run() int {
	code := t.M.Run()
	if err := shared.end(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
