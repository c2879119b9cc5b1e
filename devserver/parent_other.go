//go:build !linux

package main

// endWithParent does nothing, because the kernel does not report the parent's end; the end of stdin
// remains.
func endWithParent() error { return nil }
