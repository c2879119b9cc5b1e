package localmodal

import "github.com/overwinter-dev/overwinter/internal/localmodal/boxinit"

// ReexecMain must be the first call in main of a program that runs a Server, and
// in TestMain of a test that does: sandboxes run this very program as their
// init. In a process that is not a sandbox's init it returns at once; otherwise it
// never does.
func ReexecMain() { boxinit.Main() }
