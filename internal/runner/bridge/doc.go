// Package bridge is what bridges share. The runner exchanges lines: it writes one for each prompt
// and reads the agent's output. A bridge is the program between it and an agent that is driven over
// a protocol: it starts the agent as its child, speaks the protocol, and
// prints what the agent sends, raw and unchanged, one line each, so that a captured stream and a
// notebook read alike.
//
//	runner ── Command ──▶ bridge ── requests ──▶ agent
//	       ◀── raw lines ──      ◀── replies, notifications ──
//	       ◀── Note ────
//
// A bridge consists of [Commands], which reads stdin, [Output], which prints lines, [Child], the
// agent's process, and [Peer] if the agent speaks JSON-RPC over its stdio. It ends when its stdin
// does, after it has ended the agent gracefully. If the agent dies, the bridge prints a Note and
// ends with [ExitDied]; the runner restarts it with the next prompt.
//
// A bridge never prints a secret. Its Notes differ from the agent's lines in their only key.
//
// # When things fail
//
//	what fails                 what follows
//	the agent dies             Child.Done is closed; calls of its Peer fail with ErrGone
//	the bridge is killed       the kernel kills the agent as well
//	stdin has a broken line    it is reported on stderr and left out
//	stdout is closed           Output keeps the error; the bridge may ask for it and end
//	the agent sends no JSON    the line is printed, and means nothing to Peer
package bridge
