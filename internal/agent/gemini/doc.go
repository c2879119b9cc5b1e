// Package gemini is the agent gemini-cli: Google's Gemini CLI, driven over the Agent Client Protocol
// for what streams, with its own chat files for what they alone know.
package gemini
