// Package demoagent is the program of the demo agent, which runs in the sandbox as a subcommand of
// overwinter-runner. Its adapter, package demo, documents both.
package demoagent
