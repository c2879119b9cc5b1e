package turn

import (
	"testing"

	"github.com/overwinter-dev/overwinter/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
