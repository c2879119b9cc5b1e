package localmodal

import "crypto/rand"

// newID returns a new identifier. It has 26 characters after the prefix: the SDK takes a sandbox id
// with 22 for one of its old backend, to which it would then connect.
func newID(prefix string) string { return prefix + "-" + rand.Text() }
