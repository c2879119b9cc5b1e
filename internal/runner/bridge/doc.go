// Package bridge contains the code shared by bridges. The runner exchanges lines: it writes one for
// each prompt and reads the agent's output. A bridge is a program between the runner and an agent
// that is driven over a protocol: it starts the agent as its child, speaks the protocol, and prints
// the agent's messages unchanged, one per line, so that a captured stream and a notebook have the
// same format.
//
//	runner ── Command ──▶ bridge ── requests ──▶ agent
//	       ◀── raw lines ──      ◀── replies, notifications ──
//	       ◀── Note ────
//
// A bridge consists of [Commands], which reads stdin, [Output], which prints lines, [Child], the
// agent's process, and [Peer] if the agent speaks JSON-RPC over its stdio. It exits when stdin is
// closed, after it has stopped the agent gracefully. If the agent exits, the bridge prints a Note
// and exits with [ExitDied]; the runner restarts it with the next prompt.
//
// A bridge never prints a secret. Its Notes differ from the agent's lines in their only key.
//
// # When things fail
//
//	failure                    result
//	the agent exits            Child.Done is closed; calls of its Peer fail with ErrGone
//	the bridge is killed       the kernel kills the agent too
//	stdin has an invalid line  it is reported on stderr and skipped
//	stdout is closed           Output keeps the error, which the bridge may check
//	a line is not JSON         it is printed, and ignored by Peer
package bridge
