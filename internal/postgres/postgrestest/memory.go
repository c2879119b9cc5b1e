package postgrestest

import "github.com/overwinter-dev/overwinter/internal/memorytest"

// Memory returns the parent of servers' directories, for StartServer. It is in memory if possible.
//
// Each test's database consists of a thousand files that are created and deleted. On a disk this
// takes a quarter of the processor time of the tests of package postgres.
func Memory() string { return memorytest.Parent() }
