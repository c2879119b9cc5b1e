// Package demoagent is the program of the demo agent, which runs in the sandbox as a sub-command of
// overwinter-runner. Package demo, its adapter, describes what it does.
package demoagent
