// Package loopback finds and rewrites the addresses of this machine among the variables of an agent. On a developer's machine a model may be
// served there; a sandbox with its own network reaches it under another name, and only on ports that are open to sandboxes.
package loopback
