package sandboxed

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFailuresKeepLogOfTest(t *testing.T) {
	t.Parallel()
	const output = `=== RUN   TestFails
=== PAUSE TestFails
=== RUN   TestPasses
=== PAUSE TestPasses
=== CONT  TestFails
=== CONT  TestPasses
    a_test.go:1: noise
=== NAME  TestFails
    b_test.go:2: the agent does nothing
=== NAME  TestPasses
    a_test.go:3: more noise
--- PASS: TestPasses (0.00s)
--- FAIL: TestFails (1.00s)
    --- FAIL: TestFails/Inner (0.50s)
    --- PASS: TestFails/Outer (0.50s)
`
	require.Equal(t, `=== NAME  TestFails
    b_test.go:2: the agent does nothing
--- FAIL: TestFails (1.00s)
    --- FAIL: TestFails/Inner (0.50s)
`, failures(output))
	require.Equal(t, "panic: before any test\n", failures("panic: before any test\n"))
}
