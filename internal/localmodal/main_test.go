package localmodal_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

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
	goleak.VerifyTestMain(m)
}
