// Package agent defines the interface between overwinter and a coding agent, and the registry of
// agents. Each agent has one package below this one, which defines how the agent is started, how a
// prompt is delivered, and how its output is translated. Only that package and the registry that
// cmd builds name the agent.
//
// An adapter is pure: it translates prompts and answers to bytes, and output to events. The runner
// in the sandbox transfers the bytes; activities handle the events.
package agent
