// Package demoformat is what the two halves of the demo agent's support have in common: the lines of
// its stdin, stdout and transcript, the names of its files and tools, and of the command that runs
// it. Package demo reads them in a worker, package demoagent in a sandbox.
package demoformat
