package main

// runInSandbox is where this program serves as something else than the bench.
func runInSandbox() {}
