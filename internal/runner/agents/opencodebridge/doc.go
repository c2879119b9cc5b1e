// Package opencodebridge connects the runner to OpenCode's server. It runs in the sandbox. It
// starts the server, imports the session's transcripts, sends prompts and answers, prints every
// event of the server, and saves the sessions as transcripts. Its adapter, package opencode,
// documents both.
package opencodebridge
