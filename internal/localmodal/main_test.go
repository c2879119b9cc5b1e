package localmodal_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/overwinter-dev/overwinter/internal/localmodal"
)

func TestMain(m *testing.M) {
	localmodal.ReexecMain()
	goleak.VerifyTestMain(m)
}
