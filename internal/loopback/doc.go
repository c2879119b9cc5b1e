// Package loopback finds and rewrites loopback addresses in the variables of an agent. On a
// developer's machine a model may be served on loopback; a sandbox with its own network reaches it
// under another host name, and only on ports that are open to sandboxes.
package loopback
