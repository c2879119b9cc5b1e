// Package acpbridge connects the runner to an agent that speaks the Agent Client Protocol. It runs
// in the sandbox. It starts the agent, resumes or creates its session, prints the agent's output,
// and keeps the notebook, which is the session's transcript, because the protocol has none. Its
// adapter, package acp, documents both.
package acpbridge
