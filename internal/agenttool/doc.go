// Package agenttool defines the tools that overwinter offers agents: their names, their inputs, and
// the effect and the answer of a call. The agent calls them over the Model Context Protocol, from a
// server that the runner starts in the sandbox. Each call is a frame of the run's journal, and the
// worker that reads the frame executes it. The package is pure.
package agenttool
