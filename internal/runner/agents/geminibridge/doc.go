// Package geminibridge connects the runner to Gemini CLI. It runs in the sandbox. It starts the
// program over the Agent Client Protocol, follows the chat files that the program writes, and keeps
// the notebook from which a lost conversation is restored. Its adapter, package gemini, documents
// both.
package geminibridge
