// Package demoformat contains the formats shared by the adapter and the program of the demo agent:
// the lines of its stdin, stdout and transcript, and the names of its files, its tools and the
// command that runs it. Package demo uses it in a worker, package demoagent in a sandbox.
package demoformat
