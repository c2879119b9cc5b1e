package localmodal

import "github.com/overwinter-dev/overwinter/internal/localmodal/boxinit"

// ReexecMain must be the first call in main of a program that runs a Server, and in TestMain of a
// test that does: sandboxes run the same program as their init. In a sandbox's init it does not
// return; in any other process it returns immediately.
func ReexecMain() { boxinit.Main() }
