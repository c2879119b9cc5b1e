// Package acpbridge connects the runner to an agent that speaks the Agent Client Protocol. It runs in
// the sandbox. It starts the agent, resumes or creates its session, prints what the agent sends, and
// keeps the notebook, which is the session's transcript, because the protocol has none. Package acp
// is its adapter and has the whole description.
package acpbridge
