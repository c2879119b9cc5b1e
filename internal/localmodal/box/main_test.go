package box

import (
	"os"
	"testing"

	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/localmodal/boxinit"
)

func TestMain(m *testing.M) {
	boxinit.Main()
	if path := os.Getenv(mapperFile); path != "" {
		os.Exit(runMapper(path))
	}
	leaktest.Main(m)
}
