// Package agent says what overwinter needs to know of a coding agent, and which
// agents there are. One package below it per agent: how the agent is started,
// how a prompt reaches it, what its output means. Nothing outside such a package
// and the registry that cmd builds names an agent.
//
// An adapter is pure: it makes bytes from words and words from bytes. The runner
// in the sandbox moves the bytes, activities move the words.
package agent
