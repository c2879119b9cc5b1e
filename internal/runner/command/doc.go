// Package command contains the commands that a worker executes in a sandbox. Each is a separate
// process: requests are read from stdin, answers are written to stdout, and the exit code is that
// of an ExitError.
//
//	attach  one link after the other between stdin and stdout of an exec and the runner's socket
//	ping, abort, seal   one request to the runner; seal adds the manifest and the diff of the workspace
//	put, verify         files of the sandbox; verify may also ask the runner whether it is ready, and for its findings
//
// They are separate from package server because they start processes (git), which the runner must
// not do, and because commands of one release talk to a runner of another: both import only the
// protocol.
//
// When things fail:
//
//	failure                             result
//	no runner listens yet               retried for five seconds, then ExitNoRunner
//	the runner refuses                  ExitRefused; nothing was changed
//	a newer link displaces this one     ExitDisplaced
//	the runner dies during a link       attach fails: a message to the worker may be incomplete
//	the worker does not read            attach exits two seconds after the runner has closed the link
//	the worker detaches and disappears  attach exits after runner.MaxDetached
//	put is interrupted                  each file is either the old one or the new one
package command
