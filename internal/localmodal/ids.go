package localmodal

import "crypto/rand"

// newID returns a fresh identifier. It has 26 characters after the prefix: the SDK takes a sandbox
// id with 22 of them for one of its old backend and would speak to that.
func newID(prefix string) string { return prefix + "-" + rand.Text() }
