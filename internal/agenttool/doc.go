// Package agenttool has the tools that overwinter offers agents: their names and inputs, what a call of one does, and what the
// agent is answered. The agent calls them over the Model Context Protocol, from a server that the runner starts in the sandbox;
// each call is a frame of the run's journal, and the worker that reads the frame carries it out. The package is pure.
package agenttool
