package box

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/overwinter-dev/overwinter/internal/localmodal/boxinit"
)

func TestMain(m *testing.M) {
	boxinit.Main()
	if path := os.Getenv(mapperFile); path != "" {
		os.Exit(runMapper(path))
	}
	goleak.VerifyTestMain(m)
}
