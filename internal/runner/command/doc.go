// Package command is the commands that a worker executes in a sandbox. Each is a separate process: requests come by stdin,
// answers go to stdout, and the exit code is that of an ExitError.
//
//	attach  one link after the other between stdin and stdout of an exec and the runner's socket
//	ping, abort, seal   one request to the runner; seal adds the manifest and the diff of the workspace
//	put, verify         files of the sandbox; no runner is needed
//
// They are separate from package server because they start processes (git), which the runner must not, and because commands of
// one release talk to a runner of another: both import the protocol only.
//
// When things fail:
//
//	failure                             what follows
//	no runner listens yet               tried again for five seconds, then ExitNoRunner
//	the runner refuses                  ExitRefused; nothing was changed
//	a newer link has taken over         ExitDisplaced
//	the runner dies within a link       attach fails: a message to the worker may be incomplete
//	the worker does not read            attach ends two seconds after the runner has closed the link
//	the worker detaches and is gone     attach ends after runner.MaxDetached
//	put is interrupted                  each file is the old one or the new one
package command
